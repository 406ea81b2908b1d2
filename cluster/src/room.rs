//! Room: whether a node takes a pod, and why not.
//!
//! Owns what of the scheduler's filters counts here: requests, `nodeSelector`, required node affinity, taints, cordons and
//! scheduling gates. Preferences, spreading and priorities do not. It must not bind. Tests: `tests/cluster/room.rs`.

use std::collections::{BTreeMap, BTreeSet};

use model::LabelOperator;
use serde_json::Value;
use settings::Quantity;

use crate::cluster::Cluster;
use crate::kinds::KindId;
use crate::merge::{at, items, text};
use crate::node::is_ready;
use crate::store::{Key, pod_has_ended};

/// Amounts of resources, in thousandths.
type Amounts = BTreeMap<String, i128>;

/// Resources of which a node that does not name them has no end.
const UNLIMITED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];
/// Reason for which a node does not take a pod, in the scheduler's words.
const NOT_SELECTED: &str = "node(s) didn't match Pod's node affinity/selector";

fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Returns a container's requests, or its limits where it requests nothing.
fn container_requests(container: &Value) -> Amounts {
    let mut amounts = Amounts::new();
    for field in ["limits", "requests"] {
        if let Some(Value::Object(named)) = at(container, &["resources", field]) {
            amounts.extend(
                named.iter().filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli()))),
            );
        }
    }
    amounts
}

/// Returns a pod's requests: those of its containers together, or of one init container where that requests more.
fn pod_requests(pod: &Value) -> Amounts {
    let mut sum = Amounts::from([("pods".to_owned(), 1000)]);
    for container in items(pod, &["spec", "containers"]) {
        add(&mut sum, &container_requests(container));
    }
    for container in items(pod, &["spec", "initContainers"]) {
        for (resource, amount) in container_requests(container) {
            let most = sum.entry(resource).or_default();
            *most = amount.max(*most);
        }
    }
    sum
}

/// A pod that needs a node.
pub(crate) struct Wanted<'a> {
    pod: &'a Value,
    requests: Amounts,
    unnamed: Unnamed,
    /// Keys of the labels that some node has.
    labels: BTreeSet<String>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(pod: &'a Value, unnamed: Unnamed, rooms: &[Room]) -> Self {
        let labels = rooms.iter().filter_map(|room| room.labels.as_object()).flat_map(|labels| labels.keys().cloned());
        Self { pod, requests: pod_requests(pod), unnamed, labels: labels.collect() }
    }

    /// Returns true if a requirement on this label counts.
    fn judges(&self, label: &str) -> bool {
        self.unnamed == Unnamed::Lacking || self.labels.contains(label)
    }

    /// Returns true if the pod waits for a gate: no scheduler looks at it.
    pub(crate) fn is_gated(&self) -> bool {
        !items(self.pod, &["spec", "schedulingGates"]).is_empty()
    }
}

/// Judgement of resources that a node does not name, and of labels that no node has.
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
    taints: Vec<Value>,
    allocatable: Amounts,
    used: Amounts,
    labels: Value,
}

