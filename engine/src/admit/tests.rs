//! One row a rule: what is known, what comes in, the verdict.

mod facts;

use model::{Keep, Kind, Outcome, Term, Timestamp};

use self::facts::*;
use super::*;
use crate::job::PendingDeletion;

#[test]
fn each_rule_for_a_fact_has_its_verdict() {
    let watch = Arrival { list_rv: Some(ResourceVersion(KNOWN)), term_begins: false };
    let list = Arrival::default();
    let first_turn = Arrival { term_begins: true, ..list };
    let (cluster, job, other) = (Scope::Cluster, Scope::Job(key()), Scope::Job(stranger()));
    let late = [gone("p0")];
    let back = [Fact::PodGone { uid: "p0".into(), rv: Some(ResourceVersion(11)) }];
    let overtaken = Admission::Superseded { mirror: stamp(4, 1) };
    let rows: Vec<(&str, State, &Scope, Fact, Arrival, Admission)> = vec![
        // Nodes.
        ("a node that is new", empty(), &cluster, node(1, true, &[]), list, ADMITTED),
        ("an unknown node from before the last list", empty(), &cluster, node(KNOWN, true, &[]), watch, STALE),
        ("a node that is not ready any more", known(&[]), &cluster, node(11, false, &[]), list, ADMITTED),
        ("a node with a fault", known(&[]), &cluster, node(11, true, &["Fault"]), list, ADMITTED),
        ("a heartbeat", known(&[]), &cluster, node(11, true, &[]), list, UNCHANGED),
        ("an old report of a node", known(&[]), &cluster, node(KNOWN, false, &[]), list, STALE),
        ("the end of a node", known(&[]), &cluster, Fact::NodeGone { name: "n".into() }, list, ADMITTED),
        ("the end of an unknown node", known(&[]), &cluster, Fact::NodeGone { name: "x".into() }, list, UNKNOWN),
        // Priority classes, namespaces and pods of others.
        ("a class from before the last list", empty(), &cluster, class(KNOWN, 1), watch, STALE),
        ("a class with another value", with_class(), &cluster, class(11, 2), list, ADMITTED),
        ("an old report of a class", with_class(), &cluster, class(KNOWN, 2), list, STALE),
        ("an echo of a class", with_class(), &cluster, class(11, 1), list, UNCHANGED),
        ("the end of an unknown class", empty(), &cluster, Fact::ClassGone { name: "c".into() }, list, UNKNOWN),
        ("a namespace from before the last list", empty(), &cluster, namespace(KNOWN, "a"), watch, STALE),
        ("a namespace with other labels", with_namespace(), &cluster, namespace(11, "b"), list, ADMITTED),
        ("an old report of a namespace", with_namespace(), &cluster, namespace(KNOWN, "b"), list, STALE),
        ("an echo of a namespace", with_namespace(), &cluster, namespace(11, "a"), list, UNCHANGED),
        (
            "the end of an unknown namespace",
            empty(),
            &cluster,
            Fact::NamespaceGone { name: "ns".into() },
            list,
            UNKNOWN,
        ),
        ("pods of others on a node", empty(), &cluster, foreign(2), list, ADMITTED),
        ("none of them where none were", empty(), &cluster, foreign(0), list, UNCHANGED),
        // Lists.
        ("a newer list", known(&[]), &cluster, relisted(Kind::Pod, 11), list, ADMITTED),
        ("a list at the version of the last one", known(&[]), &cluster, relisted(Kind::Pod, KNOWN), list, UNCHANGED),
        ("an older list", known(&[]), &cluster, relisted(Kind::Pod, 9), list, STALE),
        ("a term", known(&[]), &cluster, Fact::TermBegan { term: Term(4) }, list, ADMITTED),
        // Job objects.
        ("a job that is new", empty(), &job, object(11, Stamp::default()), watch, ADMITTED),
        ("an unknown job from before the last list", empty(), &job, object(KNOWN, Stamp::default()), watch, STALE),
        ("an unknown job that a list holds", empty(), &job, object(0, Stamp::default()), list, ADMITTED),
        ("a newer version of a job", known(&[]), &job, object(11, stamp(3, 2)), watch, ADMITTED),
        ("the same version of a job", known(&[]), &job, object(KNOWN, stamp(3, 2)), watch, UNCHANGED),
        ("the same version with an end request not seen", known(&[]), &job, requested(KNOWN), watch, ADMITTED),
        ("the same version with the end annotation", known(&[]), &job, with_end_annotation(KNOWN), watch, ADMITTED),
        ("an older version of a job", known(&[]), &job, requested(9), watch, STALE),
        ("a job whose pods came first", known_pods_only(), &job, object(11, Stamp::default()), watch, ADMITTED),
        ("the end of a job", known(&[]), &job, Fact::JobGone, watch, ADMITTED),
        ("the end of a job that is gone", known(&[Fact::JobGone]), &job, Fact::JobGone, watch, UNCHANGED),
        ("the end of an unknown job", known(&[]), &other, Fact::JobGone, watch, UNKNOWN),
        ("another spec", known(&[]), &job, spec(3), watch, ADMITTED),
        ("the same spec", known(&[]), &job, spec(2), watch, UNCHANGED),
        // Adoption and supersession.
        ("an unknown job's state, while leading", known(&[]), &other, adoption(stamp(4, 1)), watch, ADMITTED),
        ("a known job's state, while leading", known(&[]), &job, adoption(stamp(4, 1)), watch, overtaken),
        ("a known job's state, as a term begins", known(&[]), &job, adoption(stamp(4, 1)), first_turn, ADMITTED),
        // Pods.
        ("a pod that changed", known(&[]), &job, running("p0", 0, 11), watch, ADMITTED),
        ("a pod of which nothing judged changed", known(&[]), &job, pod("p0", 0, 11), watch, UNCHANGED),
        ("the version of a pod that is known", known(&[]), &job, running("p0", 0, KNOWN), watch, STALE),
        ("a pod that is new", known(&[]), &job, pod("p1", 1, 11), watch, ADMITTED),
        ("an unknown pod from before the last list", known(&[]), &job, pod("p1", 1, KNOWN), watch, STALE),
        ("an unknown pod that a list holds", known(&[]), &job, pod("p1", 1, 5), list, ADMITTED),
        ("a listed pod without a version", known(&[]), &job, pod("p1", 1, 0), list, ADMITTED),
        ("a pod of an unknown job", known(&[]), &other, pod("q", 0, 11), watch, ADMITTED),
        ("a late report of a pod that left its slot", known(&late), &job, running("p0", 0, 11), list, STALE),
        ("a pod that lost its label for a while", known(&back), &job, running("p0", 0, 12), list, ADMITTED),
        ("a pod that was gone before it was seen", known(&[gone("p1")]), &job, pod("p1", 1, 11), list, STALE),
        ("a pod that had the name before", known(&[]), &job, pod("q", 0, 9), list, STALE),
        ("a pod that has the name now", known(&[]), &job, pod("q", 0, 11), list, ADMITTED),
        ("the end of a pod", known(&[]), &job, gone("p0"), list, ADMITTED),
        ("the end of an unknown pod", known(&[]), &job, gone("x"), list, UNKNOWN),
        ("the end of an unknown pod, a create open", with_plan(), &job, gone("x"), list, ADMITTED),
        ("the end of an unknown pod a mirror waits for", with_wait(), &job, gone("x"), list, ADMITTED),
        ("the end of a pod of an unknown job", known(&[]), &other, gone("p0"), list, UNKNOWN),
        // Services.
        ("a service that changed", known(&[]), &job, service("s0", 11, true), watch, ADMITTED),
        ("a service of which nothing judged changed", known(&[]), &job, service("s0", 11, false), watch, UNCHANGED),
        ("the version of a service that is known", known(&[]), &job, service("s0", KNOWN, true), watch, STALE),
        ("a service that is new", known(&[]), &job, service("s1", 11, false), watch, ADMITTED),
        ("an unknown service from before the last list", known(&[]), &job, service("s1", KNOWN, false), watch, STALE),
        ("an unknown service that a list holds", known(&[]), &job, service("s1", 5, false), list, ADMITTED),
        ("the end of a service", known(&[]), &job, Fact::ServiceGone { uid: "s0".into() }, list, ADMITTED),
        ("the end of an unknown service", known(&[]), &job, Fact::ServiceGone { uid: "x".into() }, list, UNKNOWN),
        // Other objects of the job.
        (
            "an object that became ready",
            known(&[claim("c0", KNOWN, false)]),
            &job,
            claim("c0", 11, true),
            watch,
            ADMITTED,
        ),
        (
            "an object that did not change",
            known(&[claim("c0", KNOWN, true)]),
            &job,
            claim("c0", 11, true),
            watch,
            UNCHANGED,
        ),
        ("an old report of an object", known(&[claim("c0", KNOWN, false)]), &job, claim("c0", 9, true), watch, STALE),
        ("an object that is new", known(&[]), &job, claim("c0", 11, false), watch, ADMITTED),
        ("an unknown object from before the last list", known(&[]), &job, claim("c0", KNOWN, false), watch, STALE),
        ("an unknown object that a list holds", known(&[]), &job, claim("c0", 5, false), list, ADMITTED),
        ("an object of an unknown job", known(&[]), &other, claim("c0", 11, false), list, ADMITTED),
        ("an object of a job that is gone", known(&[Fact::JobGone]), &job, claim("c0", 11, false), list, ADMITTED),
        (
            "an object of an unknown job that is kept for good",
            known(&[]),
            &other,
            claim_kept(Keep::Retained, "c0", 11, false),
            list,
            UNKNOWN,
        ),
        ("the end of an object", known(&[claim("c0", KNOWN, true)]), &job, claim_gone("c0"), list, ADMITTED),
        ("the end of an unknown object", known(&[]), &job, claim_gone("c0"), list, UNKNOWN),
        // Answers, timers, nodes of a job.
        ("an acknowledged status write", known(&[]), &job, published(3, 9), list, ADMITTED),
        ("one whose version is new", known(&[]), &job, published(1, 11), list, ADMITTED),
        ("one that a watch has shown", known(&[]), &job, published(2, KNOWN), list, UNCHANGED),
        ("one after a failed try", known(&[answered(ObjectRef::Status)]), &job, published(2, KNOWN), list, ADMITTED),
        ("one for an unknown job", known(&[]), &other, published(3, 11), list, UNKNOWN),
        ("a refused call", known(&[]), &job, answered(ObjectRef::Pod(slot(1))), list, ADMITTED),
        ("a refused call for an unknown job", known(&[]), &other, answered(ObjectRef::Status), list, UNKNOWN),
        ("a deadline", known(&[]), &job, Fact::Due, list, ADMITTED),
        ("a deadline of an unknown job", known(&[]), &other, Fact::Due, list, UNKNOWN),
        ("a node of a job", known(&[]), &job, Fact::NodeChanged { name: "n".into() }, list, ADMITTED),
        ("a node of an unknown job", known(&[]), &other, Fact::NodeChanged { name: "n".into() }, list, UNKNOWN),
    ];
    for (what, state, scope, fact, arrival, verdict) in rows {
        assert_eq!(state.admit(scope, &fact, arrival), verdict, "{what}");
        let stale = verdict == STALE && arrival.list_rv.is_none();
        if stale && let Scope::Job(key) = scope {
            // Records of older builds hold such facts: they fold to nothing.
            let mut folded = state.clone();
            folded.take_in(scope, &fact);
            let text = |state: &State| state.job(key).map(|job| crate::wire::job_value(&job));
            assert_eq!(text(&folded), text(&state), "{what}");
        }
    }
}

