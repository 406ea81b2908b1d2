//! Decides: claims, nodes and queues in, targets out.
//!
//! A decision is made in attempts. Each shares out GPUs by budgets and policies, places what is new, and matches losses with
//! gains. A claim that finds no room, or would lose without a match, limits the next attempt. Limits only grow, so it ends.
//! The result is decided on again until nothing changes, and what was decided stays. So a second decision at the same time
//! changes nothing. The input is never changed. Tests: `tests/scheduling.rs`, and at the end of this file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::job::{Grant, JobView};
use crate::memory::{Memory, MemoryChange};
use crate::placement::{NodeSet, PlacementError};
use crate::policy;
use crate::scheduling::budgets::{BudgetUse, Budgets, QueueDemand};
use crate::scheduling::decision::{Decision, PlacementTarget, TargetChange, Why};
use crate::scheduling::history::History;
use crate::scheduling::info::{AvailableNodes, Info, Workloads};
use crate::scheduling::ordering::{Head, Limits, QueueOrdering};
use crate::scheduling::pending::pending;
use crate::scheduling::place::{Placed, place};
use crate::scheduling::preemption::{Matches, PreemptionChecker};
use crate::scheduling::reclaimable::ReclaimableGpus;
use crate::scheduling::resource_usage::ResourceUsage;
use crate::scheduling::snapshot::{Pools, Snapshot};
use crate::units::Micros;

/// The snapshot cannot be decided on. The caller keeps what it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A policy's answer cannot be carried out.
    #[error(transparent)]
    Policy(#[from] policy::Error),
    /// Nodes or claims are listed twice.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// Most attempts of one pass. The last one changes no running claim.
const ATTEMPTS: u32 = 12;
/// Attempts after which a queue that takes without permission shrinks no job any more.
const LENIENT_ATTEMPTS: u32 = 3;
/// Most passes until nothing changes.
const PASSES: u32 = 8;

/// Decides the workers of every claim and their nodes.
///
/// # Errors
/// A policy is faulty, or a node is listed twice.
pub fn decide(history: &History, snapshot: &Snapshot<'_>) -> Result<Decision, Error> {
    let available = AvailableNodes::new(snapshot);
    let workloads = Workloads::new(snapshot, &available.pools, history.doubt());
    let reclaimable = ReclaimableGpus::new(&workloads.limits(snapshot.queues), &available.nodes);
    let mut builder = DecisionBuilder { snapshot, available, reclaimable, workloads, memories: BTreeMap::new() };
    builder.split(&history.memory);
    let before = builder.joined();
    let mut changes: BTreeMap<usize, TargetChange> = BTreeMap::new();
    let mut last = builder.pass()?;
    for _ in 1..PASSES {
        let made = builder.changes(&last);
        let is_settled = made.is_empty() && builder.memories == last.memories;
        builder.take_over(&last, &made);
        changes.extend(made);
        if is_settled {
            break;
        }
        last = builder.pass()?;
    }
    let made = builder.changes(&last);
    builder.take_over(&last, &made);
    changes.extend(made);
    let memory = MemoryChange::between(&before, &builder.joined());
    let pending = pending(&builder.workloads, &last.budgets, &last.limits, &last.grants, &last.heads);
    let wake = builder.wake(!pending.is_empty(), &changes);
    let targets = builder.workloads.infos.into_iter().enumerate().map(|(place, info)| PlacementTarget {
        id: info.id,
        gpu_type: info.held.gpu_type,
        on: info.on,
        change: changes.remove(&place),
    });
    Ok(Decision { targets: targets.collect(), memory, wake, pending })
}

/// A decision in the making.
struct DecisionBuilder<'a> {
    snapshot: &'a Snapshot<'a>,
    available: AvailableNodes,
    /// All GPUs of the available nodes.
    reclaimable: ReclaimableGpus,
    workloads: Workloads,
    /// Memory of each queue's policy, of the queue's claims alone.
    memories: BTreeMap<usize, Memory>,
}

