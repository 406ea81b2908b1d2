//! Job state -> `status`: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs, nor show anything that is not in the state. Tests: `tests/status.rs`.

use engine::Job;
use model::{CauseKind, JobKey, Phase, SlotId, Text};
use serde_json::{Map, Value, json};

use super::ElasticJob;
use super::constants::{CONDITIONS, REASON_PREFIX, failed_reason, phase_word, sentence, with_sentence};
use crate::conditions::{Shown, of_remark, time};
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
    conditions.extend(CONDITIONS.list(&job.milestones).into_iter().map(|shown| {
        let cause = job.ending().map(|(_, _, cause)| cause).filter(|_| shown.phase == Phase::Failed);
        let usual = || format!("{REASON_PREFIX}{}", phase_word(shown.phase));
        let reason = cause.map_or_else(usual, |cause| failed_reason(cause.kind).to_owned());
        let failed = cause.filter(|cause| matches!(cause.kind, CauseKind::Exited | CauseKind::PodFailed));
        let failed = failed.and_then(|cause| failed_replicas(job, &cause.slots));
        let message = with_sentence(&key.name, &sentence(&key.name, shown.phase, failed), &shown.message);
        CONDITIONS.render(&Shown { message: message.into(), ..shown }, &reason)
    }));
    conditions
}

/// Returns the number of these pods, and the name of the group of the first one as users spell it.
pub(super) fn failed_replicas<'a>(job: &'a Job, slots: &'a [SlotId]) -> Option<(usize, &'a str)> {
    Some((slots.len(), displayed(job, &slots.first()?.group)))
}

/// Returns the name of a group as users spell it.
pub(super) fn displayed<'a>(job: &'a Job, group: &'a Text) -> &'a Text {
    job.spec().and_then(|spec| spec.group(group)).map_or(group, |spec| spec.display())
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
