//! Queue state -> `status`: a pure projection. Tests: `tests.rs`.

use std::collections::{BTreeMap, BTreeSet};

use engine::Job;
use model::{JobKey, QueueReport, Text, WaitingJob};
use serde_json::{Map, Value, json};

use super::TrainingQueue;
use crate::conditions::{condition, of_remark};
use crate::objects::{MIRROR, at};
use crate::remarks;

/// Renders the whole `status` of a queue.
pub(super) fn status(key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    let manifest = job.spec.as_ref().and_then(|spec| serde_json::from_str::<Value>(&spec.manifest).ok());
    if let Some(generation) = manifest.as_ref().and_then(|manifest| at(manifest, &["generation"])?.as_i64()) {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    status.insert("conditions".to_owned(), Value::Array(conditions(key, job)));
    let none = QueueReport::default();
    let report = job.report.as_deref().unwrap_or(&none);
    status.insert("admitted".to_owned(), json!(report.admitted));
    status.insert("pending".to_owned(), json!(report.pending));
    let usage: Map<String, Value> =
        report.usage.iter().map(|(resource, gpus)| (resource.to_string(), json!(gpus))).collect();
    status.insert("usage".to_owned(), Value::Object(usage));
    status.insert("gpus".to_owned(), json!(gpus(job, report)));
    status.insert("borrowed".to_owned(), Value::Object(borrowed(job, report)));
    let jobs: Vec<Value> = (1..).zip(&report.waiting).map(|(place, job)| waiting(place, job)).collect();
    status.insert("jobs".to_owned(), Value::Array(jobs));
    status.insert(MIRROR.to_owned(), engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}

/// Returns GPUs in use and the nominal quota, as a column shows them.
fn gpus(job: &Job, report: &QueueReport) -> String {
    let quota = job.spec().and_then(|spec| spec.queue.as_ref()).map(|queue| &queue.quota);
    let nominal = |resource: &Text| quota.and_then(|quota| quota.get(resource)).map(|quota| quota.nominal);
    let resources: BTreeSet<&Text> = quota.into_iter().flat_map(BTreeMap::keys).chain(report.usage.keys()).collect();
    let of = |resource: &Text| {
        let used = report.usage.get(resource).copied().unwrap_or_default();
        nominal(resource).map_or_else(|| used.to_string(), |nominal| format!("{used}/{nominal}"))
    };
    match resources.iter().collect::<Vec<_>>().as_slice() {
        [] => "0".to_owned(),
        [resource] => of(resource),
        all => all.iter().map(|resource| format!("{resource} {}", of(resource))).collect::<Vec<_>>().join(", "),
    }
}

/// GPUs in use beyond the nominal quota, by resource.
fn borrowed(job: &Job, report: &QueueReport) -> Map<String, Value> {
    let quota = job.spec().and_then(|spec| spec.queue.as_ref()).map(|queue| &queue.quota);
    let nominal = |resource| quota.and_then(|quota| quota.get(resource)).map_or(0, |quota| quota.nominal);
    let beyond = report.usage.iter().map(|(resource, gpus)| (resource, gpus.saturating_sub(nominal(resource))));
    beyond.filter(|(_, gpus)| *gpus > 0).map(|(resource, gpus)| (resource.to_string(), json!(gpus))).collect()
}

fn waiting(position: u32, job: &WaitingJob) -> Value {
    let mut shown = json!({"name": &*job.name, "position": position, "reason": &*job.reason, "message": &*job.message});
    if let Some((members, start)) = shown.as_object_mut().zip(job.expected_start) {
        members.insert("expectedStart".to_owned(), json!(start.to_rfc3339()));
    }
    shown
}

/// Remarks first, then the one condition of every queue.
fn conditions(key: &JobKey, job: &Job) -> Vec<Value> {
    let remarks = remarks::of(&TrainingQueue, key, job);
    let mut conditions: Vec<Value> = remarks.iter().map(|remark| of_remark(remark, "")).collect();
    let queue = job.spec().and_then(|spec| spec.queue.as_ref());
    let (is_active, reason, message) = match (job.invalid().and_then(<[_]>::first), queue) {
        (Some(error), None) => (false, "Invalid", error.to_string()),
        (_, Some(queue)) if queue.paused => {
            (false, "Paused", "spec.paused is true: nothing new is admitted".to_owned())
        }
        (Some(_), Some(_)) => (true, "OlderSpec", "the queue keeps the previous spec".to_owned()),
        (None, Some(_)) => (true, "Ready", String::new()),
        (None, None) => (false, "Unknown", String::new()),
    };
    conditions.push(Value::Object(condition("Active", is_active, reason, &message)));
    conditions
}
