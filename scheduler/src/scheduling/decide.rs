//! One decision: claims, nodes and tenants in, targets out.
//!
//! A decision is made in tries. Each shares out GPUs by budgets and policies, places what is new, and matches losses with
//! gains; what finds no room, and what would lose without a match, limits the next try. Limits only grow, so it ends. The
//! result is decided on again until nothing changes, with what was decided left alone: so asking again at the same
//! time changes nothing. The input is never changed. Tests: `tests/scheduling.rs`, and at the end of this file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::job::{Grant, JobView};
use crate::memory::{Memory, MemoryChange};
use crate::placement::{NodeSet, PlacementError};
use crate::policy;
use crate::scheduling::books::Books;
use crate::scheduling::decision::{Change, Decision, Target, Why};
use crate::scheduling::free::Free;
use crate::scheduling::ledger::Ledger;
use crate::scheduling::line::{Head, Limits, Line};
use crate::scheduling::moves::{Judge, Matches};
use crate::scheduling::place::{Placed, place};
use crate::scheduling::seat::{Board, Ground, Seat};
use crate::scheduling::snapshot::{Pools, Snapshot};
use crate::scheduling::tenancy::{Bidder, Share, Use};
use crate::scheduling::waits::waits;
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

/// Most tries of one pass. In the last one nothing that runs is changed.
const TRIES: u32 = 12;
/// Tries after which a queue that takes without a right shrinks no job any more.
const FREE_TRIES: u32 = 3;
/// Most passes until nothing changes.
const PASSES: u32 = 8;

/// Decides what every claim shall hold.
///
/// # Errors
/// A policy is faulty, or a node is listed twice.
pub fn decide(ledger: &Ledger, snapshot: &Snapshot<'_>) -> Result<Decision, Error> {
    let ground = Ground::new(snapshot);
    let board = Board::new(snapshot, &ground.pools, ledger.doubt());
    let free = Free::new(&board.limits(snapshot.tenants), &ground.nodes);
    let mut builder = DecisionBuilder { snapshot, ground, free, board, memories: BTreeMap::new() };
    builder.split(&ledger.memory);
    let before = builder.joined();
    let mut changes: BTreeMap<usize, Change> = BTreeMap::new();
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
    let waits = waits(&builder.board, &last.share, &last.limits, &last.grants, &last.heads);
    let wake = builder.wake(!waits.is_empty(), &changes);
    let targets = builder.board.seats.into_iter().enumerate().map(|(place, seat)| Target {
        id: seat.id,
        gpu_type: seat.held.gpu_type,
        on: seat.on,
        change: changes.remove(&place),
    });
    Ok(Decision { targets: targets.collect(), memory, wake, waits })
}

/// A decision in the making.
struct DecisionBuilder<'a> {
    snapshot: &'a Snapshot<'a>,
    ground: Ground,
    /// All GPUs of the ground.
    free: Free,
    board: Board,
    /// Memory of each queue's policy, of the queue's claims alone.
    memories: BTreeMap<usize, Memory>,
}

