//! Pods of others: GPUs that they hold on nodes. A pod counts from when it has a node until it has ended.
//!
//! Reads pods that no watch of a served API shows; nothing else is kept of them. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{FieldError, ResourceVersion, Text, Uid};
use serde_json::Value;

use crate::demand;
use crate::objects::{at, resource_version, text_at, uid};

/// A pod of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignPod {
    /// Its uid.
    pub uid: Uid,
    /// Its version.
    pub rv: ResourceVersion,
    /// Its node; empty without one.
    pub node: Text,
    /// GPUs that it holds there, by resource; none of a pod that has no node or has ended.
    pub gpus: BTreeMap<Text, u32>,
}

/// Reads a pod.
///
/// # Errors
/// Returns an error if the object has no uid.
pub(crate) fn pod(object: &Value) -> Result<ForeignPod, FieldError> {
    let node = Text::from(text_at(object, &["spec", "nodeName"]).unwrap_or_default());
    let counts = !node.is_empty() && !crate::pod::phase(object).is_terminal();
    let gpus = at(object, &["spec"]).filter(|_| counts).map(demand::requests).unwrap_or_default();
    Ok(ForeignPod { uid: uid(object)?, rv: resource_version(object), node, gpus })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_counts_on_its_node_until_it_has_ended() {
        let of = |node: &str, phase: &str| {
            let container = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": 1}}});
            let object = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
                "spec": {"nodeName": node, "containers": [container, container]}, "status": {"phase": phase}});
            pod(&object).unwrap().gpus.get("nvidia.com/gpu").copied()
        };
        for (node, phase, want) in [
            ("n1", "Running", Some(4)),
            ("n1", "Pending", Some(4)),
            ("n1", "", Some(4)),
            ("", "Pending", None),
            ("n1", "Succeeded", None),
            ("n1", "Failed", None),
        ] {
            assert_eq!(of(node, phase), want, "{node} {phase}");
        }
        assert_eq!(pod(&json!({})).unwrap_err().path, "metadata.uid");
    }
}
