//! The node of a model in local storage that names none: the annotation that names it, and the affinity of the master.
//!
//! It must not choose: [`crate::free_storage`] adds up, and the engine asks for it. Tests: scenarios `storage-node-*`.

use engine::Job;
use model::{SlotId, Text};
use serde_json::{Value, json};

use crate::demand::require;
use crate::objects::annotation;

/// Annotation on a job: the node with the most free storage before its master was created; empty where the master may run on any.
pub(super) const STORAGE_NODE: &str = "trainyard.dev/storage-node";

/// Reads the annotation of a job object.
pub(super) fn read(object: &Value) -> Option<Text> {
    annotation(object, STORAGE_NODE).map(Text::from)
}

/// Has a rendered master run on its node.
pub(super) fn pin(job: &Job, slot: &SlotId, pod: &mut Value) {
    let is_meant = job.spec().is_some_and(|spec| spec.storage_group.as_ref() == Some(&slot.group));
    if let Some(node) = job.storage_node().filter(|_| is_meant) {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [&**node]});
        require(pod, vec![("matchExpressions", vec![expression])]);
    }
}
