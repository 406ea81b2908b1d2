//! Rounds: the question to the desk, made of targets, nodes and queues, and targets made of its answer.
//!
//! It never looks at what still counts: granting does. Tests: through [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::{
    Allocation, JobKey, LossKind, NodeFact, QueueSpec, QuotaSpec, Share, ShareLoss, SizeRange, SlotId, Target, Text,
    Timestamp,
};
use scheduler::desk::{self, Answer, Belief, Claim, Fixed, Ledger, Question, Sizes, Tenant, Usage, Wait, Why};
use scheduler::learning::Prior;
use scheduler::placement::{Node, Packing};
use scheduler::{GpuMicros, GpuType, Micros};

use super::filter::NodeFilter;
use super::holder::Holder;
use super::lessons::Known;
use super::{Queues, ROOT};
use crate::nodes::NodeTrouble;
use crate::state::State;

/// Policy of the root queue.
pub const ROOT_POLICY: &str = "fifo-backfill";

/// Jobs that wait, by the name of their queue, in order; those of no queue under the name that they ask for.
pub(super) type Waits = BTreeMap<Text, Vec<(JobKey, Waiting)>>;

/// A job that waits, with the reason for which no node could take its workers, where none could.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) wait: Wait,
    refusal: Option<String>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => write!(f, "no node can take a pod of it: {refusal}"),
            None => self.wait.fmt(f),
        }
    }
}

/// A decided round.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) allocation: Allocation,
    /// Jobs that wait, by the name of their queue, in order.
    pub(super) waits: Waits,
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

/// The nodes as the desk takes them, and those that take nothing new. Where capacity does not count, one of them stands for what the
/// cluster may still add.
pub(super) fn nodes(state: &State, now: Timestamp) -> (Vec<Node>, BTreeSet<Text>) {
    let view = state.node_view();
    let (mut nodes, mut closed) = (Vec::new(), BTreeSet::new());
    for (name, node) in &state.nodes {
        let trouble = view.trouble(name, now);
        let Some((resource, slots)) = node.fact.gpus.first_key_value() else { continue };
        if trouble == Some(NodeTrouble::Lost) {
            continue;
        }
        if node.fact.closed || trouble.is_some() {
            closed.insert(name.clone());
        }
        let gpu_type = state.queues.gpu_type(resource);
        nodes.push(Node { gpu_type, ..Node::new(name.clone(), *slots) });
    }
    nodes.extend(future_nodes(state).map(|(name, gpu_type)| Node { gpu_type, ..Node::new(name, FUTURE_GPUS) }));
    (nodes, closed)
}

/// Returns the names and GPU types of the nodes that stand for those which the cluster may still add, where capacity does not count.
fn future_nodes(state: &State) -> impl Iterator<Item = (Text, GpuType)> {
    let resources: BTreeSet<&Text> = state.queues.holders.values().map(|holder| &holder.resource).collect();
    let resources = resources.into_iter().filter(|_| state.config.ignores_capacity);
    resources.map(|resource| (future(resource), state.queues.gpu_type(resource)))
}

/// Returns the GPUs that pods of others hold on nodes, of the resource that counts there.
pub(super) fn foreign(state: &State) -> impl Iterator<Item = (&Text, u32)> {
    state.foreign.iter().filter_map(|(name, gpus)| {
        let (resource, _) = state.nodes.get(name)?.fact.gpus.first_key_value()?;
        Some((name, *gpus.get(resource)?))
    })
}

/// Returns what each node has besides GPUs for pods of ours.
pub(super) fn others(state: &State, filter: &NodeFilter<'_>) -> BTreeMap<Text, Vec<u64>> {
    state.nodes.iter().map(|(name, node)| (name.clone(), filter.room(&node.fact))).collect()
}

