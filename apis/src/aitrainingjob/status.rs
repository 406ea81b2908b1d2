//! Job state -> `status`, and the ending annotation: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs, nor show anything that is not in the state. Tests: `tests/status.rs`.

use engine::Job;
use model::fact::Milestone;
use model::{Decision, FieldError, JobKey, ObjectRef, Outcome, Text, Timestamp};
use serde_json::{Map, Value, json};

use super::metadata::marker_patch;
use super::slot_name;
use super::words::{GROUP, GROUP_LABEL, phase_reason, phase_word, remark};
use crate::objects::MIRROR;

/// Remarks of one kind that are spelt out; more are counted.
const SHOWN_MAX: usize = 4;

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
pub(super) fn marker(key: &JobKey, job: &Job) -> Option<Value> {
    let (phase, clean, cause) = job.ending()?;
    clean.then(|| marker_patch(&key.uid.0, phase, &cause.message))
}

/// Returns the group whose restart waits for old pods.
fn restarting_group(job: &Job) -> Option<&Text> {
    match job.restart()? {
        Decision::Restart { group, .. } => Some(group),
        Decision::End { .. } => None,
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
    let mut conditions = Vec::new();
    if let Some(errors) = job.invalid() {
        let mut message = field_messages(errors);
        if job.phase.is_terminal() || job.ending().is_some() {
            message.push_str("; the job has ended and no edit changes it");
        } else if job.valid.is_some() {
            message.push_str("; the job goes on with the spec before");
        }
        conditions.push(remark_condition(remark::INVALID, &message));
    }
    let taken = attempts(key, job, |outcome| {
        let Outcome::Taken { waiting, unseen } = outcome else { return None };
        let going = if *waiting { ", which is going away" } else { "" };
        if *unseen {
            return Some(format!(
                "it exists without its label {GROUP_LABEL}={GROUP}{going}: put the label back, or delete it"
            ));
        }
        Some(format!("the name belongs to another object{going}"))
    });
    if !taken.is_empty() {
        conditions.push(remark_condition(remark::NAME_TAKEN, &join(taken)));
    }
    let mut degraded: Vec<String> =
        job.quarantine.iter().map(|text| format!("nothing is done for this job: {text}")).collect();
    degraded.extend(attempts(key, job, |outcome| {
        let Outcome::Refused { code, message } = outcome else { return None };
        Some(format!("refused with {code}: {message}"))
    }));
    if !degraded.is_empty() {
        conditions.push(remark_condition(remark::DEGRADED, &join(degraded)));
    }
    // One condition a type: readers of conditions look them up by it.
    let stalled = job.stalled.iter().map(ToString::to_string);
    let of_spec = Some(field_messages(job.warnings())).filter(|text| !text.is_empty());
    let warnings: Vec<String> = stalled.chain(of_spec).collect();
    if !warnings.is_empty() {
        conditions.push(remark_condition(remark::WARNING, &warnings.join("; ")));
    }
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

/// Renders a condition that is no phase. It has no times: its start is not part of the job's state.
fn remark_condition(kind: &str, message: &str) -> Value {
    Value::Object(condition(kind, true, &format!("TrainingJob{kind}"), message))
}

fn condition(kind: &str, current: bool, reason: &str, message: &str) -> Map<String, Value> {
    let mut condition = Map::new();
    condition.insert("type".to_owned(), json!(kind));
    condition.insert("status".to_owned(), json!(if current { "True" } else { "False" }));
    condition.insert("reason".to_owned(), json!(reason));
    if !message.is_empty() {
        condition.insert("message".to_owned(), json!(message));
    }
    condition
}

/// Describes the calls that did not succeed, each with the name of its object.
fn attempts(key: &JobKey, job: &Job, words: impl Fn(&Outcome) -> Option<String>) -> Vec<String> {
    let name = |object: &ObjectRef| match object {
        ObjectRef::Pod(slot) => format!("pod {}", slot_name(&key.name, &slot.group, slot.index)),
        ObjectRef::Service(slot) => format!("service {}", slot_name(&key.name, &slot.group, slot.index)),
        ObjectRef::PodUid(uid) => {
            job.pods.get(uid).map_or_else(|| object.to_string(), |pod| format!("pod {}", pod.fact.name))
        }
        ObjectRef::ServiceUid(uid) => {
            job.services.get(uid).map_or_else(|| object.to_string(), |service| format!("service {}", service.name))
        }
        ObjectRef::Status | ObjectRef::EndAnnotation | ObjectRef::Job => object.to_string(),
    };
    job.attempts
        .iter()
        .filter_map(|(object, attempt)| Some(format!("{}: {}", name(object), words(&attempt.last)?)))
        .collect()
}

fn field_messages(errors: &[FieldError]) -> String {
    join(errors.iter().map(ToString::to_string).collect())
}

/// Joins the first few remarks, and the number of the others.
fn join(mut remarks: Vec<String>) -> String {
    let more = remarks.len().saturating_sub(SHOWN_MAX);
    remarks.truncate(SHOWN_MAX);
    if more > 0 {
        remarks.push(format!("and {more} more"));
    }
    remarks.join("; ")
}

fn time(at: Timestamp) -> Value {
    Value::from(at.to_rfc3339())
}

fn list_or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}

fn map_or_null(map: Map<String, Value>) -> Value {
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}
