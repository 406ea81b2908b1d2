//! Places that shares grant: each on a node that took a pod of the job's template when it was granted, and all that is placed on a node,
//! as pods and as places without a pod, within what the node has besides GPUs.
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
    /// Returns what is wrong with new places and new pods, and each node that holds too much, in words.
    pub(super) fn check(&mut self, objects: &[Arc<Value>], now: Timestamp) -> Vec<String> {
        self.nodes.note(objects, now);
        let of = |kind: &'static str| objects.iter().filter(move |object| text_at(object, &["kind"]) == Some(kind));
        for node in of("Node") {
            let most = self.allocatable.entry(name(node).to_owned()).or_default();
            raise(most, &listed(at(node, &["status", "allocatable"])));
        }
        let pods: Vec<&Value> = of("Pod").map(|pod| &**pod).filter(|pod| !has_ended(pod)).collect();
        let mut placed: BTreeMap<(String, String), Placed> = BTreeMap::new();
        let mut violations = self.check_shares(objects, &pods, &mut placed);
        violations.extend(self.check_pods(&pods, &mut placed, now));
        violations.extend(self.overfull(placed));
        violations
    }

    /// Looks at each new place, and adds up all.
    fn check_shares(
        &mut self,
        objects: &[Arc<Value>],
        pods: &[&Value],
        placed: &mut BTreeMap<(String, String), Placed>,
    ) -> Vec<String> {
        let (mut violations, mut cells) = (Vec::new(), BTreeMap::new());
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
                if since.is_none()
                    && let Some(pod) = template
                    && !bound(uid(job), &cell.node)
                    && let Some(why) = self.nodes.refusal(&cell.node, pod, granted)
                {
                    let Cell { group, index, node, .. } = &cell;
                    violations.push(format!("job {}: {group}-{index} was granted node {node}, {why}", name(job)));
                }
                let key = (cell.node.clone(), slot(&cell, interchanges));
                add(&mut placed.entry(key).or_default().places, &template.map(requests).unwrap_or_default());
                cells.insert(cell, since.unwrap_or(granted));
            }
        }
        self.cells = cells;
        violations
    }

    /// Looks at each new pod whose place was granted, and adds up all.
    fn check_pods(
        &mut self,
        pods: &[&Value],
        placed: &mut BTreeMap<(String, String), Placed>,
        now: Timestamp,
    ) -> Vec<String> {
        let mut violations = Vec::new();
        let registry = Registry::all();
        for pod in pods {
            let spec = pod.get("spec").unwrap_or(&Value::Null);
            let on = places(pod);
            let job = owner(pod);
            let slot_of = || registry.api_of(&registry.owner(pod)?)?.slot_of(pod);
            let slot = slot_of().map(|found| {
                let cell = Cell {
                    job: job.to_owned(),
                    group: found.group.to_string(),
                    index: found.index,
                    node: String::new(),
                };
                slot(&cell, label(pod, JOB).is_some())
            });
            if let [node] = on.as_slice() {
                let key = ((*node).to_owned(), slot.unwrap_or_else(|| uid(pod).to_owned()));
                add(&mut placed.entry(key).or_default().pods, &requests(spec));
            }
            let is_bound = text_at(pod, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
            if !self.seen.insert(uid(pod).to_owned()) || is_bound {
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

    /// Returns each node that holds more than it had at any time.
    fn overfull(&self, placed: BTreeMap<(String, String), Placed>) -> Vec<String> {
        let mut sums: BTreeMap<String, Amounts> = BTreeMap::new();
        for ((node, _), Placed { mut pods, places }) in placed {
            raise(&mut pods, &places);
            add(sums.entry(node).or_default(), &pods);
        }
        let mut violations = Vec::new();
        for (node, sum) in sums {
            let allocatable = self.allocatable.get(&node);
            for (resource, most) in allocatable.into_iter().flatten() {
                let sum = sum.get(resource).copied().unwrap_or_default();
                if sum > *most {
                    violations.push(format!("node {node}, {resource}: {sum}m placed, {most}m allocatable"));
                }
            }
        }
        violations
    }
}

/// Returns the slot of a place; that of all pods of its group where another controller may exchange them.
fn slot(cell: &Cell, interchanges: bool) -> String {
    let Cell { job, group, index, .. } = cell;
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
