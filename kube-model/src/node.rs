//! What counts of a node: object -> taints, labels, allocatable amounts. Must not judge. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{Taint, Text};
use serde_json::Value;

use crate::json::{at, list_at, text};
use crate::requirements::{texts, unsigned};
use crate::resources::amounts;

/// Resources of which a node that does not list them has no end. A kubelet lists all of them; nodes of scenarios need not.
pub const UNLIMITED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Taints that say of a node what is judged by its `Ready` condition and by `spec.unschedulable`.
const JUDGED_ELSEWHERE: [&str; 3] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"];

/// Returns the taints of a node that keep pods away, sorted, but for those that repeat its readiness and its cordon.
pub fn taints(node: &Value) -> Vec<Taint> {
    let all = list_at(node, &["spec", "taints"]).iter();
    let keeps_away = all.filter(|taint| matches!(text(taint, "effect"), "NoSchedule" | "NoExecute"));
    let own = keeps_away.filter(|taint| !JUDGED_ELSEWHERE.contains(&text(taint, "key")));
    let read = |taint: &Value| Taint {
        key: Text::from(text(taint, "key")),
        value: Text::from(text(taint, "value")),
        effect: Text::from(text(taint, "effect")),
    };
    let mut taints: Vec<Taint> = own.map(read).collect();
    taints.sort_unstable();
    taints
}

/// Returns the labels of a node.
pub fn labels(node: &Value) -> BTreeMap<Text, Text> {
    texts(at(node, &["metadata", "labels"]))
}

/// Returns the allocatable amounts of a node in thousandths; its capacity where it has none.
pub fn allocatable(node: &Value) -> BTreeMap<Text, u64> {
    let listed = at(node, &["status", "allocatable"]).or_else(|| at(node, &["status", "capacity"]));
    unsigned(amounts(listed).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taints_that_keep_pods_away_are_read() {
        let node = json!({"spec": {"taints": [
            {"key": "team", "value": "x", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}]}});
        let keys: Vec<String> = taints(&node).iter().map(|taint| format!("{}={}", taint.key, taint.value)).collect();
        assert_eq!(keys, ["a=", "team=x"]);
    }

    #[test]
    fn what_is_allocatable_is_read_in_thousandths() {
        let node = json!({"metadata": {"labels": {"pool": "a", "odd": 1}},
            "status": {"allocatable": {"cpu": "2", "pods": "110", "gpu": "0"}, "capacity": {"cpu": 4}}});
        assert_eq!(allocatable(&node), [("cpu".into(), 2000), ("pods".into(), 110_000)].into());
        assert_eq!(allocatable(&json!({"status": {"capacity": {"cpu": 4}}})), [("cpu".into(), 4000)].into());
        assert_eq!(labels(&node), [("pool".into(), "a".into())].into());
    }
}