#[test]
fn a_job_is_adopted_when_the_log_does_not_cover_its_mirror() {
    let rows: [(&str, State, JobKey, JobFact, Phase, bool); 8] = [
        ("a mirror of another log", known(&[]), key(), object_fact(11, stamp(4, 1)), Phase::Running, true),
        ("a mirror of this log", known(&[]), key(), object_fact(11, stamp(3, 5)), Phase::Running, false),
        ("an old version of the object", known(&[]), key(), object_fact(KNOWN, stamp(4, 1)), Phase::Running, false),
        ("an older mirror of another log", known(&[]), key(), object_fact(11, stamp(2, 1)), Phase::Running, false),
        ("a job that is new, mirrored", known(&[]), stranger(), object_fact(1, stamp(2, 1)), Phase::Running, true),
        ("a job that is new, with a phase", known(&[]), stranger(), object_fact(1, stamp(0, 0)), Phase::Running, true),
        ("a job that is new, without a phase", empty(), key(), object_fact(1, stamp(0, 0)), Phase::New, false),
        ("a known job without a mirror", known(&[]), key(), object_fact(11, stamp(0, 0)), Phase::Running, false),
    ];
    for (what, state, key, fact, phase, adopts) in rows {
        let read = || adopted(fact.mirror, phase);
        assert_eq!(state.adoption(&key, &fact, false, read).is_some(), adopts, "{what}");
    }
}

