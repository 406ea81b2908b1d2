//! Answers that are older than what a watch reported: reads of a job after a conflict, and objects that were deleted meanwhile.

use std::sync::Arc;

use apis::{ApiCall, ApiError, Observation, Registry, Verb};
use event_log::MemoryLog;
use model::{Kind, ResourceVersion, Timestamp};
use operator::{Error, Operator, Options};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_000_000);

fn job(rv: u64) -> Arc<Value> {
    Arc::new(json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": rv.to_string()},
        "spec": {"replicaSpecs": {"trainer": {"template": {"spec": {"containers": [{"name": "aitj-main", "image": "i"}]}}}}}}))
}

/// An operator that has seen the job at version 5, and its first status write.
fn writing() -> (Operator, ApiCall) {
    let mut operator = Operator::open(Box::new(MemoryLog::default()), Registry::all(), Options::default()).unwrap();
    for source in Registry::all().watch_targets() {
        let items = if source.kind == Kind::Job { vec![job(5)] } else { Vec::new() };
        operator.handle_event(Observation::Listed { kind: source.kind, of: source.of, rv: ResourceVersion(9), items });
    }
    let mut calls = operator.turn(NOW).unwrap();
    let write = calls.iter().position(|call| call.verb == Verb::ApplyStatus).expect("a status write");
    (operator, calls.remove(write))
}

/// An operator whose status write met a conflict, and the read that follows.
fn reading() -> (Operator, ApiCall) {
    let (mut operator, write) = writing();
    let conflict = ApiError { code: 409, reason: "Conflict".into(), message: "modified".to_owned() };
    operator.handle_answer(write.id, Err(conflict));
    let mut calls = operator.turn(NOW).unwrap();
    let read = calls.iter().position(|call| call.verb == Verb::Get).expect("a read");
    let read = calls.remove(read);
    (operator, read)
}

#[test]
fn a_job_may_change_while_it_is_read() {
    let (mut operator, read) = reading();
    operator.handle_event(Observation::Applied(job(12)));
    operator.turn(NOW).unwrap();
    // The read was served before that change.
    operator.handle_answer(read.id, Ok(job(11)));
    operator.turn(NOW).expect("the answer is old, the cluster is not");
}

#[test]
fn a_read_below_what_was_known_when_it_was_sent_is_of_an_older_cluster() {
    let (mut operator, read) = reading();
    operator.handle_answer(read.id, Ok(job(4)));
    let error = operator.turn(NOW).unwrap_err();
    assert!(matches!(error, Error::ClusterWentBack { kind: Kind::Job, have: 4, known: 5 }), "{error}");
}

/// Returns a created object as the API server answers.
fn created(call: &ApiCall, rv: u64) -> Arc<Value> {
    let mut object = call.body.clone().expect("a body");
    object["apiVersion"] = json!(&*call.resource.api_version);
    object["kind"] = json!(&*call.resource.kind);
    object["metadata"]["name"] = json!(&*call.name);
    object["metadata"]["namespace"] = json!(&*call.namespace);
    object["metadata"]["uid"] = json!(format!("{}-{}", call.resource.kind, call.name));
    object["metadata"]["resourceVersion"] = json!(rv.to_string());
    Arc::new(object)
}

#[test]
fn what_was_deleted_before_its_creation_was_answered_does_not_come_back() {
    let (mut operator, write) = writing();
    let mut written = (*job(10)).clone();
    written["status"] = write.body.clone().expect("a body")["status"].clone();
    operator.handle_answer(write.id, Ok(Arc::new(written)));
    let calls: Vec<ApiCall> = operator.turn(NOW).unwrap();
    let creations: Vec<&ApiCall> =
        calls.iter().filter(|call| call.verb == Verb::Create && call.object.is_some()).collect();
    assert!(creations.iter().any(|call| &*call.resource.kind == "Pod"), "{creations:?}");
    assert!(creations.iter().any(|call| &*call.resource.kind == "Service"), "{creations:?}");
    let objects: Vec<Arc<Value>> = creations.iter().zip(11..).map(|(call, rv)| created(call, rv)).collect();
    // The watches are faster than the answers: the job was deleted, and the garbage collector has been there.
    for object in &objects {
        operator.handle_event(Observation::Applied(Arc::clone(object)));
    }
    operator.handle_event(Observation::Deleted(job(30)));
    for object in &objects {
        operator.handle_event(Observation::Deleted(Arc::clone(object)));
    }
    operator.turn(NOW).unwrap();
    for (call, object) in creations.iter().zip(&objects) {
        operator.handle_answer(call.id, Ok(Arc::clone(object)));
    }
    operator.turn(NOW).unwrap();
    let left: Vec<_> = operator.state().jobs.summaries().map(|(key, _)| key.to_string()).collect();
    assert_eq!(left, [""; 0], "nothing of the job is left");
}
