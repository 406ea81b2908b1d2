//! Job state -> `status`: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs, nor show anything that is not in the state. Tests: `tests/status.rs`.

use engine::Job;
use model::{JobKey, Phase};
use serde_json::{Map, Value, json};

use super::ElasticJob;
use super::words::{CONDITIONS, REASON_PREFIX, failed_reason, phase_word};
use crate::conditions::{of_remark, time};
use crate::objects::MIRROR;
use crate::remarks;
use crate::summary;

/// Renders the whole `status` of a job.
pub(super) fn status(key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    status.insert("conditions".to_owned(), Value::Array(conditions(key, job)));
    status.insert("replicaStatuses".to_owned(), Value::Object(replica_statuses(job)));
    // A job of the original that ran already has no start but its adoption.
    let started_at = job.started_at.or(job.admitted_at);
    for (name, at) in [("startTime", started_at), ("completionTime", job.ended_at)] {
        if let Some(at) = at {
            status.insert(name.to_owned(), time(at));
        }
    }
    summary::add(&mut status, job);
    status.insert(MIRROR.to_owned(), engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}

/// Remarks first, then one condition for each phase the job was in; the last one is the present phase.
fn conditions(key: &JobKey, job: &Job) -> Vec<Value> {
    let remarks = remarks::of(&ElasticJob, key, job);
    let mut conditions: Vec<Value> =
        remarks.iter().chain(&remarks::admission(job)).map(|remark| of_remark(remark, REASON_PREFIX)).collect();
    conditions.extend(CONDITIONS.list(&job.milestones).iter().map(|shown| {
        let cause = job.ending().map(|(_, _, cause)| cause).filter(|_| shown.phase == Phase::Failed);
        let usual = || format!("{REASON_PREFIX}{}", phase_word(shown.phase));
        CONDITIONS.render(shown, &cause.map_or_else(usual, |cause| failed_reason(cause.kind).to_owned()))
    }));
    conditions
}

/// Pods by state. What an ended job came to stays readable when its pods are gone.
fn replica_statuses(job: &Job) -> Map<String, Value> {
    let ending = job.ending().is_some();
    let mut statuses = Map::new();
    for (spec, group) in job.spec_groups() {
        let now = group.counters;
        let (succeeded, failed) = match job.finals.get(&spec.name) {
            Some(finals) if ending => *finals,
            Some(_) | None => (now.succeeded, now.failed),
        };
        let counters = [("active", now.active), ("succeeded", succeeded), ("failed", failed)];
        let shown: Map<String, Value> =
            counters.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), json!(n))).collect();
        statuses.insert(spec.display().to_string(), Value::Object(shown));
    }
    statuses
}
