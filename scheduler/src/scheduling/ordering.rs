//! Orders the claims of one queue within its budget: its policy asked class by class, whole workers, and the reservation of the
//! first claim that waits.
//!
//! Owns the rules around a policy within a queue. It must not look at other queues or at nodes. Tests: through
//! [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::job::{Grant, JobView};
use crate::memory::Memory;
use crate::placement::NodeSet;
use crate::policy::{Error, PolicyInput, allocate};
use crate::scheduling::info::{Info, Workloads};
use crate::scheduling::queue::{Backfill, QueueSettings, QueueSnapshot};
use crate::scheduling::reach::Blocked;
use crate::scheduling::snapshot::{Pools, add, count, take};
use crate::scheduling::steps::{in_steps, whole};
use crate::units::{GpuType, Micros};

/// Limits on what a decision may change, found by its attempts. They only grow.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    /// GPUs that running claims keep at least.
    pub(super) keep: BTreeMap<usize, u32>,
    /// Claims that keep their size.
    pub(super) pin: BTreeSet<usize>,
    /// Claims that find no room on nodes.
    pub(super) out: BTreeSet<usize>,
    /// Those of them that ask for no budget, because a claim of another queue that is before them lacks it.
    pub(super) yields: BTreeSet<usize>,
    /// GPUs that claims find room for, where that is less than they were granted.
    pub(super) cap: Vec<(usize, u32)>,
    /// Claims whose protection is void, as their node is gone.
    pub(super) loose: BTreeSet<usize>,
    /// Claims that keep what they hold because the claim which gains by them cannot use their nodes.
    pub(super) shielded: BTreeSet<usize>,
}

impl Limits {
    /// Returns true if the claim's size is not to be decided.
    pub(super) fn is_fixed(&self, place: usize, info: &Info) -> bool {
        (info.pinned || self.pin.contains(&place)) && !self.out.contains(&place) && !self.loose.contains(&place)
    }

    fn cap(&self, place: usize) -> u32 {
        self.cap.iter().filter(|(other, _)| *other == place).map(|(_, cap)| *cap).min().unwrap_or(u32::MAX)
    }
}

/// Head of a queue: its first claim that waits, and the GPUs reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) place: usize,
    pub(super) needs: Grant,
    /// GPUs of the budget that are kept for it.
    pub(super) reserved: u32,
}

/// Result of one queue: GPUs that count for it, and its heads.
#[derive(Debug, Clone, Default)]
pub(super) struct Filled {
    pub(super) charge: Pools,
    pub(super) heads: Vec<Head>,
    /// Nodes to which claims behind a head are limited.
    pub(super) left: BTreeMap<usize, Arc<NodeSet>>,
}

impl Filled {
    /// Returns the GPUs that are kept for jobs which need more than is left of their queue's own quota.
    pub(super) fn kept_back(&self, queue: &QueueSnapshot) -> Pools {
        let mut kept_back = Pools::new();
        for head in self.heads.iter().filter(|head| head.reserved > 0) {
            let gpu_type = head.needs.gpu_type;
            let started = count(&self.charge, gpu_type).saturating_sub(head.reserved);
            let needed = started.saturating_add(head.needs.gpus);
            if queue.quota(gpu_type).is_some_and(|quota| needed > quota.nominal) {
                add(&mut kept_back, gpu_type, head.reserved);
            }
        }
        kept_back
    }
}

/// One queue while it is filled.
pub(super) struct QueueOrdering<'a> {
    pub(super) now: Micros,
    pub(super) workloads: &'a Workloads,
    pub(super) queue: usize,
    pub(super) owner: &'a QueueSnapshot,
    pub(super) settings: &'a QueueSettings,
    pub(super) limits: &'a Limits,
}

