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
use crate::testing;

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
    testing::edited(base(), edits)
}

/// The key, spec and manifest of an acceptable job object.
fn accepted(object: &Value) -> (JobKey, JobSpec, Value) {
    testing::accepted(&AiTrainingJob, object)
}
