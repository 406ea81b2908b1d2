//! One row a rule: what is known, what comes in, the verdict.

mod facts;

use model::{Kind, ObjectFact, ObjectRef, Outcome, Phase, Retain, Stamp, Term, Timestamp, Uid};

use self::facts::{ADMITTED, STALE, UNCHANGED, UNKNOWN, *};
use super::*;
use crate::handle::Handled;
use crate::job::PendingDeletion;

/// A fact that comes in, of one scope.
enum Offer {
    Cluster(ClusterFact),
    Job(JobKey, JobFact),
}

fn on_cluster(fact: ClusterFact) -> Offer {
    Offer::Cluster(fact)
}

fn on(key: &JobKey, fact: JobFact) -> Offer {
    Offer::Job(key.clone(), fact)
}

/// Returns the verdict without the fact.
fn recorded<T>(handled: &Handled<T>) -> Handled<()> {
    match handled {
        Handled::Recorded(_) => ADMITTED,
        Handled::Dropped(reason) => Handled::Dropped(*reason),
        Handled::Superseded { mirror } => Handled::Superseded { mirror: *mirror },
    }
}

#[test]
fn each_rule_for_a_fact_has_its_verdict() {
    let watch = Arrival { list_rv: Some(ResourceVersion(KNOWN)), term_begins: false };
    let list = Arrival::default();
    let first_turn = Arrival { term_begins: true, ..list };
    let (job, other) = (key(), stranger());
    let late = [gone("p0")];
    let back = [JobFact::PodGone { uid: "p0".into(), rv: Some(ResourceVersion(11)) }];
    let overtaken = Handled::Superseded { mirror: stamp(4, 1) };
    let rows: Vec<(&str, State, Offer, Arrival, Handled<()>)> = vec![
        // Nodes.
        ("a node that is new", empty(), on_cluster(node(1, true, &[])), list, ADMITTED),
        ("an unknown node from before the last list", empty(), on_cluster(node(KNOWN, true, &[])), watch, STALE),
        ("a node that is not ready any more", known(&[]), on_cluster(node(11, false, &[])), list, ADMITTED),
        ("a node with a fault", known(&[]), on_cluster(node(11, true, &["Fault"])), list, ADMITTED),
        ("a heartbeat", known(&[]), on_cluster(node(11, true, &[])), list, UNCHANGED),
        ("an old report of a node", known(&[]), on_cluster(node(KNOWN, false, &[])), list, STALE),
        ("the end of a node", known(&[]), on_cluster(ClusterFact::NodeGone { name: "n".into() }), list, ADMITTED),
        (
            "the end of an unknown node",
            known(&[]),
            on_cluster(ClusterFact::NodeGone { name: "x".into() }),
            list,
            UNKNOWN,
        ),
        // Priority classes, namespaces and pods of others.
        ("a class from before the last list", empty(), on_cluster(class(KNOWN, 1)), watch, STALE),
        ("a class with another value", with_class(), on_cluster(class(11, 2)), list, ADMITTED),
        ("an old report of a class", with_class(), on_cluster(class(KNOWN, 2)), list, STALE),
        ("an echo of a class", with_class(), on_cluster(class(11, 1)), list, UNCHANGED),
        (
            "the end of an unknown class",
            empty(),
            on_cluster(ClusterFact::ClassGone { name: "c".into() }),
            list,
            UNKNOWN,
        ),
        ("a namespace from before the last list", empty(), on_cluster(namespace(KNOWN, "a")), watch, STALE),
        ("a namespace with other labels", with_namespace(), on_cluster(namespace(11, "b")), list, ADMITTED),
        ("an old report of a namespace", with_namespace(), on_cluster(namespace(KNOWN, "b")), list, STALE),
        ("an echo of a namespace", with_namespace(), on_cluster(namespace(11, "a")), list, UNCHANGED),
        (
            "the end of an unknown namespace",
            empty(),
            on_cluster(ClusterFact::NamespaceGone { name: "ns".into() }),
            list,
            UNKNOWN,
        ),
        ("pods of others on a node", empty(), on_cluster(foreign(2)), list, ADMITTED),
        ("none of them where none were", empty(), on_cluster(foreign(0)), list, UNCHANGED),
        // Lists.
        ("a newer list", known(&[]), on_cluster(relisted(Kind::Pod, 11)), list, ADMITTED),
        ("a list at the version of the last one", known(&[]), on_cluster(relisted(Kind::Pod, KNOWN)), list, UNCHANGED),
        ("an older list", known(&[]), on_cluster(relisted(Kind::Pod, 9)), list, STALE),
        ("a term", known(&[]), on_cluster(ClusterFact::TermBegan { term: Term(4) }), list, ADMITTED),
        // Job objects.
        ("a job that is new", empty(), on(&job, object(11, Stamp::default())), watch, ADMITTED),
        ("an unknown job from before the last list", empty(), on(&job, object(KNOWN, Stamp::default())), watch, STALE),
        ("an unknown job that a list holds", empty(), on(&job, object(0, Stamp::default())), list, ADMITTED),
        ("a newer version of a job", known(&[]), on(&job, object(11, stamp(3, 2))), watch, ADMITTED),
        ("the same version of a job", known(&[]), on(&job, object(KNOWN, stamp(3, 2))), watch, UNCHANGED),
        ("the same version with an end request not seen", known(&[]), on(&job, requested(KNOWN)), watch, ADMITTED),
        ("the same version with the end annotation", known(&[]), on(&job, with_end_annotation(KNOWN)), watch, ADMITTED),
        ("an older version of a job", known(&[]), on(&job, requested(9)), watch, STALE),
        ("a job whose pods came first", known_pods_only(), on(&job, object(11, Stamp::default())), watch, ADMITTED),
        ("the end of a job", known(&[]), on(&job, JobFact::Gone), watch, ADMITTED),
        ("the end of a job that is gone", known(&[JobFact::Gone]), on(&job, JobFact::Gone), watch, UNCHANGED),
        ("the end of an unknown job", known(&[]), on(&other, JobFact::Gone), watch, UNKNOWN),
        ("another spec", known(&[]), on(&job, spec(3)), watch, ADMITTED),
        ("the same spec", known(&[]), on(&job, spec(2)), watch, UNCHANGED),
        // Adoption and supersession.
        ("an unknown job's state, while leading", known(&[]), on(&other, adoption(stamp(4, 1))), watch, ADMITTED),
        ("a known job's state, while leading", known(&[]), on(&job, adoption(stamp(4, 1))), watch, overtaken),
        ("a known job's state, as a term begins", known(&[]), on(&job, adoption(stamp(4, 1))), first_turn, ADMITTED),
        // Pods.
        ("a pod that changed", known(&[]), on(&job, running("p0", 0, 11)), watch, ADMITTED),
        ("a pod of which nothing judged changed", known(&[]), on(&job, pod("p0", 0, 11)), watch, UNCHANGED),
        ("the version of a pod that is known", known(&[]), on(&job, running("p0", 0, KNOWN)), watch, STALE),
        ("a pod that is new", known(&[]), on(&job, pod("p1", 1, 11)), watch, ADMITTED),
        ("an unknown pod from before the last list", known(&[]), on(&job, pod("p1", 1, KNOWN)), watch, STALE),
        ("an unknown pod that a list holds", known(&[]), on(&job, pod("p1", 1, 5)), list, ADMITTED),
        ("a listed pod without a version", known(&[]), on(&job, pod("p1", 1, 0)), list, ADMITTED),
        ("a pod of an unknown job", known(&[]), on(&other, pod("q", 0, 11)), watch, ADMITTED),
        ("a late report of a pod that left its slot", known(&late), on(&job, running("p0", 0, 11)), list, STALE),
        ("a pod that lost its label for a while", known(&back), on(&job, running("p0", 0, 12)), list, ADMITTED),
        ("a pod that was gone before it was seen", known(&[gone("p1")]), on(&job, pod("p1", 1, 11)), list, STALE),
        ("a pod that had the name before", known(&[]), on(&job, pod("q", 0, 9)), list, STALE),
        ("a pod that has the name now", known(&[]), on(&job, pod("q", 0, 11)), list, ADMITTED),
        ("the end of a pod", known(&[]), on(&job, gone("p0")), list, ADMITTED),
        ("the end of an unknown pod", known(&[]), on(&job, gone("x")), list, UNKNOWN),
        ("the end of an unknown pod, a create open", with_plan(), on(&job, gone("x")), list, ADMITTED),
        ("the end of an unknown pod a mirror waits for", with_wait(), on(&job, gone("x")), list, ADMITTED),
        ("the end of a pod of an unknown job", known(&[]), on(&other, gone("p0")), list, UNKNOWN),
        // Services.
        ("a service that changed", known(&[]), on(&job, service("s0", 11, true)), watch, ADMITTED),
        ("a service of which nothing judged changed", known(&[]), on(&job, service("s0", 11, false)), watch, UNCHANGED),
        ("the version of a service that is known", known(&[]), on(&job, service("s0", KNOWN, true)), watch, STALE),
        ("a service that is new", known(&[]), on(&job, service("s1", 11, false)), watch, ADMITTED),
        (
            "an unknown service from before the last list",
            known(&[]),
            on(&job, service("s1", KNOWN, false)),
            watch,
            STALE,
        ),
        ("an unknown service that a list holds", known(&[]), on(&job, service("s1", 5, false)), list, ADMITTED),
        ("the end of a service", known(&[]), on(&job, JobFact::ServiceGone { uid: "s0".into() }), list, ADMITTED),
        (
            "the end of an unknown service",
            known(&[]),
            on(&job, JobFact::ServiceGone { uid: "x".into() }),
            list,
            UNKNOWN,
        ),
        // Other objects of the job.
        (
            "an object that became ready",
            known(&[claim("c0", KNOWN, false)]),
            on(&job, claim("c0", 11, true)),
            watch,
            ADMITTED,
        ),
        (
            "an object that did not change",
            known(&[claim("c0", KNOWN, true)]),
            on(&job, claim("c0", 11, true)),
            watch,
            UNCHANGED,
        ),
        (
            "an old report of an object",
            known(&[claim("c0", KNOWN, false)]),
            on(&job, claim("c0", 9, true)),
            watch,
            STALE,
        ),
        ("an object that is new", known(&[]), on(&job, claim("c0", 11, false)), watch, ADMITTED),
        ("an unknown object from before the last list", known(&[]), on(&job, claim("c0", KNOWN, false)), watch, STALE),
        ("an unknown object that a list holds", known(&[]), on(&job, claim("c0", 5, false)), list, ADMITTED),
        ("an object of an unknown job", known(&[]), on(&other, claim("c0", 11, false)), list, ADMITTED),
        ("an object of a job that is gone", known(&[JobFact::Gone]), on(&job, claim("c0", 11, false)), list, ADMITTED),
        (
            "an object of an unknown job that is kept for good",
            known(&[]),
            on(&other, claim_kept(Retain::Retained, "c0", 11, false)),
            list,
            UNKNOWN,
        ),
        ("the end of an object", known(&[claim("c0", KNOWN, true)]), on(&job, claim_gone("c0")), list, ADMITTED),
        ("the end of an unknown object", known(&[]), on(&job, claim_gone("c0")), list, UNKNOWN),
        // Answers, timers, nodes of a job.
        ("an acknowledged status write", known(&[]), on(&job, published(3, 9)), list, ADMITTED),
        ("one whose version is new", known(&[]), on(&job, published(1, 11)), list, ADMITTED),
        ("one that a watch has shown", known(&[]), on(&job, published(2, KNOWN)), list, UNCHANGED),
        (
            "one after a failed try",
            known(&[answered(ObjectRef::Status)]),
            on(&job, published(2, KNOWN)),
            list,
            ADMITTED,
        ),
        ("one for an unknown job", known(&[]), on(&other, published(3, 11)), list, UNKNOWN),
        ("a refused call", known(&[]), on(&job, answered(ObjectRef::Pod(slot(1)))), list, ADMITTED),
        ("a refused call for an unknown job", known(&[]), on(&other, answered(ObjectRef::Status)), list, UNKNOWN),
        ("a deadline", known(&[]), on(&job, JobFact::Due), list, ADMITTED),
        ("a deadline of an unknown job", known(&[]), on(&other, JobFact::Due), list, UNKNOWN),
        ("a node of a job", known(&[]), on(&job, JobFact::NodeChanged { name: "n".into() }), list, ADMITTED),
        ("a node of an unknown job", known(&[]), on(&other, JobFact::NodeChanged { name: "n".into() }), list, UNKNOWN),
    ];
    for (what, state, offer, arrival, verdict) in rows {
        let handled = match &offer {
            Offer::Cluster(fact) => recorded(&state.clone().handle_cluster_fact(fact.clone(), arrival)),
            Offer::Job(key, fact) => recorded(&state.clone().handle_job_fact(key, fact.clone(), arrival)),
        };
        assert_eq!(handled, verdict, "{what}");
        let stale = verdict == STALE && arrival.list_rv.is_none();
        if stale && let Offer::Job(key, fact) = &offer {
            // Records of older builds hold such facts: they change nothing.
            let mut replayed = state.clone();
            replayed.apply_job_fact(key, fact);
            let text = |state: &State| state.job(key).map(|job| crate::wire::job_value(&job));
            assert_eq!(text(&replayed), text(&state), "{what}");
        }
    }
}

