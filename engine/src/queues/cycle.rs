//! Runs a scheduling cycle: takes a snapshot of targets, nodes and queues, and turns the decision on it into targets.
//!
//! It never reads places that still count after they were given up: granting does. Tests: through [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::{JobKey, LossKind, Share, ShareLoss, ShareTarget, SizeRange, SlotId, TargetUpdate, Text, Timestamp};
use scheduler::learning::Prior;
use scheduler::placement::Node;
use scheduler::scheduling::{
    self, Claim, Decision, Fixed, History, PendingClaim, Sizes, Snapshot, SpeedEstimate, Usage, Why,
};
use scheduler::{GpuMicros, GpuType, Micros};

use super::Queues;
use super::candidate::Candidate;
use super::filter::{self, NodeFilter};
use super::foreign::{self, Foreign};
use super::queue_snapshots::QueueSnapshots;
use super::speed_samples::Known;
use crate::state::State;

/// Jobs that wait, by the name of their queue, in order; those of no queue under the name that they ask for.
pub(super) type PendingJobs = BTreeMap<Text, Vec<(JobKey, PendingJob)>>;

/// A job that waits, with a reason that the scheduler does not know: no node could take its workers, or its queue does not select its
/// namespace.
#[derive(Debug)]
pub(super) struct PendingJob {
    pub(super) wait: PendingClaim,
    refusal: Option<String>,
}

impl fmt::Display for PendingJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => f.write_str(refusal),
            None => self.wait.fmt(f),
        }
    }
}

/// Decisions of a cycle.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) update: TargetUpdate,
    /// Jobs that wait, by the name of their queue, in order.
    pub(super) pending: PendingJobs,
    pub(super) wake: Option<Timestamp>,
}

/// Returns a time of the engine as the scheduler counts it.
pub(super) const fn micros(at: Timestamp) -> Micros {
    Micros::from_millis(at.0)
}

/// Returns the first millisecond that is not before a time of the scheduler.
pub(super) const fn timestamp(at: Micros) -> Timestamp {
    Timestamp(at.0.div_ceil(1000))
}

/// GPUs of the node that stands for those that a cluster may still add.
const FUTURE_GPUS: u32 = 100_000;

/// Returns the name of the node that stands for those which a cluster may still add with a resource. No node has such a name.
fn future(resource: &Text) -> Text {
    Text::from(format!("~{resource}"))
}

/// The nodes in the form of `scheduler::scheduling`, and those that take nothing new. Where capacity does not count, one of them stands for what the
/// cluster may still add.
pub(super) fn nodes(state: &State, now: Timestamp) -> (Vec<Node>, BTreeSet<Text>) {
    let view = state.node_view();
    let (mut nodes, mut closed) = (Vec::new(), BTreeSet::new());
    for (name, node) in &state.nodes {
        let Some((resource, slots)) = node.fact.gpus.first_key_value() else { continue };
        if view.is_without_places(name, now) {
            continue;
        }
        if node.fact.closed || view.trouble(name, now).is_some() {
            closed.insert(name.clone());
        }
        let gpu_type = state.queues.gpu_type(resource);
        nodes.push(Node { gpu_type, ..Node::new(name.clone(), *slots) });
    }
    nodes.extend(future_nodes(state).map(|(name, gpu_type)| Node { gpu_type, ..Node::new(name, FUTURE_GPUS) }));
    (nodes, closed)
}

/// Returns the names and GPU types of the nodes that stand for those which the cluster may still add, where capacity does not count.
pub(super) fn future_nodes(state: &State) -> impl Iterator<Item = (Text, GpuType)> {
    let resources: BTreeSet<&Text> = state.queues.candidates.values().map(|candidate| &candidate.resource).collect();
    let resources = resources.into_iter().filter(|_| state.config.ignores_capacity);
    resources.map(|resource| (future(resource), state.queues.gpu_type(resource)))
}

fn pods_words(pods: u32) -> String {
    if pods == 1 { "a pod".to_owned() } else { format!("{pods} pods") }
}

