//! Slot -> Service: a headless name for each pod, the same as the pod's. Tests: `tests/pods.rs`.

use model::SlotId;
use serde_json::{Value, json};

use super::constants::API_VERSION;
use super::pods::slot_labels;
use crate::api::RenderInput;
use crate::template;

/// Renders the service of a slot.
pub(super) fn service(source: RenderInput<'_>, slot: &SlotId) -> Value {
    let labels = slot_labels(&source.job.name, slot);
    // Workers that start together resolve each other before any of them is ready.
    let spec = json!({"clusterIP": "None", "publishNotReadyAddresses": true});
    template::service(API_VERSION, source.job, slot, &labels, spec)
}
