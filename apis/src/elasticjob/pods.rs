//! Slot -> Pod: names, labels, the launcher's arguments, and the environment.
//!
//! The template is the user's and stays as it is but for the members named here. It must not decide whether a pod is wanted.
//! Tests: `tests/pods.rs`.

use model::{FieldError, SlotId};
use serde_json::{Map, Value, json};

use super::constants::{API_VERSION, CONTAINER, GROUP, GROUP_LABEL, INDEX_LABEL, JOB_LABEL, TYPE_LABEL};
use super::environment;
use crate::api::{PodSlot, RenderInput};
use crate::objects::text_at;
use crate::replicas::{RESTART, Restart, pod_spec, slot_name, template_of};
use crate::template::{self, PodParts, containers, containers_mut, prepend_list};

/// Renders the pod of a slot, given the launcher's arguments.
///
/// # Errors
/// Returns an error if the manifest lacks the group's template, or the template's spec is no object.
pub(super) fn pod(source: RenderInput<'_>, pod: PodSlot<'_>, args: &[Value]) -> Result<Value, FieldError> {
    let RenderInput { job, manifest, .. } = source;
    let template = template_of(manifest, pod.group)?;
    let mut spec = pod_spec(template, pod.group)?;
    let is_worker = |container: &Value| text_at(container, &["name"]) == Some(CONTAINER);
    // Sidecars get none where the worker's container is known by its name.
    let has_workers = containers(template).iter().any(is_worker);
    let variables = environment::variables(source, pod, args);
    for container in containers_mut(&mut spec, "containers").filter(|each| !has_workers || is_worker(each)) {
        prepend_list(container, "args", args);
        environment::add(container, &variables);
    }
    let policy = text_at(manifest, &["spec", "replicaSpecs", pod.group.display(), "restartPolicy"]);
    let policy =
        RESTART.into_iter().find(|(word, _)| Some(*word) == policy).map_or(Restart::Always, |(_, policy)| policy);
    spec.insert("restartPolicy".to_owned(), json!(policy.of_pods()));

    let mut labels = template::labels(template);
    labels.extend(slot_labels(&job.name, pod.slot));
    let mut annotations = template::annotations(template);
    template::mark(&mut annotations, pod);
    let name = slot_name(&job.name, &pod.slot.group, pod.slot.index);
    Ok(template::pod(PodParts { api_version: API_VERSION, job, name: &name, template, labels, annotations, spec }))
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
