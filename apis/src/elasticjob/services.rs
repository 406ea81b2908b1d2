//! Slot -> Service: a headless name for each pod, the same as the pod's. Tests: `tests/pods.rs`.

use model::SlotId;
use serde_json::{Value, json};

use super::pods::slot_labels;
use super::words::API_VERSION;
use crate::api::RenderInput;
use crate::objects::owner_reference;
use crate::replicas::slot_name;

/// Renders the service of a slot.
pub(super) fn service(source: RenderInput<'_>, slot: &SlotId) -> Value {
    let job = source.job;
    let labels = slot_labels(&job.name, slot);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": slot_name(&job.name, &slot.group, slot.index),
            "namespace": &*job.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(API_VERSION, job)],
        },
        // Workers that start together resolve each other before any of them is ready.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": labels},
    })
}
