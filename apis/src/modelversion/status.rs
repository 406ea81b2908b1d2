//! State of a build -> `status`: a pure projection.
//!
//! It must not hold anything back that `adopt` needs. Tests: `tests.rs`.

use engine::Job;
use model::JobKey;
use serde_json::{Map, Value, json};

use super::ModelVersion;
use super::constants::phase_word;
use crate::conditions::time;
use crate::objects::{MIRROR, text_at};
use crate::remarks;

/// Renders the whole `status` of a version.
pub(super) fn status(api: &ModelVersion, key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    let word = phase_word(job.phase);
    if !word.is_empty() {
        status.insert("imageBuildPhase".to_owned(), json!(word));
        let manifest = job.valid.as_ref().and_then(|spec| serde_json::from_str::<Value>(&spec.manifest).ok());
        if let Some(image) = manifest.as_ref().and_then(|manifest| text_at(manifest, &["image"])) {
            status.insert("image".to_owned(), json!(image));
        }
    }
    if let Some(at) = job.ended_at {
        status.insert("finishTime".to_owned(), time(at));
    }
    let remarks = remarks::of(api, key, job);
    let mut messages: Vec<String> =
        remarks.into_iter().map(|remark| format!("{}: {}", remark.kind, remark.message)).collect();
    messages.extend(job.milestones.back().map(|last| last.message.to_string()).filter(|text| !text.is_empty()));
    if !messages.is_empty() {
        status.insert("message".to_owned(), json!(messages.join("; ")));
    }
    status.insert(MIRROR.to_owned(), engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}
