//! Queue state -> `status`: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs. Tests: `tests.rs`.

use engine::Job;
use model::{JobKey, ObjectRef, Outcome, OwnedRef, Phase, UserCounts};
use serde_json::{Map, Value, json};

use super::TorchrunQueue;
use super::constants::{KAI_QUEUE, phase_word};
use crate::conditions::{condition, of_remark, time};
use crate::objects::{MIRROR, at, list_at, text_at};
use crate::remarks;

/// Type of the condition that says why a deleted queue waits.
pub(super) const TERMINATING: &str = "Terminating";

/// Reason of a queue on a cluster without KAI.
const NOT_INSTALLED: &str = "KaiNotInstalled";
/// Reason of a queue that has no KAI Queue.
const NOT_CONFIGURED: &str = "KaiNotConfigured";

/// Renders the whole `status` of a queue.
pub(super) fn status(api: TorchrunQueue, key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    if job.phase != Phase::New {
        status.insert("phase".to_owned(), json!(phase_word(job.phase)));
    }
    let manifest = job.spec.as_ref().and_then(|spec| serde_json::from_str::<Value>(&spec.manifest).ok());
    if let Some(generation) = manifest.as_ref().and_then(|manifest| at(manifest, &["generation"])?.as_i64()) {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    if let Some(last) = job.milestones.back() {
        status.insert("lastUpdateTime".to_owned(), time(last.at));
    }
    let UserCounts { pending, running, finished, gpus } = job.users;
    for (name, number) in
        [("pendingJobs", pending), ("runningJobs", running), ("finishedJobs", finished), ("allocatedGPUs", gpus)]
    {
        status.insert(name.to_owned(), json!(number));
    }
    status.insert("resourcesReady".to_owned(), json!(lacking(job).is_none()));
    let objects = manifest.as_ref().map(|manifest| list_at(manifest, &["objects"])).unwrap_or_default();
    if !objects.is_empty() {
        let statuses = objects.iter().map(|object| object_status(job, object));
        status.insert("resourceStatuses".to_owned(), Value::Array(statuses.collect()));
    }
    status.insert("conditions".to_owned(), Value::Array(conditions(api, key, job)));
    status.insert(MIRROR.to_owned(), engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}

/// Remarks first, then the three conditions of every queue, then why a deleted one waits.
fn conditions(api: TorchrunQueue, key: &JobKey, job: &Job) -> Vec<Value> {
    let (is_ready, reason, message) = kai(job);
    // A cluster without KAI is none of the queue's troubles.
    let is_known = reason == NOT_INSTALLED && job.refusals().count() == 1 && job.quarantine.is_none();
    let remarks = remarks::of(&api, key, job);
    let shown = remarks.iter().filter(|remark| !is_known || remark.kind != remarks::DEGRADED);
    let mut conditions: Vec<Value> = shown.map(|remark| of_remark(remark, "")).collect();
    let mut add = |kind: &str, current: bool, reason: &str, message: &str| {
        conditions.push(Value::Object(condition(kind, current, reason, message)));
    };
    match job.invalid().and_then(<[_]>::first) {
        Some(error) => add("Valid", false, "ValidationError", &error.to_string()),
        None => add("Valid", true, "ValidationPassed", ""),
    }
    if job.spec().is_some() {
        add("QueueReady", is_ready, reason, &message);
        match lacking(job) {
            Some(object) => add("ResourcesReady", false, "ResourcesNotReady", &format!("{object} does not exist yet")),
            None => add("ResourcesReady", true, "AllResourcesReady", ""),
        }
    }
    if let Some(last) = job.milestones.back().filter(|last| last.phase == Phase::Terminating) {
        add(TERMINATING, true, "InUse", &last.message);
    }
    conditions
}

/// Returns the state of the KAI Queue.
fn kai(job: &Job) -> (bool, &'static str, String) {
    let Some(wanted) =
        job.spec().and_then(|spec| spec.owned.iter().find(|owned| owned.object.kind == KAI_QUEUE.kind.into()))
    else {
        return (
            true,
            NOT_CONFIGURED,
            "the queue names no KAI Queue; its jobs' pods go to scheduling.scheduler".to_owned(),
        );
    };
    let object = &wanted.object;
    if job.owned.get(object).is_some_and(|owned| owned.fact.as_ref().is_some_and(|fact| !fact.deleting)) {
        return (true, "QueueExists", String::new());
    }
    match last_outcome(job, object) {
        Some(Outcome::Taken { .. }) => (
            false,
            "QueueConflict",
            format!("KAI Queue {} belongs to something else; it is used as it is", object.name),
        ),
        Some(Outcome::Refused { code: 404, .. }) => {
            (false, NOT_INSTALLED, "this cluster has no KAI Queues; jobs need scheduling.scheduler".to_owned())
        }
        Some(Outcome::Refused { message, .. }) => (false, "CreateFailed", message.to_string()),
        Some(Outcome::Done | Outcome::Forced | Outcome::Gone | Outcome::Unknown { .. }) | None => {
            (false, "QueueNotFound", format!("KAI Queue {} does not exist yet", object.name))
        }
    }
}

/// Returns whether an object of a template exists, and why not.
fn object_status(job: &Job, stored: &Value) -> Value {
    let text = |key: &str| text_at(stored, &[key]).unwrap_or_default();
    let object = OwnedRef::new(text("apiVersion"), text("kind"), text("name"));
    if exists(job, &object) {
        return json!({"name": text("name"), "kind": text("kind"), "ready": true});
    }
    let message = match last_outcome(job, &object) {
        Some(Outcome::Taken { .. }) => "an object of this name belongs to something else",
        Some(Outcome::Refused { message, .. }) => message,
        Some(Outcome::Done | Outcome::Forced | Outcome::Gone | Outcome::Unknown { .. }) | None => {
            "it does not exist yet"
        }
    };
    json!({"name": text("name"), "kind": text("kind"), "ready": false, "message": message})
}

/// Returns the outcome of the last attempt to write an object.
fn last_outcome<'a>(job: &'a Job, object: &OwnedRef) -> Option<&'a Outcome> {
    job.attempts.get(&ObjectRef::Owned(object.clone())).map(|attempt| &attempt.last)
}

fn exists(job: &Job, object: &OwnedRef) -> bool {
    job.owned.get(object).is_some_and(|owned| owned.fact.is_some())
}

/// Returns an object of the queue, besides its KAI Queue, that does not exist.
fn lacking(job: &Job) -> Option<&OwnedRef> {
    let wanted = job.spec()?.owned.iter().map(|owned| &owned.object);
    wanted.filter(|object| &*object.kind != KAI_QUEUE.kind).find(|object| !exists(job, object))
}