/// Takes amounts off those of a node, as far as there are any.
pub(super) fn take(others: &mut BTreeMap<Text, Vec<u64>>, node: &Text, needs: &[u64]) {
    if let Some(left) = others.get_mut(node) {
        for (left, need) in left.iter_mut().zip(needs).filter(|(left, _)| **left < u64::MAX) {
            *left = left.saturating_sub(*need);
        }
    }
}

impl Queues {
    pub(super) fn gpu_type(&self, resource: &Text) -> GpuType {
        let index = self.resources.iter().position(|known| known == resource);
        GpuType(index.and_then(|index| u16::try_from(index).ok()).unwrap_or(u16::MAX))
    }
}

/// Returns the settings of the root queue as the desk takes them.
fn root_rules() -> Option<desk::Queue> {
    scheduler::by_name(ROOT_POLICY).ok().map(|policy| desk::Queue::new(Arc::from(policy)))
}

/// Returns the settings of a queue as the desk takes them, but for its nodes; `None` for a policy that this build does not know.
fn rules(spec: &QueueSpec) -> Option<desk::Queue> {
    let policy = scheduler::by_name(&spec.policy).ok()?;
    Some(desk::Queue {
        by_priority: spec.by_priority,
        within: match spec.within {
            model::WithinQueue::Never => desk::WithinQueue::Never,
            model::WithinQueue::LowerPriority => desk::WithinQueue::LowerPriority,
            model::WithinQueue::Any => desk::WithinQueue::Any,
        },
        reclaim: match spec.reclaim {
            model::Reclaim::Never => desk::Reclaim::Never,
            model::Reclaim::LowerPriority => desk::Reclaim::LowerPriority,
            model::Reclaim::Any => desk::Reclaim::Any,
        },
        min_run: Micros::from_millis(spec.min_run_ms),
        paused: spec.paused,
        // A policy that may halt any job has an order of its own; a reservation in the queue's order would start the halted job again.
        backfill: match spec.within {
            model::WithinQueue::Any => desk::Backfill::Policy,
            model::WithinQueue::Never | model::WithinQueue::LowerPriority => desk::Backfill::Reserve,
        },
        ..desk::Queue::new(Arc::from(policy))
    })
}

/// Queues and cohorts as the desk takes them.
#[derive(Debug)]
pub struct Tenants {
    /// All of them; the root queue is the first.
    pub all: Vec<Tenant>,
    queues: BTreeMap<Text, usize>,
    specs: BTreeMap<Text, QueueSpec>,
}

/// Returns the nodes with GPUs that a queue selects; `None`: all.
fn selected<'a>(spec: &QueueSpec, nodes: impl Iterator<Item = &'a NodeFact>) -> Option<Arc<BTreeSet<Text>>> {
    let selector = spec.nodes.as_ref()?;
    let nodes = nodes.filter(|node| !node.gpus.is_empty() && selector.selects(&node.labels));
    Some(Arc::new(nodes.map(|node| node.name.clone()).collect()))
}

impl Tenants {
    pub(super) fn new(state: &State) -> Self {
        let specs = state.queues.objects.iter().map(|(name, (_, spec))| (name, &**spec));
        let nodes = || state.nodes.values().map(|node| &node.fact);
        let mut tenants = Self::of(specs, nodes, |resource| state.queues.gpu_type(resource));
        // What a cluster adds for a pod is a node that the pod asks for, and pods ask for nodes that their queue selects.
        let queues = tenants.all.iter_mut().filter_map(|tenant| tenant.queue.as_mut());
        for selected in queues.filter_map(|queue| queue.nodes.as_mut()) {
            Arc::make_mut(selected).extend(future_nodes(state).map(|(name, _)| name));
        }
        tenants
    }

