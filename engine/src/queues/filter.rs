//! Filters of nodes: which nodes could take a worker of a job, and what each has besides GPUs.
//!
//! Judges as kube-scheduler does ([`kube_model::refuses`]), once for each set of requirements and each class of nodes: nodes whose
//! taints and judged labels are equal. The scheduler judges a cordon, so that what runs there stays. Nodes that list the resource
//! `pods`, as every kubelet does, list all that they have. Where no node lists it, a label or resource that no node lists is not
//! judged: scenarios, simulations and local runs name what they are about.
//! It must not decide which job gets GPUs. Tests: the scenarios `trainingqueue/node-*`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_model::node::UNLIMITED;
use kube_model::requirements::PODS;
use kube_model::{Refusal, Traits, refuses};
use model::{LabelRequirement, NodeFact, PodRequirements, Text, Timestamp};

use super::candidate::Candidate;
use super::cycle::future_nodes;
use crate::message::amount_words;
use crate::state::State;

/// Requirements of the workers of a job, in the form of `scheduler::scheduling`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Nodes that could take one of its workers if they were empty; `None`: all.
    pub(super) fits: Option<Arc<BTreeSet<Text>>>,
    /// Amounts that each worker needs, in the order of [`NodeFilter::resources`].
    pub(super) needs: Vec<u64>,
}

/// Requirements of the pods of each group with GPUs, in the order of the groups.
pub(super) type Requirements = Vec<(Text, Arc<PodRequirements>)>;

/// Judges the nodes of a state.
pub(super) struct NodeFilter<'a> {
    nodes: Vec<&'a NodeFact>,
    /// Class of each node.
    class_of: Vec<usize>,
    /// One node of each class.
    classes: Vec<&'a NodeFact>,
    /// Resources besides GPUs that are judged, in order.
    resources: Vec<Text>,
    /// Keys of the labels that are judged; `None`: all.
    listed: Option<BTreeSet<Text>>,
    /// Names of the nodes that stand for those which the cluster may still add: each fits every pod.
    future: Vec<Text>,
    shapes: BTreeMap<&'a [(Text, Arc<PodRequirements>)], Shape>,
}

/// Members of a node by which it is classed: taints, and values of the judged labels.
type ClassKey<'a> = (&'a [model::Taint], Vec<Option<&'a Text>>);

impl<'a> NodeFilter<'a> {
    /// Judges the nodes with GPUs for all jobs that hold or want places.
    pub(super) fn new(state: &'a State, now: Timestamp) -> Self {
        let view = state.node_view();
        let is_there = |node: &&NodeFact| !node.gpus.is_empty() && !view.is_without_places(&node.name, now);
        let nodes: Vec<&NodeFact> = state.nodes.values().map(|node| &node.fact).filter(is_there).collect();
        let all: BTreeSet<&[(Text, Arc<PodRequirements>)]> =
            state.queues.candidates.values().map(|candidate| candidate.requirements.as_slice()).collect();
        let lists_all = nodes.iter().any(|node| node.allocatable.contains_key(PODS));
        let is_listed = |resource: &Text| lists_all || nodes.iter().any(|n| n.allocatable.contains_key(resource));
        let pods = || all.iter().flat_map(|shape| shape.iter()).map(|(_, pod)| &**pod);
        let resources: BTreeSet<&Text> = pods().flat_map(|pod| pod.requests.keys()).collect();
        let resources: Vec<Text> = resources.into_iter().filter(|resource| is_listed(resource)).cloned().collect();
        let keys = || nodes.iter().flat_map(|node| node.labels.keys());
        let listed = (!lists_all).then(|| keys().cloned().collect());
        let judged: BTreeSet<&Text> = pods().flat_map(label_keys).collect();
        let mut by_key: BTreeMap<ClassKey<'a>, usize> = BTreeMap::new();
        let (mut classes, mut class_of) = (Vec::new(), Vec::new());
        for &node in &nodes {
            let values = judged.iter().map(|key| node.labels.get(*key)).collect();
            let class = *by_key.entry((node.taints.as_slice(), values)).or_insert_with(|| {
                classes.push(node);
                classes.len().saturating_sub(1)
            });
            class_of.push(class);
        }
        let future = future_nodes(state).map(|(name, _)| name).collect();
        let mut filter = Self { nodes, class_of, classes, resources, listed, future, shapes: BTreeMap::new() };
        let shapes = all.into_iter().map(|shape| (shape, filter.judge(shape))).collect();
        filter.shapes = shapes;
        filter
    }

