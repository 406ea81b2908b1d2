//! Places that shares grant: each on a node that took a pod of the job's template when it was granted, and then all that is placed on that
//! node, as pods and as places without a pod, within what the node has besides GPUs.
//!
//! Reads objects alone: shares in mirrors, templates in jobs, pods and nodes. A share that follows pods to nodes on which they are bound
//! was not granted there. Tests: `tests/audit_nodes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::Registry;
use apis::objects::{at, label, list_at, text_at};
use model::Timestamp;
use serde_json::Value;

use super::amounts::{Amounts, add, listed, raise, requests};
use super::nodes::Nodes;
use super::places::places;
use super::{has_ended, mirror, name, uid};
use crate::controllers::mpi_operator::JOB;

/// Places in the shares of jobs, and what nodes may hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Grants {
    nodes: Nodes,
    /// Time at which each place was granted.
    cells: BTreeMap<Cell, Timestamp>,
    /// Uids of the pods that were looked at.
    seen: BTreeSet<String>,
    /// Set if places are granted before there is room for them: none is judged by room.
    ignores_places: bool,
    /// Nodes and slots that have had a bound pod since the place was granted: from then on pods are added up there. The share of a job that has
    /// ended, or whose pods go, stands in its mirror for some time. Where another controller may exchange the pods of a group, one
    /// stands for all of its places on a node.
    used: BTreeSet<(String, String)>,
    /// Uids of the pods that were bound, as the operator could see, while their place was there. Others are bound on their way out, and are
    /// not added up: until then their node is not known.
    settled: BTreeSet<String>,
    /// The greatest amounts that each node had.
    allocatable: BTreeMap<String, Amounts>,
}

/// A place of a share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    /// Uid of the job.
    job: String,
    group: String,
    /// Index of the slot; where another controller may exchange the pods of a group, the number of the place on its node.
    index: u32,
    node: String,
}

/// What is placed on a node for a slot: the sum of its pods there, and its place.
#[derive(Debug, Default)]
struct Placed {
    pods: Amounts,
    places: Amounts,
}

impl Grants {
    /// Places that keep nothing back.
    pub(super) fn of_ignored_capacity() -> Self {
        Self { ignores_places: true, ..Self::default() }
    }

    /// Returns what is wrong with new places and new pods, and each node that holds too much, in words. `sees_pods`: the operator learns of
    /// changes of pods.
    pub(super) fn check(&mut self, objects: &[Arc<Value>], now: Timestamp, sees_pods: bool) -> Vec<String> {
        self.nodes.note(objects, now);
        let of = |kind: &'static str| objects.iter().filter(move |object| text_at(object, &["kind"]) == Some(kind));
        for node in of("Node") {
            let most = self.allocatable.entry(name(node).to_owned()).or_default();
            raise(most, &listed(at(node, &["status", "allocatable"])));
        }
        let pods: Vec<&Value> = of("Pod").map(|pod| &**pod).filter(|pod| !has_ended(pod)).collect();
        let mut placed: BTreeMap<(String, String), Placed> = BTreeMap::new();
        let (mut violations, granted_on) = self.check_shares(objects, &pods, &mut placed);
        violations.extend(self.check_pods(&pods, &mut placed, (now, sees_pods)));
        placed.retain(|(node, _), _| granted_on.contains(node) && !self.ignores_places);
        violations.extend(self.overfull(placed));
        violations
    }

    /// Looks at each new place, and adds up all. Returns what is wrong, and the nodes on which places were granted.
    fn check_shares(
        &mut self,
        objects: &[Arc<Value>],
        pods: &[&Value],
        placed: &mut BTreeMap<(String, String), Placed>,
    ) -> (Vec<String>, BTreeSet<String>) {
        let (mut violations, mut cells, mut granted_on) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let bound = |job: &str, node: &str| {
            let is_there = |pod: &&&Value| text_at(pod, &["spec", "nodeName"]) == Some(node) && owner(pod) == job;
            pods.iter().any(|pod| is_there(&pod))
        };
        for job in objects {
            let mirror = mirror(job);
            let Some(granted) = mirror.get("shareAt").and_then(Value::as_u64).map(Timestamp) else { continue };
            let interchanges = text_at(job, &["kind"]) == Some("MPIJob");
            for cell in share(uid(job), &mirror, interchanges) {
                let template = template(job, &cell.group);
                let since = self.cells.get(&cell).copied();
                let is_granted = since.is_none() && !bound(uid(job), &cell.node);
                if is_granted {
                    granted_on.insert(cell.node.clone());
                }
                if is_granted
                    && let Some(pod) = template
                    && let Some(why) = self.nodes.refusal(&cell.node, pod, granted)
                {
                    let Cell { group, index, node, .. } = &cell;
                    violations.push(format!("job {}: {group}-{index} was granted node {node}, {why}", name(job)));
                }
                let key = (cell.node.clone(), slot((&cell.job, &cell.group, cell.index), interchanges));
                if since.is_none() && !interchanges {
                    self.used.remove(&key);
                }
                add(&mut placed.entry(key).or_default().places, &template.map(requests).unwrap_or_default());
                cells.insert(cell, since.unwrap_or(granted));
            }
        }
        self.cells = cells;
        (violations, granted_on)
    }

