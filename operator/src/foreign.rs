//! Pods for which no job has places: the GPUs, CPU, memory and pods that they hold on nodes with GPUs, while a queue counts them.
//!
//! Must not decide what the sums mean: `engine::queues` does. All of it can be dropped: it is listed again. Equal amounts are held
//! once: the pods of a `DaemonSet` share theirs. Tests: the scenarios `trainingqueue/pods-of-others-*`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{ForeignPod, ObservedObject, PodAmounts};
use engine::State;
use model::{ClusterFact, Kind, NodeFact, ResourceVersion, Text, Uid};

/// The pods that are counted, and their sums.
#[derive(Debug, Default)]
pub(crate) struct ForeignPods {
    /// Node and amounts of each.
    pods: BTreeMap<Uid, (Text, Arc<PodAmounts>)>,
    /// Every amount that some pod has.
    amounts: BTreeSet<Arc<PodAmounts>>,
    /// Sums by node.
    sums: BTreeMap<Text, PodAmounts>,
    /// Nodes of which a sum may have changed since it was last reported.
    changed: BTreeSet<Text>,
    /// Version of the last list; `None` before the first.
    listed: Option<ResourceVersion>,
    /// Resources besides GPUs that nodes with GPUs list. They are kept while pods are not watched: nodes are not listed again then.
    resources: BTreeMap<Text, BTreeSet<Text>>,
}

impl ForeignPods {
    /// Takes a complete list in.
    pub(crate) fn replace(&mut self, rv: ResourceVersion, items: Vec<ObservedObject>) {
        self.pods.clear();
        self.amounts.clear();
        self.changed.extend(std::mem::take(&mut self.sums).into_keys());
        self.listed = Some(rv);
        for item in items {
            if let ObservedObject::Foreign(pod) = item {
                self.applied(*pod);
            }
        }
    }

    pub(crate) fn applied(&mut self, pod: ForeignPod) {
        let ForeignPod { uid, node, amounts, .. } = pod;
        if self.pods.get(&uid).is_some_and(|(on, known)| *on == node && **known == amounts) {
            return;
        }
        self.gone(&uid);
        if amounts == PodAmounts::default() {
            return;
        }
        let amounts = self.amounts.get(&amounts).cloned().unwrap_or_else(|| Arc::new(amounts));
        self.amounts.insert(Arc::clone(&amounts));
        self.sums.entry(node.clone()).or_default().add(&amounts);
        self.changed.insert(node.clone());
        self.pods.insert(uid, (node, amounts));
    }

    pub(crate) fn gone(&mut self, uid: &Uid) {
        let Some((node, amounts)) = self.pods.remove(uid) else { return };
        if let Some(sum) = self.sums.get_mut(&node) {
            sum.take(&amounts);
            if *sum == PodAmounts::default() {
                self.sums.remove(&node);
            }
        }
        // The set has one of them, and this is the other.
        if Arc::strong_count(&amounts) == 2 {
            self.amounts.remove(&amounts);
        }
        self.changed.insert(node);
    }

    /// Takes in what a node lists.
    pub(crate) fn node_applied(&mut self, node: &NodeFact) {
        let is_listed = |known: &BTreeSet<Text>| known.iter().eq(node.allocatable.keys());
        if node.allocatable.is_empty() {
            self.node_gone(&node.name);
        } else if !self.resources.get(&node.name).is_some_and(is_listed) {
            self.resources.insert(node.name.clone(), node.allocatable.keys().cloned().collect());
            self.changed.insert(node.name.clone());
        }
    }

    pub(crate) fn node_gone(&mut self, node: &Text) {
        if self.resources.remove(node).is_some() {
            self.changed.insert(node.clone());
        }
    }

    /// Forgets all pods: no queue counts them, so that none are watched.
    pub(crate) fn forget(&mut self) {
        *self = Self { resources: std::mem::take(&mut self.resources), ..Self::default() };
    }

    /// Returns true if there is something to report.
    pub(crate) fn is_due(&self, state: &State) -> bool {
        let is_new = state.list_rv(Kind::Foreign, None).0 == 0;
        state.counts_foreign_pods() && self.listed.is_some() && (!self.changed.is_empty() || is_new)
    }

    /// Returns the sums that differ from those known, and the list if it is the first of this term.
    pub(crate) fn take_facts(&mut self, state: &State) -> Vec<ClusterFact> {
        let Some(rv) = self.listed.filter(|_| self.is_due(state)) else { return Vec::new() };
        let mut nodes = std::mem::take(&mut self.changed);
        let is_first = state.list_rv(Kind::Foreign, None).0 == 0;
        if is_first {
            nodes.extend(state.foreign.keys().chain(state.foreign_requests.keys()).chain(self.sums.keys()).cloned());
        }
        let mut facts = Vec::new();
        for node in nodes {
            let PodAmounts { gpus, mut requests } = self.sums.get(&node).cloned().unwrap_or_default();
            let listed = self.resources.get(&node);
            requests.retain(|resource, _| listed.is_some_and(|listed| listed.contains(resource)));
            let is_known = state.foreign.get(&node).unwrap_or(&BTreeMap::new()) == &gpus
                && state.foreign_requests.get(&node).unwrap_or(&BTreeMap::new()) == &requests;
            if !is_known {
                facts.push(ClusterFact::ForeignUse { node, gpus, requests });
            }
        }
        if is_first {
            facts.push(ClusterFact::Relisted { kind: Kind::Foreign, of: None, rv: rv.max(ResourceVersion(1)) });
        }
        facts
    }
}