impl QueueOrdering<'_> {
    fn info(&self, place: usize) -> Option<&Info> {
        self.workloads.infos.get(place)
    }

    fn members(&self) -> &[usize] {
        self.workloads.members.get(&self.queue).map_or(&[], Vec::as_slice)
    }

    fn step(&self) -> u32 {
        self.workloads.steps.get(&self.queue).copied().unwrap_or(1)
    }

    /// Returns true if the claim is decided here: not fixed, and in no way excluded.
    fn takes_part(&self, place: usize) -> bool {
        let is_out = self.limits.out.contains(&place);
        self.info(place).is_some_and(|info| !self.limits.is_fixed(place, info) && !is_out && info.barred.is_none())
    }

    /// Returns the GPUs that the claims to be decided could use at most, on their home types; what finds no room waits for its minimum.
    pub(super) fn wants(&self) -> Pools {
        let mut wants = Pools::new();
        for &place in self.members() {
            let Some(info) = self.info(place) else { continue };
            if self.takes_part(place) {
                add(&mut wants, info.home, info.max);
            } else if self.limits.out.contains(&place) && !self.limits.yields.contains(&place) && !info.is_running() {
                add(&mut wants, info.home, info.min);
            }
        }
        wants
    }

    /// Returns the GPUs that a running claim keeps, also beyond the budget.
    fn kept_by(&self, place: usize) -> Option<Grant> {
        let info = self.info(place).filter(|info| info.is_running() && self.takes_part(place))?;
        let gpus = self.limits.keep.get(&place).filter(|_| !self.limits.loose.contains(&place))?;
        Some(Grant::of(info.held.gpu_type, *gpus))
    }

    /// Returns the GPUs that claims keep, also beyond the budget.
    pub(super) fn kept(&self) -> Pools {
        let mut kept = Pools::new();
        for grant in self.members().iter().filter_map(|&place| self.kept_by(place)) {
            add(&mut kept, grant.gpu_type, grant.gpus);
        }
        kept
    }

    /// Fills the queue within `budget`, and writes what its claims get.
    pub(super) fn fill(&self, budget: &Pools, memory: &mut Memory, grants: &mut [Grant]) -> Result<Filled, Error> {
        let mut filled = Filled::default();
        let mut free = budget.clone();
        let mut blocked = Blocked::default();
        for &place in self.members() {
            let is_fixed = self.info(place).is_some_and(|info| self.limits.is_fixed(place, info));
            if let Some(slot) = grants.get_mut(place).filter(|_| !is_fixed) {
                *slot = Grant::NONE;
            }
        }
        // Those that keep their minimum do so before any class of higher priority is served.
        let mut reserve = self.kept();
        for class in self.classes() {
            let members: Vec<usize> = class.iter().copied().filter(|&place| self.takes_part(place)).collect();
            for grant in members.iter().filter_map(|&place| self.kept_by(place)) {
                take(&mut reserve, grant.gpu_type, grant.gpus);
            }
            let mut pool = free.clone();
            for (&gpu_type, &gpus) in &reserve {
                take(&mut pool, gpu_type, gpus);
            }
            self.hold_back(&mut pool, &blocked, &filled.heads, grants);
            self.class(&members, &mut pool, &mut blocked, memory, grants)?;
            let mut before = blocked.clone();
            if self.settings.backfill == Backfill::Reserve {
                self.reserve(&class, &mut pool, &mut blocked, grants, &mut filled);
            }
            self.note_left(&class, &mut before, grants, &mut filled);
            for grant in members.iter().filter_map(|&place| grants.get(place)) {
                take(&mut free, grant.gpu_type, grant.gpus);
                add(&mut filled.charge, grant.gpu_type, grant.gpus);
            }
        }
        // The rest of the budget is kept for the heads, so that it is not lent.
        for head in &mut filled.heads {
            // Not what is free: a budget that depends on what claims hold would be taken back by the next decision.
            let reach = self.info(head.place).and_then(|info| info.reach);
            let most = self.workloads.reaches.capacity(reach, head.needs.gpu_type).unwrap_or(u32::MAX);
            head.reserved = head.needs.gpus.min(most).min(count(&free, head.needs.gpu_type));
            take(&mut free, head.needs.gpu_type, head.reserved);
            add(&mut filled.charge, head.needs.gpu_type, head.reserved);
        }
        Ok(filled)
    }

    /// Returns the members by priority, where it counts; each class in the order of the queue.
    fn classes(&self) -> Vec<Vec<usize>> {
        if !self.settings.by_priority {
            return vec![self.members().to_vec()];
        }
        let priority = |place: usize| self.info(place).map(|info| info.priority);
        self.members().chunk_by(|&a, &b| priority(a) == priority(b)).map(<[usize]>::to_vec).collect()
    }

    /// Asks the policy about one class, again without each claim that would have less than it keeps: it has that. The policy does not get
    /// it as a minimum: it would then grant the rest beyond it, to other jobs than in an earlier decision on the same jobs.
    fn class(
        &self,
        members: &[usize],
        pool: &mut Pools,
        blocked: &mut Blocked,
        memory: &mut Memory,
        grants: &mut [Grant],
    ) -> Result<(), Error> {
        let mut forced: BTreeSet<usize> = BTreeSet::new();
        loop {
            let mut asked = |place: &usize| {
                let behind =
                    self.info(*place).is_some_and(|info| !info.is_running() && self.blocks(blocked, info, info.home));
                !forced.contains(place) && !behind
            };
            let places: Vec<usize> = members.iter().copied().filter(|place| asked(place)).collect();
            let raw = self.ask(&places, pool, blocked, memory)?;
            let with_kept = |(&place, &grant): (&usize, &Grant)| Some((place, self.kept_by(place)?, grant));
            let kept: Vec<(usize, Grant, Grant)> = places.iter().zip(&raw).filter_map(with_kept).collect();
            let is_less = |kept: &Grant, grant: &Grant| grant.gpu_type != kept.gpu_type || grant.gpus < kept.gpus;
            if !kept.iter().any(|(_, kept, grant)| is_less(kept, grant)) {
                self.round(&places, &raw, pool, grants);
                return Ok(());
            }
            // Those that just keep it would be the next to be left out: the policy need not be asked about each in turn.
            let is_least = |&&(_, kept, grant): &&(usize, Grant, Grant)| is_less(&kept, &grant) || grant == kept;
            let missing: Vec<(usize, Grant)> =
                kept.iter().filter(is_least).map(|&(place, kept, _)| (place, kept)).collect();
            for (place, kept) in missing {
                if let Some(slot) = grants.get_mut(place) {
                    *slot = kept;
                    take(pool, kept.gpu_type, kept.gpus);
                    forced.insert(place);
                }
            }
        }
    }

    /// Returns the grants of the policy, in GPUs.
    fn ask(
        &self,
        places: &[usize],
        pool: &Pools,
        blocked: &mut Blocked,
        memory: &mut Memory,
    ) -> Result<Vec<Grant>, Error> {
        let step = self.step();
        let mut view = |&place: &usize| {
            let info = self.info(place)?;
            let growth = self.growth(blocked, info).map_or(u32::MAX, |more| info.held.gpus.saturating_add(more));
            let min = info.view.min;
            let max = info.view.max.min(in_steps(growth.min(self.limits.cap(place)), step)).max(min);
            Some(JobView { min, max, num: info.view.num.clamp(min, max), ..info.view.clone() })
        };
        let jobs: Vec<JobView> = places.iter().filter_map(&mut view).collect();
        let capacity: Vec<(GpuType, u32)> =
            pool.iter().map(|(&gpu_type, &gpus)| (gpu_type, in_steps(gpus, step))).collect();
        let input = PolicyInput { now: self.now, capacity: &capacity, jobs: &jobs };
        let grants = allocate(&*self.settings.policy, input, memory)?.grants;
        Ok(grants.into_iter().map(|grant| Grant::of(grant.gpu_type, grant.gpus.saturating_mul(step))).collect())
    }

    /// Cuts grants to whole workers; what that leaves goes to those that lost by it.
    fn round(&self, places: &[usize], raw: &[Grant], pool: &mut Pools, grants: &mut [Grant]) {
        let mut cut: Vec<(usize, u32, u32)> = Vec::new();
        for (&place, &wish) in places.iter().zip(raw) {
            let (Some(info), Some(slot)) = (self.info(place), grants.get_mut(place)) else { continue };
            let gpus = whole(wish.gpus, info.width);
            *slot = if gpus < info.min { Grant::NONE } else { Grant::of(wish.gpu_type, gpus) };
            take(pool, slot.gpu_type, slot.gpus);
            if !slot.is_none() && slot.gpus < wish.gpus {
                cut.push((place, info.width, info.max.min(self.limits.cap(place))));
            }
        }
        for (place, width, most) in cut {
            let Some(slot) = grants.get_mut(place) else { continue };
            let more = slot.gpus.saturating_add(width);
            if more <= most && count(pool, slot.gpu_type) >= width {
                take(pool, slot.gpu_type, width);
                slot.gpus = more;
            }
        }
    }

    /// Reserves what the first claim that waits could use. Those behind it start, or grow, in the order of the queue as far as they
    /// fit; the first that does not fit ends that on all nodes it could use.
    fn reserve(
        &self,
        class: &[usize],
        pool: &mut Pools,
        blocked: &mut Blocked,
        grants: &mut [Grant],
        filled: &mut Filled,
    ) {
        let mut already = blocked.clone();
        let mut waits = |place: usize, grants: &[Grant]| {
            let is_open = self.info(place).is_some_and(|info| {
                let may_start = !info.is_running() && info.barred.is_none() && !info.pinned;
                may_start && !self.blocks(&mut already, info, info.home)
            });
            is_open && grants.get(place).is_some_and(|grant| grant.is_none())
        };
        let Some(first) = class.iter().position(|&place| waits(place, grants)) else { return };
        let behind = class.get(first..).unwrap_or_default();
        // Gains of those behind are withdrawn, and granted again in the order of the queue.
        let mut wishes: Vec<(usize, Grant)> = Vec::new();
        for &place in behind {
            let (Some(info), Some(slot)) = (self.info(place), grants.get_mut(place)) else { continue };
            if !self.takes_part(place) && !self.limits.out.contains(&place) {
                continue;
            }
            let wish = *slot;
            if !info.is_running() {
                if !self.blocks(&mut already, info, info.home) {
                    add(pool, wish.gpu_type, wish.gpus);
                    *slot = Grant::NONE;
                    wishes.push((place, if wish.is_none() { Grant::of(info.home, info.min) } else { wish }));
                }
            } else if wish.gpu_type == info.held.gpu_type && wish.gpus > info.held.gpus {
                add(pool, wish.gpu_type, wish.gpus.saturating_sub(info.held.gpus));
                *slot = info.held;
                wishes.push((place, wish));
            }
        }
        let is_start = |(place, _): &(usize, Grant)| self.info(*place).is_some_and(|info| !info.is_running());
        let (starts, growths): (Vec<_>, Vec<_>) = wishes.into_iter().partition(is_start);
        for (place, wish) in starts {
            let (Some(info), Some(slot)) = (self.info(place), grants.get_mut(place)) else { continue };
            if self.blocks(blocked, info, wish.gpu_type) {
                continue;
            }
            let room = count(pool, wish.gpu_type);
            let gpus = if room >= wish.gpus { wish.gpus } else { info.min };
            if room >= gpus && !self.limits.out.contains(&place) {
                take(pool, wish.gpu_type, gpus);
                *slot = Grant::of(wish.gpu_type, gpus);
                self.note(place, blocked, wish.gpu_type, filled);
            } else {
                blocked.block(&self.workloads.reaches, info);
                let head = Head { place, needs: Grant::of(info.home, info.min), reserved: 0 };
                filled.heads.push(head);
                self.hold_back(pool, blocked, &[head], grants);
            }
        }
        for (place, wish) in growths {
            let (Some(info), Some(slot)) = (self.info(place), grants.get_mut(place)) else { continue };
            let most = self.growth(blocked, info).unwrap_or(u32::MAX).min(count(pool, wish.gpu_type));
            let more = wish.gpus.saturating_sub(slot.gpus).min(most);
            let more = whole(more, info.width);
            if !self.blocks(blocked, info, wish.gpu_type) && more > 0 {
                take(pool, wish.gpu_type, more);
                slot.gpus = slot.gpus.saturating_add(more);
                self.note(place, blocked, wish.gpu_type, filled);
            }
        }
    }

    /// Returns the GPUs by which a running claim may grow at most: those free on nodes that no head keeps. It may not take GPUs there that
    /// another claim loses, which would take them back in the next decision. `None`: no head limits it.
    fn growth(&self, blocked: &mut Blocked, info: &Info) -> Option<u32> {
        blocked.left(&self.workloads.reaches, info, info.home).map(|left| left.free)
    }

    fn blocks(&self, blocked: &mut Blocked, info: &Info, gpu_type: GpuType) -> bool {
        blocked.blocks(&self.workloads.reaches, info, gpu_type)
    }

    /// Returns the GPUs that a head could use at most, as grants stand: what is free on its nodes, and what claims of its queue lose there.
    fn usable(&self, head: &Head, grants: &[Grant]) -> u32 {
        let Some(info) = self.info(head.place) else { return 0 };
        let Some(free) = self.workloads.reaches.free(info.reach, head.needs.gpu_type) else { return u32::MAX };
        let lost = |&place: &usize| {
            let other = self.info(place).filter(|other| other.is_running() && !self.limits.is_fixed(place, other))?;
            let granted = grants.get(place).map_or(0, |grant| grant.gpus);
            let is_of_use = granted < other.held.gpus && self.workloads.could_use(info, other);
            is_of_use.then(|| other.held.gpus.saturating_sub(granted))
        };
        self.members().iter().filter_map(lost).fold(free, u32::saturating_add)
    }

    /// Takes off a pool what heads need that use some nodes alone: GPUs there, and the quota that they wait for.
    fn hold_back(&self, pool: &mut Pools, blocked: &Blocked, heads: &[Head], grants: &[Grant]) {
        if !blocked.is_partial() {
            return;
        }
        for head in heads {
            take(pool, head.needs.gpu_type, head.needs.gpus.min(self.usable(head, grants)));
        }
        for (&gpu_type, left) in pool.iter_mut() {
            let ceiling = self.owner.ceiling(gpu_type);
            if ceiling == u32::MAX {
                continue;
            }
            let used = self.members().iter().map(|&place| {
                let info = self.info(place).filter(|info| self.limits.is_fixed(place, info)).map(|info| info.held);
                let grant = info.or_else(|| grants.get(place).copied()).unwrap_or(Grant::NONE);
                if grant.gpu_type == gpu_type { grant.gpus } else { 0 }
            });
            let needed = heads.iter().filter(|head| head.needs.gpu_type == gpu_type).map(|head| head.needs.gpus);
            let all = used.chain(needed).fold(0, u32::saturating_add);
            *left = (*left).min(ceiling.saturating_sub(all));
        }
    }

    /// Notes the nodes to which a claim is limited.
    fn note(&self, place: usize, blocked: &mut Blocked, gpu_type: GpuType, filled: &mut Filled) {
        let left = self.info(place).and_then(|info| blocked.left(&self.workloads.reaches, info, gpu_type));
        filled.left.extend(left.map(|left| (place, left.nodes)));
    }

    /// Notes the nodes to which claims of a class are limited that gain workers behind heads of earlier classes.
    fn note_left(&self, class: &[usize], before: &mut Blocked, grants: &[Grant], filled: &mut Filled) {
        if !before.is_partial() {
            return;
        }
        for &place in class {
            let (Some(info), Some(grant)) = (self.info(place), grants.get(place)) else { continue };
            if grant.gpus > info.held.gpus && !filled.left.contains_key(&place) {
                self.note(place, before, grant.gpu_type, filled);
            }
        }
    }
}