    /// Takes the queues with these settings, by name, on these nodes. `gpu_type`: that of a resource.
    pub fn of<'a, N: Iterator<Item = &'a NodeFact>>(
        specs: impl Iterator<Item = (&'a Text, &'a QueueSpec)>,
        nodes: impl Fn() -> N,
        gpu_type: impl Fn(&Text) -> GpuType,
    ) -> Self {
        let mut tenants = Self { all: Vec::new(), queues: BTreeMap::new(), specs: BTreeMap::new() };
        tenants.queues.insert(Text::from(ROOT), 0);
        tenants.all.extend(root_rules().map(|queue| Tenant::root(ROOT, queue)));
        let mut cohorts: BTreeMap<&Text, usize> = BTreeMap::new();
        for (name, spec) in specs {
            // A policy that this build does not know is refused when the object is read.
            let Some(queue) = rules(spec) else { continue };
            let queue = desk::Queue { nodes: selected(spec, nodes()), ..queue };
            let parent = spec.cohort.as_ref().map(|cohort| {
                *cohorts.entry(cohort).or_insert_with(|| {
                    tenants.all.push(Tenant {
                        name: Text::from(format!("cohort {cohort}")),
                        parent: None,
                        quota: Some(BTreeMap::new()),
                        weight: 1,
                        priority: 0,
                        queue: None,
                    });
                    tenants.all.len().saturating_sub(1)
                })
            });
            let quota = spec.quota.iter().map(|(resource, quota)| {
                let QuotaSpec { nominal, borrowing, lending } = *quota;
                (gpu_type(resource), desk::Quota { nominal, borrowing, lending })
            });
            tenants.queues.insert(name.clone(), tenants.all.len());
            tenants.all.push(Tenant {
                name: name.clone(),
                parent,
                quota: Some(quota.collect()),
                weight: spec.weight,
                priority: 0,
                queue: Some(queue),
            });
            tenants.specs.insert(name.clone(), spec.clone());
        }
        tenants
    }

    /// Returns the place of a job's queue; `None` when there is no such queue, or the job's namespace may not use it.
    pub(super) fn place(&self, key: &JobKey, holder: &Holder) -> Option<usize> {
        self.place_of(holder.queue(), &key.namespace)
    }

    /// Returns the place of a queue; `None` when there is no such queue, or jobs of the namespace may not use it.
    pub fn place_of(&self, name: &str, namespace: &str) -> Option<usize> {
        let allowed = |spec: &QueueSpec| spec.namespaces.as_ref().is_none_or(|names| names.contains(namespace));
        self.specs.get(name).is_none_or(allowed).then(|| self.queues.get(name).copied())?
    }

    /// Returns true if a queue places new workers on a node; the empty name stands for one that is not known yet.
    pub(super) fn takes(&self, tenant: usize, node: &Text) -> bool {
        let nodes = self.all.get(tenant).and_then(|tenant| tenant.queue.as_ref()?.nodes.as_ref());
        nodes.is_none_or(|nodes| node.is_empty() || nodes.contains(node))
    }

    /// Returns the rule by which nodes are filled: that of the queues, where all say the same.
    pub fn packing(&self) -> Packing {
        let spreads = !self.specs.is_empty() && self.specs.values().all(|spec| spec.spread);
        if spreads { Packing::Spread } else { Packing::Pack }
    }
}

/// A job as the desk is asked about it.
pub(super) struct Asked<'a> {
    pub(super) key: &'a JobKey,
    id: Text,
    holder: &'a Holder,
    /// Its slots, those held first.
    workers: Vec<&'a SlotId>,
    /// Nodes of the workers that it has.
    pub(super) held: Vec<Text>,
    /// Time of the last change of its places.
    pub(super) changed: Option<Timestamp>,
    belief: Belief,
    /// The places that it shall hold as decided before.
    before: Share,
    /// Nodes that could take one of its workers; `None`: all.
    fits: Option<Arc<BTreeSet<Text>>>,
    /// What each worker needs of a node besides GPUs.
    needs: Vec<u64>,
    /// Nodes that refused one of its pods a short time ago.
    avoid: Vec<Text>,
}

