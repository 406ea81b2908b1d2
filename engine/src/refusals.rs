//! Refusals: nodes that a queue chose for a pod and on which the scheduler does not place it.
//!
//! What no rule here sees, a volume's zone or a filter of a plugin, is learnt: the node is left out for the job for a time that doubles, and the
//! scheduler's words are the reason. Owns when a start counts as refused. It must not choose nodes ([`crate::queues`] does).
//! They stand in the mirror. Tests: the scenarios `trainingqueue/node-refused-*`.

use std::collections::BTreeSet;

use kube_model::{Traits, refuses};
use model::{Config, NodeFact, SlotId, Text, Timestamp};

use crate::job::Job;
use crate::nodes::{NodeTrouble, NodeView};

/// Time for which a node is left out after its first refusal, in milliseconds; each further one doubles it.
const REFUSAL_MS: u64 = 300_000;
/// Upper bound of that time.
const MAX_REFUSAL_MS: u64 = 3_600_000;
/// Time from a grant in milliseconds after which a node counts as refused to a pod that waits for it, where another node may take it.
const REFUSED_AFTER_MS: u64 = 30_000;

impl Job {
    /// Returns the time from a grant in milliseconds in which the job must have come whole.
    pub(crate) fn start_limit_ms(&self, now: Timestamp, node_view: &NodeView<'_>, config: &Config) -> u64 {
        if self.has_refused_pods() && self.may_start_elsewhere(now, node_view) {
            REFUSED_AFTER_MS.min(config.start_timeout_ms)
        } else {
            config.start_timeout_ms
        }
    }

    /// Returns true if a pod that must run on the node its queue chose cannot be scheduled.
    fn has_refused_pods(&self) -> bool {
        self.queue().is_some() && self.unschedulable.is_some() && self.refused_nodes().next().is_some()
    }

    /// Returns the nodes of its share on which a pod waits that cannot be scheduled.
    fn refused_nodes(&self) -> impl Iterator<Item = &Text> {
        let is_unplaced = |id: &SlotId| {
            let pod = self.slot(id).and_then(|slot| self.pods.get(slot.pod.as_ref()?));
            pod.is_some_and(|pod| pod.fact.node.is_none() && pod.fact.message.is_some() && !pod.is_leaving())
        };
        let cells = self.allocation.share.cells().filter(move |(id, node)| !node.is_empty() && is_unplaced(id));
        cells.map(|(_, node)| node)
    }

    /// Returns true if a node besides those of its share may take its pods: none that refused them a short time ago.
    fn may_start_elsewhere(&self, now: Timestamp, node_view: &NodeView<'_>) -> bool {
        let Some(spec) = self.spec() else { return false };
        let held: BTreeSet<&Text> = self.allocation.share.cells().map(|(_, node)| node).collect();
        let is_refused =
            |node: &NodeFact| self.allocation.refused.get(&node.name).is_some_and(|refusal| refusal.until > now);
        let takes = |node: &NodeFact| {
            spec.gpu_groups().all(|(group, request)| {
                let fits =
                    group.requirements.as_ref().is_none_or(|pod| refuses(Traits::from(node), pod, None).is_none());
                fits && node.gpus.get(&request.resource).is_some_and(|gpus| *gpus >= request.count)
            })
        };
        let nodes = node_view.nodes.values().map(|node| &node.fact);
        let mut others = nodes.filter(|node| !held.contains(&node.name) && !is_refused(node));
        others.any(|node| takes(node) && node_view.trouble(&node.name, now) != Some(NodeTrouble::Lost))
    }

    /// Leaves out for a time the nodes of its share on which a pod could not be scheduled. Returns true if there are any.
    pub(crate) fn note_refusals(&mut self, at: Timestamp) -> bool {
        if !self.has_refused_pods() {
            return false;
        }
        let words = self.unschedulable.as_ref().map(|(_, words)| words.clone()).unwrap_or_default();
        let refused: BTreeSet<Text> = self.refused_nodes().cloned().collect();
        for node in refused {
            let refusal = self.allocation.refused.entry(node).or_default();
            let doubled = REFUSAL_MS.saturating_mul(1_u64.checked_shl(refusal.times).unwrap_or(u64::MAX));
            refusal.times = refusal.times.saturating_add(1);
            refusal.until = at.plus_ms(doubled.min(MAX_REFUSAL_MS));
            refusal.words = words.clone();
        }
        true
    }
}
