//! Applies facts about the cluster: nodes, configuration, terms, classes, quotas, namespaces and views of a kind.

use std::collections::BTreeMap;

use model::{ClusterFact, JobFact, JudgedNode, Kind, NodeFact, Text, Timestamp};

use crate::nodes::Node;
use crate::state::{Dirty, State};

impl State {
    /// Applies a fact about the cluster. Returns the jobs that it touched, each with the facts that its own record gets.
    pub fn apply_cluster_fact(&mut self, fact: &ClusterFact) -> Dirty {
        self.format = self.format.max(crate::wire::format::of_cluster_fact(fact));
        match fact {
            ClusterFact::TermBegan { term } => {
                self.terms.push((*term, self.stamp.position));
                // Pods of others and namespaces may have come and gone meanwhile.
                self.list_rvs.retain(|kind, _| !Kind::ON_DEMAND.contains(kind));
                self.queues.begin_term(self.at.plus_ms(self.config.quiet_ms));
                Dirty::new()
            }
            ClusterFact::Configured(config) => {
                let changed = self.config != **config;
                self.config = (**config).clone();
                self.queues.begin_term(self.at.plus_ms(self.config.quiet_ms));
                self.refresh_gates();
                let again = if changed { vec![JobFact::Due] } else { Vec::new() };
                self.jobs.keys().map(|key| (key.clone(), again.clone())).collect()
            }
            ClusterFact::Node(node) => self.apply_node(node),
            ClusterFact::Class(class) => {
                self.queues.classes.by_name.insert(class.name.clone(), (**class).clone());
                self.classes_changed()
            }
            ClusterFact::ClassGone { name } => {
                self.queues.classes.by_name.remove(name);
                self.classes_changed()
            }
            ClusterFact::Quota(quota) => {
                self.queues.coordinator.set_quota((**quota).clone());
                Dirty::new()
            }
            ClusterFact::QuotaGone { namespace, name } => {
                self.queues.coordinator.remove_quota(namespace, name);
                Dirty::new()
            }
            ClusterFact::Namespace(namespace) => {
                self.queues.set_namespace((**namespace).clone());
                Dirty::new()
            }
            ClusterFact::NamespaceGone { name } => {
                self.queues.remove_namespace(name);
                Dirty::new()
            }
            ClusterFact::ForeignUse { node, gpus, requests } => {
                let known = self.foreign_requests.get(node).into_iter().flatten();
                let frees = |(resource, known): (&Text, &u64)| requests.get(resource).is_none_or(|now| now < known);
                let is_room = known.into_iter().any(frees);
                if is_room || self.foreign.get(node).unwrap_or(&BTreeMap::new()) != gpus {
                    self.queues.nodes_changed(None);
                }
                set(&mut self.foreign, node, gpus);
                set(&mut self.foreign_requests, node, requests);
                Dirty::new()
            }
            ClusterFact::NodeGone { name } => {
                self.nodes.remove(name);
                let mut dirty = self.on_node(name);
                self.capacity_changed(None, &mut dirty);
                dirty
            }
            ClusterFact::Relisted { kind, of, rv } => {
                let first = self.list_rv(*kind, None).0 == 0;
                let known = match of {
                    None => self.list_rvs.entry(*kind).or_default(),
                    Some(of) => self.source_list_rvs.entry((*kind, of.clone())).or_default(),
                };
                *known = (*known).max(*rv);
                // Only with the first list is one that is not known known to be missing.
                match kind {
                    Kind::Class if first => return self.classes_changed(),
                    Kind::Node if first => return self.nodes_are_listed(),
                    Kind::Foreign | Kind::Namespace => self.queues.nodes_changed(None),
                    Kind::Class | Kind::Quota | Kind::Node | Kind::Job | Kind::Pod | Kind::Service | Kind::Owned => {}
                }
                Dirty::new()
            }
        }
    }

    /// Touches the jobs with pods on nodes that are missing.
    fn nodes_are_listed(&self) -> Dirty {
        let missing = self.on_node.keys().filter(|name| !self.nodes.contains_key(*name));
        let mut dirty = Dirty::new();
        for (key, facts) in missing.flat_map(|name| self.on_node(name)) {
            dirty.entry(key).or_default().extend(facts);
        }
        dirty
    }

    fn apply_node(&mut self, fact: &NodeFact) -> Dirty {
        let since = if fact.ready { None } else { Some(self.at) };
        if self.is_stale_node(fact) {
            return Dirty::new();
        }
        // Labels matter to queues alone.
        let is_relabelled = self.nodes.get(&fact.name).is_some_and(|node| {
            let known = node.fact.judged();
            known != fact.judged() && JudgedNode { labels: known.labels, ..fact.judged() } == known
        });
        match self.nodes.get_mut(&fact.name) {
            Some(node) => {
                node.not_ready_since = if fact.ready { None } else { node.not_ready_since.or(since) };
                node.fact = fact.clone();
            }
            None => {
                self.nodes.insert(fact.name.clone(), Node { fact: fact.clone(), not_ready_since: since });
            }
        }
        let mut dirty = if is_relabelled { Dirty::new() } else { self.on_node(&fact.name) };
        let since = self.nodes.get(&fact.name).and_then(|node| node.not_ready_since);
        self.capacity_changed(since.map(|since| since.plus_ms(self.config.node_grace_ms)), &mut dirty);
        dirty
    }

    /// Notes that nodes changed, for the queues: now, and at the time at which one counts as lost.
    fn capacity_changed(&mut self, lost_at: Option<Timestamp>, dirty: &mut Dirty) {
        self.queues.nodes_changed(lost_at);
        if self.queues.offer(&self.nodes) {
            for key in self.refresh_gates() {
                dirty.entry(key).or_default().push(JobFact::Due);
            }
        }
    }

    /// Touches the live jobs with pods on a node, or with places there that wait for it. Nothing follows from it for a finished one.
    fn on_node(&self, name: &model::Text) -> Dirty {
        let with_pods = self.on_node.get(name).into_iter().flat_map(|jobs| jobs.keys()).map(|key| &**key);
        let jobs = with_pods.chain(self.queues.jobs_with_places_on(name)).filter(|key| self.jobs.live(key).is_some());
        jobs.map(|key| (key.clone(), vec![JobFact::NodeChanged { name: name.clone() }])).collect()
    }
}

/// Sets what is known of a name; nothing is held of one without amounts.
fn set<V: Clone>(of: &mut BTreeMap<Text, BTreeMap<Text, V>>, name: &Text, amounts: &BTreeMap<Text, V>) {
    if amounts.is_empty() {
        of.remove(name);
    } else {
        of.insert(name.clone(), amounts.clone());
    }
}