impl Queues {
    pub(super) fn gpu_type(&self, resource: &Text) -> GpuType {
        let index = self.resources.iter().position(|known| known == resource);
        GpuType(index.and_then(|index| u16::try_from(index).ok()).unwrap_or(u16::MAX))
    }
}

/// Cluster that requests are made for.
struct Surroundings<'a> {
    state: &'a State,
    known: &'a Known<'a>,
    filter: &'a NodeFilter<'a>,
    /// Nodes that take nothing new.
    closed: &'a BTreeSet<Text>,
    /// GPUs of all nodes.
    gpus: u32,
}

/// Request of a job for workers, from which its claim is made.
pub(super) struct Request<'a> {
    pub(super) key: &'a JobKey,
    id: Text,
    candidate: &'a Candidate,
    /// Its slots, those held first.
    workers: Vec<&'a SlotId>,
    /// Nodes of the workers that it has.
    pub(super) held: Vec<Text>,
    /// Time of the last change of its places.
    pub(super) changed: Option<Timestamp>,
    estimate: SpeedEstimate,
    /// The places that it shall hold as decided before.
    before: Share,
    /// Nodes that could take one of its workers; `None`: all.
    fits: Option<Arc<BTreeSet<Text>>>,
    /// Amounts of other resources than GPUs that each worker needs.
    needs: Vec<u64>,
    /// Nodes that refused one of its pods a short time ago.
    avoid: Vec<Text>,
}

impl<'a> Request<'a> {
    fn new(
        Surroundings { state, known, filter, closed, gpus }: &Surroundings<'_>,
        key: &'a JobKey,
        candidate: &'a Candidate,
        seen: Option<&Share>,
        now: Timestamp,
    ) -> Self {
        let queues = &state.queues;
        let shape = filter.shape(candidate).cloned().unwrap_or_default();
        let before = decided(queues, key, candidate, seen);
        let takes = |node: &Text| !closed.contains(node) && shape.fits.as_ref().is_none_or(|fits| fits.contains(node));
        let held = held(queues, key, candidate, seen.unwrap_or(&candidate.share), takes);
        let workers = candidate.workers(&held);
        let or_future = |node: Text| {
            let is_future = state.config.ignores_capacity && node.is_empty();
            if is_future { future(&candidate.resource) } else { node }
        };
        let held: Vec<Text> = workers.iter().filter_map(|(_, node)| node.clone().map(or_future)).collect();
        let all = u32::try_from(candidate.slots.len()).unwrap_or(u32::MAX);
        let gpu_type = queues.gpu_type(&candidate.resource);
        // A table of speeds has an entry for each GPU. It ends at the GPUs of the cluster, or at those that the job holds if they are more.
        let held_gpus = u32::try_from(held.len()).unwrap_or(u32::MAX).saturating_mul(candidate.width);
        let most = all.saturating_mul(candidate.width).min((*gpus).max(held_gpus));
        let speeds = Prior::default().speeds(&[gpu_type], most);
        Self {
            key,
            id: Text::from(key.to_string()),
            candidate,
            workers: workers.into_iter().map(|(slot, _)| slot).collect(),
            held,
            changed: candidate.changed,
            estimate: known.estimate(key, candidate, gpu_type, speeds),
            before,
            fits: shape.fits,
            needs: shape.needs,
            avoid: filter.avoided(candidate, now),
        }
    }

    pub(super) const fn id(&self) -> &Text {
        &self.id
    }

    /// Returns its use of GPUs up to a time. Of a start or halt that is only forecast nothing but the time counts.
    fn usage(&self, now: Timestamp) -> Usage {
        let is_as_seen = self.changed == self.candidate.changed;
        let used = if is_as_seen { self.candidate.used(now) } else { self.candidate.usage };
        let changed = self.changed.map(micros);
        let since = used.since.map(micros).filter(|_| is_as_seen).or(changed);
        Usage {
            attained: GpuMicros(used.gpu_ms.saturating_mul(1000)),
            ran: Micros::from_millis(used.held_ms),
            spell: Micros::from_millis(used.spell_ms),
            first_start: used.first_start.map(micros),
            since: since.unwrap_or_else(|| micros(self.candidate.submitted)),
            changed,
        }
    }

