//! Pod templates: the checks that every API makes, and the parts of a template that a pod is made of.
//!
//! A template is the user's. What is not read here stays as it was written, for any version of Kubernetes. The faults that an API
//! server refuses are in [`pod_rules`]. It must not know which containers an API gives a meaning. Tests: `aitrainingjob/tests/refusals.rs`, `aitrainingjob/tests/spec.rs`.

use model::{JobKey, SlotId};
use serde_json::{Map, Value, json};
use settings::Quantity;

use crate::api::PodSlot;
use crate::fields::{Findings, join, type_of};
use crate::objects::{INCARNATION, SHAPE, at, list_at, owner_reference, text_members};
use crate::pod_rules::{self, Completes};
use crate::replicas::slot_name;

/// Parts of a checked template that translation reads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Template<'a> {
    /// Its normal containers.
    pub containers: &'a [Value],
    /// Set if its pods request GPUs.
    pub gpus: bool,
}

/// Checks the template of a replica spec, which `completes` makes whole. One that cannot be accepted reads as one without containers.
pub(crate) fn check<'a>(replica: &'a Value, path: &str, completes: Completes, findings: &mut Findings) -> Template<'a> {
    let path = join(path, "template");
    let Some(template) = replica.get("template").filter(|template| !template.is_null()) else {
        findings.error(path, None, "a group of replicas needs a pod template");
        return Template::default();
    };
    check_at(template, &path, completes, findings)
}

/// Checks a template that stands at a path.
pub(crate) fn check_at<'a>(
    template: &'a Value,
    path: &str,
    completes: Completes,
    findings: &mut Findings,
) -> Template<'a> {
    if !template.is_object() {
        findings.error(path, Some(template), format!("must be an object, not {}", type_of(template)));
        return Template::default();
    }
    if findings.object(template, path, "metadata").is_some() {
        let metadata = template.get("metadata").unwrap_or(&Value::Null);
        let path = join(path, "metadata");
        findings.check_text_map(metadata, &path, "labels");
        findings.check_text_map(metadata, &path, "annotations");
        findings.list(metadata, &path, "finalizers");
    }
    let spec = template.get("spec").unwrap_or(&Value::Null);
    if spec.is_null() {
        findings.error(join(path, "spec.containers"), None, "a pod template needs at least one container");
    }
    pod_rules::check(template, path, completes, findings);
    Template { containers: containers(template), gpus: asks_for_gpus(spec) }
}

/// Returns the normal containers of a template.
pub fn containers(template: &Value) -> &[Value] {
    list_at(template, &["spec", "containers"])
}

/// Iterates over a list of containers of a pod's spec, to change them; `key` is `containers` or `initContainers`.
pub fn containers_mut<'a>(spec: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Value> {
    spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Puts members before those that a list of a container has: of an argument that is given twice, a launcher takes the last.
pub fn prepend_list(container: &mut Value, key: &str, members: &[Value]) {
    if let Some(own) = list_of(container, key) {
        own.splice(0..0, members.iter().cloned());
    }
}

/// Puts members behind those that a list of a container has: of a variable that is given twice, the last one counts.
pub fn append_list(container: &mut Value, key: &str, members: &[Value]) {
    if let Some(own) = list_of(container, key) {
        own.extend(members.iter().cloned());
    }
}

/// Returns a list of a container, made where it is absent; `None` where something else stands there.
fn list_of<'a>(container: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    let own = container.as_object_mut()?.entry(key).or_insert(Value::Null);
    if own.is_null() {
        *own = Value::Array(Vec::new());
    }
    own.as_array_mut()
}

/// Returns the labels of a template.
pub fn labels(template: &Value) -> Map<String, Value> {
    text_map(at(template, &["metadata", "labels"]))
}

/// Returns the annotations of a template.
pub fn annotations(template: &Value) -> Map<String, Value> {
    text_map(at(template, &["metadata", "annotations"]))
}

/// Marks a pod with the creation it came from, and with the shape in which it was made.
pub fn mark(annotations: &mut Map<String, Value>, pod: PodSlot<'_>) {
    annotations.insert(INCARNATION.to_owned(), json!(pod.incarnation.to_string()));
    if let Some(shape) = &pod.group.shape {
        annotations.insert(SHAPE.to_owned(), json!(&**shape));
    }
}

fn text_map(value: Option<&Value>) -> Map<String, Value> {
    text_members(value).map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

/// Members of a pod that its API gives it. Finalizers come from the template, the owner is the job.
#[derive(Debug)]
pub struct PodParts<'a> {
    /// API version of the job object.
    pub api_version: &'a str,
    /// The job.
    pub job: &'a JobKey,
    /// Name of the pod.
    pub name: &'a str,
    /// The template it is made of.
    pub template: &'a Value,
    /// All of its labels.
    pub labels: Map<String, Value>,
    /// All of its annotations.
    pub annotations: Map<String, Value>,
    /// Its spec.
    pub spec: Map<String, Value>,
}

/// Renders a pod.
pub fn pod(parts: PodParts<'_>) -> Value {
    let PodParts { api_version, job, name, template, labels, annotations, mut spec } = parts;
    keep_last_words(&mut spec);
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(&*job.namespace));
    metadata.insert("labels".to_owned(), Value::Object(labels));
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
    if let Some(finalizers) = at(template, &["metadata", "finalizers"]).filter(|value| value.is_array()) {
        metadata.insert("finalizers".to_owned(), finalizers.clone());
    }
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(api_version, job)]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Has the status of a container that fails hold the end of what it wrote, where its template does not say otherwise: without it
/// an exit code is all that is left of a failed pod.
fn keep_last_words(spec: &mut Map<String, Value>) {
    for key in ["containers", "initContainers"] {
        for container in containers_mut(spec, key).filter_map(Value::as_object_mut) {
            let policy = container.entry("terminationMessagePolicy").or_insert(Value::Null);
            if policy.is_null() || policy == "" {
                *policy = json!("FallbackToLogsOnError");
            }
        }
    }
}

/// Renders the service of a slot, which selects the slot's pod by its labels and has its name.
pub fn service(api_version: &str, job: &JobKey, slot: &SlotId, labels: &Map<String, Value>, mut spec: Value) -> Value {
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("selector".to_owned(), Value::Object(labels.clone()));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": slot_name(&job.name, &slot.group, slot.index),
            "namespace": &*job.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(api_version, job)],
        },
        "spec": spec,
    })
}

fn asks_for_gpus(spec: &Value) -> bool {
    ["containers", "initContainers"].iter().flat_map(|key| list_at(spec, &[key])).any(|container| {
        ["limits", "requests"].iter().any(|kind| {
            let resources =
                container.get("resources").and_then(|resources| resources.get(*kind)).and_then(Value::as_object);
            let mut amounts = resources.into_iter().flatten().filter(|(name, _)| is_gpu(name));
            amounts.any(|(_, amount)| Quantity::read(amount).is_some_and(|amount| amount > Quantity::whole(0)))
        })
    })
}

/// Returns true if a resource is a GPU or a slice of one, going by the device plugins in use.
pub fn is_gpu(resource: &str) -> bool {
    resource.ends_with("gpu") || resource.ends_with("gpu.shared") || resource.starts_with("nvidia.com/mig-")
}