impl<'a> Asked<'a> {
    fn new(
        (state, known, filter): (&State, &Known<'_>, &NodeFilter<'_>),
        key: &'a JobKey,
        holder: &'a Holder,
        seen: Option<&Share>,
        now: Timestamp,
    ) -> Self {
        let queues = &state.queues;
        let shape = filter.shape(holder).cloned().unwrap_or_default();
        let before = decided(queues, key, holder, seen);
        let held = held(queues, key, holder, seen.unwrap_or(&holder.share));
        let workers = holder.workers(&held);
        let or_future = |node: Text| {
            let is_future = state.config.ignores_capacity && node.is_empty();
            if is_future { future(&holder.resource) } else { node }
        };
        let held = workers.iter().filter_map(|(_, node)| node.clone().map(or_future)).collect();
        let all = u32::try_from(holder.slots.len()).unwrap_or(u32::MAX);
        let gpu_type = queues.gpu_type(&holder.resource);
        let speeds = Prior::default().speeds(&[gpu_type], all.saturating_mul(holder.width));
        Self {
            key,
            id: Text::from(key.to_string()),
            holder,
            workers: workers.into_iter().map(|(slot, _)| slot).collect(),
            held,
            changed: holder.changed,
            belief: known.belief(key, holder, gpu_type, speeds),
            before,
            fits: shape.fits,
            needs: shape.needs,
            avoid: filter.avoided(holder, now),
        }
    }

    pub(super) const fn id(&self) -> &Text {
        &self.id
    }

    /// Returns its use of GPUs up to a time. Of a start or halt that is only forecast nothing but the time counts.
    fn usage(&self, now: Timestamp) -> Usage {
        let is_as_seen = self.changed == self.holder.changed;
        let used = if is_as_seen { self.holder.used(now) } else { self.holder.usage };
        let changed = self.changed.map(micros);
        let since = used.since.map(micros).filter(|_| is_as_seen).or(changed);
        Usage {
            attained: GpuMicros(used.gpu_ms.saturating_mul(1000)),
            ran: Micros::from_millis(used.held_ms),
            spell: Micros::from_millis(used.spell_ms),
            first_start: used.first_start.map(micros),
            since: since.unwrap_or_else(|| micros(self.holder.submitted)),
            changed,
        }
    }

    fn claim(&self, tenants: &Tenants, now: Timestamp) -> Claim<'_> {
        let all = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        Claim {
            id: &self.id,
            tenant: tenants.place(self.key, self.holder),
            sizes: self.sizes(held, all),
            width: self.holder.width,
            priority: self.holder.priority,
            level: self.holder.level,
            submitted: micros(self.holder.submitted),
            usage: self.usage(now),
            belief: &self.belief,
            held: &self.held,
            // A place that is not known cannot be decided on.
            fixed: if self.held.iter().any(|node| node.is_empty()) { Fixed::Place } else { Fixed::No },
            avoid: &self.avoid,
            fits: self.fits.as_ref(),
            needs: &self.needs,
            not_before: self.holder.start_after.map_or(Micros::ZERO, micros),
        }
    }

    /// Returns the numbers of workers that it may be given. One that is edited to be larger keeps what it has until there is room for
    /// all of it.
    fn sizes(&self, held: u32, all: u32) -> Sizes {
        let SizeRange { min, preferred, max, .. } = self.holder.sizes;
        if min < max {
            return Sizes { min, num: preferred, max };
        }
        Sizes { min: if held == 0 { all } else { held.min(all) }, num: all, max: all }
    }

    /// Returns the places that an answer stands for.
    fn share(&self, on: &[Text]) -> Share {
        let mut placed: BTreeMap<&SlotId, &Text> = self.workers.iter().copied().zip(on).collect();
        let mut share = Share::default();
        for (slot, _) in &self.holder.slots {
            if let Some(node) = placed.remove(slot) {
                let is_future = *node == future(&self.holder.resource);
                let node = if is_future { Text::from("") } else { node.clone() };
                share.groups.entry(slot.group.clone()).or_default().push(node);
            }
        }
        share
    }
}

