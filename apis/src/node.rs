//! Node objects: object -> [`NodeFact`]. Keeps readiness and faults; the rest of a heartbeat is left out. Tests: at the end
//! of this file.

use std::collections::BTreeMap;

use model::{FieldError, NodeFact, Text};
use serde_json::Value;
use settings::Quantity;

use crate::bounds::MAX_POD_GPUS;
use crate::objects::{at, list_at, name, resource_version, text_at};
use crate::template::is_gpu;

/// Prefix of the labels in which Node Feature Discovery describes hardware. There are hundreds on a node, so they are not kept.
pub(crate) const HARDWARE_LABELS: &str = "feature.node.kubernetes.io/";

/// Reads the fact about a node.
///
/// # Errors
/// Returns an error if the object has no name.
pub fn fact(object: &Value) -> Result<NodeFact, FieldError> {
    let name = name(object);
    if name.is_empty() {
        return Err(FieldError::new("metadata.name", "missing", "a node without a name"));
    }
    let mut conditions = true_conditions(object);
    let ready = conditions.iter().any(|condition| &**condition == "Ready");
    conditions.retain(|condition| &**condition != "Ready");
    let is_out = |taint: &Value| text_at(taint, &["key"]) == Some(engine::nodes::OUT_OF_SERVICE);
    if list_at(object, &["spec", "taints"]).iter().any(is_out) {
        conditions.push(Text::from(engine::nodes::OUT_OF_SERVICE));
        conditions.sort_unstable();
    }
    let closed = at(object, &["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or(false);
    let gpus = gpus(object);
    let (rv, mut allocatable) = (resource_version(object), kube_model::node::allocatable(object));
    // Queues judge nodes by the rest, and place nothing on a node without GPUs.
    if gpus.is_empty() {
        let (labels, taints, allocatable) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        return Ok(NodeFact { name, rv, ready, conditions, gpus, closed, labels, taints, allocatable });
    }
    allocatable.retain(|resource, _| !gpus.contains_key(resource));
    let (labels, taints) = (labels(object), kube_model::node::taints(object));
    Ok(NodeFact { name, rv, ready, conditions, gpus, closed, labels, taints, allocatable })
}

/// Allocatable GPUs by resource name. A node that claims more than any has counts with the most that a pod may ask for.
fn gpus(object: &Value) -> BTreeMap<Text, u32> {
    let amounts = at(object, &["status", "allocatable"]).and_then(Value::as_object);
    let whole = |amount: &Value| {
        let count = Quantity::read(amount)?.ceil().min(MAX_POD_GPUS.into());
        u32::try_from(count).ok().filter(|count| *count > 0)
    };
    let gpus = amounts.into_iter().flatten().filter(|(name, _)| is_gpu(name));
    gpus.filter_map(|(name, amount)| Some((Text::from(name.as_str()), whole(amount)?))).collect()
}

fn labels(object: &Value) -> BTreeMap<Text, Text> {
    let mut labels = kube_model::node::labels(object);
    labels.retain(|key, _| !key.starts_with(HARDWARE_LABELS));
    labels
}

/// Types of the conditions in an object's status that are True, sorted and each once.
pub(crate) fn true_conditions(object: &Value) -> Vec<Text> {
    let mut conditions: Vec<Text> = list_at(object, &["status", "conditions"])
        .iter()
        .filter(|condition| condition.get("status").and_then(Value::as_str) == Some("True"))
        .filter_map(|condition| condition.get("type")?.as_str().map(Text::from))
        .collect();
    conditions.sort_unstable();
    conditions.dedup();
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_and_true_conditions_are_kept() {
        let ready =
            |status: &str| json!({"type": "Ready", "status": status, "lastHeartbeatTime": "2024-02-29T00:00:00Z"});
        let fault = json!({"type": "GpuUnhealthy", "status": "True", "message": "Xid 79"});
        let calm = json!({"type": "MemoryPressure", "status": "False"});
        // (conditions, ready, kept)
        for (conditions, want_ready, kept) in [
            (json!([ready("True"), calm]), true, vec![]),
            (json!([ready("False")]), false, vec![]),
            (json!([ready("Unknown"), fault]), false, vec!["GpuUnhealthy"]),
            (json!([fault, ready("True"), {"type": "A", "status": "True"}, fault]), true, vec!["A", "GpuUnhealthy"]),
            (json!([]), false, vec![]),
            (json!(null), false, vec![]),
            (json!([3, {"type": 4, "status": "True"}]), false, vec![]),
        ] {
            let object =
                json!({"metadata": {"name": "n1", "resourceVersion": "7"}, "status": {"conditions": conditions}});
            let fact = fact(&object).unwrap();
            assert_eq!(fact.ready, want_ready, "{conditions}");
            assert_eq!(fact.conditions.iter().map(|c| &**c).collect::<Vec<_>>(), kept, "{conditions}");
            assert_eq!(fact.rv.0, 7);
        }
    }

    #[test]
    fn a_node_out_of_service_says_so_among_its_conditions() {
        let taints = |taints: Value| {
            fact(&json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Z", "status": "True"}]}}))
            .unwrap()
            .conditions
        };
        let out = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
        assert_eq!(
            taints(json!([{"key": "other", "effect": "NoSchedule"}, out])),
            ["Z".into(), engine::nodes::OUT_OF_SERVICE.into()]
        );
        assert_eq!(taints(json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])), ["Z".into()]);
        assert_eq!(taints(json!(null)), ["Z".into()]);
    }

    #[test]
    fn heartbeats_change_nothing_but_the_version() {
        let at = |time: &str| {
            json!({"metadata": {"name": "n", "resourceVersion": "1"}, "status": {"images": [time],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]}})
        };
        assert_eq!(fact(&at("2024-01-01T00:00:00Z")), fact(&at("2025-01-01T00:00:00Z")));
    }

    #[test]
    fn labels_of_nodes_with_gpus_are_kept() {
        let node = |gpus: u32| {
            json!({"metadata": {"name": "n", "labels": {"pool": "a", "feature.node.kubernetes.io/cpu-model.id": "1"}},
            "status": {"allocatable": {"nvidia.com/gpu": gpus.to_string()}}})
        };
        assert_eq!(fact(&node(8)).unwrap().labels, [("pool".into(), "a".into())].into());
        assert_eq!(fact(&node(0)).unwrap().labels, [].into());
    }

    #[test]
    fn a_node_needs_a_name() {
        assert_eq!(fact(&json!({})).unwrap_err().path, "metadata.name");
    }
}