/// Result of a try.
struct Try<'a> {
    share: Share<'a>,
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
        for (&tenant, line) in &self.board.lines {
            let own = self.memories.entry(tenant).or_default();
            for id in line.iter().filter_map(|&place| self.board.seats.get(place)).map(|seat| &seat.id) {
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

    fn views(&self, tenant: usize) -> Vec<JobView> {
        let line = self.board.lines.get(&tenant).map_or(&[][..], Vec::as_slice);
        line.iter().filter_map(|&place| self.board.seats.get(place)).map(|seat| seat.view.clone()).collect()
    }

    /// Brings the policies' memory up to date.
    fn review(&mut self) {
        let tenants: Vec<usize> = self.memories.keys().copied().collect();
        for tenant in tenants {
            let views = self.views(tenant);
            let queue = self.snapshot.tenants.get(tenant).and_then(|tenant| tenant.queue.as_ref());
            if let Some((queue, memory)) = queue.zip(self.memories.get_mut(&tenant)) {
                queue.policy.review(self.snapshot.now, &views, memory);
            }
        }
    }

    /// Tries until all that is granted finds nodes and all that is taken away is taken by right.
    fn pass(&mut self) -> Result<Try<'a>, Error> {
        self.review();
        self.board.count_free(&self.ground);
        let judge = Judge::new(self.snapshot.tenants, &self.board);
        let mut limits = Limits { keep: self.kept(&judge), ..Limits::default() };
        for turn in 1..TRIES {
            let tried = self.attempt(limits.clone(), &judge)?;
            if tried.placed.short.is_empty() && tried.matches.unjust.is_empty() {
                return Ok(tried);
            }
            self.limit(&mut limits, &tried, turn);
        }
        let running = (0..).zip(&self.board.seats).filter(|(_, seat)| seat.is_running());
        limits.pin.extend(running.map(|(place, _)| place));
        let mut tried = self.attempt(limits, &judge)?;
        for &(place, _) in &tried.placed.short {
            let Some(seat) = self.board.seats.get(place) else { continue };
            let keeps = seat.is_running() && !seat.lost;
            if let Some(grant) = tried.grants.get_mut(place) {
                *grant = if keeps { seat.held } else { Grant::NONE };
            }
            if keeps {
                tried.placed.on.remove(&place);
            } else {
                tried.placed.on.insert(place, Vec::new());
            }
        }
        Ok(tried)
    }

    /// GPUs that running claims keep in any case. GPUs are taken away once at one time, and never from a claim that no other
    /// may halt.
    fn kept(&self, judge: &Judge<'_>) -> BTreeMap<usize, u32> {
        let seats = (0..).zip(&self.board.seats).filter(|(_, seat)| seat.is_running() && !seat.pinned);
        if self.board.seats.iter().any(|seat| seat.view.changed == Some(self.snapshot.now)) {
            return seats.map(|(place, seat)| (place, seat.held.gpus)).collect();
        }
        seats
            .filter(|(_, seat)| judge.is_safe(seat))
            .map(|(place, seat)| (place, seat.min.min(seat.held.gpus)))
            .collect()
    }

    /// Learns from a try that cannot stand; after some, what a queue takes without a right keeps all its claims as they are.
    fn limit(&self, limits: &mut Limits, tried: &Try<'_>, turn: u32) {
        // A claim that found no room may find it where another loses its workers instead of these.
        let is_new = |place: &&usize| tried.matches.misplaced.contains(place) && !limits.shielded.contains(place);
        let shielded: Vec<usize> = tried.matches.unjust.iter().filter(is_new).copied().collect();
        if !tried.placed.short.is_empty() && !shielded.is_empty() {
            for place in shielded {
                limits.keep.insert(place, self.board.seats.get(place).map_or(0, |seat| seat.held.gpus));
                limits.shielded.insert(place);
            }
            return;
        }
        for &(place, found) in &tried.placed.short {
            let Some(seat) = self.board.seats.get(place) else { continue };
            let fits = seat.min < seat.max && found >= seat.min;
            if seat.lost && seat.is_running() {
                limits.loose.insert(place);
            }
            if fits {
                limits.cap.push((place, found));
            } else if seat.is_running() && !seat.lost {
                limits.cap.push((place, seat.held.gpus));
            } else {
                limits.out.insert(place);
                limits.yields.extend(self.is_behind_another(tried, place).then_some(place));
            }
        }
        // A claim that found no room may be what another was to make room for, so rights are judged without it.
        if !tried.placed.short.is_empty() {
            return;
        }
        let mut queues: BTreeSet<Option<usize>> = BTreeSet::new();
        for &place in &tried.matches.unjust {
            let Some(seat) = self.board.seats.get(place) else { continue };
            let halted = tried.grants.get(place).is_none_or(|grant| grant.is_none());
            let is_first = halted && !limits.keep.contains_key(&place);
            limits.keep.insert(place, if is_first { seat.min.min(seat.held.gpus) } else { seat.held.gpus });
            queues.insert(seat.tenant);
        }
        // A queue that is given less than it holds, and not for a queue that takes back its own, would only shuffle it.
        let is_cut = |tenant: &Option<usize>| {
            let members =
                (0..).zip(&self.board.seats).zip(&tried.grants).filter(|((_, seat), _)| seat.tenant == *tenant);
            let (mut held, mut granted, mut reclaimed) = (0_u64, 0_u64, false);
            for ((place, seat), grant) in members {
                held = held.saturating_add(seat.held.gpus.into());
                granted = granted.saturating_add(grant.gpus.into());
                let gainer = tried.matches.beneficiaries.get(&place).and_then(|&gainer| self.board.seats.get(gainer));
                reclaimed |= gainer.is_some_and(|gainer| gainer.tenant != *tenant);
            }
            granted < held && !reclaimed
        };
        if turn < FREE_TRIES {
            queues.retain(is_cut);
        }
        if !queues.is_empty() {
            // Jobs that are halted by right may still be halted.
            let is_halted = |place: &usize| {
                let by_right = tried.matches.beneficiaries.contains_key(place);
                by_right && tried.grants.get(*place).is_none_or(|grant| grant.is_none())
            };
            let seats = (0..).zip(&self.board.seats).filter(|(_, seat)| queues.contains(&seat.tenant));
            let running = seats.filter(|(place, seat)| seat.is_running() && !is_halted(place));
            limits.keep.extend(running.map(|(place, seat)| (place, seat.held.gpus)));
        }
    }

    /// Returns true if a claim of another queue waits before this one and was not offered all that it needs.
    fn is_behind_another(&self, tried: &Try<'_>, place: usize) -> bool {
        let rank = |place: usize| self.board.rank.get(place).copied();
        let tenant = self.board.seats.get(place).and_then(|seat| seat.tenant);
        let is_other = |other: usize| Some(other) != tenant && self.free.overlap(Some(other), tenant);
        let others = tried.heads.iter().filter(|(other, _)| is_other(**other)).flat_map(|(_, heads)| heads);
        others.into_iter().any(|head| head.reserved < head.needs.gpus && rank(head.place) < rank(place))
    }

    fn attempt(&self, limits: Limits, judge: &Judge<'_>) -> Result<Try<'a>, Error> {
        let tenants = self.snapshot.tenants;
        let mut share = Share { tenants, books: Books::new(tenants, &self.ground.pools), free: self.free.clone() };
        let mut grants = vec![Grant::NONE; self.board.seats.len()];
        for (place, (seat, slot)) in self.board.seats.iter().zip(&mut grants).enumerate() {
            if limits.is_fixed(place, seat) {
                *slot = seat.held;
                if let Some(tenant) = seat.tenant {
                    share.books.charge(tenant, seat.held.gpu_type, seat.held.gpus);
                }
                if !seat.placed {
                    share.free.take_on(seat.tenant, seat.held.gpu_type, &seat.places, (seat.width, seat.held.gpus));
                }
            } else if let Some(tenant) = seat.tenant {
                share.free.hold(tenant, &seat.places, seat.width);
            }
        }
        let mut memories = self.memories.clone();
        let mut heads: BTreeMap<usize, Vec<Head>> = BTreeMap::new();
        let mut left: BTreeMap<usize, Arc<NodeSet>> = BTreeMap::new();
        let lines: BTreeMap<usize, Line<'_>> = (self.board.lines.keys())
            .filter_map(|&tenant| {
                let owner = tenants.get(tenant)?;
                let (now, board, limits) = (self.snapshot.now, &self.board, &limits);
                Some((tenant, Line { now, board, tenant, owner, queue: owner.queue.as_ref()?, limits }))
            })
            .collect();
        let bidder = |(&tenant, line): (&usize, &Line<'_>)| Bidder {
            tenant,
            wants: line.wants(),
            used: Use { charge: line.kept(), kept_back: Pools::new() },
        };
        let mut bidders: Vec<Bidder> = lines.iter().map(bidder).collect();
        for bidder in &bidders {
            for (&gpu_type, &gpus) in &bidder.used.charge {
                share.books.charge(bidder.tenant, gpu_type, gpus);
                share.free.take(bidder.tenant, gpu_type, gpus);
            }
        }
        share.run(&mut bidders, |tenant, budget| {
            let mut memory = self.memories.get(&tenant).cloned().unwrap_or_default();
            let Some(line) = lines.get(&tenant) else { return Ok(Use::default()) };
            let filled = line.fill(budget, &mut memory, &mut grants)?;
            let kept_back = tenants.get(tenant).map(|tenant| filled.kept_back(tenant)).unwrap_or_default();
            memories.insert(tenant, memory);
            heads.insert(tenant, filled.heads);
            left.retain(|place, _| self.board.seats.get(*place).is_none_or(|seat| seat.tenant != Some(tenant)));
            left.extend(filled.left);
            Ok::<_, policy::Error>(Use { charge: filled.charge, kept_back })
        })?;
        drop(lines);
        let all: Vec<Head> = heads.values().flatten().copied().collect();
        let placed = place(&self.board, &self.ground, &grants, (&all, &left), self.snapshot.packing)?;
        let matches = judge.matches(&grants, &limits);
        Ok(Try { share, grants, heads, limits, placed, matches, memories })
    }

    /// Differences between a try and what is held.
    fn changes(&self, tried: &Try<'_>) -> BTreeMap<usize, Change> {
        let mut changes = BTreeMap::new();
        for (&place, on) in &tried.placed.on {
            let (Some(seat), Some(grant)) = (self.board.seats.get(place), tried.grants.get(place)) else { continue };
            if *on == seat.on {
                continue;
            }
            let beneficiary = tried.matches.beneficiaries.get(&place).and_then(|&gainer| self.board.seats.get(gainer));
            let why = why(seat, *grant, beneficiary);
            changes.insert(place, Change { why, beneficiary: beneficiary.map(|gainer| gainer.id.clone()) });
        }
        changes
    }

    /// Makes a try what is held, so that it can be asked about again.
    fn take_over(&mut self, tried: &Try<'_>, changes: &BTreeMap<usize, Change>) {
        let now = self.snapshot.now;
        for &place in changes.keys() {
            let (Some(seat), Some(&grant), Some(on)) =
                (self.board.seats.get_mut(place), tried.grants.get(place), tried.placed.on.get(&place))
            else {
                continue;
            };
            let step = seat.tenant.and_then(|tenant| self.board.steps.get(&tenant)).copied().unwrap_or(1);
            if seat.held.is_none() != grant.is_none() {
                seat.view.since = now;
                seat.view.spell = if grant.is_none() { seat.view.spell } else { Micros::ZERO };
            }
            if !grant.is_none() {
                seat.view.first_start = seat.view.first_start.or(Some(now));
            }
            let queue = seat.tenant.and_then(|tenant| self.snapshot.tenants.get(tenant));
            let min_run = queue.and_then(|tenant| tenant.queue.as_ref()).map_or(Micros::ZERO, |queue| queue.min_run);
            let alone = if grant.is_none() { Micros(1) } else { min_run.max(Micros(1)) };
            seat.view.changed = Some(now);
            seat.view.held = Grant::of(grant.gpu_type, grant.gpus.checked_div(step).unwrap_or_default());
            seat.places = self.board.reaches.places(on);
            (seat.held, seat.on, seat.lost, seat.pinned) = (grant, on.clone(), false, true);
            seat.protected_until = Some(now.plus(alone));
        }
        self.memories.clone_from(&tried.memories);
    }

    /// First time at which the decision may be another without news.
    fn wake(&self, waiting: bool, changes: &BTreeMap<usize, Change>) -> Option<Micros> {
        let now = self.snapshot.now;
        let of_policy = |(&tenant, memory): (&usize, &Memory)| {
            let queue = self.snapshot.tenants.get(tenant)?.queue.as_ref()?;
            let step = self.board.steps.get(&tenant).copied().unwrap_or(1);
            // Service is attained by GPUs, not by steps.
            let in_gpus = |view: JobView| {
                let held = Grant::of(view.held.gpu_type, view.held.gpus.saturating_mul(step));
                JobView { held, ..view }
            };
            let views: Vec<JobView> = self.views(tenant).into_iter().map(in_gpus).collect();
            queue.policy.wake(now, &views, memory)
        };
        let policies = self.memories.iter().filter_map(of_policy);
        // Those that wait may get what is protected until then, and the protected one may grow. A change of this decision protects once it
        // is carried out.
        let can_grow = |seat: &Seat| seat.is_running() && seat.held.gpus < seat.max;
        let seats = (0..).zip(&self.board.seats);
        let seats = seats.filter(|(place, seat)| (waiting || can_grow(seat)) && !changes.contains_key(place));
        let ends = seats.filter_map(|(_, seat)| seat.protected_until);
        let tries = self.snapshot.claims.iter().map(|claim| claim.not_before);
        policies.chain(ends).chain(tries).chain(self.snapshot.wake).filter(|&at| at > now).min()
    }
}

/// Kind of a change.
fn why(seat: &Seat, grant: Grant, beneficiary: Option<&Seat>) -> Why {
    let is_foreign = beneficiary.is_some_and(|gainer| gainer.tenant != seat.tenant);
    match (seat.held.gpus, grant.gpus) {
        (0, _) => Why::Started,
        (_, _) if is_foreign => Why::Reclaimed,
        (_, 0) if beneficiary.is_none() => Why::Lost,
        (_, 0) => Why::Preempted,
        (_, _) if grant.gpu_type != seat.held.gpu_type => Why::Retyped,
        (held, got) if got < held && beneficiary.is_some() => Why::Shrunk,
        (held, got) if got < held => Why::Lost,
        (held, got) if got > held => Why::Grown,
        (_, _) => Why::Replaced,
    }
}