/// Returns the places that a job holds and is to keep. A target that was not granted yet is decided again: it may have become
/// impossible. A job whose pods go so that it gets its target holds the target until they are gone: else the next round would give
/// the places to others.
fn held(queues: &Queues, key: &JobKey, holder: &Holder, share: &Share) -> Share {
    let Some(target) = queues.targets.get(key) else { return share.clone() };
    if share.is_empty() && holder.leaving {
        return target.share.clone();
    }
    let mut held = Share::default();
    for (slot, node) in share.cells().filter(|(slot, _)| target.share.node(slot).is_some()) {
        held.groups.entry(slot.group).or_default().push(node.clone());
    }
    held
}

/// Returns the places that a job shall hold as last decided, on the nodes on which its pods are seen.
pub(super) fn decided(queues: &Queues, key: &JobKey, holder: &Holder, seen: Option<&Share>) -> Share {
    let Some(seen) = seen else {
        return queues.targets.get(key).map_or_else(|| holder.share.clone(), |target| target.share.clone());
    };
    let Some(target) = queues.targets.get(key) else { return seen.clone() };
    let mut followed = target.share.clone();
    for (group, nodes) in &mut followed.groups {
        for (index, node) in (0u32..).zip(nodes) {
            let slot = SlotId { group: group.clone(), index };
            if holder.share.node(&slot) == Some(node)
                && let Some(actual) = seen.node(&slot)
            {
                *node = actual.clone();
            }
        }
    }
    followed
}

/// Pods that stay whatever is decided: those of others on a node, which belong to no queue, and those that an ended job keeps.
struct Foreign {
    id: Text,
    tenant: Option<usize>,
    width: u32,
    on: Vec<Text>,
    belief: Belief,
}

impl Foreign {
    fn new(node: &Text, gpus: u32) -> Self {
        let on = vec![node.clone(); usize::try_from(gpus).unwrap_or_default()];
        let id = Text::from(format!("pods of others on {node}"));
        Self { id, tenant: None, width: 1, on, belief: Belief::default() }
    }

    /// Takes the pods that a job keeps, those of each group apart.
    fn kept<'a>(tenants: &Tenants, key: &'a JobKey, holder: &'a Holder) -> impl Iterator<Item = Self> + use<'a> {
        let mut groups: BTreeMap<&Text, (u32, Vec<Text>)> = BTreeMap::new();
        for (slot, node) in &holder.kept {
            let (width, on) = groups.entry(&slot.group).or_default();
            *width = holder.charged(slot).max(1);
            on.push(node.clone());
        }
        let tenant = tenants.place(key, holder);
        groups.into_iter().map(move |(group, (width, on))| {
            let id = Text::from(format!("pods of {group} that {key} keeps"));
            Self { id, tenant, width, on, belief: Belief::default() }
        })
    }

    fn claim(&self) -> Claim<'_> {
        Claim {
            id: &self.id,
            tenant: self.tenant,
            sizes: Sizes::rigid(u32::try_from(self.on.len()).unwrap_or(u32::MAX)),
            width: self.width,
            priority: 0,
            level: 0,
            submitted: Micros::ZERO,
            usage: Usage::default(),
            belief: &self.belief,
            held: &self.on,
            fixed: Fixed::Place,
            avoid: &[],
            fits: None,
            needs: &[],
            not_before: Micros::ZERO,
        }
    }
}

/// What the desk is asked about: nodes, queues, and the jobs that hold or want places.
pub(super) struct Inquiry<'a> {
    filter: NodeFilter<'a>,
    nodes: Vec<Node>,
    closed: BTreeSet<Text>,
    tenants: Tenants,
    foreign: Vec<Foreign>,
    pub(super) asked: Vec<Asked<'a>>,
}

