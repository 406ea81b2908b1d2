//! One queue with a budget: its policy asked class by class, whole workers, and the reservation of the first that waits.
//!
//! Owns the rules around a policy within a queue. It must not look at other queues or at nodes. Tests: through
//! [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};

use crate::desk::question::{Pools, add, count, take};
use crate::desk::seat::{Board, Seat};
use crate::desk::steps::{in_steps, whole};
use crate::desk::tenant::{Backfill, Queue, Tenant};
use crate::job::{Grant, JobView};
use crate::memory::Memory;
use crate::policy::{Error, Snapshot, allocate};
use crate::units::{GpuType, Micros};

/// Limits on what a decision may change, found out while deciding. They only ever grow.
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
}

impl Limits {
    /// Returns true if the claim's size is not to be decided.
    pub(super) fn is_fixed(&self, place: usize, seat: &Seat) -> bool {
        (seat.pinned || self.pin.contains(&place)) && !self.out.contains(&place) && !self.loose.contains(&place)
    }

    fn cap(&self, place: usize) -> u32 {
        self.cap.iter().filter(|(other, _)| *other == place).map(|(_, cap)| *cap).min().unwrap_or(u32::MAX)
    }
}

/// A claim that waits first in its line, and the GPUs reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) place: usize,
    pub(super) needs: Grant,
    /// GPUs of the budget that are kept for it.
    pub(super) reserved: u32,
}

/// Result of one queue: GPUs that count for it, and who waits first.
#[derive(Debug, Clone, Default)]
pub(super) struct Filled {
    pub(super) charge: Pools,
    pub(super) heads: Vec<Head>,
}

impl Filled {
    /// Returns the GPUs that are kept for jobs which need more than is left of their queue's own quota.
    pub(super) fn kept_back(&self, tenant: &Tenant) -> Pools {
        let mut kept_back = Pools::new();
        for head in self.heads.iter().filter(|head| head.reserved > 0) {
            let gpu_type = head.needs.gpu_type;
            let started = count(&self.charge, gpu_type).saturating_sub(head.reserved);
            let needed = started.saturating_add(head.needs.gpus);
            if tenant.quota(gpu_type).is_some_and(|quota| needed > quota.nominal) {
                add(&mut kept_back, gpu_type, head.reserved);
            }
        }
        kept_back
    }
}

/// One queue while it is filled.
pub(super) struct Line<'a> {
    pub(super) now: Micros,
    pub(super) board: &'a Board,
    pub(super) tenant: usize,
    pub(super) queue: &'a Queue,
    pub(super) limits: &'a Limits,
}

