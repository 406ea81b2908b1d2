//! The filters of kube-scheduler that need no other pod: node name, cordon, selector and required affinity, taints.
//!
//! Room is compared by the caller, which knows what runs on the node. The order of the filters is that of kube-scheduler, so that the
//! first refusal is the one that it reports. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{LabelRequirement, NodeFact, NodeSelectorTerm, PodRequirements, Taint, Text, Toleration};

/// Taint that a cordoned node has, so that pods which tolerate it run there.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Members of a node that the filters read.
#[derive(Debug, Clone, Copy)]
pub struct Traits<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<Text, Text>,
    /// Its taints that keep pods away.
    pub taints: &'a [Taint],
    /// Set if it is cordoned.
    pub unschedulable: bool,
}

impl<'a> From<&'a NodeFact> for Traits<'a> {
    fn from(node: &'a NodeFact) -> Self {
        Self { name: &node.name, labels: &node.labels, taints: &node.taints, unschedulable: node.closed }
    }
}

/// The reason for which a node takes no pod of some requirements, in the words of kube-scheduler.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is cordoned.
    Unschedulable,
    /// The pod names another node.
    NodeName,
    /// A taint that the pod does not tolerate.
    Taint(Taint),
    /// Labels or fields that its selector or required affinity asks for.
    Affinity,
    /// A resource of which the node has less than the pod requests.
    Insufficient(Text),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::NodeName => f.write_str("node(s) didn't match the requested node name"),
            Self::Taint(taint) => write!(f, "node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value),
            Self::Affinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
        }
    }
}

/// Returns why a node takes no pod of these requirements, whatever room it has; `None` when it may take one. `listed`: keys of the labels
/// that are judged; `None`: all. Scenarios whose nodes list no such label are about something else.
pub fn refuses(node: Traits<'_>, pod: &PodRequirements, listed: Option<&BTreeSet<Text>>) -> Option<Refusal> {
    let cordon = Taint { key: Text::from(UNSCHEDULABLE), value: Text::from(""), effect: Text::from("NoSchedule") };
    if node.unschedulable && !is_tolerated(&cordon, &pod.tolerations) {
        return Some(Refusal::Unschedulable);
    }
    if pod.node_name.as_ref().is_some_and(|name| **name != *node.name) {
        return Some(Refusal::NodeName);
    }
    if let Some(taint) = node.taints.iter().find(|taint| !is_tolerated(taint, &pod.tolerations)) {
        return Some(Refusal::Taint(taint.clone()));
    }
    let judges = |key: &Text| listed.is_none_or(|keys| keys.contains(key));
    let has = |(key, value): (&Text, &Text)| !judges(key) || node.labels.get(key) == Some(value);
    let is_selected = pod.node_selector.iter().all(has);
    let is_affine = pod.affinity.as_ref().is_none_or(|terms| terms.iter().any(|term| meets(node, term, listed)));
    (!is_selected || !is_affine).then_some(Refusal::Affinity)
}

/// Returns true if a node meets a term; a term without a requirement is met by none. `listed`: as for [`refuses`].
pub fn meets(node: Traits<'_>, term: &NodeSelectorTerm, listed: Option<&BTreeSet<Text>>) -> bool {
    let NodeSelectorTerm { expressions, fields } = term;
    let is_named = |field: &LabelRequirement| &*field.key == "metadata.name" && field.holds(Some(node.name));
    let holds = |label: &LabelRequirement| {
        let is_judged = listed.is_none_or(|keys| keys.contains(&label.key));
        !is_judged || label.holds(node.labels.get(&label.key).map(|value| &**value))
    };
    !(expressions.is_empty() && fields.is_empty()) && expressions.iter().all(holds) && fields.iter().all(is_named)
}

/// Returns true if one of the tolerations covers a taint.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let of_key = toleration.key == taint.key || toleration.key.is_empty() && toleration.exists;
        let of_value = toleration.exists || toleration.value == taint.value;
        of_key && of_value && (toleration.effect.is_empty() || toleration.effect == taint.effect)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{node, requirements};

    /// Judges a pod by a node as objects show them.
    fn judged(pod: &Value, object: &Value) -> Option<String> {
        let (labels, taints) = (node::labels(object), node::taints(object));
        let unschedulable = object["spec"]["unschedulable"] == true;
        let traits = Traits { name: "n1", labels: &labels, taints: &taints, unschedulable };
        refuses(traits, &requirements(pod), None).map(|refusal| refusal.to_string())
    }

    fn affinity(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn selectors_and_affinity_are_judged_together() {
        let node = json!({"metadata": {"labels": {"gpu": "a100", "slots": "8"}}});
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        let label = |operator: &str, value: &str| json!({"matchExpressions": [{"key": "slots", "operator": operator, "values": [value]}]});
        let mut both = affinity(&json!([label("Gt", "4")]));
        both["nodeSelector"] = json!({"gpu": "h100"});
        for (pod, fits) in [
            (json!({}), true),
            (json!({"nodeSelector": {"gpu": "a100"}}), true),
            (json!({"nodeSelector": {"gpu": "a100", "zone": "z"}}), false),
            (affinity(&json!([label("Gt", "7")])), true),
            (affinity(&json!([label("Lt", "7"), label("In", "8")])), true),
            (affinity(&json!([label("Lt", "7")])), false),
            (affinity(&json!([named("n1")])), true),
            (affinity(&json!([named("n2")])), false),
            (affinity(&json!([])), false),
            (affinity(&json!([{}])), false),
            (both, false),
            (json!({"nodeName": "n2"}), false),
        ] {
            assert_eq!(judged(&pod, &node).is_none(), fits, "{pod}");
        }
    }

    #[test]
    fn taints_need_a_toleration_of_key_value_and_effect() {
        let node = json!({"spec": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}});
        for (toleration, fits) in [
            (json!({"key": "team", "operator": "Equal", "value": "x"}), true),
            (json!({"key": "team", "value": "x", "effect": "NoSchedule"}), true),
            (json!({"key": "team", "value": "y"}), false),
            (json!({"key": "team", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "team", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "", "value": "x"}), false),
        ] {
            assert_eq!(judged(&json!({"tolerations": [toleration]}), &node).is_none(), fits, "{toleration}");
        }
        assert_eq!(judged(&json!({}), &node).as_deref(), Some("node(s) had untolerated taint {team: x}"));
    }

    #[test]
    fn a_cordoned_node_takes_only_what_tolerates_it() {
        let node = json!({"spec": {"unschedulable": true}});
        assert_eq!(judged(&json!({}), &node).as_deref(), Some("node(s) were unschedulable"));
        let tolerant = json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]});
        assert_eq!(judged(&tolerant, &node), None);
    }

    #[test]
    fn labels_that_no_node_lists_may_be_left_out() {
        let listed: BTreeSet<Text> = [Text::from("gpu")].into();
        let (labels, pod) = ([].into(), requirements(&json!({"nodeSelector": {"zone": "z"}})));
        let traits = Traits { name: "n1", labels: &labels, taints: &[], unschedulable: false };
        assert_eq!(refuses(traits, &pod, Some(&listed)), None);
        assert_eq!(refuses(traits, &pod, None), Some(Refusal::Affinity));
    }
}
