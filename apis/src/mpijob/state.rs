//! State of a job in annotations of its object: the mirror, and what users read. The status is the MPI operator's.
//!
//! Must not hold anything back that `adopt` needs. Tests: `tests.rs`.

use engine::Job;
use model::fact::{Adopted, ReportedEnd};
use model::{JobKey, Mirror, ObjectFact, Phase, Stamp, Text};
use serde_json::{Value, json};

use super::MpiJob;
use super::constants::{MESSAGE, PHASE, STEERED, phase_word};
use super::patch::SpecPatch;
use crate::objects::{self, STATE, annotated_mirror, annotation, at, list_at, text_at, time_at};
use crate::{adopt, remarks};

/// Member of the mirror: uid of the object that it was written on.
const UID: &str = "uid";

/// Reads metadata, mirror and reported end of a job object. Ignores the mirror where another client changed the steered fields: both are
/// written again then.
pub(super) fn object_fact(object: &Value) -> ObjectFact {
    let stands = annotation(object, STEERED).is_none_or(|digest| digest == &*SpecPatch::of(object).digest());
    let mirror = if stands { mirror(object).stamp } else { Stamp::default() };
    ObjectFact { mirror, reported_end: reported_end(object), ..objects::object_fact(object) }
}

/// Returns the mirror; of one that this build cannot read, the stamp alone. That of another object was copied with its annotations, or
/// written before there was a uid.
fn mirror(object: &Value) -> Mirror {
    let written = annotated_mirror(object);
    let value = written.filter(|mirror| mirror.get(UID) == at(object, &["metadata", UID])).unwrap_or_default();
    engine::wire::mirror_from_value(&value)
        .unwrap_or_else(|| Mirror { stamp: serde_json::from_value(value).unwrap_or_default(), ..Mirror::default() })
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
        let message = if message.is_empty() { reason } else { message };
        Some(Box::new(ReportedEnd { phase, message: Text::from(message.trim_end_matches('.')) }))
    })
}

/// Renders the merge patch that writes the state and the steered fields. A job whose spec was never valid is suspended.
pub(super) fn patch(key: &JobKey, job: &Job, manifest: Option<&Value>) -> Value {
    let remarks = remarks::of(&MpiJob, key, job);
    let last = job.milestones.back().map(|milestone| milestone.message.to_string());
    let message = remarks.first().map(|remark| format!("{}: {}", remark.kind, remark.message)).or(last);
    let mut mirror = engine::wire::mirror_value(&job.mirror());
    if let Some(members) = mirror.as_object_mut() {
        members.insert(UID.to_owned(), json!(&*key.uid.0));
    }
    let mut annotations = json!({
        STATE: mirror.to_string(),
        PHASE: phase_word(job.phase),
        MESSAGE: message.filter(|message| !message.is_empty()),
    });
    let patch = manifest.map(|manifest| SpecPatch::wanted(manifest, job));
    // What an ended job has is the MPI operator's to clean up.
    let patch = patch.filter(|_| !job.phase.is_terminal());
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(STEERED.to_owned(), json!(patch.as_ref().map(|patch| patch.digest().to_string())));
    }
    let spec = match &patch {
        Some(patch) => patch.patch(),
        None if job.valid.is_none() => json!({"runPolicy": {"suspend": true}}),
        None => json!({}),
    };
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value) -> Adopted {
    let mut adopted = adopt::of_mirror(object, mirror(object));
    adopted.started_at = time_at(object, &["status", "startTime"]);
    adopted.ended_at = time_at(object, &["status", "completionTime"]);
    for shown in &mut adopted.milestones {
        shown.at = adopted.started_at.unwrap_or_default();
        shown.message = Text::from(annotation(object, MESSAGE).unwrap_or_default());
    }
    adopted
}