#[test]
fn a_mirror_that_users_may_write_counts_where_an_operator_may_have_written_it() {
    // (job, mirror, the term that begins, whether it counts)
    for (job, mirror, begins, counts) in [
        (key(), stamp(3, 5), None, true),
        (key(), stamp(4, 1), None, false),
        (key(), stamp(4, 1), Some(Term(5)), true),
        (key(), stamp(6, 1), Some(Term(5)), false),
        // It is no newer than that of the known job, in whatever log it was written.
        (key(), stamp(2, 9), None, true),
        (stranger(), stamp(2, 9), None, false),
    ] {
        assert_eq!(known(&[]).is_own_mirror(&job, mirror, begins), counts, "{job} {mirror} {begins:?}");
    }
}

#[test]
fn a_cluster_that_was_restored_shows_in_lists_and_reads() {
    let state = known(&[running("p0", 0, 20)]);
    let regressed = |known: u64| Admission::Regressed { known: ResourceVersion(known) };
    // (kind, version of the list, a term begins, the source shows the job, verdict)
    for (kind, rv, term_begins, shown, verdict) in [
        (Kind::Pod, 9, false, true, STALE),
        (Kind::Pod, KNOWN, false, true, UNCHANGED),
        (Kind::Pod, 11, false, true, ADMITTED),
        (Kind::Pod, 19, true, true, regressed(20)),
        (Kind::Pod, 20, true, true, ADMITTED),
        (Kind::Pod, 19, true, false, ADMITTED),
        (Kind::Pod, 9, true, false, regressed(KNOWN)),
        (Kind::Job, 9, true, true, regressed(KNOWN)),
        (Kind::Service, 9, true, true, regressed(KNOWN)),
        (Kind::Node, 9, true, true, regressed(KNOWN)),
        (Kind::Node, 9, false, true, ADMITTED),
    ] {
        let list = ListView { kind, of: None, rv: ResourceVersion(rv), shows: &|_| shown, object_type: CLAIM };
        assert_eq!(state.admit_list(&list, term_begins), verdict, "{kind:?} {rv} {term_begins} {shown}");
    }
    let after = |list_rv: u64| Arrival { list_rv: Some(ResourceVersion(list_rv)), term_begins: false };
    for (key, rv, arrival, deleted) in [
        (stranger(), 9, after(9), true),
        (stranger(), 10, after(9), false),
        (stranger(), 9, Arrival::default(), false),
        (key(), 9, after(9), false),
    ] {
        assert_eq!(state.is_deleted_job(&key, &object_fact(rv, Stamp::default()), arrival), deleted, "{key} {rv}");
    }
    let known = [key(), stranger()].map(|job| state.known_version(&job));
    assert_eq!(known, [ResourceVersion(KNOWN), ResourceVersion(0)]);
    assert_eq!(State::admit_read(known[0], ResourceVersion(9)), regressed(KNOWN));
    assert_eq!(State::admit_read(known[0], ResourceVersion(KNOWN)), ADMITTED);
    assert_eq!(State::admit_read(known[1], ResourceVersion(1)), ADMITTED);
}