#[test]
fn a_job_is_adopted_when_the_log_does_not_cover_its_mirror() {
    let rows: [(&str, State, JobKey, ObjectFact, Phase, bool); 8] = [
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
        let mirror = fact.mirror;
        let read = || adopted(mirror, phase);
        let reading = state.read_object(&key, fact, Arrival::default(), MirrorWriter::Operator, read);
        assert_eq!(matches!(reading, ObjectReading::Adopted(..)), adopts, "{what}");
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
        let writer = MirrorWriter::Anyone { begins };
        let arrival = Arrival { term_begins: begins.is_some(), ..Arrival::default() };
        let read = || adopted(mirror, Phase::New);
        let mirror_of = match known(&[]).read_object(&job, object_fact(11, mirror), arrival, writer, read) {
            ObjectReading::Known(fact) | ObjectReading::Adopted(_, fact) => fact.mirror,
            ObjectReading::Deleted => Stamp::default(),
        };
        assert_eq!(mirror_of == mirror, counts, "{job} {mirror} {begins:?}");
    }
}

#[test]
fn a_cluster_that_was_restored_shows_in_lists_and_reads() {
    let state = known(&[running("p0", 0, 20)]);
    let regressed = |known: u64| Admission::Regressed { known: ResourceVersion(known) };
    // (kind, version of the list, a term begins, the source shows the job, verdict)
    for (kind, rv, term_begins, shown, verdict) in [
        (Kind::Pod, 9, false, true, Admission::Dropped(DropReason::Stale)),
        (Kind::Pod, KNOWN, false, true, Admission::Dropped(DropReason::Unchanged)),
        (Kind::Pod, 11, false, true, Admission::Admitted),
        (Kind::Pod, 19, true, true, regressed(20)),
        (Kind::Pod, 20, true, true, Admission::Admitted),
        (Kind::Pod, 19, true, false, Admission::Admitted),
        (Kind::Pod, 9, true, false, regressed(KNOWN)),
        (Kind::Job, 9, true, true, regressed(KNOWN)),
        (Kind::Service, 9, true, true, regressed(KNOWN)),
        (Kind::Node, 9, true, true, regressed(KNOWN)),
        (Kind::Node, 9, false, true, Admission::Admitted),
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
        let read = || adopted(Stamp::default(), Phase::New);
        let fact = object_fact(rv, Stamp::default());
        let reading = state.read_object(&key, fact, arrival, MirrorWriter::Operator, read);
        assert_eq!(reading == ObjectReading::Deleted, deleted, "{key} {rv}");
    }
    let known = [key(), stranger()].map(|job| state.known_version(&job));
    assert_eq!(known, [ResourceVersion(KNOWN), ResourceVersion(0)]);
    assert_eq!(State::admit_read(known[0], ResourceVersion(9)), regressed(KNOWN));
    assert_eq!(State::admit_read(known[0], ResourceVersion(KNOWN)), Admission::Admitted);
    assert_eq!(State::admit_read(known[1], ResourceVersion(1)), Admission::Admitted);
}

