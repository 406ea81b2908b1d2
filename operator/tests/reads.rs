//! Reads of a job after a conflict, while its watch goes on.

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

/// An operator whose status write at version 5 met a conflict, and the read that follows.
fn reading() -> (Operator, ApiCall) {
    let mut operator = Operator::open(Box::new(MemoryLog::default()), Registry::all(), Options::default()).unwrap();
    for source in Registry::all().watch_targets() {
        let items = if source.kind == Kind::Job { vec![job(5)] } else { Vec::new() };
        operator.handle_event(Observation::Listed { kind: source.kind, of: source.of, rv: ResourceVersion(9), items });
    }
    let calls = operator.turn(NOW).unwrap();
    let write = calls.iter().find(|call| call.verb == Verb::ApplyStatus).expect("a status write");
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
