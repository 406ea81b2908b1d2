//! Slot -> Pod: names, labels, the environment of the training, and the launcher's arguments.
//!
//! The template is the user's and stays as it is but for the members named here. It must not decide whether a pod is wanted.
//! Tests: `tests/pods.rs`.

use model::{FieldError, SlotId};
use serde_json::{Map, Value, json};

use super::constants::{
    API_VERSION, CONTAINER, GROUP, GROUP_LABEL, INDEX_LABEL, JOB_LABEL, MODEL_VOLUME, PORT_NAME, ROLE_LABEL,
    TYPE_LABEL, Task,
};
use super::elastic;
use super::network::Network;
use super::spec::has_variable;
use crate::api::{PodSlot, RenderInput};
use crate::objects::{at, list_at, text_at, text_members};
use crate::replicas::{pod_spec, slot_name, template_of};
use crate::template::{self, PodParts, append_list, containers_mut, prepend_list};

/// Variable that names the directory of the model.
const MODEL_PATH: &str = "TORCH_ON_K8S_MODEL_PATH";

/// Renders the pod of a slot.
///
/// # Errors
/// Returns an error if the manifest lacks the type's template, or the template's spec is no object.
pub(super) fn pod(source: RenderInput<'_>, pod: PodSlot<'_>) -> Result<Value, FieldError> {
    let RenderInput { job, manifest, .. } = source;
    let template = template_of(manifest, pod.group)?;
    let mut spec = pod_spec(template, pod.group)?;
    let network = Network::of(source);
    let env = environment(&network, pod.slot);
    let args = list_at(manifest, &["args"]);
    let model = at(manifest, &["model"]).filter(|model| model.is_object());
    for container in containers_mut(&mut spec, "containers") {
        if let Some(path) = model.and_then(|model| text_at(model, &["mountPath"])) {
            mount_model(container, path);
        }
        append_list(container, "env", &env);
        if !args.is_empty() {
            prepend_list(container, "args", args);
        }
    }
    if let Some(volume) = model.and_then(|model| model.get("volume")) {
        add_volume(&mut spec, volume);
    }
    if let Some(port) = network.host_port(pod.slot) {
        on_host_network(&mut spec, port);
    }
    let of_group = |key: &str| at(manifest, &["spec", "replicaSpecs", pod.group.display(), key]);
    match of_group("restartPolicy").and_then(Value::as_str) {
        Some(policy) => spec.insert("restartPolicy".to_owned(), json!(policy)),
        None => spec.remove("restartPolicy"),
    };

    let mut labels = template::labels(template);
    labels.extend(slot_labels(&job.name, pod.slot));
    if pod.slot.group.as_ref() == Task::Master.lower() {
        labels.insert(ROLE_LABEL.to_owned(), json!(Task::Master.lower()));
    }
    if let Some(spot) = of_group("spot").filter(|spot| is_spot(spot, pod)) {
        let class = text_at(spot, &["priorityClassName"]).unwrap_or_default();
        spec.insert("priorityClassName".to_owned(), json!(class));
        labels.extend(text_members(spot.get("labels")).map(|(key, value)| (key.to_owned(), json!(value))));
    }
    let mut annotations = template::annotations(template);
    template::mark(&mut annotations, pod);
    let name = slot_name(&job.name, &pod.slot.group, pod.slot.index);
    let mut rendered =
        template::pod(PodParts { api_version: API_VERSION, job, name: &name, template, labels, annotations, spec });
    if let Some(generation) = elastic::of(manifest) {
        elastic::add(source, pod, generation, &mut rendered);
    }
    Ok(rendered)
}

/// Returns the labels by which services find a slot's pod, and we its slot.
pub(super) fn slot_labels(job: &str, slot: &SlotId) -> Map<String, Value> {
    let labels = [
        (GROUP_LABEL, GROUP.to_owned()),
        (JOB_LABEL, job.to_owned()),
        (TYPE_LABEL, slot.group.to_string()),
        (INDEX_LABEL, slot.index.to_string()),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

/// Returns the variables by which the processes of a job find each other.
fn environment(network: &Network<'_>, slot: &SlotId) -> Vec<Value> {
    let rank = if &*slot.group == Task::Master.lower() { 0 } else { slot.index.saturating_add(1) };
    let variables = [
        ("MASTER_PORT", network.master_port(slot).to_string()),
        ("MASTER_ADDR", network.master_address(slot)),
        ("RANK", rank.to_string()),
        // Any text switches buffering off.
        ("PYTHONUNBUFFERED", "0".to_owned()),
        ("WORLD_SIZE", network.world_size().to_string()),
    ];
    variables.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// The highest indices of a type are spot tasks.
fn is_spot(spot: &Value, pod: PodSlot<'_>) -> bool {
    let count = spot.get("numSpotTasks").and_then(Value::as_u64).unwrap_or_default();
    u64::from(pod.slot.index) >= u64::from(pod.group.replicas).saturating_sub(count)
}

fn mount_model(container: &mut Value, path: &str) {
    if !has_variable(container, MODEL_PATH) {
        append_list(container, "env", &[json!({"name": MODEL_PATH, "value": path})]);
    }
    append_list(container, "volumeMounts", &[json!({"name": MODEL_VOLUME, "mountPath": path})]);
}

fn add_volume(spec: &mut Map<String, Value>, volume: &Value) {
    let mut volume = volume.clone();
    if let Some(volume) = volume.as_object_mut() {
        volume.insert("name".to_owned(), json!(MODEL_VOLUME));
    }
    let volumes = spec.entry("volumes").or_insert(Value::Null);
    if volumes.is_null() {
        *volumes = json!([]);
    }
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(volume);
    }
}

fn on_host_network(spec: &mut Map<String, Value>, port: u64) {
    spec.insert("hostNetwork".to_owned(), json!(true));
    spec.insert("dnsPolicy".to_owned(), json!("ClusterFirstWithHostNet"));
    let is_torch = |container: &&mut Value| text_at(container, &["name"]) == Some(CONTAINER);
    let Some(container) = containers_mut(spec, "containers").find(is_torch) else { return };
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    let known = ports.and_then(|ports| ports.iter_mut().find(|port| text_at(port, &["name"]) == Some(PORT_NAME)));
    match known.and_then(Value::as_object_mut) {
        Some(known) => {
            known.insert("containerPort".to_owned(), json!(port));
            known.insert("hostPort".to_owned(), json!(port));
        }
        None => append_list(container, "ports", &[json!({"name": PORT_NAME, "containerPort": port, "hostPort": port})]),
    }
}
