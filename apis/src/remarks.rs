//! Remarks: conditions of a job that are no phases, alike for every API.
//!
//! Owns their types and texts, made from the job's state. They stand first in a list of conditions, so that tools which take the
//! last one for the phase are not misled. It must not know how an API writes a condition. Tests: each API's `tests/status.rs`.

use engine::{BlockedBy, Job};
use model::{FieldError, JobKey, ObjectRef, Outcome};
use serde_json::Value;

use crate::api::JobApi;
use crate::objects::{list_at, text_at};

/// Type: the latest spec cannot be accepted.
pub const INVALID: &str = "Invalid";
/// Type: the name of a pod or service belongs to something else.
pub const NAME_TAKEN: &str = "NameTaken";
/// Type: something is refused, or nothing is done for the job.
pub const DEGRADED: &str = "Degraded";
/// Type: the job does not do what it may have been meant to do.
pub const WARNING: &str = "Warning";
/// Type: the job waits in its queue.
pub const QUEUED: &str = "Queued";
/// Type: the job has places from its queue.
pub const ADMITTED: &str = "Admitted";
/// All types that need attention.
pub const ALL: [&str; 4] = [INVALID, NAME_TAKEN, DEGRADED, WARNING];

/// Remarks of one type that are spelt out; more are counted.
const SHOWN_MAX: usize = 4;

/// One remark. Its start is not part of the job's state, so it has no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Its type.
    pub kind: &'static str,
    /// For people.
    pub message: String,
}

/// Returns the remarks on a job, one of each type: readers of conditions look them up by it.
pub fn of(api: &dyn JobApi, key: &JobKey, job: &Job) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if let Some(errors) = job.invalid() {
        let mut message = field_messages(errors);
        if job.phase.is_terminal() || job.ending().is_some() {
            message.push_str("; the job has ended and no edit changes it");
        } else if job.valid.is_some() {
            message.push_str("; the job keeps the previous spec");
        }
        remarks.push(Remark { kind: INVALID, message });
    }
    let taken = attempts(api, key, job, |outcome| {
        let Outcome::Taken { waiting, unseen } = outcome else { return None };
        let going = if *waiting { ", which is going away" } else { "" };
        if *unseen {
            let label = api.selector();
            return Some(format!("it exists without its label {label}{going}: put the label back, or delete it"));
        }
        Some(format!("the name belongs to another object{going}"))
    });
    if !taken.is_empty() {
        remarks.push(Remark { kind: NAME_TAKEN, message: join(taken) });
    }
    let mut degraded: Vec<String> =
        job.quarantine.iter().map(|text| format!("nothing is done for this job: {text}")).collect();
    degraded.extend(attempts(api, key, job, |outcome| {
        let Outcome::Refused { code, message } = outcome else { return None };
        Some(format!("refused with {code}: {message}"))
    }));
    if !degraded.is_empty() {
        remarks.push(Remark { kind: DEGRADED, message: join(degraded) });
    }
    let stalled = job.stalled.iter().map(ToString::to_string);
    let of_spec = Some(field_messages(job.warnings())).filter(|text| !text.is_empty());
    let classes = job.unknown_classes.iter().filter(|_| !job.phase.is_terminal()).map(|name| {
        format!("priorityClassName {name}: there is no PriorityClass of this name; it counts as 0 in the job's queue")
    });
    let warnings: Vec<String> = stalled.chain(other_queue(job)).chain(classes).chain(of_spec).collect();
    if !warnings.is_empty() {
        remarks.push(Remark { kind: WARNING, message: warnings.join("; ") });
    }
    remarks
}

/// Returns where a job of a named queue stands with it, for APIs that have no words of their own for that. The queue may be another
/// system's.
pub fn admission(job: &Job) -> Option<Remark> {
    let spec = job.spec().filter(|_| !job.phase.is_terminal() && job.ending().is_none())?;
    if let Some(gate) = job.gate() {
        return Some(match job.blocked_by_gate() {
            Some(blocker) => Remark { kind: QUEUED, message: blocker.to_string() },
            None => Remark { kind: ADMITTED, message: format!("admitted by {}", gate.object) },
        });
    }
    let queue = job.queue()?;
    if !job.allocation.share.is_empty() {
        return Some(Remark {
            kind: ADMITTED,
            message: format!("admitted by queue {queue}: {}", job.allocation.share),
        });
    }
    let blockers = spec.groups.iter().filter_map(|group| job.blocked_by(spec, group));
    let blocker = { blockers }.find(|blocker| matches!(blocker, BlockedBy::NoShare { .. }))?;
    Some(Remark { kind: QUEUED, message: blocker.to_string() })
}

/// Reports a job that names another queue than the one in which it runs.
fn other_queue(job: &Job) -> Option<String> {
    let named = job.spec()?.demand.as_ref()?.queue.as_ref();
    let runs_in = job.queue();
    let words =
        |queue: Option<&model::Text>| queue.map_or_else(|| "no queue".to_owned(), |name| format!("queue {name}"));
    (named != runs_in && !job.phase.is_terminal()).then(|| {
        let (named, runs_in) = (words(named), words(runs_in));
        format!(
            "label {}: {named} takes effect when the job next starts; until then it runs in {runs_in}",
            crate::demand::QUEUE
        )
    })
}

/// Returns true if the status of a job object has a remark. A log that is not known wrote it, so it may be over.
pub fn are_shown(object: &Value) -> bool {
    let kinds = list_at(object, &["status", "conditions"]).iter().filter_map(|condition| text_at(condition, &["type"]));
    kinds.into_iter().any(|kind| ALL.contains(&kind))
}

/// Describes the calls that did not succeed, each with the name of its object.
fn attempts(api: &dyn JobApi, key: &JobKey, job: &Job, words: impl Fn(&Outcome) -> Option<String>) -> Vec<String> {
    let name = |object: &ObjectRef| match object {
        ObjectRef::Pod(slot) => format!("pod {}", api.slot_name(key, slot)),
        ObjectRef::Service(slot) => format!("service {}", api.slot_name(key, slot)),
        ObjectRef::PodUid(uid) => {
            job.pods.get(uid).map_or_else(|| object.to_string(), |pod| format!("pod {}", pod.fact.name))
        }
        ObjectRef::ServiceUid(uid) => {
            job.services.get(uid).map_or_else(|| object.to_string(), |service| format!("service {}", service.name))
        }
        ObjectRef::Status
        | ObjectRef::EndAnnotation
        | ObjectRef::Job
        | ObjectRef::Owned(_)
        | ObjectRef::Finalizer
        | ObjectRef::Annotations
        | ObjectRef::Log
        | ObjectRef::StorageNode => object.to_string(),
    };
    job.attempts
        .iter()
        .filter(|(object, _)| !job.does_without(object))
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