impl Room {
    fn of(cluster: &Cluster, name: &str, node: &Value) -> Self {
        let amounts = at(node, &["status", "allocatable"]).or_else(|| at(node, &["status", "capacity"]));
        let amounts = amounts.and_then(Value::as_object).into_iter().flatten();
        let mut used = Amounts::new();
        for pod in cluster.store.pods_on(name).filter(|pod| !pod_has_ended(pod)) {
            add(&mut used, &pod_requests(pod));
        }
        Self {
            name: name.to_owned(),
            ready: is_ready(node),
            cordoned: at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)),
            taints: items(node, &["spec", "taints"]).to_vec(),
            allocatable: amounts
                .filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli())))
                .collect(),
            used,
            labels: at(node, &["metadata", "labels"]).cloned().unwrap_or_default(),
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
        add(&mut self.used, &wanted.requests);
    }

    /// Returns why the node does not take a pod; `None` when it does. Whether it is ready is not asked.
    pub(crate) fn refuses(&self, wanted: &Wanted<'_>) -> Option<String> {
        if self.cordoned {
            return Some("node(s) were unschedulable".to_owned());
        }
        let affinity =
            at(wanted.pod, &["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
        if !self.is_selected(wanted) || affinity.is_some_and(|affinity| !self.meets(affinity, wanted)) {
            return Some(NOT_SELECTED.to_owned());
        }
        if let Some(taint) = self.taints.iter().find(|taint| keeps_away(taint) && !is_tolerated(taint, wanted.pod)) {
            let (key, value) = (text(taint, &["key"]), text(taint, &["value"]));
            return Some(format!("node(s) had untolerated taint {{{key}: {value}}}"));
        }
        self.lacks(wanted).map(|resource| format!("Insufficient {resource}"))
    }

    /// Returns the resource that a pod wants more of than is left.
    fn lacks(&self, wanted: &Wanted<'_>) -> Option<String> {
        let is_short = |(resource, amount): (&String, &i128)| {
            let used = self.used.get(resource).copied().unwrap_or_default();
            match self.allocatable.get(resource) {
                Some(all) => used.saturating_add(*amount) > *all,
                None => *amount > 0 && wanted.unnamed == Unnamed::Lacking && !UNLIMITED.contains(&resource.as_str()),
            }
        };
        wanted.requests.iter().find(|entry| is_short(*entry)).map(|(resource, _)| resource.clone())
    }

    fn is_selected(&self, wanted: &Wanted<'_>) -> bool {
        let Some(Value::Object(selector)) = at(wanted.pod, &["spec", "nodeSelector"]) else { return true };
        selector.iter().filter(|(key, _)| wanted.judges(key)).all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// Returns true if one of the terms holds; a term without a requirement never does.
    fn meets(&self, affinity: &Value, wanted: &Wanted<'_>) -> bool {
        items(affinity, &["nodeSelectorTerms"]).iter().any(|term| self.meets_term(term, wanted))
    }

    /// Returns the sum of the weights of the preferences of a pod that the node meets.
    pub(crate) fn preference(&self, wanted: &Wanted<'_>) -> i64 {
        let path = ["spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
        let met = items(wanted.pod, &path)
            .iter()
            .filter(|each| each.get("preference").is_some_and(|term| self.meets_term(term, wanted)));
        met.filter_map(|each| each.get("weight")?.as_i64()).fold(0, i64::saturating_add)
    }

    fn meets_term(&self, term: &Value, wanted: &Wanted<'_>) -> bool {
        let (labels, fields) = (items(term, &["matchExpressions"]), items(term, &["matchFields"]));
        let label = |each: &Value| {
            let key = text(each, &["key"]);
            !wanted.judges(key) || holds(each, self.labels.get(key).and_then(Value::as_str))
        };
        let field = |each: &Value| text(each, &["key"]) == "metadata.name" && holds(each, Some(&self.name));
        !(labels.is_empty() && fields.is_empty()) && labels.iter().all(label) && fields.iter().all(field)
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

/// Returns true if a requirement holds for a value.
fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let values = items(requirement, &["values"]).iter().filter_map(Value::as_str);
    LabelOperator::named(text(requirement, &["operator"])).is_some_and(|operator| operator.holds(value, values))
}

fn keeps_away(taint: &Value) -> bool {
    matches!(text(taint, &["effect"]), "NoSchedule" | "NoExecute")
}

fn is_tolerated(taint: &Value, pod: &Value) -> bool {
    let tolerates = |toleration: &Value| {
        let (key, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
        let exists = text(toleration, &["operator"]) == "Exists";
        let of_key = (key.is_empty() && exists) || key == text(taint, &["key"]);
        let of_value = exists || text(toleration, &["value"]) == text(taint, &["value"]);
        of_key && of_value && (effect.is_empty() || effect == text(taint, &["effect"]))
    };
    items(pod, &["spec", "tolerations"]).iter().any(tolerates)
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
