//! What a pod requires of its node, and what a node has: the members that the filters of kube-scheduler read.
//!
//! Plain values. `kube_model` reads them from objects and judges by them; `engine::wire` says how they are written.

use std::collections::BTreeMap;

use crate::id::Text;
use crate::selector::LabelRequirement;

/// What a pod requires of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRequirements {
    /// Requested amounts by resource, in thousandths of its unit; the pod itself counts as 1000 `pods`.
    pub requests: BTreeMap<Text, u64>,
    /// Name of the only node that it may run on, as its spec names it.
    pub node_name: Option<Text>,
    /// Labels that the node must have: `nodeSelector`.
    pub node_selector: BTreeMap<Text, Text>,
    /// Terms of required node affinity, one of which must hold; `None` where there is no such rule.
    pub affinity: Option<Vec<NodeSelectorTerm>>,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
}

/// A term of required node affinity. All of its requirements must hold; a term without any never does.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelectorTerm {
    /// Requirements on the labels of the node.
    pub expressions: Vec<LabelRequirement>,
    /// Requirements on its fields; `metadata.name` is the only one.
    pub fields: Vec<LabelRequirement>,
}

/// A toleration of taints.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Key of the taint; empty: every key, where `exists` is set.
    pub key: Text,
    /// Set if every value is tolerated.
    pub exists: bool,
    /// Value of the taint.
    pub value: Text,
    /// Effect of the taint; empty: every effect.
    pub effect: Text,
}

/// A taint of a node that keeps pods away: its effect is `NoSchedule` or `NoExecute`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Its key.
    pub key: Text,
    /// Its value.
    pub value: Text,
    /// Its effect.
    pub effect: Text,
}