    fn claim(&self, snapshots: &QueueSnapshots, now: Timestamp) -> Claim<'_> {
        let all = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        Claim {
            id: &self.id,
            queue: snapshots.place(self.key, self.candidate),
            sizes: self.sizes(held, all),
            width: self.candidate.width,
            priority: self.candidate.priority,
            level: self.candidate.level,
            submitted: micros(self.candidate.submitted),
            usage: self.usage(now),
            estimate: &self.estimate,
            held: &self.held,
            // A place that is not known cannot be decided on.
            fixed: if self.held.iter().any(|node| node.is_empty()) { Fixed::Place } else { Fixed::No },
            avoid: &self.avoid,
            fits: self.fits.as_ref(),
            needs: &self.needs,
            not_before: self.candidate.start_after.map_or(Micros::ZERO, micros),
        }
    }

    /// Returns the numbers of workers that it may be given. One that is edited to be larger keeps what it has until there is room for
    /// all of it.
    fn sizes(&self, held: u32, all: u32) -> Sizes {
        let SizeRange { min, preferred, max, .. } = self.candidate.sizes;
        if min < max {
            return Sizes { min, num: preferred, max };
        }
        Sizes { min: if held == 0 { all } else { held.min(all) }, num: all, max: all }
    }

    /// Returns the places of a target's nodes.
    fn share(&self, on: &[Text]) -> Share {
        let mut placed: BTreeMap<&SlotId, &Text> = self.workers.iter().copied().zip(on).collect();
        let mut share = Share::default();
        for (slot, _) in &self.candidate.slots {
            if let Some(node) = placed.remove(slot) {
                let is_future = *node == future(&self.candidate.resource);
                let node = if is_future { Text::from("") } else { node.clone() };
                share.groups.entry(slot.group.clone()).or_default().push(node);
            }
        }
        share
    }
}

/// Returns the places that a job holds and is to keep. A target that was not granted yet is decided again: it may have become
/// impossible. A job whose pods go so that it gets its target holds the target until they are gone: else the next cycle would give
/// the places to other jobs. It does not hold a target with a node that takes none of its pods any more (`takes`).
fn held(queues: &Queues, key: &JobKey, candidate: &Candidate, share: &Share, takes: impl Fn(&Text) -> bool) -> Share {
    let Some(target) = queues.targets.get(key) else { return share.clone() };
    if share.is_empty() && candidate.leaving {
        let is_open = target.share.cells().all(|(_, node)| node.is_empty() || takes(node));
        return if is_open { target.share.clone() } else { Share::default() };
    }
    let mut held = Share::default();
    for (slot, node) in share.cells().filter(|(slot, _)| target.share.node(slot).is_some()) {
        held.groups.entry(slot.group).or_default().push(node.clone());
    }
    held
}

/// Returns the places that a job shall hold as last decided, on the nodes on which its pods are seen.
pub(super) fn decided(queues: &Queues, key: &JobKey, candidate: &Candidate, seen: Option<&Share>) -> Share {
    let Some(seen) = seen else {
        return queues.targets.get(key).map_or_else(|| candidate.share.clone(), |target| target.share.clone());
    };
    let Some(target) = queues.targets.get(key) else { return seen.clone() };
    let mut followed = target.share.clone();
    for (group, nodes) in &mut followed.groups {
        for (index, node) in (0u32..).zip(nodes) {
            let slot = SlotId { group: group.clone(), index };
            if candidate.share.node(&slot) == Some(node)
                && let Some(actual) = seen.node(&slot)
            {
                *node = actual.clone();
            }
        }
    }
    followed
}

/// One scheduling cycle: the nodes, queues and requests of its snapshot.
pub(super) struct SchedulingCycle<'a> {
    filter: NodeFilter<'a>,
    nodes: Vec<Node>,
    closed: BTreeSet<Text>,
    /// Amounts besides GPUs that pods without a claim hold on each node.
    taken: BTreeMap<Text, Vec<u64>>,
    snapshots: QueueSnapshots,
    foreign: Vec<Foreign>,
    pub(super) requests: Vec<Request<'a>>,
}