#[test]
fn a_list_ends_what_it_does_not_hold() {
    let mut state = known(&[pod("p1", 1, 30), claim("c0", KNOWN, true)]);
    state.jobs.get_mut(&key()).unwrap().deleting_pods.extend(["p0".into(), "x".into()]);
    state.apply_cluster_fact(&class(KNOWN, 1));
    state.apply_cluster_fact(&namespace(KNOWN, "a"));
    let here = |uid: &str| Present {
        uids: [uid.into()].into(),
        nodes: ["m".into()].into(),
        classes: [].into(),
        namespaces: [].into(),
        quotas: [].into(),
    };
    let end = |uid: &str, rv: Option<u64>| JobFact::PodGone { uid: uid.into(), rv: rv.map(ResourceVersion) };
    let of_job = |facts: Vec<JobFact>| Absent {
        jobs: facts.into_iter().map(|fact| (key(), fact)).collect(),
        ..Absent::default()
    };
    let of_cluster = |fact: ClusterFact| Absent { cluster: vec![fact], ..Absent::default() };
    // (kind, uid it holds, whether its source shows the job, what ends)
    for (kind, uid, shown, want) in [
        (Kind::Pod, "none", true, of_job(vec![end("p0", Some(20)), end("x", None)])),
        (Kind::Pod, "p0", true, of_job(vec![end("x", None)])),
        (Kind::Pod, "x", true, of_job(vec![end("p0", Some(20))])),
        (Kind::Pod, "none", false, of_job(vec![])),
        (Kind::Service, "none", true, of_job(vec![JobFact::ServiceGone { uid: "s0".into() }])),
        (Kind::Service, "s0", true, of_job(vec![])),
        (Kind::Job, "none", true, of_job(vec![JobFact::Gone])),
        (Kind::Job, "u", true, of_job(vec![])),
        (Kind::Job, "none", false, of_job(vec![])),
        (Kind::Node, "none", true, of_cluster(ClusterFact::NodeGone { name: "n".into() })),
        (Kind::Class, "none", true, of_cluster(ClusterFact::ClassGone { name: "c".into() })),
        (Kind::Namespace, "none", true, of_cluster(ClusterFact::NamespaceGone { name: "ns".into() })),
        (Kind::Owned, "none", true, of_job(vec![claim_gone("c0")])),
        (Kind::Owned, "c0", true, of_job(vec![])),
        (Kind::Owned, "none", false, of_job(vec![])),
    ] {
        let list = ListView { kind, of: None, rv: ResourceVersion(20), shows: &|_| shown, object_type: type_of(kind) };
        assert_eq!(state.absent(&list, &here(uid)), want, "{kind:?} {uid} {shown}");
    }
    // A finished job's pods and services stay, and end alike.
    let mut state = known(&[pod("p1", 1, 30)]);
    state.jobs.get_mut(&key()).unwrap().phase = Phase::Failed;
    state.jobs.finish(&key());
    let list = |kind| ListView { kind, of: None, rv: ResourceVersion(20), shows: &|_| true, object_type: CLAIM };
    assert_eq!(state.absent(&list(Kind::Pod), &here("none")), of_job(vec![end("p0", Some(20))]));
    assert_eq!(
        state.absent(&list(Kind::Service), &here("none")),
        of_job(vec![JobFact::ServiceGone { uid: "s0".into() }])
    );
    let known = ResourceVersion(30);
    assert_eq!(state.admit_list(&list(Kind::Pod), true), Admission::Regressed { known });
    assert!(state.jobs.is_finished(&key()));
    let mut waits = adopted(stamp(4, 1), Phase::Running);
    waits.mirror.wait_uids = ["a".into(), "b".into()].into();
    assert_eq!(absent_waits(&waits, &here("a")), [gone("b")]);
}

