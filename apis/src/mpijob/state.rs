//! State of a job in annotations of its object: the mirror, and what users read. The status is the MPI operator's.
//!
//! Must not hold anything back that `adopt` needs. Tests: `tests.rs`.

use std::collections::BTreeMap;

use engine::Job;
use model::fact::{Adopted, Milestone, ReportedEnd};
use model::{JobFact, JobKey, Phase, Stamp, Text};
use serde_json::{Value, json};

use super::MpiJob;
use super::steering::Steering;
use super::words::{MESSAGE, PHASE, STEERED, phase_word};
use crate::objects::{self, STATE, annotation, list_at, text_at, time_at};
use crate::remarks;

/// Reads metadata, mirror and reported end of a job object. A mirror beside fields that somebody else changed does not count: it is
/// written again, and the fields with it.
pub(super) fn job_fact(object: &Value) -> JobFact {
    let fact = objects::job_fact(object);
    let stands = annotation(object, STEERED).is_none_or(|digest| digest == &*Steering::of(object).digest());
    JobFact { mirror: if stands { fact.mirror } else { Stamp::default() }, reported_end: reported_end(object), ..fact }
}

/// Returns the end that the MPI operator reports.
fn reported_end(object: &Value) -> Option<Box<ReportedEnd>> {
    let is_true = |condition: &&Value| text_at(condition, &["status"]) == Some("True");
    list_at(object, &["status", "conditions"]).iter().filter(is_true).find_map(|condition| {
        let phase = match text_at(condition, &["type"]) {
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => return None,
        };
        let words = |key| text_at(condition, &[key]).unwrap_or_default();
        let (reason, message) = (words("reason"), words("message"));
        let message = if message.is_empty() { reason.to_owned() } else { message.to_owned() };
        Some(Box::new(ReportedEnd { phase, message: Text::from(message) }))
    })
}

/// Renders the merge patch that writes the state and the steered fields. A job whose spec was never valid is suspended.
pub(super) fn patch(key: &JobKey, job: &Job, template: Option<Value>) -> Value {
    let remarks = remarks::of(&MpiJob, key, job);
    let last = job.milestones.back().map(|milestone| milestone.message.to_string());
    let message = remarks.first().map(|remark| format!("{}: {}", remark.kind, remark.message)).or(last);
    let mut annotations = json!({
        STATE: engine::wire::mirror_value(&job.mirror()).to_string(),
        PHASE: phase_word(job.phase),
        MESSAGE: message.filter(|message| !message.is_empty()),
    });
    let steering = template.map(|template| Steering::wanted(template, job));
    // What an ended job has is the MPI operator's to clean up.
    let steering = steering.filter(|_| !job.phase.is_terminal());
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(STEERED.to_owned(), json!(steering.as_ref().map(|steering| steering.digest().to_string())));
    }
    let spec = match &steering {
        Some(steering) => steering.patch(),
        None if job.valid.is_none() => json!({"runPolicy": {"suspend": true}}),
        None => json!({}),
    };
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value) -> Adopted {
    let mirror = objects::mirror(object).unwrap_or_default();
    let phase = mirror.phase;
    let shown = Milestone {
        phase,
        at: time_at(object, &["status", "startTime"]).unwrap_or_default(),
        message: Text::from(annotation(object, MESSAGE).unwrap_or_default()),
    };
    Adopted {
        restarts: BTreeMap::new(),
        started_at: time_at(object, &["status", "startTime"]),
        running_at: None,
        ended_at: time_at(object, &["status", "completionTime"]),
        finals: BTreeMap::new(),
        remarks: false,
        milestones: if phase == Phase::New { Vec::new() } else { vec![shown] },
        mirror,
    }
}
