//! What a pod requires of its node: pod spec -> [`PodRequirements`]. Must not judge. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{LabelOperator, LabelRequirement, NodeSelectorTerm, PodRequirements, Text, Toleration};
use serde_json::Value;

use crate::json::{at, list_at, text};
use crate::resources::{Amounts, pod_requests};

/// Resource of which each pod takes one.
pub const PODS: &str = "pods";

/// Returns what a pod of this spec requires of its node.
pub fn requirements(spec: &Value) -> PodRequirements {
    let mut requests = unsigned(pod_requests(spec));
    requests.insert(Text::from(PODS), 1000);
    let path = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = |rule| list_at(rule, &["nodeSelectorTerms"]).iter().map(term).collect();
    PodRequirements {
        requests,
        node_name: spec.get("nodeName").and_then(Value::as_str).filter(|name| !name.is_empty()).map(Text::from),
        node_selector: texts(spec.get("nodeSelector")),
        affinity: at(spec, &path).filter(|rule| rule.is_object()).map(terms),
        tolerations: list_at(spec, &["tolerations"]).iter().map(toleration).collect(),
    }
}

/// Returns the preferences of a pod of this spec for nodes, each with its weight.
pub fn preferences(spec: &Value) -> Vec<(i64, NodeSelectorTerm)> {
    let path = ["affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
    let each = |of: &Value| Some((of.get("weight")?.as_i64()?, term(of.get("preference")?)));
    list_at(spec, &path).iter().filter_map(each).collect()
}

/// Returns amounts that are above zero.
pub fn unsigned(amounts: Amounts) -> BTreeMap<Text, u64> {
    let positive = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    positive.map(|(name, amount)| (Text::from(name), u64::try_from(amount).unwrap_or(u64::MAX))).collect()
}

/// Returns the members of an object that are texts.
pub(crate) fn texts(of: Option<&Value>) -> BTreeMap<Text, Text> {
    let members = of.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(key, value)| Some((Text::from(key.as_str()), Text::from(value.as_str()?)))).collect()
}

fn term(term: &Value) -> NodeSelectorTerm {
    let all = |list| list_at(term, &[list]).iter().filter_map(requirement).collect();
    NodeSelectorTerm { expressions: all("matchExpressions"), fields: all("matchFields") }
}

/// Returns a requirement; `None` for an operator that Kubernetes does not have: the API server refuses such a pod.
fn requirement(of: &Value) -> Option<LabelRequirement> {
    let values = list_at(of, &["values"]).iter().filter_map(Value::as_str).map(Text::from).collect();
    Some(LabelRequirement {
        key: Text::from(text(of, "key")),
        operator: LabelOperator::named(text(of, "operator"))?,
        values,
    })
}

fn toleration(of: &Value) -> Toleration {
    Toleration {
        key: Text::from(text(of, "key")),
        exists: text(of, "operator") == "Exists",
        value: Text::from(text(of, "value")),
        effect: Text::from(text(of, "effect")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_spec_is_read_as_the_scheduler_reads_it() {
        let spec = json!({
            "nodeName": "", "nodeSelector": {"gpu": "a100"},
            "containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Ki"}, "limits": {"nvidia.com/gpu": 0}}}],
            "tolerations": [{"key": "k", "operator": "Exists"}, {"value": "v", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, {}]}}}});
        let read = requirements(&spec);
        let requests: Vec<(&str, u64)> = read.requests.iter().map(|(name, amount)| (&**name, *amount)).collect();
        assert_eq!(requests, [("cpu", 1500), ("memory", 1_024_000), ("pods", 1000)]);
        assert_eq!((read.node_name, read.node_selector), (None, [("gpu".into(), "a100".into())].into()));
        let zone = LabelRequirement { key: "zone".into(), operator: LabelOperator::NotIn, values: vec!["a".into()] };
        let term = NodeSelectorTerm { expressions: vec![zone], fields: Vec::new() };
        assert_eq!(read.affinity, Some(vec![term, NodeSelectorTerm::default()]));
        let exists = Toleration { key: "k".into(), exists: true, ..Toleration::default() };
        let equal = Toleration { value: "v".into(), effect: "NoSchedule".into(), ..Toleration::default() };
        assert_eq!(read.tolerations, [exists, equal]);
        assert_eq!(requirements(&json!({"affinity": null})).affinity, None);
    }
}
