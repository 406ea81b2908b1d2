//! Holds what is known of nodes, and shows which of their pods are lost or to be evaluated.
//!
//! Knows no job. Tests: the scenarios of lost nodes and GPU faults.

use std::collections::BTreeMap;

use model::{Config, Kind, NodeFact, ResourceVersion, Text, Timestamp};

/// Taint by which an administrator says that a node is off: nothing runs on it any more. [`NodeFact::conditions`] names it.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// As last observed.
    pub fact: NodeFact,
    /// Since when it is not ready.
    pub not_ready_since: Option<Timestamp>,
}

impl Node {
    /// Returns true if an administrator declared it out of service.
    pub(crate) fn is_out_of_service(&self) -> bool {
        self.fact.conditions.iter().any(|condition| &**condition == OUT_OF_SERVICE)
    }
}

/// The nodes as classifying a pod needs them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeView<'a> {
    pub(crate) nodes: &'a BTreeMap<Text, Node>,
    pub(crate) listed: bool,
    pub(crate) grace_ms: u64,
    pub(crate) faults: &'a [String],
}

/// Trouble of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeTrouble {
    /// It is removed or out of service, or was not ready for longer than its grace.
    Lost,
    /// It is not ready; lost at this time if it stays so.
    LostAt(Timestamp),
}

impl<'a> NodeView<'a> {
    /// Takes the parts of the state beside the jobs, so that these can be changed meanwhile.
    pub(crate) fn new(
        nodes: &'a BTreeMap<Text, Node>,
        list_rvs: &BTreeMap<Kind, ResourceVersion>,
        config: &'a Config,
    ) -> Self {
        let listed = list_rvs.get(&Kind::Node).is_some_and(|rv| rv.0 > 0);
        Self { nodes, listed, grace_ms: config.node_grace_ms, faults: &config.gpu_faults }
    }

    /// Returns the trouble of a node at `now`; `None` for a good node and for one nothing is known of yet.
    pub(crate) fn trouble(&self, name: &str, now: Timestamp) -> Option<NodeTrouble> {
        let Some(node) = self.nodes.get(name) else {
            return self.listed.then_some(NodeTrouble::Lost);
        };
        if node.is_out_of_service() {
            return Some(NodeTrouble::Lost);
        }
        let lost_at = node.not_ready_since?.plus_ms(self.grace_ms);
        Some(if lost_at <= now { NodeTrouble::Lost } else { NodeTrouble::LostAt(lost_at) })
    }

    /// The GPU fault a node shows.
    pub(crate) fn gpu_fault(&self, name: &str) -> Option<&Text> {
        self.nodes.get(name)?.fact.conditions.iter().find(|c| self.names_fault(c))
    }

    /// Returns true if pods with GPUs have no place on a node: it is lost, or shows a GPU fault, which fails its pods.
    pub(crate) fn is_without_places(&self, name: &str, now: Timestamp) -> bool {
        self.trouble(name, now) == Some(NodeTrouble::Lost) || self.gpu_fault(name).is_some()
    }

    /// Returns true if a condition type is one of the configured GPU faults.
    pub(crate) fn names_fault(&self, condition: &str) -> bool {
        self.faults.iter().any(|f| f == condition)
    }

    /// Returns true if a pod on this node is to be evaluated.
    pub(crate) fn is_troubled(&self, name: &str, gpus: bool) -> bool {
        match self.nodes.get(name) {
            None => self.listed,
            Some(node) => {
                node.not_ready_since.is_some() || node.is_out_of_service() || (gpus && self.gpu_fault(name).is_some())
            }
        }
    }
}
