//! Two APIs whose jobs, pods and services come from sources of their own, each with versions and lists of its own.

use std::sync::Arc;

use apis::{Observation, WatchTarget};
use event_log::MemoryLog;
use fixtures::copied;
use model::{JobKey, Kind, ResourceVersion, Timestamp};
use operator::{Error, Operator, Options};
use serde_json::{Value, json};

const FIRST: (&str, &str) = ("elasticdeeplearning.ai/v1", "AITrainingJob");
const SECOND: (&str, &str) = ("second.example.com/v1", "SecondJob");
const NOW: Timestamp = Timestamp(1_000_000);

fn job(api: (&str, &str), rv: u64) -> Arc<Value> {
    Arc::new(json!({"apiVersion": api.0, "kind": api.1,
        "metadata": {"name": "j", "namespace": "n", "uid": api.1, "generation": 1, "resourceVersion": rv.to_string()},
        "spec": {"replicaSpecs": {"trainer": {"replicas": 3, "template": {"spec": {"containers": [
            {"name": "aitj-main", "image": "i", "ports": [{"name": "aitj-a", "containerPort": 1}]}]}}}}}}))
}

/// A pod or service of the slot that its uid ends with.
fn owned(kind: &str, api: (&str, &str), uid: &str, rv: u64) -> Arc<Value> {
    let slot = &uid[1..];
    Arc::new(
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": format!("j-trainer-{slot}"), "namespace": "n",
        "uid": uid, "resourceVersion": rv.to_string(),
        "labels": {"TrainingJobReplicaName": "trainer", "TrainingJobReplicaIndex": slot},
        "ownerReferences": [{"apiVersion": api.0, "kind": api.1, "name": "j", "uid": api.1, "controller": true}]}}),
    )
}

/// The sources of a kind: that of AITrainingJob first.
fn sources(kind: Kind) -> Vec<WatchTarget> {
    let targets = copied::second().watch_targets();
    targets.into_iter().filter(|target| target.kind == kind).collect()
}

fn listed(target: &WatchTarget, rv: u64, items: Vec<Arc<Value>>) -> Observation {
    Observation::Listed { kind: target.kind, of: target.of.clone(), rv: ResourceVersion(rv), items }
}

/// Lists the sources of what jobs own besides pods and services: there is nothing.
fn list_owned(operator: &mut Operator, rv: u64) {
    for source in sources(Kind::Owned) {
        operator.handle_event(listed(&source, rv, Vec::new()));
    }
}

fn open(log: Box<dyn event_log::EventLog>) -> Operator {
    Operator::open(log, copied::second(), Options::default()).unwrap()
}

/// Lists everything: what is of the first API at version 20, what is of the second at 10. Each has a job.
fn list_all(operator: &mut Operator, pods: Vec<Arc<Value>>, services: Vec<Arc<Value>>) {
    operator.handle_event(listed(&sources(Kind::Node)[0], 20, Vec::new()));
    for (api, rv, n) in [(FIRST, 20, 0), (SECOND, 10, 1)] {
        operator.handle_event(listed(&sources(Kind::Job)[n], rv, vec![job(api, 2)]));
    }
    list_owned(operator, 10);
    operator.handle_event(listed(&sources(Kind::Pod)[0], 20, pods));
    operator.handle_event(listed(&sources(Kind::Service)[0], 20, services));
    operator.handle_event(listed(&sources(Kind::Service)[1], 10, Vec::new()));
    operator.turn(NOW).unwrap();
    assert!(!operator.is_ready(), "one source of pods was not listed");
    operator.handle_event(listed(&sources(Kind::Pod)[1], 10, Vec::new()));
    operator.turn(NOW).unwrap();
    assert!(operator.is_ready());
}

fn begun() -> Operator {
    let mut operator = open(Box::new(MemoryLog::default()));
    list_all(&mut operator, vec![owned("Pod", FIRST, "p0", 5)], vec![owned("Service", FIRST, "s0", 5)]);
    operator
}

fn key(api: (&str, &str)) -> JobKey {
    JobKey { namespace: "n".into(), name: "j".into(), kind: api.1.into(), uid: api.1.into() }
}

/// Uids of a job's pods and services.
fn known(operator: &Operator, api: (&str, &str)) -> Vec<String> {
    let job = operator.state().job(&key(api)).expect("the job is known");
    let mut uids: Vec<String> = job.pods.keys().chain(job.services.keys()).map(|uid| uid.0.to_string()).collect();
    uids.sort();
    uids
}