impl Line<'_> {
    fn seat(&self, place: usize) -> Option<&Seat> {
        self.board.seats.get(place)
    }

    fn members(&self) -> &[usize] {
        self.board.lines.get(&self.tenant).map_or(&[], Vec::as_slice)
    }

    fn step(&self) -> u32 {
        self.board.steps.get(&self.tenant).copied().unwrap_or(1)
    }

    /// Returns true if the claim is decided here: not fixed, and in no way excluded.
    fn takes_part(&self, place: usize) -> bool {
        let is_out = self.limits.out.contains(&place);
        self.seat(place).is_some_and(|seat| !self.limits.is_fixed(place, seat) && !is_out && seat.barred.is_none())
    }

    /// GPUs that the claims to be decided could use at most, on their home types; what finds no room waits for its minimum.
    pub(super) fn wants(&self) -> Pools {
        let mut wants = Pools::new();
        for &place in self.members() {
            let Some(seat) = self.seat(place) else { continue };
            if self.takes_part(place) {
                add(&mut wants, seat.home, seat.max);
            } else if self.limits.out.contains(&place) && !self.limits.yields.contains(&place) && !seat.is_running() {
                add(&mut wants, seat.home, seat.min);
            }
        }
        wants
    }

    /// GPUs that a running claim keeps, also beyond the budget.
    fn kept_by(&self, place: usize) -> Option<Grant> {
        let seat = self.seat(place).filter(|seat| seat.is_running() && self.takes_part(place))?;
        let gpus = self.limits.keep.get(&place).filter(|_| !self.limits.loose.contains(&place))?;
        Some(Grant::of(seat.held.gpu_type, *gpus))
    }

    /// GPUs that claims keep, also beyond the budget.
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
        let mut blocked: BTreeSet<GpuType> = BTreeSet::new();
        for &place in self.members() {
            let is_fixed = self.seat(place).is_some_and(|seat| self.limits.is_fixed(place, seat));
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
            self.class(&members, &mut pool, &blocked, memory, grants)?;
            if self.queue.backfill == Backfill::Reserve {
                self.reserve(&class, &mut pool, &mut blocked, grants, &mut filled.heads);
            }
            for grant in members.iter().filter_map(|&place| grants.get(place)) {
                take(&mut free, grant.gpu_type, grant.gpus);
                add(&mut filled.charge, grant.gpu_type, grant.gpus);
            }
        }
        // The rest of the budget is kept for the first in line, so that it is not lent.
        for head in &mut filled.heads {
            head.reserved = head.needs.gpus.min(count(&free, head.needs.gpu_type));
            take(&mut free, head.needs.gpu_type, head.reserved);
            add(&mut filled.charge, head.needs.gpu_type, head.reserved);
        }
        Ok(filled)
    }

    /// Members by priority, where it counts; each class in line order.
    fn classes(&self) -> Vec<Vec<usize>> {
        if !self.queue.by_priority {
            return vec![self.members().to_vec()];
        }
        let priority = |place: usize| self.seat(place).map(|seat| seat.priority);
        self.members().chunk_by(|&a, &b| priority(a) == priority(b)).map(<[usize]>::to_vec).collect()
    }

    /// Asks the policy about one class, again without each that would have less than it keeps: it has that. A policy is not told of it as
    /// a minimum, because what is left would then be handed out beyond it, to others than asked about the same jobs before.
    fn class(
        &self,
        members: &[usize],
        pool: &mut Pools,
        blocked: &BTreeSet<GpuType>,
        memory: &mut Memory,
        grants: &mut [Grant],
    ) -> Result<(), Error> {
        let mut forced: BTreeSet<usize> = BTreeSet::new();
        loop {
            let asked = |place: &usize| {
                let behind = self.seat(*place).is_some_and(|seat| !seat.is_running() && blocked.contains(&seat.home));
                !forced.contains(place) && !behind
            };
            let places: Vec<usize> = members.iter().copied().filter(asked).collect();
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

    /// Grants in GPUs, as the policy has them.
    fn ask(
        &self,
        places: &[usize],
        pool: &Pools,
        blocked: &BTreeSet<GpuType>,
        memory: &mut Memory,
    ) -> Result<Vec<Grant>, Error> {
        let step = self.step();
        let view = |&place: &usize| {
            let seat = self.seat(place)?;
            let growth = if blocked.contains(&seat.home) { seat.held.gpus } else { u32::MAX };
            let min = seat.view.min;
            let max = seat.view.max.min(in_steps(growth.min(self.limits.cap(place)), step)).max(min);
            Some(JobView { min, max, num: seat.view.num.clamp(min, max), ..seat.view.clone() })
        };
        let jobs: Vec<JobView> = places.iter().filter_map(view).collect();
        let capacity: Vec<(GpuType, u32)> =
            pool.iter().map(|(&gpu_type, &gpus)| (gpu_type, in_steps(gpus, step))).collect();
        let snapshot = Snapshot { now: self.now, capacity: &capacity, jobs: &jobs };
        let grants = allocate(&*self.queue.policy, snapshot, memory)?.grants;
        Ok(grants.into_iter().map(|grant| Grant::of(grant.gpu_type, grant.gpus.saturating_mul(step))).collect())
    }

    /// Cuts grants to whole workers; what that leaves goes to those that lost by it.
    fn round(&self, places: &[usize], raw: &[Grant], pool: &mut Pools, grants: &mut [Grant]) {
        let mut cut: Vec<(usize, u32, u32)> = Vec::new();
        for (&place, &wish) in places.iter().zip(raw) {
            let (Some(seat), Some(slot)) = (self.seat(place), grants.get_mut(place)) else { continue };
            let gpus = whole(wish.gpus, seat.width);
            *slot = if gpus < seat.min { Grant::NONE } else { Grant::of(wish.gpu_type, gpus) };
            take(pool, slot.gpu_type, slot.gpus);
            if !slot.is_none() && slot.gpus < wish.gpus {
                cut.push((place, seat.width, seat.max.min(self.limits.cap(place))));
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

    /// Keeps what the first claim that waits could use from those behind it. They start, or grow, in line order as far as
    /// they fit; the first that does not fit ends that for all types it could use.
    fn reserve(
        &self,
        class: &[usize],
        pool: &mut Pools,
        blocked: &mut BTreeSet<GpuType>,
        grants: &mut [Grant],
        heads: &mut Vec<Head>,
    ) {
        let already = blocked.clone();
        let waits = |place: usize, grants: &[Grant]| {
            let is_open = self.seat(place).is_some_and(|seat| {
                !seat.is_running() && seat.barred.is_none() && !seat.pinned && !already.contains(&seat.home)
            });
            is_open && grants.get(place).is_some_and(|grant| grant.is_none())
        };
        let Some(first) = class.iter().position(|&place| waits(place, grants)) else { return };
        let behind = class.get(first..).unwrap_or_default();
        // Gains of those behind are withdrawn, and granted again in line order.
        let mut wishes: Vec<(usize, Grant)> = Vec::new();
        for &place in behind {
            let (Some(seat), Some(slot)) = (self.seat(place), grants.get_mut(place)) else { continue };
            if !self.takes_part(place) && !self.limits.out.contains(&place) {
                continue;
            }
            let wish = *slot;
            if !seat.is_running() {
                if !already.contains(&seat.home) {
                    add(pool, wish.gpu_type, wish.gpus);
                    *slot = Grant::NONE;
                    wishes.push((place, if wish.is_none() { Grant::of(seat.home, seat.min) } else { wish }));
                }
            } else if wish.gpu_type == seat.held.gpu_type && wish.gpus > seat.held.gpus {
                add(pool, wish.gpu_type, wish.gpus.saturating_sub(seat.held.gpus));
                *slot = seat.held;
                wishes.push((place, wish));
            }
        }
        let is_start = |(place, _): &(usize, Grant)| self.seat(*place).is_some_and(|seat| !seat.is_running());
        let (starts, growths): (Vec<_>, Vec<_>) = wishes.into_iter().partition(is_start);
        for (place, wish) in starts {
            let (Some(seat), Some(slot)) = (self.seat(place), grants.get_mut(place)) else { continue };
            if blocked.contains(&wish.gpu_type) {
                continue;
            }
            let room = count(pool, wish.gpu_type);
            let gpus = if room >= wish.gpus { wish.gpus } else { seat.min };
            if room >= gpus && !self.limits.out.contains(&place) {
                take(pool, wish.gpu_type, gpus);
                *slot = Grant::of(wish.gpu_type, gpus);
            } else {
                blocked.extend(seat.view.speeds.iter().map(|(gpu_type, _)| *gpu_type));
                heads.push(Head { place, needs: Grant::of(seat.home, seat.min), reserved: 0 });
            }
        }
        for (place, wish) in growths {
            let (Some(seat), Some(slot)) = (self.seat(place), grants.get_mut(place)) else { continue };
            let more = wish.gpus.saturating_sub(slot.gpus).min(count(pool, wish.gpu_type));
            let more = whole(more, seat.width);
            if !blocked.contains(&wish.gpu_type) && more > 0 {
                take(pool, wish.gpu_type, more);
                slot.gpus = slot.gpus.saturating_add(more);
            }
        }
    }
}
