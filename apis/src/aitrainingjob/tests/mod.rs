//! Tests of the AITrainingJob translation, one file per direction.

mod adopt;
mod crd;
mod pods;
mod refusals;
mod spec;
mod status;

use model::{JobKey, JobSpec};
use serde_json::{Value, json};

use super::AiTrainingJob;
use crate::api::JobApi;

/// The job that the tables edit: one group `trainer` of two pods.
fn base() -> Value {
    json!({
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "job-1", "resourceVersion": "1"},
        "spec": {"replicaSpecs": {"trainer": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "aitj-main", "image": "img", "ports": [{"name": "aitj-a", "containerPort": 2222}]}]}}}}},
    })
}

/// `base` with the values at these JSON pointers replaced (the parent must be there).
fn edited(edits: &[(&str, Value)]) -> Value {
    let mut job = base();
    for (pointer, value) in edits {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = job.pointer_mut(parent).unwrap_or_else(|| panic!("no {pointer}"));
        match parent {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            parent => parent[key.replace("~1", "/")] = value.clone(),
        }
    }
    job
}

/// The key, spec and manifest of an acceptable job object.
fn accepted(object: &Value) -> (JobKey, JobSpec, Value) {
    let fact = AiTrainingJob.spec_fact(object);
    let spec = fact.spec.unwrap_or_else(|errors| panic!("{errors:?}"));
    let text = |key: &str| object["metadata"][key].as_str().unwrap();
    let key = JobKey {
        namespace: text("namespace").into(),
        name: text("name").into(),
        kind: "AITrainingJob".into(),
        uid: text("uid").into(),
    };
    (key, spec, serde_json::from_str(&fact.manifest).unwrap())
}
