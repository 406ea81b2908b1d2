//! Job state -> `status`, and the end annotation: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs, nor show anything that is not in the state. Tests: `tests/status.rs`.

use engine::Job;
use model::fact::Milestone;
use model::{Decision, JobKey, Text};
use serde_json::{Map, Value, json};

use super::AiTrainingJob;
use super::constants::{REASON_PREFIX, phase_reason, phase_word};
use super::metadata::end_annotation_patch;
use crate::conditions::{condition, of_remark, time};
use crate::objects::MIRROR;
use crate::remarks;
use crate::summary;

/// Renders the whole `status` of a job.
pub(super) fn status(key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    status.insert("phase".to_owned(), json!(phase_word(job.phase)));
    status.insert("conditions".to_owned(), list_or_null(conditions(key, job)));
    status.insert("replicaStatuses".to_owned(), map_or_null(replica_statuses(job)));
    let restarts = restart_counts(job);
    if !restarts.is_empty() {
        status.insert("RestartCount".to_owned(), Value::Object(restarts));
    }
    let restarting = restarting_group(job).map(|group| display(job, group)).unwrap_or_default();
    status.insert("RestartReplicaName".to_owned(), json!(&*restarting));
    summary::add(&mut status, job);
    for (name, at) in [("startTime", job.started_at), ("startRunningTime", job.running_at), ("endTime", job.ended_at)] {
        if let Some(at) = at {
            status.insert(name.to_owned(), time(at));
        }
    }
    // Numbers, texts, lists and maps of texts: nothing JSON cannot hold.
    status.insert(MIRROR.to_owned(), engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}

/// Renders the patch that writes the end annotation. Ends that keep the pods have none.
pub(super) fn end_annotation(key: &JobKey, job: &Job) -> Option<Value> {
    let (phase, clean, cause) = job.ending()?;
    clean.then(|| end_annotation_patch(&key.uid.0, phase, &cause.message))
}

/// Returns the group whose restart waits for old pods.
fn restarting_group(job: &Job) -> Option<&Text> {
    match job.restart()? {
        Decision::Restart { group, .. } => Some(group),
        Decision::End { .. } | Decision::Halt { .. } => None,
    }
}

/// Returns a group's name as the user spelt it.
fn display(job: &Job, group: &Text) -> Text {
    job.spec().and_then(|spec| spec.group(group)).map_or(group, |group| group.display()).clone()
}

fn replica_statuses(job: &Job) -> Map<String, Value> {
    let ending = job.ending().is_some();
    let mut statuses = Map::new();
    for (spec, group) in job.spec_groups() {
        let now = group.counters;
        let restarting = group.restarting();
        let (pending, scheduled) = group.starting();
        // What an ended job came to stays readable when its pods are gone.
        let (succeeded, failed) = match job.finals.get(&spec.name) {
            Some(finals) if ending => *finals,
            Some(_) | None => (now.succeeded, now.failed),
        };
        let counters = [
            ("pending", pending),
            ("scheduled", scheduled),
            ("active", now.active),
            ("succeeded", succeeded),
            ("restarting", restarting),
            ("failed", failed),
        ];
        let shown: Map<String, Value> =
            counters.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), json!(n))).collect();
        statuses.insert(spec.display().to_string(), Value::Object(shown));
    }
    statuses
}

fn restart_counts(job: &Job) -> Map<String, Value> {
    job.groups
        .iter()
        .filter(|(_, group)| group.restarts > 0)
        .map(|(name, group)| (display(job, name).to_string(), json!(group.restarts)))
        .collect()
}

/// Remarks first, then the phases the job went through; the last phase is the present one.
fn conditions(key: &JobKey, job: &Job) -> Vec<Value> {
    let remarks = remarks::of(&AiTrainingJob, key, job);
    let mut conditions: Vec<Value> =
        remarks.iter().chain(&remarks::admission(job)).map(|remark| of_remark(remark, REASON_PREFIX)).collect();
    let last = job.milestones.len().saturating_sub(1);
    conditions.extend(job.milestones.iter().enumerate().map(|(n, milestone)| phase_condition(milestone, n == last)));
    conditions
}

fn phase_condition(milestone: &Milestone, current: bool) -> Value {
    let mut condition =
        condition(phase_word(milestone.phase), current, &phase_reason(milestone.phase), &milestone.message);
    for name in ["lastProbeTime", "lastTransitionTime"] {
        condition.insert(name.to_owned(), time(milestone.at));
    }
    Value::Object(condition)
}

fn list_or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}

fn map_or_null(map: Map<String, Value>) -> Value {
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}
