//! Tests of the ElasticJob translation, one file per direction.

mod adopt;
mod crd;
mod events;
mod pods;
mod refusals;
mod shapes;
mod spec;
mod status;

use serde_json::{Value, json};

use super::ElasticJob;
use crate::testing;

/// Returns a job with two workers and a range of one to four.
fn base() -> Value {
    json!({
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "imagenet", "namespace": "elastic-job", "uid": "job-1", "resourceVersion": "1",
            "creationTimestamp": "2024-02-28T00:00:00Z", "generation": 1},
        "spec": {
            "rdzvEndpoint": "etcd-service:2379",
            "minReplicas": 1,
            "maxReplicas": 4,
            "replicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "ExitCode", "template": {
                "apiVersion": "v1", "kind": "Pod",
                "spec": {"containers": [
                    {"name": "elasticjob-worker", "image": "img:1", "args": ["--nproc_per_node=1", "main.py"]}]}}}},
        },
    })
}

/// `base` with the values at these JSON pointers replaced (the parent must be there).
fn edited(edits: &[(&str, Value)]) -> Value {
    testing::edited(base(), edits)
}

/// `base` without the members at these JSON pointers.
fn without(pointers: &[&str]) -> Value {
    let mut object = base();
    for pointer in pointers {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
    }
    object
}

fn errors(object: &Value) -> Vec<String> {
    testing::errors(&ElasticJob, object)
}

fn warnings(object: &Value) -> Vec<String> {
    testing::warnings(&ElasticJob, object)
}