impl<'a> SchedulingCycle<'a> {
    /// Reads the state. `seen`: shares as pods show them, where they differ.
    pub(super) fn new(state: &'a State, seen: &BTreeMap<JobKey, Share>, now: Timestamp) -> Self {
        let filter = NodeFilter::new(state, now);
        let (mut nodes, closed) = nodes(state, now);
        let candidates = || state.queues.candidates.iter();
        let mut others = filter.others(state);
        let mut taken = filter.taken(state);
        for (candidate, slot, node) in
            candidates().flat_map(|(_, h)| h.kept.iter().map(move |(slot, node)| (h, slot, node)))
        {
            filter::add(&mut taken, node, &filter.needs(candidate, &slot.group));
        }
        for node in &mut nodes {
            node.others = others.remove(&node.name).unwrap_or_default();
        }
        let known = Known::of(state);
        let gpus = nodes.iter().map(|node| node.slots).fold(0, u32::saturating_add);
        let around = Surroundings { state, known: &known, filter: &filter, closed: &closed, gpus };
        let asking = candidates().filter(|(_, candidate)| candidate.wants);
        let requests =
            asking.map(|(key, candidate)| Request::new(&around, key, candidate, seen.get(key), now)).collect();
        let snapshots = QueueSnapshots::new(state);
        let foreign = foreign::gpus(state).map(|(node, gpus)| Foreign::new(node, gpus));
        let kept = candidates().flat_map(|(key, candidate)| Foreign::kept(&snapshots, key, candidate));
        let foreign = foreign.chain(kept).collect();
        Self { filter, nodes, closed, taken, snapshots, foreign, requests }
    }

    /// Returns in words that a job's queue does not exist, or does not select its namespace; `None` where it does. `needs`: GPUs of the job.
    fn without_queue(&self, request: &Request<'_>, needs: u32) -> Option<String> {
        let (queue, namespace) = (request.candidate.queue(), &request.key.namespace);
        let gpus = gpus_words(needs);
        if self.snapshots.place_of(queue).is_none() {
            return Some(format!("needs {gpus}; there is no valid queue {queue}"));
        }
        let is_selected = self.snapshots.selects(queue, namespace);
        (!is_selected).then(|| format!("needs {gpus}; queue {queue} does not select namespace {namespace}"))
    }

    /// Returns in words that the nodes, also when they are empty, have room for too few of the pods that a job needs at once; `None` where
    /// their GPUs alone are too few.
    fn never_together(&self, request: &Request<'_>, wait: &PendingClaim) -> Option<String> {
        let (pods, each) = self.pods_and_needs(request, wait)?;
        let takes = |node: &&Node| request.fits.as_ref().is_none_or(|fits| fits.contains(&node.name));
        let room = self.nodes.iter().filter(takes).map(|node| node.workers(wait.width, &request.needs));
        let room = room.fold(0, u32::saturating_add);
        let PendingClaim { needs, nodes, .. } = wait;
        (nodes >= needs && room < pods).then(|| {
            let pods = pods_words(pods);
            format!(
                "needs {pods} of {each} at once; the nodes that it may use have room for {room} when they are empty"
            )
        })
    }

    /// Returns in words that the nodes have enough GPUs left, but no room for the pods that a job needs at once; `None` where GPUs are short.
    fn not_together(&self, request: &Request<'_>, wait: &PendingClaim) -> Option<String> {
        let (pods, each) = self.pods_and_needs(request, wait)?;
        let PendingClaim { needs, nodes_left, .. } = wait;
        let pods = pods_words(pods);
        let [needed, left] = [needs, nodes_left].map(|gpus| gpus_words(*gpus));
        (nodes_left >= needs)
            .then(|| format!("needs {needed}; the nodes have {left} left, but no room for {pods} of {each}"))
    }

    /// Returns how many pods a job needs at once, and what each requests; `None` where nothing but GPUs is judged.
    fn pods_and_needs(&self, request: &Request<'_>, wait: &PendingClaim) -> Option<(u32, String)> {
        let gpus = gpus_words(wait.width);
        let others = self.filter.needs_words(&request.needs)?;
        let each = match others.split_last() {
            Some((last, others)) => format!("{} and {last}", [&[gpus], others].concat().join(", ")),
            None => gpus,
        };
        Some((wait.needs.checked_div(wait.width)?, each))
    }

