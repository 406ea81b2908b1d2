//! Job state -> `status`: a pure projection into this API's vocabulary.
//!
//! It must not hold anything back that `adopt` needs, nor show anything that is not in the state. Tests: `tests/status.rs`.

use engine::Job;
use model::{JobKey, Phase};
use serde_json::{Map, Value, json};

use super::TorchJob;
use super::{autoscaler, conditions, model_output};
use crate::conditions::{of_remark, time};
use crate::objects::MIRROR;
use crate::remarks;
use crate::summary;

/// Renders the whole `status` of a job.
pub(super) fn status(api: &TorchJob, key: &JobKey, job: &Job) -> Value {
    let mut status = Map::new();
    let mut all: Vec<Value> = remarks::of(api, key, job).iter().map(|remark| of_remark(remark, "Job")).collect();
    all.extend(conditions::render(&job.milestones));
    status.insert("conditions".to_owned(), Value::Array(all));
    status.insert("taskStatuses".to_owned(), Value::Object(task_statuses(job)));
    status.extend(autoscaler::statuses(job).map(|statuses| (autoscaler::STATUSES.to_owned(), statuses)));
    let started_at = job.admitted_at.or_else(|| job.started_at.filter(|_| job.ending().is_some()));
    for (name, at) in [("startTime", started_at), ("completionTime", job.ended_at)] {
        if let Some(at) = at {
            status.insert(name.to_owned(), time(at));
        }
    }
    let manifest = job.valid.as_ref().and_then(|spec| serde_json::from_str::<Value>(&spec.manifest).ok());
    let version = manifest.as_ref().and_then(model_output::name).filter(|_| job.phase == Phase::Succeeded);
    if let Some(name) = version {
        status.insert("modelVersionName".to_owned(), json!(name));
    }
    summary::add(&mut status, job);
    status.insert(MIRROR.to_owned(), engine::wire::mirror_value(&job.mirror()));
    Value::Object(status)
}

/// Pods by state. What an ended job came to stays readable when its pods are gone.
fn task_statuses(job: &Job) -> Map<String, Value> {
    let ending = job.ending().is_some();
    let mut statuses = Map::new();
    for (spec, group) in job.spec_groups() {
        let now = group.counters;
        let mut active = now.active.saturating_add(now.scheduled);
        let (mut succeeded, failed) = match job.finals.get(&spec.name) {
            Some(finals) if ending => *finals,
            Some(_) | None => (now.succeeded, now.failed),
        };
        if job.phase == Phase::Succeeded {
            // What still runs beside AIMaster is not needed any more.
            succeeded = succeeded.saturating_add(active).min(spec.replicas);
            active = 0;
        }
        let counters = [("active", active), ("succeed", succeeded), ("failed", failed)];
        let shown: Map<String, Value> =
            counters.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), json!(n))).collect();
        statuses.insert(spec.display().to_string(), Value::Object(shown));
    }
    statuses
}
