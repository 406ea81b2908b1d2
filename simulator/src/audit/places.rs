//! Pods of queues that select nodes: each is on a node that its queue selects, or selected at a time since its job was created. What
//! was granted then stays.
//!
//! Reads objects alone: the labels of nodes, the selectors of queues, and the queues of jobs. Tests: `tests/audit.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::demand::QUEUE;
use apis::objects::{at, label, list_at, text_at};
use model::LabelOperator;
use serde_json::Value;

use super::{has_ended, mirror, name};

/// Nodes that the queue of a job selected: uid of the job and name of the node.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    selected: BTreeSet<(String, String)>,
}

impl Places {
    /// Returns each pod that is on a node which its queue never selected for the job, in words.
    pub(super) fn check(&mut self, objects: &[Arc<Value>]) -> Vec<String> {
        let of = |kind: &'static str| objects.iter().filter(move |object| text_at(object, &["kind"]) == Some(kind));
        let selector = |queue: &Arc<Value>| at(queue, &["spec", "nodes", "selector"]).cloned();
        let selectors: BTreeMap<&str, Option<Value>> =
            of("TrainingQueue").map(|queue| (name(queue), selector(queue))).collect();
        let nodes: BTreeMap<&str, &Arc<Value>> = of("Node").map(|node| (name(node), node)).collect();
        // Without a selector every node is selected; of a queue that is gone nothing is known.
        let selects = |queue: &str, node: &str| match selectors.get(queue) {
            Some(Some(selector)) => nodes.get(node).is_some_and(|node| selects(selector, node)),
            Some(None) | None => true,
        };
        for job in objects {
            let mirror = mirror(job);
            let uid = text_at(job, &["metadata", "uid"]).unwrap_or_default();
            // Its label may name another queue by now than the one that granted it places.
            for queue in [label(job, QUEUE), text_at(&mirror, &["charge", "queue"])].into_iter().flatten() {
                let selected = nodes.keys().filter(|node| selects(queue, node));
                self.selected.extend(selected.map(|node| (uid.to_owned(), (*node).to_owned())));
            }
        }
        let mut violations = Vec::new();
        for pod in of("Pod").filter(|pod| !has_ended(pod)) {
            let Some(queue) = label(pod, QUEUE) else { continue };
            let owner = list_at(pod, &["metadata", "ownerReferences"]).first();
            let owner = owner.and_then(|owner| owner.get("uid")?.as_str()).unwrap_or_default().to_owned();
            let was_selected = |node: &str| self.selected.contains(&(owner.clone(), node.to_owned()));
            for node in places(pod).into_iter().filter(|node| !selects(queue, node) && !was_selected(node)) {
                violations.push(format!("pod {}: on node {node}, which queue {queue} does not select", name(pod)));
            }
        }
        violations
    }
}

/// Returns the node of a pod, or those on one of which its required affinity keeps it: each term names some.
pub(super) fn places(pod: &Value) -> Vec<&str> {
    if let Some(node) = text_at(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        return vec![node];
    }
    let required = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = at(pod, &required).map_or(&[][..], |required| list_at(required, &["nodeSelectorTerms"]));
    let mut all = BTreeSet::new();
    for term in terms {
        let values = |field| list_at(field, &["values"]).iter().filter_map(Value::as_str).collect();
        let named: Vec<BTreeSet<&str>> = list_at(term, &["matchFields"]).iter().map(values).collect();
        let Some((first, others)) = named.split_first() else { return Vec::new() };
        all.extend(first.iter().filter(|node| others.iter().all(|other| other.contains(*node))));
    }
    all.into_iter().collect()
}

/// Returns true if a label selector selects a node.
fn selects(selector: &Value, node: &Value) -> bool {
    let value = |key: &str| at(node, &["metadata", "labels"]).and_then(|labels| labels.get(key)?.as_str());
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let holds = |each: &Value| {
        let operator = LabelOperator::named(text_at(each, &["operator"]).unwrap_or_default());
        let values = list_at(each, &["values"]).iter().filter_map(Value::as_str);
        operator.is_some_and(|operator| operator.holds(value(text_at(each, &["key"]).unwrap_or_default()), values))
    };
    labels.into_iter().all(|(key, wanted)| value(key) == wanted.as_str())
        && list_at(selector, &["matchExpressions"]).iter().all(holds)
}