#[test]
fn a_list_ends_what_it_does_not_hold() {
    let mut state = known(&[pod("p1", 1, 30), claim("c0", KNOWN, true)]);
    state.jobs.get_mut(&key()).unwrap().deleting_pods.extend(["p0".into(), "x".into()]);
    state.take_in(&Scope::Cluster, &class(KNOWN, 1));
    state.take_in(&Scope::Cluster, &namespace(KNOWN, "a"));
    let here = |uid: &str| Present {
        uids: [uid.into()].into(),
        nodes: ["m".into()].into(),
        classes: [].into(),
        namespaces: [].into(),
        quotas: [].into(),
    };
    let job = || Scope::Job(key());
    let end = |uid: &str, rv: Option<u64>| (job(), Fact::PodGone { uid: uid.into(), rv: rv.map(ResourceVersion) });
    // (kind, uid it holds, whether its source shows the job, what ends)
    for (kind, uid, shown, want) in [
        (Kind::Pod, "none", true, vec![end("p0", Some(20)), end("x", None)]),
        (Kind::Pod, "p0", true, vec![end("x", None)]),
        (Kind::Pod, "x", true, vec![end("p0", Some(20))]),
        (Kind::Pod, "none", false, vec![]),
        (Kind::Service, "none", true, vec![(job(), Fact::ServiceGone { uid: "s0".into() })]),
        (Kind::Service, "s0", true, vec![]),
        (Kind::Job, "none", true, vec![(job(), Fact::JobGone)]),
        (Kind::Job, "u", true, vec![]),
        (Kind::Job, "none", false, vec![]),
        (Kind::Node, "none", true, vec![(Scope::Cluster, Fact::NodeGone { name: "n".into() })]),
        (Kind::Class, "none", true, vec![(Scope::Cluster, Fact::ClassGone { name: "c".into() })]),
        (Kind::Namespace, "none", true, vec![(Scope::Cluster, Fact::NamespaceGone { name: "ns".into() })]),
        (Kind::Owned, "none", true, vec![(job(), claim_gone("c0"))]),
        (Kind::Owned, "c0", true, vec![]),
        (Kind::Owned, "none", false, vec![]),
    ] {
        let list = ListView { kind, of: None, rv: ResourceVersion(20), shows: &|_| shown, object_type: type_of(kind) };
        assert_eq!(state.absent(&list, &here(uid)), want, "{kind:?} {uid} {shown}");
    }
    // A finished job's pods and services stay, and end alike.
    let mut state = known(&[pod("p1", 1, 30)]);
    state.jobs.get_mut(&key()).unwrap().phase = Phase::Failed;
    state.jobs.finish(&key());
    let list = |kind| ListView { kind, of: None, rv: ResourceVersion(20), shows: &|_| true, object_type: CLAIM };
    assert_eq!(state.absent(&list(Kind::Pod), &here("none")), [end("p0", Some(20))]);
    assert_eq!(state.absent(&list(Kind::Service), &here("none")), [(job(), Fact::ServiceGone { uid: "s0".into() })]);
    let known = ResourceVersion(30);
    assert_eq!(state.admit_list(&list(Kind::Pod), true), Admission::Regressed { known });
    assert!(state.jobs.is_finished(&key()));
    let mut waits = adopted(stamp(4, 1), Phase::Running);
    waits.mirror.wait_uids = ["a".into(), "b".into()].into();
    assert_eq!(absent_waits(&waits, &here("a")), [gone("b")]);
}

