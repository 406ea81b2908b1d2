//! What every test of the embedded cluster builds on: one custom kind, short calls, short objects.

use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, Observation, Resource, Verb};
use cluster::{Cluster, Options};
use model::{JobKey, ResourceVersion, Text, Uid};
use serde_json::{Value, json};

/// A definition with what the tests need: the subresources status and scale, bounds, a default, preserved and pruned fields.
pub(crate) fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trains.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"kind": "Train", "plural": "trains"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.cars.trainer.replicas",
                    "statusReplicasPath": ".status.count"}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "spec": {"type": "object", "required": ["cars"], "properties": {
                            "cars": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                                "replicas": {"type": "integer", "format": "int32", "minimum": 0},
                                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            }}},
                            "policy": {"type": "string", "enum": ["All", "None"], "default": "All"},
                            "note": {"type": "string", "nullable": true},
                            "codes": {"x-kubernetes-int-or-string": true},
                        }},
                        "status": {"type": "object", "properties": {
                            "phase": {"type": "string"},
                            "count": {"type": "integer"},
                        }},
                    },
                }},
            }],
        },
    })
}

/// A manual cluster with three nodes that serves `Train`.
pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&Options::default());
    cluster.register(&crd()).expect("the definition is good");
    cluster
}

pub(crate) fn train() -> Resource {
    Resource::new("example.dev/v1", "Train")
}

pub(crate) fn pods() -> Resource {
    Resource::new("v1", "Pod")
}

pub(crate) fn resource(kind: &str) -> Resource {
    match kind {
        "Train" => train(),
        kind => Resource::new("v1", kind),
    }
}

/// A `Train` manifest.
pub(crate) fn train_manifest(name: &str) -> Value {
    json!({
        "apiVersion": "example.dev/v1",
        "kind": "Train",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cars": {"trainer": {"replicas": 2}}},
    })
}

/// A pod manifest with one container `main` and the owners (kind, name, uid).
pub(crate) fn pod_manifest(name: &str, owners: &[(&str, &str, &str)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(kind, name, uid)| {
            let api_version = resource(kind).api_version;
            json!({"apiVersion": &*api_version, "kind": kind, "name": name, "uid": uid})
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]},
    })
}

/// A call with nothing but its verb and object.
pub(crate) fn call(verb: Verb, kind: &str, name: &str) -> ApiCall {
    ApiCall {
        id: 1,
        job: JobKey { namespace: "default".into(), name: "t".into(), kind: "Train".into(), uid: Uid::from("u") },
        object: None,
        cause: model::Stamp::default(),
        verb,
        resource: resource(kind),
        namespace: if kind == "Node" { "".into() } else { "default".into() },
        name: Text::from(name),
        body: None,
        uid: None,
        rv: None,
        grace_seconds: None,
    }
}

pub(crate) fn create(cluster: &mut Cluster, manifest: &Value) -> ApiAnswer {
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    cluster.execute(&ApiCall { body: Some(manifest.clone()), ..call(Verb::Create, kind, name) })
}

pub(crate) fn patch(cluster: &mut Cluster, kind: &str, name: &str, body: Value) -> ApiAnswer {
    cluster.execute(&ApiCall { body: Some(body), ..call(Verb::Patch, kind, name) })
}

pub(crate) fn delete(cluster: &mut Cluster, kind: &str, name: &str, grace_seconds: Option<u32>) -> ApiAnswer {
    cluster.execute(&ApiCall { grace_seconds, ..call(Verb::Delete, kind, name) })
}

pub(crate) fn status(cluster: &mut Cluster, name: &str, rv: Option<u64>, status: impl Into<Value>) -> ApiAnswer {
    let body = Some(json!({"status": status.into()}));
    cluster.execute(&ApiCall { body, rv: rv.map(ResourceVersion), ..call(Verb::ApplyStatus, "Train", name) })
}

pub(crate) fn get(cluster: &Cluster, kind: &str, name: &str) -> Option<Arc<Value>> {
    cluster.get(&resource(kind), "default", name)
}

pub(crate) fn pod(cluster: &Cluster, name: &str) -> Arc<Value> {
    get(cluster, "Pod", name).unwrap_or_else(|| panic!("pod {name} is there"))
}

pub(crate) fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

pub(crate) fn rv(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().expect("a resourceVersion is a number")
}

/// `code reason` of a refusal, `ok` otherwise.
pub(crate) fn verdict(answer: &ApiAnswer) -> String {
    match answer {
        Ok(_) => "ok".to_owned(),
        Err(error) => format!("{} {}", error.code, error.reason),
    }
}

/// One line per observation: `listed Pod 2`, `applied p`, `deleted p`.
pub(crate) fn observed(observations: &[Observation]) -> Vec<String> {
    observations
        .iter()
        .map(|observation| match observation {
            Observation::Applied(object) => format!("applied {}", meta(object, "name")),
            Observation::Deleted(object) => format!("deleted {}", meta(object, "name")),
            Observation::Listed { kind, items, .. } => format!("listed {kind:?} {}", items.len()),
        })
        .collect()
}
