//! Namespaces: which of them a queue selects. Their labels are known while a queue selects by labels, else their names alone.
//!
//! Must not decide on jobs: [`super::queue_snapshots`] does. Tests: the scenarios `trainingqueue/namespace-*`.

use std::collections::BTreeMap;

use model::{LabelSelector, NamespaceFact, Text};

use super::Queues;

impl Queues {
    /// Returns true if a queue selects namespaces by labels other than their names.
    pub(super) fn reads_namespaces(&self) -> bool {
        self.objects.values().any(|(_, spec)| spec.namespaces.as_ref().is_some_and(LabelSelector::reads_namespaces))
    }

    /// Notes a namespace, and triggers a cycle.
    pub(crate) fn set_namespace(&mut self, fact: NamespaceFact) {
        self.namespaces.insert(fact.name.clone(), fact);
        self.trigger.cycle = true;
    }

    /// Forgets a namespace, and triggers a cycle.
    pub(crate) fn remove_namespace(&mut self, name: &Text) {
        self.namespaces.remove(name);
        self.trigger.cycle = true;
    }

    /// Returns the labels of the known namespaces by name; their names are labels as well, and are left out.
    pub(super) fn namespace_labels(&self) -> BTreeMap<Text, BTreeMap<Text, Text>> {
        if !self.reads_namespaces() {
            return BTreeMap::new();
        }
        let labelled = self.namespaces.values().filter(|namespace| !namespace.labels.is_empty());
        labelled.map(|namespace| (namespace.name.clone(), namespace.labels.clone())).collect()
    }
}