    /// Returns the shape of a job's workers; `None` where nothing is recorded of their requirements.
    pub(super) fn shape(&self, candidate: &Candidate) -> Option<&Shape> {
        self.shapes.get(candidate.requirements.as_slice())
    }

    /// Returns the nodes that are left out for a job because they refused one of its pods. Where the others could not hold its least number of
    /// workers, none is: it is tried there again after its back-off.
    pub(super) fn avoided(&self, candidate: &Candidate, now: Timestamp) -> Vec<Text> {
        let is_refused = |node: &Text| candidate.refused.get(node).is_some_and(|until| *until > now);
        if !candidate.refused.values().any(|until| *until > now) {
            return Vec::new();
        }
        let fits = self.shape(candidate).and_then(|shape| shape.fits.as_ref());
        let is_left = |node: &&&NodeFact| fits.is_none_or(|fits| fits.contains(&node.name)) && !is_refused(&node.name);
        let workers = |node: &&NodeFact| {
            let gpus = node.gpus.get(&candidate.resource).copied().unwrap_or_default();
            gpus.checked_div(candidate.width).unwrap_or_default()
        };
        let room = self.nodes.iter().filter(is_left).map(workers).fold(0, u32::saturating_add);
        let refused = candidate.refused.keys().filter(|node| is_refused(node));
        if room >= candidate.sizes.min { refused.cloned().collect() } else { Vec::new() }
    }

    /// Returns the amounts that a node has besides GPUs, in the order of the judged resources; `u64::MAX` of one that has no end there.
    fn room(&self, node: &NodeFact) -> Vec<u64> {
        self.resources.iter().map(|resource| room_of(node, resource)).collect()
    }

    /// Returns the amounts that each node has besides GPUs when it is empty.
    pub(super) fn others(&self, state: &State) -> BTreeMap<Text, Vec<u64>> {
        state.nodes.iter().map(|(name, node)| (name.clone(), self.room(&node.fact))).collect()
    }

    /// Returns the amounts besides GPUs that pods without places hold on each node: those of others.
    pub(super) fn taken(&self, state: &State) -> BTreeMap<Text, Vec<u64>> {
        state.foreign_requests.iter().map(|(node, requests)| (node.clone(), self.amounts(requests))).collect()
    }

    /// Returns the amounts that a pod of one of a job's groups needs; none where nothing is recorded of them.
    pub(super) fn needs(&self, candidate: &Candidate, group: &Text) -> Vec<u64> {
        let pod = candidate.requirements.iter().find(|(name, _)| name == group);
        pod.map(|(_, pod)| self.needs_of(pod)).unwrap_or_default()
    }

    /// Returns what a pod needs of its node beside GPUs, each in words; `None` where nothing is judged. The number of pods is not named.
    pub(super) fn needs_words(&self, needs: &[u64]) -> Option<Vec<String>> {
        let requested = || self.resources.iter().zip(needs).filter(|(_, need)| **need > 0);
        requested().next()?;
        let named = requested().filter(|(resource, _)| &***resource != PODS);
        Some(named.map(|(resource, need)| format!("{resource} {}", amount_words(resource, *need))).collect())
    }

    fn needs_of(&self, pod: &PodRequirements) -> Vec<u64> {
        self.amounts(&pod.requests)
    }

    /// Returns amounts in the order of the judged resources.
    fn amounts(&self, of: &BTreeMap<Text, u64>) -> Vec<u64> {
        self.resources.iter().map(|resource| of.get(resource).copied().unwrap_or_default()).collect()
    }

    /// Judges every node for workers that may be pods of any of these groups.
    fn judge(&self, groups: &[(Text, Arc<PodRequirements>)]) -> Shape {
        let mut needs: Vec<u64> = Vec::new();
        for (_, pod) in groups {
            let own = self.needs_of(pod);
            needs.resize(own.len(), 0);
            needs.iter_mut().zip(own).for_each(|(most, own)| *most = own.max(*most));
        }
        let refused: Vec<bool> =
            self.classes.iter().map(|node| groups.iter().any(|(_, pod)| self.refusal(node, pod).is_some())).collect();
        let by_name = groups.iter().any(|(_, pod)| names_nodes(pod));
        let takes = |(node, class): (&&NodeFact, &usize)| {
            let is_refused = if by_name {
                groups.iter().any(|(_, pod)| self.refusal(node, pod).is_some())
            } else {
                refused.get(*class).copied().unwrap_or(true)
            };
            !is_refused && self.resources.iter().zip(&needs).all(|(resource, need)| room_of(node, resource) >= *need)
        };
        let nodes = self.nodes.iter().zip(&self.class_of);
        let mut fitting: BTreeSet<Text> =
            nodes.filter(|(node, class)| takes((node, class))).map(|(node, _)| node.name.clone()).collect();
        let is_limited = fitting.len() < self.nodes.len();
        fitting.extend(self.future.iter().cloned());
        let fits = is_limited.then(|| Arc::new(fitting));
        Shape { fits, needs }
    }

