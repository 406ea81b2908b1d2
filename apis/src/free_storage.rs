//! Free local storage of nodes: what a node has for pods, less what the pods on it request.
//!
//! Source: the storage heuristic of torch-on-k8s as its authors describe it. Theirs compared what systems reserve. Must not ask for
//! nodes or pods, nor decide for which job. Tests: at the end of this file.

use std::collections::BTreeMap;

use kube_model::resources::pod_requests;
use model::Text;
use serde_json::Value;
use settings::Quantity;

use crate::objects::{at, label, list_at, text_at};
use crate::{node, pod};

/// Name of the resource.
const RESOURCE: &str = "ephemeral-storage";
/// Label of nodes that are preferred, and its value.
const FAST: (&str, &str) = ("distributed.io/storage-type", "fast");

/// Free storage of nodes that pods may be placed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeStorage {
    /// Thousandths of bytes by node.
    free: BTreeMap<Text, i128>,
    /// True once a node is known that is labelled as fast: only such nodes are kept.
    has_fast: bool,
}

impl FreeStorage {
    /// Adds a page of a list of nodes. A node counts that is ready, not closed, and states how much storage it has.
    pub fn add_nodes(&mut self, page: &Value) {
        for object in list_at(page, &["items"]) {
            let Ok(fact) = node::fact(object) else { continue };
            let has = at(object, &["status", "allocatable", RESOURCE]).and_then(Quantity::read);
            let Some(has) = has.filter(|_| fact.ready && !fact.closed) else { continue };
            let is_fast = label(object, FAST.0) == Some(FAST.1);
            if is_fast && !self.has_fast {
                self.has_fast = true;
                self.free.clear();
            }
            if is_fast == self.has_fast {
                self.free.insert(fact.name, has.milli());
            }
        }
    }

    /// Returns true if there is no node to choose from.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes off what the pods of a page of a list request. One counts from when it has a node until it has ended.
    pub fn add_pods(&mut self, page: &Value) {
        for object in list_at(page, &["items"]).iter().filter(|object| !pod::phase(object).is_terminal()) {
            let free = text_at(object, &["spec", "nodeName"]).and_then(|node| self.free.get_mut(node));
            let spec = object.get("spec").unwrap_or(&Value::Null);
            if let (Some(free), Some(used)) = (free, pod_requests(spec).get(RESOURCE)) {
                *free = free.saturating_sub(*used);
            }
        }
    }

    /// Returns the node with the most, of several the first by name; `None` without nodes.
    pub fn most(&self) -> Option<&Text> {
        let mut most: Option<(&Text, &i128)> = None;
        for next in &self.free {
            if most.is_none_or(|(_, free)| next.1 > free) {
                most = Some(next);
            }
        }
        most.map(|(node, _)| node)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, storage: &str, edit: &Value) -> Value {
        let mut node = json!({
            "metadata": {"name": name, "resourceVersion": "1", "labels": {}},
            "status": {
                "allocatable": {"ephemeral-storage": storage},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        model::json::merge_patch(&mut node, edit);
        node
    }

    fn pod(node: &str, phase: &str, requests: &[&str]) -> Value {
        let containers: Vec<Value> =
            requests.iter().map(|amount| json!({"resources": {"requests": {"ephemeral-storage": amount}}})).collect();
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": containers}, "status": {"phase": phase}})
    }

    fn most(nodes: &[Value], pods: &[Value]) -> Option<String> {
        let mut free = FreeStorage::default();
        // A page each.
        for node in nodes {
            free.add_nodes(&json!({"items": [node]}));
        }
        for pod in pods {
            free.add_pods(&json!({"items": [pod]}));
        }
        free.most().map(ToString::to_string)
    }

    #[test]
    fn the_node_with_the_most_is_chosen_by_what_pods_leave() {
        let nodes = [node("b", "100Gi", &json!({})), node("a", "100Gi", &json!({})), node("c", "90Gi", &json!({}))];
        assert_eq!(most(&nodes, &[]).as_deref(), Some("a"), "of equal ones the first by name");
        let pods = [pod("a", "Running", &["10Gi", "15Gi"]), pod("b", "Pending", &["20Gi"])];
        assert_eq!(most(&nodes, &pods).as_deref(), Some("c"));
        let over = [pod("a", "Succeeded", &["50Gi"]), pod("b", "Running", &["1"]), pod("", "Pending", &["90Gi"])];
        assert_eq!(most(&nodes, &over).as_deref(), Some("a"), "a pod counts on its node, until it has ended");
    }

    #[test]
    fn nodes_that_take_no_pods_or_report_nothing_are_left_out_and_fast_ones_come_first() {
        let closed = node("a", "9Gi", &json!({"spec": {"unschedulable": true}}));
        let lost = node("b", "8Gi", &json!({"status": {"conditions": []}}));
        let silent = node("c", "7Gi", &json!({"status": {"allocatable": null}}));
        assert_eq!(most(&[closed, lost, silent], &[]), None);
        let fast = node("z", "1Gi", &json!({"metadata": {"labels": {"distributed.io/storage-type": "fast"}}}));
        let plain = node("d", "5Gi", &json!({}));
        for order in [[plain.clone(), fast.clone()], [fast, plain]] {
            assert_eq!(most(&order, &[]).as_deref(), Some("z"));
        }
    }
}
