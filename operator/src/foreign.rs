//! Pods of others: the GPUs that they hold, summed by node, while a queue counts them.
//!
//! Holds pods with GPUs alone. Must not decide what the sums mean: `engine::queues` does. All of it can be dropped: it is listed again.
//! Tests: the scenarios `trainingqueue/pods-of-others-*`.

use std::collections::BTreeMap;

use apis::{ForeignPod, ObservedObject};
use engine::State;
use model::{Fact, Kind, ResourceVersion, Text, Uid};

/// GPUs by resource.
type Gpus = BTreeMap<Text, u32>;

/// The pods of others that hold GPUs.
#[derive(Debug, Default)]
pub(crate) struct ForeignPods {
    pods: BTreeMap<Uid, ForeignPod>,
    /// Version of the last list; `None` before the first.
    listed: Option<ResourceVersion>,
    /// True if sums may have changed since they were last told.
    changed: bool,
}

impl ForeignPods {
    /// Takes a complete list in.
    pub(crate) fn replace(&mut self, rv: ResourceVersion, items: Vec<ObservedObject>) {
        self.pods.clear();
        self.listed = Some(rv);
        for item in items {
            if let ObservedObject::Foreign(pod) = item {
                self.applied(*pod);
            }
        }
        self.changed = true;
    }

    pub(crate) fn applied(&mut self, pod: ForeignPod) {
        self.changed = true;
        if pod.gpus.is_empty() {
            self.pods.remove(&pod.uid);
        } else {
            self.pods.insert(pod.uid.clone(), pod);
        }
    }

    pub(crate) fn gone(&mut self, uid: &Uid) {
        self.changed |= self.pods.remove(uid).is_some();
    }

    /// Forgets everything: no queue counts pods of others, so that none are watched.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns true if there is something to tell.
    pub(crate) fn is_due(&self, state: &State) -> bool {
        let is_new = state.list_rv(Kind::Foreign, None).0 == 0;
        state.counts_foreign_pods() && self.listed.is_some() && (self.changed || is_new)
    }

    /// Returns the sums that differ from those known, and the list if it is the first of this term.
    pub(crate) fn take_facts(&mut self, state: &State) -> Vec<Fact> {
        let Some(rv) = self.listed.filter(|_| self.is_due(state)) else { return Vec::new() };
        self.changed = false;
        let mut sums: BTreeMap<&Text, Gpus> = state.foreign.keys().map(|node| (node, Gpus::new())).collect();
        for pod in self.pods.values() {
            let on = sums.entry(&pod.node).or_default();
            for (resource, gpus) in &pod.gpus {
                let sum = on.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(*gpus);
            }
        }
        let is_new = |(node, gpus): &(&Text, Gpus)| state.foreign.get(*node).unwrap_or(const { &Gpus::new() }) != gpus;
        let news = sums.into_iter().filter(is_new);
        let mut facts: Vec<Fact> = news.map(|(node, gpus)| Fact::ForeignUse { node: node.clone(), gpus }).collect();
        if state.list_rv(Kind::Foreign, None).0 == 0 {
            facts.push(Fact::Relisted { kind: Kind::Foreign, of: None, rv: rv.max(ResourceVersion(1)) });
        }
        facts
    }
}