/// Result of an attempt.
struct Attempt<'a> {
    budgets: Budgets<'a>,
    grants: Vec<Grant>,
    heads: BTreeMap<usize, Vec<Head>>,
    limits: Limits,
    placed: Placed,
    matches: Matches,
    memories: BTreeMap<usize, Memory>,
}

impl<'a> DecisionBuilder<'a> {
    /// Gives each queue the marks of its claims.
    fn split(&mut self, memory: &Memory) {
        for (&queue, members) in &self.workloads.members {
            let own = self.memories.entry(queue).or_default();
            for id in members.iter().filter_map(|&place| self.workloads.infos.get(place)).map(|info| &info.id) {
                own.queues.extend(memory.queues.get(id).map(|mark| (id.clone(), *mark)));
                own.leases.extend(memory.leases.get(id).map(|lease| (id.clone(), *lease)));
            }
        }
    }

    fn joined(&self) -> Memory {
        let mut all = Memory::default();
        for memory in self.memories.values() {
            all.queues.extend(memory.queues.iter().map(|(id, mark)| (id.clone(), *mark)));
            all.leases.extend(memory.leases.iter().map(|(id, lease)| (id.clone(), *lease)));
        }
        all
    }

    fn views(&self, queue: usize) -> Vec<JobView> {
        let members = self.workloads.members.get(&queue).map_or(&[][..], Vec::as_slice);
        members.iter().filter_map(|&place| self.workloads.infos.get(place)).map(|info| info.view.clone()).collect()
    }

    /// Brings the policies' memory up to date.
    fn review(&mut self) {
        let queues: Vec<usize> = self.memories.keys().copied().collect();
        for queue in queues {
            let views = self.views(queue);
            let settings = self.snapshot.queues.get(queue).and_then(|queue| queue.settings.as_ref());
            if let Some((settings, memory)) = settings.zip(self.memories.get_mut(&queue)) {
                settings.policy.review(self.snapshot.now, &views, memory);
            }
        }
    }

