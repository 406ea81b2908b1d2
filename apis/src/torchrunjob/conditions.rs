//! Conditions of a job, in the types that its users know.
//!
//! Owns reasons and polarity. All are derived from the job's state; those that mark a moment of its life have its time. Tests:
//! `tests/status.rs`.

use engine::{Job, trouble};
use model::{JobKey, ObjectRef, Outcome, Phase, Timestamp};
use serde_json::Value;

use super::TorchrunJob;
use super::constants::{SYNC, failed_reason};
use super::status::workers;
use crate::conditions::{condition, of_remark, time};
use crate::owned::CLAIM;
use crate::remarks;

/// Returns the conditions: remarks first, then the course of the job.
pub(super) fn conditions(key: &JobKey, job: &Job) -> Vec<Value> {
    let remarks = remarks::of(&TorchrunJob, key, job);
    let mut list = List(remarks.iter().map(|remark| of_remark(remark, "")).collect());
    provisioning(job, &mut list);
    workspace(job, &mut list);
    course(job, &mut list);
    list.0
}

/// A list of conditions that is being written.
struct List(Vec<Value>);

impl List {
    fn add(&mut self, kind: &str, current: bool, reason: &str, message: &str, at: Option<Timestamp>) {
        let mut condition = condition(kind, current, reason, message);
        condition.extend(at.map(|at| ("lastTransitionTime".to_owned(), time(at))));
        self.0.push(Value::Object(condition));
    }
}

/// Adds what the job lacks to be started with, and whether its workers exist.
fn provisioning(job: &Job, list: &mut List) {
    let missing = job.missing().first().filter(|_| job.ending().is_none());
    if let Some(missing) = missing {
        let name = &missing.name;
        match &missing.problem {
            None => {
                let message =
                    format!("there is no TorchrunQueue {name} in this namespace: create it, and the job continues");
                list.add("QueueNotFound", true, "QueueNotFound", &message, None);
            }
            Some(problem) => {
                let message = format!("{} {name} cannot be used: {problem}", missing.kind);
                list.add("Provisioned", false, "InvalidPodTemplate", &message, None);
            }
        }
    }
    let created = first(job, Phase::Queued).or_else(|| first(job, Phase::Running));
    if job.renders_older_spec() {
        let message = "the workers keep running as they were created; the edit takes effect when the job is suspended and resumed";
        list.add("Provisioned", false, "SpecChangedIgnored", message, None);
    } else if created.is_some() && missing.is_none_or(|missing| missing.problem.is_none()) {
        list.add("Provisioned", true, "Provisioned", "", created);
    }
    if created.is_some() {
        list.add("JobCreated", true, "JobCreated", "", created);
    }
}

fn workspace(job: &Job, list: &mut List) {
    let Some((spec, group)) = job.spec().and_then(|spec| spec.group(SYNC)).zip(job.groups.get(SYNC)) else { return };
    let generation = spec.shape.as_deref().unwrap_or_default();
    let conflict = job.attempts.iter().find_map(|(object, attempt)| match (object, &attempt.last) {
        (ObjectRef::Owned(owned), Outcome::Taken { .. }) if &*owned.kind == CLAIM.kind => Some(owned),
        _ => None,
    });
    let is_spent = job.ending().is_some_and(|(_, _, cause)| cause.slots.iter().any(|slot| &*slot.group == SYNC));
    if let Some(claim) = conflict {
        let message = format!("{claim} belongs to another job of this jobName: this one waits until that is gone");
        list.add("WorkspaceSync", false, "WorkspaceConflict", &message, None);
    } else if is_spent {
        let message = format!("generation {generation} of the workspace could not be filled");
        list.add("WorkspaceSync", false, "SyncFailed", &message, job.ended_at);
    } else if group.has_run(spec) {
        let message = format!("generation {generation} is delivered");
        list.add("WorkspaceSync", true, "SyncCompleted", &message, None);
    } else if job.phase != Phase::New && !job.phase.is_terminal() {
        let trouble = trouble(job);
        let trouble = if trouble.is_empty() { trouble } else { format!(": {trouble}") };
        let message = format!("generation {generation} is being filled{trouble}");
        list.add("WorkspaceSync", true, "SyncInProgress", &message, None);
    }
    if group.achieved.is_some() {
        list.add("WorkspaceReady", true, "WorkspaceReady", "", None);
    }
}

/// Adds how far the workers are, and the end.
fn course(job: &Job, list: &mut List) {
    let (wanted, counters) = workers(job);
    let trouble = trouble(job);
    if !trouble.is_empty() && !job.phase.is_terminal() && job.phase != Phase::Preparing {
        list.add("AllWorkersReady", false, "WorkersNotReady", &trouble, None);
    } else if job.phase == Phase::Running {
        if counters.active == wanted {
            list.add("AllWorkersReady", true, "AllWorkersReady", "", None);
        } else {
            let message = format!("{} of {wanted} workers run", counters.active);
            list.add("AllWorkersReady", false, "WorkersNotReady", &message, None);
        }
    }
    let Some((phase, _, cause)) = job.ending() else { return };
    if phase == Phase::Succeeded {
        list.add("Completed", true, "Succeeded", &cause.message, job.ended_at);
    } else {
        let of_sync = cause.slots.iter().any(|slot| &*slot.group == SYNC);
        let reason = if of_sync { "SyncFailed" } else { failed_reason(cause.kind) };
        list.add("Failed", true, reason, &cause.message, job.ended_at);
    }
}

/// Returns the first time the job is known to have been in a phase.
fn first(job: &Job, phase: Phase) -> Option<Timestamp> {
    job.milestones.iter().find(|milestone| milestone.phase == phase).map(|milestone| milestone.at)
}