    /// Returns why a node takes no pod of these requirements when it is empty.
    fn refusal(&self, node: &NodeFact, pod: &PodRequirements) -> Option<Refusal> {
        refuses(Traits { unschedulable: false, ..Traits::from(node) }, pod, self.listed.as_ref())
    }

    /// Returns how many nodes there are and why none of them could take a worker of a job, the most frequent reason first: `0 of 12 nodes: 8
    /// node(s) had untolerated taint {team: x}, 4 cpu 8 > 4`. `None` where one could.
    pub(super) fn why_none(&self, candidate: &Candidate) -> Option<String> {
        if self.shape(candidate)?.fits.as_ref().is_none_or(|fits| !fits.is_empty()) {
            return None;
        }
        let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
        for node in &self.nodes {
            let refusal = candidate.requirements.iter().find_map(|(_, pod)| Some((self.refusal(node, pod)?, pod)));
            let needs = self.shape(candidate).map_or(&[][..], |shape| &shape.needs);
            let short = || {
                let has = self.resources.iter().zip(needs).find(|(resource, need)| room_of(node, resource) < **need);
                has.map(|(resource, need)| {
                    let room = room_of(node, resource);
                    format!("{resource} {} > {}", amount_words(resource, *need), amount_words(resource, room))
                })
            };
            if let Some(reason) = refusal.map(|(refusal, pod)| words(&refusal, node, pod)).or_else(short) {
                let count = reasons.entry(reason).or_default();
                *count = count.saturating_add(1);
            }
        }
        let mut reasons: Vec<(String, u32)> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        Some(format!("0 of {} nodes: {}", self.nodes.len(), reasons.join(", ")))
    }
}

/// Adds amounts to those of a node.
pub(super) fn add(taken: &mut BTreeMap<Text, Vec<u64>>, node: &Text, needs: &[u64]) {
    let sums = taken.entry(node.clone()).or_insert_with(|| vec![0; needs.len()]);
    sums.iter_mut().zip(needs).for_each(|(sum, need)| *sum = sum.saturating_add(*need));
}

/// Takes amounts off those of a node, as far as there are any.
pub(super) fn take(others: &mut BTreeMap<Text, Vec<u64>>, node: &Text, needs: &[u64]) {
    if let Some(left) = others.get_mut(node) {
        for (left, need) in left.iter_mut().zip(needs).filter(|(left, _)| **left < u64::MAX) {
            *left = left.saturating_sub(*need);
        }
    }
}

/// Returns a refusal in few words, beside the number of its nodes.
fn words(refusal: &Refusal, node: &NodeFact, pod: &PodRequirements) -> String {
    let lacking = |(key, value): &(&Text, &Text)| node.labels.get(*key) != Some(*value);
    match refusal {
        Refusal::Affinity if pod.node_selector.iter().any(|label| lacking(&label)) => {
            let labels = pod.node_selector.iter().filter(lacking).map(|(key, value)| format!("{key}={value}"));
            labels.take(1).collect()
        }
        Refusal::Taint(taint) if taint.value.is_empty() => format!("taint {}", taint.key),
        Refusal::Taint(taint) => format!("taint {}={}", taint.key, taint.value),
        Refusal::Affinity => "node affinity".to_owned(),
        Refusal::NodeName => "node name".to_owned(),
        Refusal::Unschedulable => "cordoned".to_owned(),
        Refusal::Insufficient(resource) => resource.to_string(),
    }
}

fn room_of(node: &NodeFact, resource: &Text) -> u64 {
    let unlisted = || if UNLIMITED.contains(&&**resource) { u64::MAX } else { 0 };
    node.allocatable.get(resource).copied().unwrap_or_else(unlisted)
}

/// Returns the keys of the labels that a pod requires something of.
fn label_keys(pod: &PodRequirements) -> impl Iterator<Item = &Text> {
    let expressions = pod.affinity.iter().flatten().flat_map(|term| &term.expressions);
    pod.node_selector.keys().chain(expressions.map(|LabelRequirement { key, .. }| key))
}

/// Returns true if a pod requires something of the name of its node.
fn names_nodes(pod: &PodRequirements) -> bool {
    pod.node_name.is_some() || pod.affinity.iter().flatten().any(|term| !term.fields.is_empty())
}