#[test]
fn a_taken_name_is_the_jobs_or_waits_or_is_reported() {
    let mut state = known(&[]);
    state.begin(stamp(3, 10), Timestamp(2000));
    let gone_job = JobKey { name: "gone".into(), uid: "v".into(), ..key() };
    for fact in [object(1, Stamp::default()), pod("q", 0, 5), JobFact::Gone] {
        state.apply_job_fact(&gone_job, &fact);
    }
    let live = JobKey { name: "live".into(), uid: "w".into(), ..key() };
    state.apply_job_fact(&live, &object(1, Stamp::default()));
    let job = state.jobs.get_mut(&key()).unwrap();
    job.deleting_pods.insert("going".into());
    job.pods.get_mut(&Uid::from("p0")).unwrap().deletion = Some(Box::new(PendingDeletion::unconditional()));
    let taken = |waiting, unseen| Some(Outcome::Taken { waiting, unseen });
    let of = |owner: &JobKey| Some(owner.clone());
    // (uid, owner, deleting, watched, ownership, outcome)
    for (uid, owner, deleting, watched, ownership, outcome) in [
        ("p0", of(&key()), false, true, Ownership::Ours, None),
        ("p0", of(&key()), true, true, Ownership::Ours, None),
        ("going", of(&key()), false, true, Ownership::Ours, taken(true, false)),
        ("p0", of(&key()), false, false, Ownership::Unseen, taken(false, true)),
        ("p0", of(&key()), true, false, Ownership::Unseen, taken(true, true)),
        ("a", None, false, false, Ownership::Other, taken(false, false)),
        ("a", None, true, false, Ownership::Other, taken(true, false)),
        ("a", of(&live), false, true, Ownership::Other, taken(false, false)),
        ("a", of(&gone_job), false, true, Ownership::Other, taken(true, false)),
        ("a", of(&stranger()), false, true, Ownership::Other, taken(true, false)),
    ] {
        let holder = NameHolder { uid: Some(uid.into()), owner, deleting, watched };
        assert_eq!(holder.ownership(&key()), ownership, "{holder:?}");
        assert_eq!(state.taken(&key(), &holder), outcome, "{holder:?}");
    }
    let unreadable = NameHolder { uid: None, owner: None, deleting: false, watched: false };
    assert_eq!(state.taken(&key(), &unreadable), taken(false, false));
}
