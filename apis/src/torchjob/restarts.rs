//! Restarts of an elastic pod's containers in place by `OpenKruise`: the request, and the marks that its pod gets.
//!
//! It must not know when a request is created: the engine decides that. Tests: `tests/elastic.rs`, scenarios `restart-in-place-*`.

use model::{FieldError, OwnedRef, PodMark};
use serde_json::{Value, json};

use super::constants::{GROUP, GROUP_LABEL};
use super::elastic::{GENERATION, WORLD_SIZE, of};
use crate::api::RenderInput;
use crate::kruise;
use crate::objects::{DIGEST, SHAPE, SIZE, at, text_at};
use crate::template::containers;

/// Renders the request for a pod of this name. It goes with the pod, too.
///
/// # Errors
/// Returns an error if the job has no such pod.
pub(super) fn request(source: RenderInput<'_>, job: &engine::Job, object: &OwnedRef) -> Result<Value, FieldError> {
    let pod = job.pods.values().find(|pod| pod.fact.name == object.name);
    let group = pod.and_then(|pod| source.spec.group(&pod.fact.slot.as_ref()?.group));
    let (Some(pod), Some(group)) = (pod, group) else {
        return Err(FieldError::new("metadata.name", object.name.to_string(), "must be the name of a pod of the job"));
    };
    let template = at(source.manifest, &["spec", "replicaSpecs", group.display(), "template"]);
    let names = template.map(containers).unwrap_or_default().iter().filter_map(|each| text_at(each, &["name"]));
    let generation = of(source.manifest).map(|generation| generation.to_string());
    Ok(json!({
        "metadata": {
            "labels": {GROUP_LABEL: GROUP, GENERATION: generation},
            "annotations": {DIGEST: generation},
            "ownerReferences": [kruise::owner(&pod.fact.name, &pod.fact.uid.0)],
        },
        "spec": kruise::spec(&pod.fact.name, names),
    }))
}

/// Renders the merge patch that puts a mark on a pod.
pub(super) fn mark(mark: &PodMark) -> Value {
    match mark {
        PodMark::Size(size) => json!({"metadata": {"annotations": {WORLD_SIZE: &**size, SIZE: &**size}}}),
        PodMark::Shape(generation) => {
            json!({"metadata": {"labels": {GENERATION: &**generation}, "annotations": {SHAPE: &**generation}}})
        }
    }
}