    /// Returns the decision on a snapshot; `None` for one that cannot be carried out, which changes nothing.
    pub(super) fn ask(&self, history: &History, now: Timestamp) -> Option<Decision> {
        // Those of jobs come first: targets are read in their order.
        let of_jobs = self.requests.iter().map(|request| request.claim(&self.snapshots, now));
        let claims: Vec<Claim<'_>> = of_jobs.chain(self.foreign.iter().map(Foreign::claim)).collect();
        let snapshot = Snapshot {
            now: micros(now),
            nodes: &self.nodes,
            closed: &self.closed,
            queues: &self.snapshots.all,
            taken: &self.taken,
            claims: &claims,
            packing: self.snapshots.packing(),
            wake: None,
        };
        scheduling::decide(history, &snapshot).ok()
    }
}

/// Decides the targets of all jobs.
pub(super) fn decide(state: &State, seen: &BTreeMap<JobKey, Share>, now: Timestamp) -> Decided {
    let cycle = SchedulingCycle::new(state, seen, now);
    let Some(decision) = cycle.ask(&state.queues.history, now) else { return Decided::default() };
    let requests = &cycle.requests;
    let names: BTreeMap<&Text, &JobKey> = requests.iter().map(|request| (&request.id, request.key)).collect();
    let mut decided = Decided { wake: decision.wake.map(timestamp), ..Decided::default() };
    let by_id: BTreeMap<&Text, &Request<'_>> = requests.iter().map(|request| (&request.id, request)).collect();
    for wait in decision.pending {
        if let Some(request) = by_id.get(&wait.id) {
            let refusal = match wait.reason {
                scheduling::Reason::NeverNodes => {
                    let why = cycle.filter.why_none(request.candidate);
                    let none = why.map(|why| format!("no node can take a pod of it: {why}"));
                    none.or_else(|| cycle.never_together(request, &wait))
                }
                scheduling::Reason::Nodes => cycle.not_together(request, &wait),
                scheduling::Reason::NoQueue => cycle.without_queue(request, wait.needs),
                scheduling::Reason::Paused
                | scheduling::Reason::BackOff(_)
                | scheduling::Reason::Faulty(_)
                | scheduling::Reason::NeverQuota
                | scheduling::Reason::Quota
                | scheduling::Reason::Behind(_)
                | scheduling::Reason::Policy => None,
            };
            let queue = Text::from(request.candidate.queue());
            decided.pending.entry(queue).or_default().push((request.key.clone(), PendingJob { wait, refusal }));
        }
    }
    for (request, target) in requests.iter().zip(&decision.targets) {
        let share = request.share(&target.on);
        if share == request.before {
            continue;
        }
        let why = target.change.as_ref().and_then(|change| {
            let gainer = change.beneficiary.as_ref().and_then(|id| names.get(id));
            let beneficiary = gainer.map(|key| named(key));
            Some(ShareLoss { kind: loss_kind(change.why)?, beneficiary, job: Some(named(request.key)) })
        });
        decided.update.targets.push((request.key.clone(), ShareTarget { share, why }));
    }
    if !decision.memory.is_empty() {
        decided.update.memory = Text::from(serde_json::to_string(&decision.memory).unwrap_or_default());
    }
    decided
}

/// Returns the name of a job as messages write it.
pub(super) fn named(key: &JobKey) -> Text {
    Text::from(format!("{}/{}", key.namespace, key.name))
}

fn gpus_words(gpus: u32) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}

const fn loss_kind(why: Why) -> Option<LossKind> {
    match why {
        Why::Started | Why::Grown => None,
        Why::Shrunk | Why::Preempted => Some(LossKind::Preempted),
        Why::Reclaimed => Some(LossKind::Reclaimed),
        Why::Retyped | Why::Replaced => Some(LossKind::Moved),
        Why::Lost => Some(LossKind::NodesLost),
    }
}
