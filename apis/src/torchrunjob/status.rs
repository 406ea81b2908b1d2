//! Job state -> `status`: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs, nor show anything that is not in the state. Conditions are in
//! `conditions.rs`. Tests: `tests/status.rs`.

use engine::{Counters, Job};
use model::{JobKey, Phase};
use serde_json::{Map, Value, json};

use super::conditions::conditions;
use super::constants::{WORKER, phase_word};
use crate::conditions::time;
use crate::objects::MIRROR;

/// Renders the whole `status` of a job.
pub(super) fn status(key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    let mut add = |name: &str, value: Value| {
        status.insert(name.to_owned(), value);
    };
    if job.phase != Phase::New {
        add("phase", json!(word(job)));
    }
    let (wanted, counters) = workers(job);
    add("numNodes", json!(wanted));
    // Kubernetes counts a pod as ready that runs and says nothing else.
    add("workersStatus", json!(format!("{}/{wanted} ready", counters.active)));
    add(
        "workers",
        json!({
            "running": counters.active,
            "ready": counters.active,
            "pending": counters.pending.saturating_add(counters.scheduled),
            "succeeded": counters.succeeded,
            "failed": counters.failed,
        }),
    );
    add("restarts", json!(restarts(job)));
    for (name, at) in [("startTime", job.started_at.or(job.admitted_at)), ("completionTime", job.ended_at)] {
        if let Some(at) = at {
            add(name, time(at));
        }
    }
    add("conditions", Value::Array(conditions(key, job)));
    let past = job
        .milestones
        .iter()
        .map(|milestone| json!({"phase": phase_word(milestone.phase), "time": time(milestone.at)}));
    let mut history: Vec<Value> = past.collect();
    // What a past phase waited for last is chance, where it waited for several things.
    if let (Some(Value::Object(last)), Some(milestone)) = (history.last_mut(), job.milestones.back()) {
        last.insert("message".to_owned(), json!(&*milestone.message));
    }
    add("history", Value::Array(history));
    add(MIRROR, engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}

/// Returns the phase in this API's words.
fn word(job: &Job) -> &'static str {
    let is_deleted = job.object.is_deleting() && !job.phase.is_terminal();
    if is_deleted { "Deleted" } else { phase_word(job.phase) }
}

/// Returns the number of workers wanted, and the workers by state. What an ended job came to stays readable when its pods are
/// gone.
pub(super) fn workers(job: &Job) -> (u32, Counters) {
    let Some(group) = job.groups.get(WORKER) else { return (0, Counters::default()) };
    let mut counters = group.counters;
    if let Some((succeeded, failed)) = job.finals.get(WORKER).filter(|_| job.ending().is_some()) {
        (counters.succeeded, counters.failed) = (*succeeded, *failed);
    }
    (group.replicas, counters)
}

/// Returns the restarts of workers: pods that were replaced, and containers that were started again.
fn restarts(job: &Job) -> u32 {
    let replaced = job.groups.get(WORKER).map_or(0, |group| group.charged);
    replaced.saturating_add(job.restarted_containers())
}