#[test]
fn a_list_says_nothing_about_what_another_source_shows() {
    let mut operator = begun();
    assert_eq!(known(&operator, FIRST), ["p0", "s0"]);
    // The second API's sources are listed again, at versions that the first one's watches have not reached yet.
    for kind in [Kind::Job, Kind::Pod, Kind::Service] {
        let items = if kind == Kind::Job { vec![job(SECOND, 2)] } else { Vec::new() };
        operator.handle_event(listed(&sources(kind)[1], 90, items));
    }
    operator.turn(NOW).unwrap();
    assert!(operator.state().job(&key(FIRST)).is_some_and(|job| !job.object.is_gone()));
    assert_eq!(known(&operator, FIRST), ["p0", "s0"]);
    // What the first one's watches report next is older than those lists, and not stale.
    operator.handle_event(Observation::Applied(owned("Pod", FIRST, "p1", 40)));
    operator.handle_event(Observation::Applied(owned("Service", FIRST, "s1", 41)));
    operator.turn(NOW).unwrap();
    assert_eq!(known(&operator, FIRST), ["p0", "p1", "s0", "s1"]);
    // Of the second API the same versions are stale.
    operator.handle_event(Observation::Applied(owned("Pod", SECOND, "p2", 40)));
    operator.handle_event(Observation::Applied(owned("Service", SECOND, "s2", 41)));
    operator.turn(NOW).unwrap();
    assert_eq!(known(&operator, SECOND), Vec::<String>::new());
    // A list of their own source ends what it does not hold.
    operator.handle_event(listed(&sources(Kind::Pod)[0], 60, vec![owned("Pod", FIRST, "p1", 40)]));
    operator.handle_event(listed(&sources(Kind::Service)[0], 60, vec![owned("Service", FIRST, "s1", 41)]));
    operator.turn(NOW).unwrap();
    assert_eq!(known(&operator, FIRST), ["p1", "s1"]);
    operator.handle_event(listed(&sources(Kind::Job)[0], 60, Vec::new()));
    operator.turn(NOW).unwrap();
    assert!(operator.state().job(&key(FIRST)).is_some_and(|job| job.object.is_gone()));
    assert!(operator.state().job(&key(SECOND)).is_some_and(|job| !job.object.is_gone()));
}

#[test]
fn each_source_has_a_list_version_of_its_own_that_the_log_keeps() {
    for compacts in [false, true] {
        let mut operator = begun();
        operator.handle_event(listed(&sources(Kind::Pod)[0], 90, vec![owned("Pod", FIRST, "p0", 5)]));
        operator.turn(NOW).unwrap();
        if compacts {
            operator.compact().unwrap();
        }
        let mut operator = open(operator.into_log());
        let list_rv =
            |operator: &Operator, n: usize| operator.state().list_rv(Kind::Pod, sources(Kind::Pod)[n].of.as_ref());
        assert_eq!((list_rv(&operator, 0), list_rv(&operator, 1)), (ResourceVersion(90), ResourceVersion(10)));
        assert_eq!(operator.state().list_rv(Kind::Pod, None), ResourceVersion(90));
        // A version that is new for the second API is too old for the first.
        operator.handle_event(listed(&sources(Kind::Node)[0], 30, Vec::new()));
        for kind in [Kind::Job, Kind::Pod, Kind::Service, Kind::Owned] {
            for source in sources(kind) {
                operator.handle_event(listed(&source, 30, Vec::new()));
            }
        }
        let error = operator.turn(NOW).unwrap_err();
        assert!(matches!(error, Error::ClusterWentBack { kind: Kind::Pod, have: 30, known: 90 }), "{error}");
    }
}

#[test]
fn a_log_of_one_api_serves_two() {
    // Written while AITrainingJob was served alone: its lists were of the whole kind.
    let mut operator =
        Operator::open(Box::new(MemoryLog::default()), apis::Registry::all(), Options::default()).unwrap();
    for kind in Kind::ALL {
        let items = match kind {
            Kind::Job => vec![job(FIRST, 2)],
            Kind::Pod => vec![owned("Pod", FIRST, "p0", 5)],
            Kind::Node | Kind::Class | Kind::Quota | Kind::Namespace | Kind::Service | Kind::Owned | Kind::Foreign => {
                Vec::new()
            }
        };
        operator.handle_event(Observation::Listed { kind, of: None, rv: ResourceVersion(9), items });
    }
    operator.turn(NOW).unwrap();
    let mut operator = open(operator.into_log());
    list_all(&mut operator, vec![owned("Pod", FIRST, "p0", 5)], Vec::new());
    assert_eq!(known(&operator, FIRST), ["p0"]);
}

/// The second API's job with a time limit.
fn limited(rv: u64) -> Arc<Value> {
    let mut job = (*job(SECOND, rv)).clone();
    job["spec"]["timeLimit"] = json!(60);
    job["spec"]["replicaSpecs"]["trainer"]["replicas"] = json!(1);
    job["metadata"]["generation"] = json!(2);
    Arc::new(job)
}