impl<'a> Inquiry<'a> {
    /// Takes what there is. `seen`: shares as pods show them, where they differ.
    pub(super) fn new(state: &'a State, seen: &BTreeMap<JobKey, Share>, now: Timestamp) -> Self {
        let filter = NodeFilter::new(state, now);
        let (mut nodes, closed) = nodes(state, now);
        let holders = || state.queues.holders.iter();
        let mut others = others(state, &filter);
        for (holder, slot, node) in holders().flat_map(|(_, h)| h.kept.iter().map(move |(slot, node)| (h, slot, node)))
        {
            take(&mut others, node, &filter.needs(holder, &slot.group));
        }
        for node in &mut nodes {
            node.others = others.remove(&node.name).unwrap_or_default();
        }
        let known = Known::of(state);
        let context = (state, &known, &filter);
        let asking = holders().filter(|(_, holder)| holder.wants);
        let asked = asking.map(|(key, holder)| Asked::new(context, key, holder, seen.get(key), now)).collect();
        let tenants = Tenants::new(state);
        let foreign = foreign(state).map(|(node, gpus)| Foreign::new(node, gpus));
        let kept = holders().flat_map(|(key, holder)| Foreign::kept(&tenants, key, holder));
        let foreign = foreign.chain(kept).collect();
        Self { filter, nodes, closed, tenants, foreign, asked }
    }

    /// Asks the desk. Returns `None` for an answer that cannot be carried out: it leaves everything as it is.
    pub(super) fn ask(&self, ledger: &Ledger, now: Timestamp) -> Option<Answer> {
        // Those of jobs come first: targets are read in their order.
        let asked = self.asked.iter().map(|asked| asked.claim(&self.tenants, now));
        let claims: Vec<Claim<'_>> = asked.chain(self.foreign.iter().map(Foreign::claim)).collect();
        let question = Question {
            now: micros(now),
            nodes: &self.nodes,
            closed: &self.closed,
            tenants: &self.tenants.all,
            claims: &claims,
            packing: self.tenants.packing(),
            wake: None,
        };
        desk::decide(ledger, &question).ok()
    }
}

/// Decides the targets of all jobs.
pub(super) fn decide(state: &State, seen: &BTreeMap<JobKey, Share>, now: Timestamp) -> Decided {
    let inquiry = Inquiry::new(state, seen, now);
    let Some(answer) = inquiry.ask(&state.queues.ledger, now) else { return Decided::default() };
    let asked = &inquiry.asked;
    let names: BTreeMap<&Text, &JobKey> = asked.iter().map(|asked| (&asked.id, asked.key)).collect();
    let mut decided = Decided { wake: answer.wake.map(timestamp), ..Decided::default() };
    let by_id: BTreeMap<&Text, &Asked<'_>> = asked.iter().map(|asked| (&asked.id, asked)).collect();
    for wait in answer.waits {
        if let Some(asked) = by_id.get(&wait.id) {
            let is_barred = wait.reason == desk::Reason::NeverNodes;
            let refusal = is_barred.then(|| inquiry.filter.why_none(asked.holder)).flatten();
            let queue = Text::from(asked.holder.queue());
            decided.waits.entry(queue).or_default().push((asked.key.clone(), Waiting { wait, refusal }));
        }
    }
    for (asked, target) in asked.iter().zip(&answer.targets) {
        let share = asked.share(&target.on);
        if share == asked.before {
            continue;
        }
        let why = target.change.as_ref().and_then(|change| {
            let gainer = change.beneficiary.as_ref().and_then(|id| names.get(id));
            let beneficiary = gainer.map(|key| Text::from(format!("{}/{}", key.namespace, key.name)));
            Some(ShareLoss { kind: loss_kind(change.why)?, beneficiary })
        });
        decided.allocation.targets.push((asked.key.clone(), Target { share, why }));
    }
    if !answer.memory.is_empty() {
        decided.allocation.memory = Text::from(serde_json::to_string(&answer.memory).unwrap_or_default());
    }
    decided
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