#[test]
fn a_taken_name_is_the_jobs_or_waits_or_is_told() {
    let mut state = known(&[]);
    state.begin(stamp(3, 10), Timestamp(2000));
    let gone_job = JobKey { name: "gone".into(), uid: "v".into(), ..key() };
    for fact in [object(1, Stamp::default()), pod("q", 0, 5), Fact::JobGone] {
        state.take_in(&Scope::Job(gone_job.clone()), &fact);
    }
    let live = JobKey { name: "live".into(), uid: "w".into(), ..key() };
    state.take_in(&Scope::Job(live.clone()), &object(1, Stamp::default()));
    let job = state.jobs.get_mut(&key()).unwrap();
    job.deleting_pods.insert("going".into());
    job.pods.get_mut(&Uid::from("p0")).unwrap().deletion = Some(Box::new(PendingDeletion::unconditional()));
    let taken = |waiting, unseen| Some(Outcome::Taken { waiting, unseen });
    let of = |owner: &JobKey| Some(owner.clone());
    // (uid, owner, deleting, watched, whose, outcome)
    for (uid, owner, deleting, watched, whose, outcome) in [
        ("p0", of(&key()), false, true, Whose::Ours, None),
        ("p0", of(&key()), true, true, Whose::Ours, None),
        ("going", of(&key()), false, true, Whose::Ours, taken(true, false)),
        ("p0", of(&key()), false, false, Whose::Unseen, taken(false, true)),
        ("p0", of(&key()), true, false, Whose::Unseen, taken(true, true)),
        ("a", None, false, false, Whose::Other, taken(false, false)),
        ("a", None, true, false, Whose::Other, taken(true, false)),
        ("a", of(&live), false, true, Whose::Other, taken(false, false)),
        ("a", of(&gone_job), false, true, Whose::Other, taken(true, false)),
        ("a", of(&stranger()), false, true, Whose::Other, taken(true, false)),
    ] {
        let holder = NameHolder { uid: Some(uid.into()), owner, deleting, watched };
        assert_eq!(holder.whose(&key()), whose, "{holder:?}");
        assert_eq!(state.taken(&key(), &holder), outcome, "{holder:?}");
    }
    let unreadable = NameHolder { uid: None, owner: None, deleting: false, watched: false };
    assert_eq!(state.taken(&key(), &unreadable), taken(false, false));
}