    /// Looks at each new pod whose place was granted, and adds up all.
    fn check_pods(
        &mut self,
        pods: &[&Value],
        placed: &mut BTreeMap<(String, String), Placed>,
        (now, sees_pods): (Timestamp, bool),
    ) -> Vec<String> {
        let mut violations = Vec::new();
        for pod in pods {
            let spec = pod.get("spec").unwrap_or(&Value::Null);
            let on = places(pod);
            let job = owner(pod);
            let bound_to = text_at(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty());
            if let Some(node) = bound_to {
                let slot = slot_of(pod);
                let key = (node.to_owned(), slot.clone().unwrap_or_else(|| uid(pod).to_owned()));
                let has_place = slot.is_none() || placed.get(&key).is_some_and(|placed| !placed.places.is_empty());
                if has_place && sees_pods {
                    self.settled.insert(uid(pod).to_owned());
                }
                if has_place || self.settled.contains(uid(pod)) {
                    self.used.insert(key.clone());
                    add(&mut placed.entry(key).or_default().pods, &requests(spec));
                }
            }
            if !self.seen.insert(uid(pod).to_owned()) || bound_to.is_some() {
                continue;
            }
            for node in on {
                let granted = self.cells.iter().filter(|(cell, _)| cell.job == job && cell.node == *node);
                let times: Vec<Timestamp> = granted.map(|(_, at)| *at).collect();
                let times = if times.is_empty() { vec![now] } else { times };
                let reasons: Option<Vec<String>> =
                    times.into_iter().map(|at| self.nodes.refusal(node, spec, at)).collect();
                if let Some(why) = reasons.and_then(|reasons| reasons.into_iter().next()) {
                    violations.push(format!("pod {}: placed on node {node}, {why}", name(pod)));
                }
            }
        }
        violations
    }

    /// Returns each node with a new place that holds more than it had at any time.
    fn overfull(&self, placed: BTreeMap<(String, String), Placed>) -> Vec<String> {
        let mut sums: BTreeMap<String, (Amounts, Vec<String>)> = BTreeMap::new();
        for (key, Placed { mut pods, places }) in placed {
            if !self.used.contains(&key) {
                raise(&mut pods, &places);
            }
            let (sum, slots) = sums.entry(key.0).or_default();
            add(sum, &pods);
            slots.push(key.1);
        }
        let mut violations = Vec::new();
        for (node, (sum, slots)) in sums {
            let allocatable = self.allocatable.get(&node);
            for (resource, most) in allocatable.into_iter().flatten() {
                let sum = sum.get(resource).copied().unwrap_or_default();
                if sum > *most {
                    let slots = slots.join(", ");
                    violations.push(format!("node {node}, {resource}: {sum}m placed ({slots}), {most}m allocatable"));
                }
            }
        }
        violations
    }
}

/// Returns the slot of a pod of a job; `None` of another pod.
fn slot_of(pod: &Value) -> Option<String> {
    let registry = Registry::all();
    let found = registry.api_of(&registry.owner(pod)?)?.slot_of(pod)?;
    Some(slot((owner(pod), &found.group, found.index), label(pod, JOB).is_some()))
}

/// Returns the slot of a place; that of all pods of its group where another controller may exchange them.
fn slot((job, group, index): (&str, &str, u32), interchanges: bool) -> String {
    if interchanges { format!("{job} {group}") } else { format!("{job} {group} {index}") }
}

/// Returns the places of a job's share, but for those on nodes to come.
fn share(job: &str, mirror: &Value, interchanges: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (group, runs) in mirror.get("share").and_then(Value::as_object).into_iter().flatten() {
        let runs = runs.as_array().into_iter().flatten();
        let nodes = runs.flat_map(|run| {
            let node = run.get(0).and_then(Value::as_str).unwrap_or_default();
            let times = run.get(1).and_then(Value::as_u64).and_then(|times| usize::try_from(times).ok());
            std::iter::repeat_n(node, times.unwrap_or_default())
        });
        let mut on: BTreeMap<&str, u32> = BTreeMap::new();
        for (slot, node) in (0..).zip(nodes).filter(|(_, node)| !node.is_empty()) {
            let nth = on.entry(node).or_default();
            let index = if interchanges { *nth } else { slot };
            *nth = nth.saturating_add(1);
            cells.push(Cell { job: job.to_owned(), group: group.clone(), index, node: node.to_owned() });
        }
    }
    cells
}

/// Returns the pod spec of a group's template: that of the member which bears the group's name in any case of letters.
fn template<'a>(job: &'a Value, group: &str) -> Option<&'a Value> {
    fn find<'a>(value: &'a Value, group: &str) -> Option<&'a Value> {
        let members = value.as_object()?;
        let named = members.iter().find(|(key, _)| key.eq_ignore_ascii_case(group));
        let own = named.and_then(|(_, member)| at(member, &["template", "spec"]));
        own.or_else(|| members.values().find_map(|member| find(member, group)))
    }
    find(job.get("spec")?, group)
}

/// Returns the uid of the object that owns a pod.
fn owner(pod: &Value) -> &str {
    let owner = list_at(pod, &["metadata", "ownerReferences"]).first();
    owner.and_then(|owner| owner.get("uid")?.as_str()).unwrap_or_default()
}
