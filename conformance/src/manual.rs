//! Manual scheduler, kubelets and nodes: a verb of the embedded cluster is done to a copy, and what it changed is written to
//! the server.
//!
//! So both grounds say the same of a pod that runs, waits or ends. Owns the copy and the writing; the verbs are `cluster`'s.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use apis::{ApiError, Resource};
use cluster::{Cluster, Mode, Options, runtime::VirtualPods};
use model::Timestamp;
use serde_json::{Map, Value, json};
use simulator::simulation::Simulation;

use crate::names::Names;
use crate::server::Server;

/// The kinds that are copied, with their paths under a namespace (or under `/api/v1`).
const PODS: (&str, &str) = ("v1", "Pod");
const NODES: (&str, &str) = ("v1", "Node");

/// A copy of objects, in a cluster of its own.
///
/// # Errors
/// When an object cannot be stored even unchecked.
pub fn copy_of(objects: &[Arc<Value>], now: Timestamp) -> Result<Cluster, ApiError> {
    let options = Options { mode: Mode::Manual, now, nodes: Vec::new() };
    let mut cluster = Cluster::with_runtime(&options, Box::new(VirtualPods));
    let kinds = Simulation::served_kinds();
    let failed = |error: &dyn Display| ApiError { code: 500, reason: "Definition".into(), message: error.to_string() };
    cluster.set_kinds(&kinds.map_err(|error| failed(&error))?);
    for object in objects {
        cluster.store_unchecked(object)?;
    }
    Ok(cluster)
}

/// Does a verb to a copy of the cluster as it stands, and writes what it changed of pods and nodes.
///
/// # Errors
/// The verb's, or the server's.
pub fn act(
    server: &Server,
    names: &Names,
    mut copy: Cluster,
    verb: &mut dyn FnMut(&mut Cluster) -> Result<(), cluster::Error>,
) -> Result<(), cluster::Error> {
    let nodes = by_name(&copy, NODES);
    let pods = by_name(&copy, PODS);
    let result = verb(&mut copy);
    for (address, after) in by_name(&copy, NODES) {
        write_node(server, names, nodes.get(&address), &after)?;
        drop(address);
    }
    let left = by_name(&copy, NODES);
    for name in nodes.keys().filter(|name| !left.contains_key(*name)) {
        server.delete(&node_path(names, &name.1), &json!({"gracePeriodSeconds": 0}))?;
    }
    let left = by_name(&copy, PODS);
    for (address, before) in &pods {
        match left.get(address) {
            Some(after) => write_pod(server, names, before, after)?,
            None => {
                server.delete(&pod_path(names, before), &json!({"gracePeriodSeconds": 0}))?;
            }
        }
    }
    result
}

fn by_name(cluster: &Cluster, (api_version, kind): (&str, &str)) -> BTreeMap<(String, String), Arc<Value>> {
    let objects = cluster.objects_of(&Resource::new(api_version, kind));
    let address =
        |object: &Value| (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned());
    objects.into_iter().map(|object| (address(&object), object)).collect()
}

fn write_node(server: &Server, names: &Names, before: Option<&Arc<Value>>, after: &Value) -> Result<(), ApiError> {
    let path = node_path(names, text(after, "/metadata/name"));
    if before.is_none() {
        let mut node = names.object_out(after);
        if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels"));
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(names.mark(), "".into());
            }
        }
        server.create("/api/v1/nodes", &node)?;
    }
    let status = |node: &Value| node.get("status").cloned().unwrap_or_default();
    if before.is_none_or(|before| status(before) != status(after)) {
        let before = before.map(|b| status(b)).unwrap_or_default();
        server.patch(&format!("{path}/status"), &json!({"status": changed(&before, &status(after))}))?;
    }
    Ok(())
}

fn write_pod(server: &Server, names: &Names, before: &Value, after: &Value) -> Result<(), ApiError> {
    let path = pod_path(names, after);
    let node = text(after, "/spec/nodeName");
    if text(before, "/spec/nodeName") != node {
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": names.out(node)});
        let name = text(after, "/metadata/name");
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        server.create(&format!("{path}/binding"), &binding)?;
    }
    let status = |pod: &Value| pod.get("status").cloned().unwrap_or_default();
    let change = changed(&status(before), &status(after));
    if change.as_object().is_some_and(|change| !change.is_empty()) {
        server.patch(&format!("{path}/status"), &json!({"status": change}))?;
    }
    Ok(())
}

/// The merge patch between two objects, member by member of the first level.
fn changed(before: &Value, after: &Value) -> Value {
    let empty = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let mut patch: Map<String, Value> = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

fn node_path(names: &Names, name: &str) -> String {
    format!("/api/v1/nodes/{}", names.out(name))
}

fn pod_path(names: &Names, pod: &Value) -> String {
    let namespace = names.out(text(pod, "/metadata/namespace"));
    format!("/api/v1/namespaces/{namespace}/pods/{}", text(pod, "/metadata/name"))
}

/// The text at a JSON pointer; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
