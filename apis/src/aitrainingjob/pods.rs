//! Slot -> Pod: names, labels, environment.
//!
//! The template is the user's and stays as it is but for the members named here. It must not decide whether a pod is wanted.
//! Tests: `tests/pods.rs`.

use model::{FieldError, SlotId};
use serde_json::{Map, Value, json};

use super::constants::{
    API_VERSION, GROUP, GROUP_LABEL, INDEX_LABEL, JOB_LABEL, JOB_LABEL_SHORT, PRIORITY_LABEL, REPLICA_LABEL,
    RESTARTS_LABEL, ROLE_LABEL,
};
use super::peers::{PeerEnv, numbers, var};
use super::template::ports;
use crate::api::{PodSlot, RenderInput};
use crate::objects::{text_at, text_members};
use crate::replicas::{pod_spec, slot_name, template_of};
use crate::template::{self, PodParts, containers_mut};

/// Renders the pod of a slot, given the job's [`PeerEnv`].
///
/// # Errors
/// Returns an error if the manifest lacks the group's template, or the template's spec is no object.
pub fn pod(source: RenderInput<'_>, pod: PodSlot<'_>, peers: &PeerEnv) -> Result<Value, FieldError> {
    let RenderInput { job, manifest, .. } = source;
    let template = template_of(manifest, pod.group)?;
    let mut spec = pod_spec(template, pod.group)?;
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

    Ok(template::pod(PodParts {
        api_version: API_VERSION,
        job,
        name: &name,
        template,
        labels: labels(source, pod, template),
        annotations: annotations(pod, template),
        spec,
    }))
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
    let mut labels = template::labels(template);
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
    let mut annotations = template::annotations(template);
    template::mark(&mut annotations, pod);
    annotations
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
