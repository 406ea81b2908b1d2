//! Pods that hold GPUs and stay in every cycle: those of other owners, and those that an ended job keeps.
//!
//! It must not decide anything about them. Tests: at the end of this file, and through [`super`].

use std::collections::BTreeMap;

use model::{JobKey, Text};
use scheduler::Micros;
use scheduler::scheduling::{Claim, Fixed, Sizes, SpeedEstimate, Usage};

use super::candidate::Candidate;
use super::queue_snapshots::QueueSnapshots;
use crate::state::State;

/// Returns the GPUs that pods of others hold on nodes, of the resource that counts there. A pod that names its node itself may ask for more
/// than the node has; its kubelet refuses it.
pub(super) fn gpus(state: &State) -> impl Iterator<Item = (&Text, u32)> {
    state.foreign.iter().filter_map(|(name, gpus)| {
        let (resource, slots) = state.nodes.get(name)?.fact.gpus.first_key_value()?;
        Some((name, (*gpus.get(resource)?).min(*slots)))
    })
}

/// Pods that stay whatever is decided: those of others on a node, which belong to no queue, and those that an ended job keeps.
pub(super) struct Foreign {
    id: Text,
    queue: Option<usize>,
    width: u32,
    on: Vec<Text>,
    estimate: SpeedEstimate,
}

impl Foreign {
    pub(super) fn new(node: &Text, gpus: u32) -> Self {
        let on = vec![node.clone(); usize::try_from(gpus).unwrap_or_default()];
        let id = Text::from(format!("pods of others on {node}"));
        Self { id, queue: None, width: 1, on, estimate: SpeedEstimate::default() }
    }

    /// Takes the pods that a job keeps, those of each group apart.
    pub(super) fn kept<'a>(
        snapshots: &QueueSnapshots,
        key: &'a JobKey,
        candidate: &'a Candidate,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let mut groups: BTreeMap<&Text, (u32, Vec<Text>)> = BTreeMap::new();
        for (slot, node) in &candidate.kept {
            let (width, on) = groups.entry(&slot.group).or_default();
            *width = candidate.charged(slot).max(1);
            on.push(node.clone());
        }
        let queue = snapshots.charged(candidate);
        groups.into_iter().map(move |(group, (width, on))| {
            let id = Text::from(format!("pods of {group} that {key} keeps"));
            Self { id, queue, width, on, estimate: SpeedEstimate::default() }
        })
    }

    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            id: &self.id,
            queue: self.queue,
            sizes: Sizes::rigid(u32::try_from(self.on.len()).unwrap_or(u32::MAX)),
            width: self.width,
            priority: 0,
            level: 0,
            submitted: Micros::ZERO,
            usage: Usage::default(),
            estimate: &self.estimate,
            held: &self.on,
            fixed: Fixed::Place,
            avoid: &[],
            fits: None,
            needs: &[],
            not_before: Micros::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{ClusterFact, NodeFact, ResourceVersion};

    use super::*;

    #[test]
    fn a_pod_of_others_counts_with_the_gpus_of_its_node_at_most() {
        let gpus_of = |count: u32| BTreeMap::from([(Text::from("nvidia.com/gpu"), count)]);
        let node = NodeFact {
            name: "n".into(),
            rv: ResourceVersion(1),
            ready: true,
            conditions: Vec::new(),
            gpus: gpus_of(4),
            closed: false,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: BTreeMap::new(),
        };
        for (asked, want) in [(3, 3), (u32::MAX, 4)] {
            let mut state = State::default();
            state.apply_cluster_fact(&ClusterFact::Node(Box::new(node.clone())));
            let used = ClusterFact::ForeignUse { node: "n".into(), gpus: gpus_of(asked), requests: BTreeMap::new() };
            state.apply_cluster_fact(&used);
            assert_eq!(gpus(&state).collect::<Vec<_>>(), [(&Text::from("n"), want)]);
        }
    }
}