    /// Makes attempts until every grant finds nodes and every loss has a match.
    fn pass(&mut self) -> Result<Attempt<'a>, Error> {
        self.review();
        self.workloads.count_free(&self.available);
        let checker = PreemptionChecker::new(self.snapshot.queues, &self.workloads);
        let mut limits = Limits { keep: self.kept(&checker), ..Limits::default() };
        for turn in 1..ATTEMPTS {
            let tried = self.attempt(limits.clone(), &checker)?;
            if tried.placed.short.is_empty() && tried.matches.unmatched.is_empty() {
                return Ok(tried);
            }
            self.limit(&mut limits, &tried, turn);
        }
        let running = (0..).zip(&self.workloads.infos).filter(|(_, info)| info.is_running());
        limits.pin.extend(running.map(|(place, _)| place));
        let mut tried = self.attempt(limits, &checker)?;
        for &(place, _) in &tried.placed.short {
            let Some(info) = self.workloads.infos.get(place) else { continue };
            let keeps = info.is_running() && !info.lost;
            if let Some(grant) = tried.grants.get_mut(place) {
                *grant = if keeps { info.held } else { Grant::NONE };
            }
            if keeps {
                tried.placed.on.remove(&place);
            } else {
                tried.placed.on.insert(place, Vec::new());
            }
        }
        Ok(tried)
    }

    /// Returns the GPUs that running claims keep in any case. GPUs are taken away once at one time, and never from a claim that no
    /// other may halt.
    fn kept(&self, checker: &PreemptionChecker<'_>) -> BTreeMap<usize, u32> {
        let infos = (0..).zip(&self.workloads.infos).filter(|(_, info)| info.is_running() && !info.pinned);
        if self.workloads.infos.iter().any(|info| info.view.changed == Some(self.snapshot.now)) {
            return infos.map(|(place, info)| (place, info.held.gpus)).collect();
        }
        infos
            .filter(|(_, info)| checker.is_safe(info))
            .map(|(place, info)| (place, info.min.min(info.held.gpus)))
            .collect()
    }

    /// Extends the limits after an attempt that cannot stand. After some attempts a queue that takes without permission keeps all its
    /// claims as they are.
    fn limit(&self, limits: &mut Limits, tried: &Attempt<'_>, turn: u32) {
        // A claim that found no room may find it where another loses its workers instead of these.
        let is_new = |place: &&usize| tried.matches.misplaced.contains(place) && !limits.shielded.contains(place);
        let shielded: Vec<usize> = tried.matches.unmatched.iter().filter(is_new).copied().collect();
        if !tried.placed.short.is_empty() && !shielded.is_empty() {
            for place in shielded {
                limits.keep.insert(place, self.workloads.infos.get(place).map_or(0, |info| info.held.gpus));
                limits.shielded.insert(place);
            }
            return;
        }
        for &(place, found) in &tried.placed.short {
            let Some(info) = self.workloads.infos.get(place) else { continue };
            let fits = info.min < info.max && found >= info.min;
            if info.lost && info.is_running() {
                limits.loose.insert(place);
            }
            if fits {
                limits.cap.push((place, found));
            } else if info.is_running() && !info.lost {
                limits.cap.push((place, info.held.gpus));
            } else {
                limits.out.insert(place);
                limits.yields.extend(self.is_behind_another(tried, place).then_some(place));
            }
        }
        // A claim that found no room may be what another was to make room for, so permissions are checked without it.
        if !tried.placed.short.is_empty() {
            return;
        }
        let mut queues: BTreeSet<Option<usize>> = BTreeSet::new();
        for &place in &tried.matches.unmatched {
            let Some(info) = self.workloads.infos.get(place) else { continue };
            let halted = tried.grants.get(place).is_none_or(|grant| grant.is_none());
            let is_first = halted && !limits.keep.contains_key(&place);
            limits.keep.insert(place, if is_first { info.min.min(info.held.gpus) } else { info.held.gpus });
            queues.insert(info.queue);
        }
        // A queue that is given less than it holds, and not for a queue that takes back its own, would only shuffle it.
        let is_cut = |queue: &Option<usize>| {
            let members =
                (0..).zip(&self.workloads.infos).zip(&tried.grants).filter(|((_, info), _)| info.queue == *queue);
            let (mut held, mut granted, mut reclaimed) = (0_u64, 0_u64, false);
            for ((place, info), grant) in members {
                held = held.saturating_add(info.held.gpus.into());
                granted = granted.saturating_add(grant.gpus.into());
                let gainer =
                    tried.matches.beneficiaries.get(&place).and_then(|&gainer| self.workloads.infos.get(gainer));
                reclaimed |= gainer.is_some_and(|gainer| gainer.queue != *queue);
            }
            granted < held && !reclaimed
        };
        if turn < LENIENT_ATTEMPTS {
            queues.retain(is_cut);
        }
        if !queues.is_empty() {
            // Jobs that are halted with permission may still be halted.
            let is_halted = |place: &usize| {
                let permitted = tried.matches.beneficiaries.contains_key(place);
                permitted && tried.grants.get(*place).is_none_or(|grant| grant.is_none())
            };
            let infos = (0..).zip(&self.workloads.infos).filter(|(_, info)| queues.contains(&info.queue));
            let running = infos.filter(|(place, info)| info.is_running() && !is_halted(place));
            limits.keep.extend(running.map(|(place, info)| (place, info.held.gpus)));
        }
    }

    /// Returns true if a claim of another queue waits before this one and was not offered all that it needs.
    fn is_behind_another(&self, tried: &Attempt<'_>, place: usize) -> bool {
        let rank = |place: usize| self.workloads.rank.get(place).copied();
        let queue = self.workloads.infos.get(place).and_then(|info| info.queue);
        let is_other = |other: usize| Some(other) != queue && self.reclaimable.overlap(Some(other), queue);
        let others = tried.heads.iter().filter(|(other, _)| is_other(**other)).flat_map(|(_, heads)| heads);
        others.into_iter().any(|head| head.reserved < head.needs.gpus && rank(head.place) < rank(place))
    }

    fn attempt(&self, limits: Limits, checker: &PreemptionChecker<'_>) -> Result<Attempt<'a>, Error> {
        let queues = self.snapshot.queues;
        let mut budgets = Budgets {
            queues,
            usage: ResourceUsage::new(queues, &self.available.pools),
            reclaimable: self.reclaimable.clone(),
        };
        let mut grants = vec![Grant::NONE; self.workloads.infos.len()];
        for (place, (info, slot)) in self.workloads.infos.iter().zip(&mut grants).enumerate() {
            if limits.is_fixed(place, info) {
                *slot = info.held;
                if let Some(queue) = info.queue {
                    budgets.usage.charge(queue, info.held.gpu_type, info.held.gpus);
                }
                if !info.placed {
                    budgets.reclaimable.take_on(
                        info.queue,
                        info.held.gpu_type,
                        &info.places,
                        (info.width, info.held.gpus),
                    );
                }
            } else if let Some(queue) = info.queue {
                budgets.reclaimable.hold(queue, &info.places, info.width);
            }
        }
        let mut memories = self.memories.clone();
        let mut heads: BTreeMap<usize, Vec<Head>> = BTreeMap::new();
        let mut left: BTreeMap<usize, Arc<NodeSet>> = BTreeMap::new();
        let orderings: BTreeMap<usize, QueueOrdering<'_>> = (self.workloads.members.keys())
            .filter_map(|&queue| {
                let owner = queues.get(queue)?;
                let (now, workloads, limits) = (self.snapshot.now, &self.workloads, &limits);
                Some((
                    queue,
                    QueueOrdering { now, workloads, queue, owner, settings: owner.settings.as_ref()?, limits },
                ))
            })
            .collect();
        let demand = |(&queue, ordering): (&usize, &QueueOrdering<'_>)| QueueDemand {
            queue,
            wants: ordering.wants(),
            used: BudgetUse { charge: ordering.kept(), kept_back: Pools::new() },
        };
        let mut demands: Vec<QueueDemand> = orderings.iter().map(demand).collect();
        for demand in &demands {
            for (&gpu_type, &gpus) in &demand.used.charge {
                budgets.usage.charge(demand.queue, gpu_type, gpus);
                budgets.reclaimable.take(demand.queue, gpu_type, gpus);
            }
        }
        budgets.run(&mut demands, |queue, budget| {
            let mut memory = self.memories.get(&queue).cloned().unwrap_or_default();
            let Some(ordering) = orderings.get(&queue) else { return Ok(BudgetUse::default()) };
            let filled = ordering.fill(budget, &mut memory, &mut grants)?;
            let kept_back = queues.get(queue).map(|queue| filled.kept_back(queue)).unwrap_or_default();
            memories.insert(queue, memory);
            heads.insert(queue, filled.heads);
            left.retain(|place, _| self.workloads.infos.get(*place).is_none_or(|info| info.queue != Some(queue)));
            left.extend(filled.left);
            Ok::<_, policy::Error>(BudgetUse { charge: filled.charge, kept_back })
        })?;
        drop(orderings);
        let all: Vec<Head> = heads.values().flatten().copied().collect();
        let placed = place(&self.workloads, &self.available, &grants, (&all, &left), self.snapshot.packing)?;
        let matches = checker.matches(&grants, &limits);
        Ok(Attempt { budgets, grants, heads, limits, placed, matches, memories })
    }

    /// Returns the differences between an attempt and what is held.
    fn changes(&self, tried: &Attempt<'_>) -> BTreeMap<usize, TargetChange> {
        let mut changes = BTreeMap::new();
        for (&place, on) in &tried.placed.on {
            let (Some(info), Some(grant)) = (self.workloads.infos.get(place), tried.grants.get(place)) else {
                continue;
            };
            if *on == info.on {
                continue;
            }
            let beneficiary =
                tried.matches.beneficiaries.get(&place).and_then(|&gainer| self.workloads.infos.get(gainer));
            let why = why(info, *grant, beneficiary);
            changes.insert(place, TargetChange { why, beneficiary: beneficiary.map(|gainer| gainer.id.clone()) });
        }
        changes
    }

    /// Makes the result of an attempt what is held, for the next pass.
    fn take_over(&mut self, tried: &Attempt<'_>, changes: &BTreeMap<usize, TargetChange>) {
        let now = self.snapshot.now;
        for &place in changes.keys() {
            let (Some(info), Some(&grant), Some(on)) =
                (self.workloads.infos.get_mut(place), tried.grants.get(place), tried.placed.on.get(&place))
            else {
                continue;
            };
            let step = info.queue.and_then(|queue| self.workloads.steps.get(&queue)).copied().unwrap_or(1);
            if info.held.is_none() != grant.is_none() {
                info.view.since = now;
                info.view.spell = if grant.is_none() { info.view.spell } else { Micros::ZERO };
            }
            if !grant.is_none() {
                info.view.first_start = info.view.first_start.or(Some(now));
            }
            let settings = info.queue.and_then(|queue| self.snapshot.queues.get(queue));
            let min_run =
                settings.and_then(|queue| queue.settings.as_ref()).map_or(Micros::ZERO, |settings| settings.min_run);
            let alone = if grant.is_none() { Micros(1) } else { min_run.max(Micros(1)) };
            info.view.changed = Some(now);
            info.view.held = Grant::of(grant.gpu_type, grant.gpus.checked_div(step).unwrap_or_default());
            info.places = self.workloads.reaches.places(on);
            (info.held, info.on, info.lost, info.pinned) = (grant, on.clone(), false, true);
            info.protected_until = Some(now.plus(alone));
        }
        self.memories.clone_from(&tried.memories);
    }

    /// Returns the first time at which the decision may be another without news.
    fn wake(&self, waiting: bool, changes: &BTreeMap<usize, TargetChange>) -> Option<Micros> {
        let now = self.snapshot.now;
        let of_policy = |(&queue, memory): (&usize, &Memory)| {
            let settings = self.snapshot.queues.get(queue)?.settings.as_ref()?;
            let step = self.workloads.steps.get(&queue).copied().unwrap_or(1);
            // Service is attained by GPUs, not by steps.
            let in_gpus = |view: JobView| {
                let held = Grant::of(view.held.gpu_type, view.held.gpus.saturating_mul(step));
                JobView { held, ..view }
            };
            let views: Vec<JobView> = self.views(queue).into_iter().map(in_gpus).collect();
            settings.policy.wake(now, &views, memory)
        };
        let policies = self.memories.iter().filter_map(of_policy);
        // Those that wait may get what is protected until then, and the protected one may grow. A change of this decision protects once it
        // is carried out.
        let can_grow = |info: &Info| info.is_running() && info.held.gpus < info.max;
        let infos = (0..).zip(&self.workloads.infos);
        let infos = infos.filter(|(place, info)| (waiting || can_grow(info)) && !changes.contains_key(place));
        let ends = infos.filter_map(|(_, info)| info.protected_until);
        let tries = self.snapshot.claims.iter().map(|claim| claim.not_before);
        policies.chain(ends).chain(tries).chain(self.snapshot.wake).filter(|&at| at > now).min()
    }
}

/// Returns the kind of a change.
fn why(info: &Info, grant: Grant, beneficiary: Option<&Info>) -> Why {
    let is_foreign = beneficiary.is_some_and(|gainer| gainer.queue != info.queue);
    match (info.held.gpus, grant.gpus) {
        (0, _) => Why::Started,
        (_, _) if is_foreign => Why::Reclaimed,
        (_, 0) if beneficiary.is_none() => Why::Lost,
        (_, 0) => Why::Preempted,
        (_, _) if grant.gpu_type != info.held.gpu_type => Why::Retyped,
        (held, got) if got < held && beneficiary.is_some() => Why::Shrunk,
        (held, got) if got < held => Why::Lost,
        (held, got) if got > held => Why::Grown,
        (_, _) => Why::Replaced,
    }
}
