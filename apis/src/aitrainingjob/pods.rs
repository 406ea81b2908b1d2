//! Slot -> Pod: names, labels, environment.
//!
//! The template is the user's and stays as it is but for the members named here. It must not decide whether a pod is wanted.
//! Tests: `tests/pods.rs`.

use model::{FieldError, SlotId};
use serde_json::{Map, Value, json};

use super::peers::{PeerEnv, numbers, var};
use super::spec::lost_template;
use super::template::ports;
use super::words::{
    API_VERSION, GROUP, GROUP_LABEL, INDEX_LABEL, JOB_LABEL, JOB_LABEL_SHORT, PRIORITY_LABEL, REPLICA_LABEL,
    RESTARTS_LABEL, ROLE_LABEL,
};
use super::{slot_name, template_of};
use crate::api::{PodSlot, RenderInput};
use crate::objects::{INCARNATION, at, owner_reference, text_at, text_members};

/// Renders the pod of a slot, given the job's [`PeerEnv`].
///
/// # Errors
/// When the manifest lacks the group's template, or the template's spec is no object.
pub fn pod(source: RenderInput<'_>, pod: PodSlot<'_>, peers: &PeerEnv) -> Result<Value, FieldError> {
    let RenderInput { job, manifest, .. } = source;
    let template = template_of(manifest, pod.group).ok_or_else(|| lost_template(pod.group))?;
    let mut spec = template.get("spec").and_then(Value::as_object).cloned().ok_or_else(|| lost_template(pod.group))?;
    let name = slot_name(&job.name, &pod.slot.group, pod.slot.index);

    let mut env = peers.vars().to_vec();
    env.extend([
        var("TRAININGJOB_REPLICA_NAME", &pod.slot.group),
        var("TRAININGJOB_REPLICA_INDEX", &pod.slot.index.to_string()),
        var("TRAININGJOB_REPLICA_RESTARTCOUNT", &pod.count.to_string()),
        var("TRAININGJOB_SERVICE", &format!("{name}.{}", job.namespace)),
        var("TRAININGJOB_NAME", &job.name),
        var("TRAININGJOB_NAMESPACE", &job.namespace),
    ]);
    for container in containers_mut(&mut spec, "initContainers") {
        append_env(container, &env, None);
    }
    for container in containers_mut(&mut spec, "containers") {
        let own = var("TRAININGJOB_PORTS", &numbers(&ports(container)));
        append_env(container, &env, Some(own));
    }

    spec.insert("restartPolicy".to_owned(), json!("Never"));
    if let Some(scheduler) = text_at(manifest, &["spec", "schedulerName"]).filter(|text| !text.is_empty()) {
        spec.insert("schedulerName".to_owned(), json!(scheduler));
    }
    // The names in the environment resolve on the host's network only with this policy.
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true)
        && spec.get("dnsPolicy").and_then(Value::as_str).is_none_or(str::is_empty)
    {
        spec.insert("dnsPolicy".to_owned(), json!("ClusterFirstWithHostNet"));
    }

    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(&*job.namespace));
    metadata.insert("labels".to_owned(), Value::Object(labels(source, pod, template)));
    metadata.insert("annotations".to_owned(), Value::Object(annotations(pod, template)));
    if let Some(finalizers) = at(template, &["metadata", "finalizers"]).filter(|value| value.is_array()) {
        metadata.insert("finalizers".to_owned(), finalizers.clone());
    }
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(API_VERSION, job)]));
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Returns the labels by which services find a slot's pod, and we its slot.
pub(super) fn slot_labels(job: &str, slot: &SlotId) -> [(&'static str, String); 4] {
    [
        (GROUP_LABEL, GROUP.to_owned()),
        (JOB_LABEL, job.replace('/', "-")),
        (REPLICA_LABEL, slot.group.to_string()),
        (INDEX_LABEL, slot.index.to_string()),
    ]
}

/// Ours before the template's before the job's.
fn labels(source: RenderInput<'_>, pod: PodSlot<'_>, template: &Value) -> Map<String, Value> {
    let mut labels = text_map(at(template, &["metadata", "labels"]));
    for (key, value) in slot_labels(&source.job.name, pod.slot) {
        labels.insert(key.to_owned(), json!(value));
    }
    labels.insert(JOB_LABEL_SHORT.to_owned(), json!(&*source.job.name));
    labels.insert(ROLE_LABEL.to_owned(), json!(&*pod.slot.group));
    labels.insert(RESTARTS_LABEL.to_owned(), json!(pod.count.to_string()));
    if let Some(priority) = text_at(source.manifest, &["spec", "priority"]).filter(|text| !text.is_empty()) {
        labels.insert(PRIORITY_LABEL.to_owned(), json!(priority));
    }
    for (key, value) in text_members(source.manifest.get("labels")) {
        labels.entry(key).or_insert_with(|| json!(value));
    }
    labels
}

fn annotations(pod: PodSlot<'_>, template: &Value) -> Map<String, Value> {
    let mut annotations = text_map(at(template, &["metadata", "annotations"]));
    annotations.insert(INCARNATION.to_owned(), json!(pod.incarnation.to_string()));
    annotations
}

fn text_map(value: Option<&Value>) -> Map<String, Value> {
    text_members(value).map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

fn containers_mut<'a>(spec: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Value> {
    spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Appends after the user's own entries, so that ours win and can be referred to by nothing of theirs.
fn append_env(container: &mut Value, shared: &[Value], own: Option<Value>) {
    let Some(container) = container.as_object_mut() else { return };
    let env = container.entry("env").or_insert(Value::Null);
    if !env.is_array() {
        *env = Value::Array(Vec::new());
    }
    if let Value::Array(env) = env {
        env.extend(shared.iter().cloned().chain(own));
    }
}
