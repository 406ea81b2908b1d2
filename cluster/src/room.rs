//! Room: whether a node takes a pod, and why not.
//!
//! Owns what of the scheduler's filters counts here: requests, `nodeSelector`, required node affinity, taints, cordons and
//! scheduling gates. Preferences, spreading and priorities do not. It must not bind. Tests: `tests/cluster/room.rs`.

use std::collections::{BTreeMap, BTreeSet};

use kube_model::node::UNLIMITED;
use kube_model::{Refusal, Traits, meets, preferences, refuses, requirements};
use model::{NodeSelectorTerm, PodRequirements, Taint, Text};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::kinds::KindId;
use crate::merge::{at, items};
use crate::node::is_ready;
use crate::store::{Key, pod_has_ended};

/// A pod that needs a node.
pub(crate) struct Wanted<'a> {
    pod: &'a Value,
    requirements: PodRequirements,
    preferences: Vec<(i64, NodeSelectorTerm)>,
    unnamed: Unnamed,
    /// Keys of the labels that some node has.
    labels: BTreeSet<Text>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(pod: &'a Value, unnamed: Unnamed, rooms: &[Room]) -> Self {
        let labels = rooms.iter().flat_map(|room| room.labels.keys().cloned()).collect();
        Self { pod, requirements: requirements(spec(pod)), preferences: preferences(spec(pod)), unnamed, labels }
    }

    /// Returns true if the pod waits for a gate: no scheduler looks at it.
    pub(crate) fn is_gated(&self) -> bool {
        !items(self.pod, &["spec", "schedulingGates"]).is_empty()
    }
}

/// Judgement of resources that a node does not name. Labels that no node has are not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// They are lacking, but for the resources that every node has.
    Lacking,
    /// They are not judged: scenarios whose nodes do not name them are about something else.
    Unjudged,
}

/// A node, and what is left on it.
pub(crate) struct Room {
    pub(crate) name: String,
    ready: bool,
    cordoned: bool,
    taints: Vec<Taint>,
    allocatable: BTreeMap<Text, u64>,
    used: BTreeMap<Text, u64>,
    labels: BTreeMap<Text, Text>,
}

/// Returns the spec of a pod.
fn spec(pod: &Value) -> &Value {
    pod.get("spec").unwrap_or(&Value::Null)
}

fn add(to: &mut BTreeMap<Text, u64>, more: &BTreeMap<Text, u64>) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

impl Room {
    fn of(cluster: &Cluster, name: &str, node: &Value) -> Self {
        let mut used = BTreeMap::new();
        for pod in cluster.store.pods_on(name).filter(|pod| !pod_has_ended(pod)) {
            add(&mut used, &requirements(spec(pod)).requests);
        }
        Self {
            name: name.to_owned(),
            ready: is_ready(node),
            cordoned: at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)),
            taints: kube_model::node::taints(node),
            allocatable: kube_model::node::allocatable(node),
            used,
            labels: kube_model::node::labels(node),
        }
    }

    /// Returns true if the scheduler looks at the node at all.
    pub(crate) const fn is_open(&self) -> bool {
        self.ready && !self.cordoned
    }

    pub(crate) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Counts a pod that was bound to the node.
    pub(crate) fn take(&mut self, wanted: &Wanted<'_>) {
        add(&mut self.used, &wanted.requirements.requests);
    }

    /// Returns why the node does not take a pod; `None` when it does. Whether it is ready is not asked.
    pub(crate) fn refuses(&self, wanted: &Wanted<'_>) -> Option<String> {
        let refusal = refuses(self.traits(), &wanted.requirements, Some(&wanted.labels));
        refusal.or_else(|| self.lacks(wanted).map(Refusal::Insufficient)).map(|refusal| refusal.to_string())
    }

    /// Returns the resource that a pod wants more of than is left.
    fn lacks(&self, wanted: &Wanted<'_>) -> Option<Text> {
        let is_short = |(resource, amount): (&Text, &u64)| {
            let used = self.used.get(resource).copied().unwrap_or_default();
            match self.allocatable.get(resource) {
                Some(all) => used.saturating_add(*amount) > *all,
                None => *amount > 0 && wanted.unnamed == Unnamed::Lacking && !UNLIMITED.contains(&&**resource),
            }
        };
        wanted.requirements.requests.iter().find(|entry| is_short(*entry)).map(|(resource, _)| resource.clone())
    }

    /// Returns the sum of the weights of the preferences of a pod that the node meets.
    pub(crate) fn preference(&self, wanted: &Wanted<'_>) -> i64 {
        let met = wanted.preferences.iter().filter(|(_, term)| meets(self.traits(), term, Some(&wanted.labels)));
        met.map(|(weight, _)| *weight).fold(0, i64::saturating_add)
    }

    fn traits(&self) -> Traits<'_> {
        let Self { name, labels, taints, cordoned, .. } = self;
        Traits { name, labels, taints, unschedulable: *cordoned }
    }
}

/// Returns the node that a pod prefers most; of equal ones the first.
pub(crate) fn preferred<T: std::borrow::Borrow<Room>>(
    rooms: impl Iterator<Item = T>,
    wanted: &Wanted<'_>,
) -> Option<T> {
    let mut best: Option<(i64, T)> = None;
    for room in rooms {
        let preference = room.borrow().preference(wanted);
        if best.as_ref().is_none_or(|(most, _)| preference > *most) {
            best = Some((preference, room));
        }
    }
    best.map(|(_, room)| room)
}

impl Cluster {
    /// Returns every node by name, with what is left on it.
    pub(crate) fn rooms(&self) -> Vec<Room> {
        self.store.of_kind(KindId::NODE).map(|(key, node)| Room::of(self, &key.name, node)).collect()
    }

    /// Returns one node, with what is left on it.
    pub(crate) fn room(&self, name: &str) -> Option<Room> {
        self.store.get(&Key::new(KindId::NODE, "", name)).map(|node| Room::of(self, name, node))
    }
}

/// Returns the scheduler's words for a pod that none of the nodes it looks at takes.
pub(crate) fn why_nowhere(rooms: &[Room], wanted: &Wanted<'_>) -> String {
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    for reason in rooms.iter().filter_map(|room| room.refuses(wanted)) {
        let count = reasons.entry(reason).or_default();
        *count = count.saturating_add(1);
    }
    let reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if rooms.is_empty() {
        "no nodes available to schedule pods".to_owned()
    } else {
        format!("0/{} nodes are available: {}.", rooms.len(), reasons.join(", "))
    }
}