#[test]
fn an_api_that_is_left_out_waits_and_the_others_go_on() {
    // The second API's job runs, and its time limit passes while the API is left out.
    let mut operator = begun();
    operator.handle_event(Observation::Applied(limited(3)));
    let mut running = (*owned("Pod", SECOND, "q0", 12)).clone();
    running["status"] =
        json!({"phase": "Running", "containerStatuses": [{"name": "aitj-main", "state": {"running": {}}}]});
    let running = Arc::new(running);
    operator.handle_event(Observation::Applied(Arc::clone(&running)));
    operator.turn(NOW).unwrap();
    assert_eq!(known(&operator, SECOND), ["q0"]);

    let mut operator = open(operator.into_log());
    assert!(operator.disable_kinds([SECOND.1.into()].into()));
    let state = |operator: &Operator| format!("{:?}", operator.state().job(&key(SECOND)).unwrap().pods);
    let before = state(&operator);
    operator.handle_event(listed(&sources(Kind::Node)[0], 30, Vec::new()));
    operator.handle_event(listed(&sources(Kind::Job)[0], 30, vec![job(FIRST, 2)]));
    list_owned(&mut operator, 30);
    operator.handle_event(listed(&sources(Kind::Pod)[0], 30, Vec::new()));
    assert!(!operator.has_listed_all());
    operator.handle_event(listed(&sources(Kind::Service)[0], 30, Vec::new()));
    // One source of the second API answers. Its job is not known to be there, so its objects are not looked at.
    operator.handle_event(listed(&sources(Kind::Pod)[1], 30, Vec::new()));
    operator.handle_event(Observation::Applied(owned("Pod", SECOND, "q1", 31)));
    let calls = operator.turn(NOW).unwrap();
    assert!(operator.is_ready() && !operator.disable_kinds([].into()), "the term has begun");
    assert!(calls.iter().any(|call| call.job == key(FIRST)), "the pods of the first API's job are created again");
    assert!(calls.iter().all(|call| call.job == key(FIRST)), "{calls:#?}");
    assert_eq!(known(&operator, FIRST), Vec::<String>::new());
    assert_eq!(state(&operator), before);
    // Its deadline passes. It does not keep the operator awake, and nothing follows from it.
    let late = NOW.plus_ms(1_000_000_000);
    assert!(operator.state().deadlines().any(|(at, job)| at < late && *job == key(SECOND)), "its time limit");
    assert!(operator.turn(late).unwrap().iter().all(|call| call.job == key(FIRST)));
    assert_eq!(operator.next_wake().filter(|at| *at <= late), None);
    assert_eq!(state(&operator), before);
    assert!(operator.state().job(&key(SECOND)).is_some_and(|job| job.object.exists()));

    // It is served again: its lists say what became of it.
    let mut operator = open(operator.into_log());
    operator.handle_event(listed(&sources(Kind::Node)[0], 40, Vec::new()));
    list_owned(&mut operator, 40);
    for (api, n) in [(FIRST, 0), (SECOND, 1)] {
        let job = if api == SECOND { limited(3) } else { job(api, 2) };
        operator.handle_event(listed(&sources(Kind::Job)[n], 40, vec![job]));
        operator.handle_event(listed(&sources(Kind::Service)[n], 40, Vec::new()));
    }
    operator.handle_event(listed(&sources(Kind::Pod)[0], 40, Vec::new()));
    operator.handle_event(listed(&sources(Kind::Pod)[1], 40, vec![running]));
    let calls = operator.turn(NOW.plus_ms(2_000_000_000)).unwrap();
    assert_eq!(known(&operator, SECOND), ["q0"]);
    assert!(calls.iter().any(|call| call.job == key(SECOND)), "its mirror is written");
}

#[test]
fn a_list_ends_what_its_watch_reported_in_the_same_turn() {
    let mut operator = begun();
    // Created and deleted while the watch was interrupted: only the list shows the end.
    let other = JobKey { name: "k".into(), uid: "k".into(), ..key(FIRST) };
    let mut late = (*job(FIRST, 30)).clone();
    late["metadata"]["name"] = json!("k");
    late["metadata"]["uid"] = json!("k");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m", "resourceVersion": "30"}});
    for object in [node, late, (*owned("Pod", FIRST, "p1", 30)).clone(), (*owned("Service", FIRST, "s1", 30)).clone()] {
        operator.handle_event(Observation::Applied(Arc::new(object)));
    }
    for (kind, items) in [
        (Kind::Node, vec![]),
        (Kind::Job, vec![job(FIRST, 2)]),
        (Kind::Pod, vec![owned("Pod", FIRST, "p0", 5)]),
        (Kind::Service, vec![owned("Service", FIRST, "s0", 5)]),
    ] {
        operator.handle_event(listed(&sources(kind)[0], 40, items));
    }
    // What the watches report next is newer than their lists.
    operator.handle_event(Observation::Applied(owned("Pod", FIRST, "p2", 41)));
    operator.turn(NOW).unwrap();
    assert_eq!(known(&operator, FIRST), ["p0", "p2", "s0"]);
    assert!(operator.state().job(&other).is_none(), "the job is not known");
    assert!(operator.state().nodes.is_empty(), "the node is not known");
    let calls = operator.turn(NOW).unwrap();
    assert!(calls.iter().all(|call| call.job != other), "{calls:?}");
}
