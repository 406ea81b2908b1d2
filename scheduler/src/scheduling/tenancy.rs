//! Budgets: how many GPUs each queue may use in a decision.
//!
//! 1. Every queue is asked with its own quota, or its part of it where there are fewer GPUs than quotas.
//! 2. What that leaves is lent: offered to queues that want more, in steps, to the lowest use per weight first.
//! 3. What a queue could not use of its offer, because its next job is larger, is offered to one queue after the other.
//! 4. Two queues whose next jobs both have to borrow would keep back from each other what both need. So what such a job keeps
//!    back is offered to the queues whose turn is before its own; they get it if their next job starts with it.
//!
//! Budgets depend on quotas and on what is wanted, not on who holds what. So a queue is only cut down to what it may not
//! exceed while the owner can use it, and a reclaim is never answered by a counter-reclaim. What a queue does with a budget
//! is the caller's. Tests: at the end of this file.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::Text;

use crate::scheduling::books::Books;
use crate::scheduling::free::Free;
use crate::scheduling::snapshot::{Pools, add, count, take};
use crate::scheduling::tenant::Tenant;
use crate::units::GpuType;

/// A queue that takes part.
#[derive(Debug, Clone)]
pub(super) struct Bidder {
    /// Its place among the tenants.
    pub(super) tenant: usize,
    /// Most GPUs that its jobs could use, by type.
    pub(super) wants: Pools,
    /// GPUs counted for it so far; at first those that are certain, and have been charged.
    pub(super) used: Use,
}

/// GPUs that a queue uses of a budget, by type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// All that count for it.
    pub(super) charge: Pools,
    /// Those of them that a waiting job keeps back although it has to borrow more.
    pub(super) kept_back: Pools,
}

impl Use {
    /// Returns the number of GPUs of jobs that run or start.
    fn started(&self) -> u64 {
        total(&self.charge).saturating_sub(total(&self.kept_back))
    }
}

/// GPUs and accounts while they are shared out.
#[derive(Debug)]
pub(super) struct Share<'a> {
    pub(super) tenants: &'a [Tenant],
    pub(super) books: Books,
    /// GPUs that no queue uses.
    pub(super) free: Free,
}

/// Number of steps in which what is left is offered.
const OFFER_STEPS: u32 = 64;

impl Share<'_> {
    /// Shares out. `ask` tells the use of a queue that is given a budget; it is called several times a queue, and the last call
    /// counts.
    pub(super) fn run<E>(
        &mut self,
        bidders: &mut [Bidder],
        mut ask: impl FnMut(usize, &Pools) -> Result<Use, E>,
    ) -> Result<(), E> {
        bidders.sort_by(|a, b| self.name(a).cmp(&self.name(b)));
        let own: Vec<Pools> = self.own(bidders);
        for (bidder, budget) in bidders.iter_mut().zip(own) {
            let budget = self.within(bidder, budget);
            self.extend(bidder, budget, &mut ask)?;
        }
        for (place, offer) in self.offers(bidders).into_iter().enumerate() {
            if let Some(bidder) = bidders.get_mut(place) {
                let offer = self.within(bidder, offer);
                self.extend_if_any(bidder, offer, &mut ask)?;
            }
        }
        let mut rest: Vec<&mut Bidder> = bidders.iter_mut().collect();
        rest.sort_by_key(|bidder| self.turn(bidder, total(&bidder.used.charge)));
        for bidder in rest {
            let missing = bidder.wants.keys().map(|&t| (t, missing(bidder, t)));
            let offer = self.within(bidder, missing.filter(|&(_, gpus)| gpus > 0).collect());
            self.extend_if_any(bidder, offer, &mut ask)?;
        }
        self.offer_kept_back(bidders, &mut ask)
    }

    /// Offers what waiting jobs keep back to the queues whose turn is before theirs.
    fn offer_kept_back<E>(
        &mut self,
        bidders: &mut [Bidder],
        ask: &mut impl FnMut(usize, &Pools) -> Result<Use, E>,
    ) -> Result<(), E> {
        let mut order: Vec<usize> = (0..bidders.len()).collect();
        order.sort_by_key(|&place| bidders.get(place).map(|bidder| self.turn(bidder, bidder.used.started())));
        for (n, &place) in (1..).zip(&order) {
            let after = order.get(n..).unwrap_or_default();
            let keeps_back =
                |place: &&usize| bidders.get(**place).is_some_and(|other| !other.used.kept_back.is_empty());
            let others: Vec<usize> = after.iter().filter(keeps_back).copied().collect();
            if others.is_empty() || bidders.get(place).is_none_or(|bidder| bidder.used.kept_back.is_empty()) {
                continue;
            }
            let mut withdrawn = Vec::new();
            for other in others {
                let Some(bidder) = bidders.get_mut(other) else { continue };
                let kept_back = std::mem::take(&mut bidder.used.kept_back);
                for (&gpu_type, &gpus) in &kept_back {
                    self.books.release(bidder.tenant, gpu_type, gpus);
                    self.free.give(bidder.tenant, gpu_type, gpus);
                    take(&mut bidder.used.charge, gpu_type, gpus);
                }
                withdrawn.push((other, kept_back));
            }
            if let Some(bidder) = bidders.get_mut(place) {
                let before = bidder.used.clone();
                let missing = bidder.wants.keys().map(|&t| (t, missing(bidder, t)));
                let offer = self.within(bidder, missing.filter(|&(_, gpus)| gpus > 0).collect());
                self.extend_if_any(bidder, offer, ask)?;
                if bidder.used.started() <= before.started() {
                    self.settle(bidder, &before.charge, ask)?;
                }
            }
            for (other, kept_back) in withdrawn {
                if let Some(bidder) = bidders.get_mut(other) {
                    let offer = self.within(bidder, kept_back);
                    self.extend(bidder, offer, ask)?;
                }
            }
        }
        Ok(())
    }

    fn tenant(&self, bidder: &Bidder) -> Option<&Tenant> {
        self.tenants.get(bidder.tenant)
    }

    fn name(&self, bidder: &Bidder) -> Option<&Text> {
        self.tenant(bidder).map(|tenant| &tenant.name)
    }

    /// Order of offers: higher priority, then less use per weight, then the name.
    fn turn(&self, bidder: &Bidder, used: u64) -> (Reverse<i32>, u64, Option<Text>) {
        let (priority, weight) = self.tenant(bidder).map_or((0, 1), |tenant| (tenant.priority, tenant.weight.max(1)));
        let per_weight = used.saturating_mul(1_000_000).checked_div(weight.into()).unwrap_or_default();
        (Reverse(priority), per_weight, self.name(bidder).cloned())
    }

    /// GPUs of a type that count for a queue.
    fn used(&self, bidder: &Bidder, gpu_type: GpuType) -> u32 {
        u32::try_from(self.books.used(bidder.tenant, gpu_type)).unwrap_or(u32::MAX)
    }

    /// Returns the GPUs that each queue lacks of its own quota, at most those that it wants. Where there are fewer GPUs than quotas, each
    /// gets its part of all of them, those that are certain included: else a decision in several steps would give a queue more.
    fn own(&self, bidders: &[Bidder]) -> Vec<Pools> {
        let mut own: Vec<Pools> = vec![Pools::new(); bidders.len()];
        for (gpu_type, _) in self.free.types() {
            let cap = |bidder: &Bidder| {
                let quota = self.tenant(bidder).and_then(|tenant| tenant.quota(gpu_type));
                let nominal = quota.map_or(u32::MAX, |quota| quota.nominal);
                (nominal, nominal.min(self.used(bidder, gpu_type).saturating_add(missing(bidder, gpu_type))))
            };
            let caps: Vec<(u32, u32)> = bidders.iter().map(cap).collect();
            let parts = self.parts(bidders, gpu_type, caps);
            for ((pools, bidder), part) in own.iter_mut().zip(bidders).zip(parts) {
                add(pools, gpu_type, part.saturating_sub(self.used(bidder, gpu_type)));
            }
        }
        own
    }

    /// Parts of the GPUs of a type for the caps of queues, by the nodes that they may use: the fewest first.
    fn parts(&self, bidders: &[Bidder], gpu_type: GpuType, mut caps: Vec<(u32, u32)>) -> Vec<u32> {
        let reaches: Vec<BTreeSet<usize>> =
            bidders.iter().map(|bidder| self.free.reach(Some(bidder.tenant), gpu_type)).collect();
        let mut distinct: Vec<&BTreeSet<usize>> = reaches.iter().collect();
        distinct.sort_by_key(|reach| (reach.len(), *reach));
        distinct.dedup();
        for reach in distinct {
            let inside = |(_, own): &(usize, &BTreeSet<usize>)| own.is_subset(reach);
            let places: Vec<usize> = reaches.iter().enumerate().filter(inside).map(|(place, _)| place).collect();
            let of: Vec<(u32, u32)> = places.iter().filter_map(|&place| caps.get(place)).copied().collect();
            let inside = places.iter().filter_map(|&place| bidders.get(place));
            let besides = inside.map(|bidder| {
                let outside = self.free.outside(bidder.tenant, gpu_type);
                outside.saturating_add(self.used(bidder, gpu_type))
            });
            let gpus = besides.fold(self.free.sum(reach), u32::saturating_add);
            for (place, part) in places.into_iter().zip(parts(gpus, &of)) {
                if let Some((_, most)) = caps.get_mut(place) {
                    *most = part;
                }
            }
        }
        caps.into_iter().map(|(_, most)| most).collect()
    }

    /// Cuts an offer to what is left of the limits and of the GPUs.
    fn within(&self, bidder: &Bidder, offer: Pools) -> Pools {
        let cut = |(gpu_type, gpus): (GpuType, u32)| {
            let left = self.books.left(bidder.tenant, gpu_type).min(self.free.count(Some(bidder.tenant), gpu_type));
            (gpu_type, gpus.min(left))
        };
        offer.into_iter().map(cut).filter(|&(_, gpus)| gpus > 0).collect()
    }

    /// Offers of what is left, in steps, one offer per queue. Nothing is taken yet.
    fn offers(&mut self, bidders: &[Bidder]) -> Vec<Pools> {
        let mut offers: Vec<Pools> = vec![Pools::new(); bidders.len()];
        let (mut tried, mut free) = (self.books.clone(), self.free.clone());
        for (gpu_type, all) in self.free.types() {
            let step = all.checked_div(OFFER_STEPS).unwrap_or_default().max(1);
            loop {
                let room = |place: usize, bidder: &Bidder| {
                    let offered = offers.get(place).map_or(0, |offer| count(offer, gpu_type));
                    let missing = missing(bidder, gpu_type).saturating_sub(offered);
                    let open = free.count(Some(bidder.tenant), gpu_type);
                    let gpus = missing.min(tried.left(bidder.tenant, gpu_type)).min(step).min(open);
                    let used = total(&bidder.used.charge).saturating_add(offered.into());
                    (gpus > 0).then(|| (self.turn(bidder, used), place, bidder.tenant, gpus))
                };
                let next = bidders.iter().enumerate().filter_map(|(place, bidder)| room(place, bidder)).min();
                let Some((_, place, tenant, gpus)) = next else { break };
                tried.charge(tenant, gpu_type, gpus);
                free.take(tenant, gpu_type, gpus);
                if let Some(offer) = offers.get_mut(place) {
                    add(offer, gpu_type, gpus);
                }
            }
        }
        offers
    }

    fn extend_if_any<E>(
        &mut self,
        bidder: &mut Bidder,
        offer: Pools,
        ask: &mut impl FnMut(usize, &Pools) -> Result<Use, E>,
    ) -> Result<(), E> {
        if offer.is_empty() { Ok(()) } else { self.extend(bidder, offer, ask) }
    }

    /// Asks a queue with more than it uses.
    fn extend<E>(
        &mut self,
        bidder: &mut Bidder,
        offer: Pools,
        ask: &mut impl FnMut(usize, &Pools) -> Result<Use, E>,
    ) -> Result<(), E> {
        let mut budget = bidder.used.charge.clone();
        for (gpu_type, gpus) in offer {
            add(&mut budget, gpu_type, gpus);
        }
        self.settle(bidder, &budget, ask)
    }

    /// Asks a queue with a budget, and counts what it uses instead of what it used.
    fn settle<E>(
        &mut self,
        bidder: &mut Bidder,
        budget: &Pools,
        ask: &mut impl FnMut(usize, &Pools) -> Result<Use, E>,
    ) -> Result<(), E> {
        for (&gpu_type, &gpus) in &bidder.used.charge {
            self.books.release(bidder.tenant, gpu_type, gpus);
            self.free.give(bidder.tenant, gpu_type, gpus);
        }
        bidder.used = ask(bidder.tenant, budget)?;
        for (&gpu_type, &gpus) in &bidder.used.charge {
            self.books.charge(bidder.tenant, gpu_type, gpus);
            self.free.take(bidder.tenant, gpu_type, gpus);
        }
        Ok(())
    }
}

fn missing(bidder: &Bidder, gpu_type: GpuType) -> u32 {
    count(&bidder.wants, gpu_type).saturating_sub(count(&bidder.used.charge, gpu_type))
}

fn total(pools: &Pools) -> u64 {
    pools.values().fold(0_u64, |sum, &gpus| sum.saturating_add(gpus.into()))
}

/// Parts of `free` GPUs for caps of (weight, most): all of each cap where that fits, else in proportion to the weights.
fn parts(free: u32, caps: &[(u32, u32)]) -> Vec<u32> {
    let sum = caps.iter().fold(0_u64, |sum, &(_, most)| sum.saturating_add(most.into()));
    let mut parts: Vec<u32> = caps.iter().map(|&(_, most)| most).collect();
    if sum <= free.into() {
        return parts;
    }
    parts.fill(0);
    let mut left = free;
    while left > 0 {
        let open = |(place, &(_, most)): (usize, &(u32, u32))| parts.get(place).is_some_and(|&part| part < most);
        let weights = caps.iter().enumerate().filter(|&cap| open(cap));
        let weight = weights.fold(0_u64, |sum, (_, &(weight, _))| sum.saturating_add(weight.max(1).into()));
        let before = left;
        for (part, &(own, most)) in parts.iter_mut().zip(caps) {
            let share = u64::from(before).saturating_mul(own.max(1).into()).checked_div(weight).unwrap_or_default();
            let more = u32::try_from(share).unwrap_or(u32::MAX).min(most.saturating_sub(*part)).min(left);
            (*part, left) = (part.saturating_add(more), left.saturating_sub(more));
        }
        if left == before {
            // Less than one each: one at a time, in order.
            for (part, &(_, most)) in parts.iter_mut().zip(caps).filter(|(part, (_, most))| **part < *most) {
                let more = most.saturating_sub(*part).min(1).min(left);
                (*part, left) = (part.saturating_add(more), left.saturating_sub(more));
            }
        }
        if left == before {
            break;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Node;
    use crate::scheduling::tenant::Quota;

    const TYPE: GpuType = GpuType(0);

    fn tenant(name: &str, parent: Option<usize>, quota: Quota, weight: u32) -> Tenant {
        Tenant { name: name.into(), parent, quota: Some([(TYPE, quota)].into()), weight, priority: 0, queue: None }
    }

    /// Use by queue: each takes whole jobs of one size, as many as it wants and its budget holds.
    fn shared(tenants: &[Tenant], free: u32, jobs: &[(usize, u32, u32)]) -> Vec<u32> {
        let pools: Pools = [(TYPE, free)].into();
        let free = Free::new(&[], &[Node::new("n", free)]);
        let mut share = Share { tenants, books: Books::new(tenants, &pools), free };
        let bidder = |&(tenant, size, number): &(usize, u32, u32)| Bidder {
            tenant,
            wants: [(TYPE, size * number)].into(),
            used: Use::default(),
        };
        let mut bidders: Vec<Bidder> = jobs.iter().map(bidder).collect();
        let ask = |tenant: usize, budget: &Pools| {
            let &(_, size, number) = jobs.iter().find(|job| job.0 == tenant).unwrap();
            let charge = [(TYPE, size * number.min(count(budget, TYPE) / size))].into();
            Ok::<Use, ()>(Use { charge, kept_back: Pools::new() })
        };
        share.run(&mut bidders, ask).unwrap();
        jobs.iter().map(|job| count(&bidders.iter().find(|b| b.tenant == job.0).unwrap().used.charge, TYPE)).collect()
    }

    fn cohort(limits: [Quota; 2], weights: [u32; 2]) -> [Tenant; 3] {
        [
            tenant("pool", None, Quota::default(), 1),
            tenant("a", Some(0), limits[0], weights[0]),
            tenant("b", Some(0), limits[1], weights[1]),
        ]
    }

    #[test]
    fn own_quota_first_and_the_rest_is_lent() {
        let quota = |borrowing, lending| Quota { nominal: 8, borrowing, lending };
        let tenants = cohort([quota(8, None), quota(0, None)], [1, 1]);
        assert_eq!(shared(&tenants, 16, &[(1, 1, 99), (2, 1, 99)]), [8, 8]);
        assert_eq!(shared(&tenants, 16, &[(1, 1, 99), (2, 1, 3)]), [13, 3]);
        assert_eq!(shared(&tenants, 16, &[(1, 1, 3), (2, 1, 99)]), [3, 8], "b borrows nothing");
        let stingy = cohort([quota(8, None), quota(0, Some(2))], [1, 1]);
        assert_eq!(shared(&stingy, 16, &[(1, 1, 99), (2, 1, 0)]), [10, 0]);
    }

    #[test]
    fn what_is_lent_goes_by_weight_and_whole_jobs_still_fit() {
        let quota = |nominal, borrowing| Quota { nominal, borrowing, lending: None };
        let mut tenants = cohort([quota(0, 12), quota(0, 12)], [3, 1]).to_vec();
        tenants[0].quota = Some([(TYPE, Quota::of(12))].into());
        assert_eq!(shared(&tenants, 12, &[(1, 1, 99), (2, 1, 99)]), [9, 3]);
        // Parts of 6 and 6 hold no job of 8; the first in turn gets what there is.
        tenants[1].weight = 1;
        assert_eq!(shared(&tenants, 12, &[(1, 8, 1), (2, 8, 1)]), [8, 0]);
    }

    #[test]
    fn fewer_gpus_than_quotas_go_in_proportion() {
        assert_eq!(parts(10, &[(8, 8), (8, 2)]), [8, 2]);
        assert_eq!(parts(8, &[(12, 12), (4, 4)]), [6, 2]);
        assert_eq!(parts(9, &[(4, 4), (4, 1), (4, 9)]), [4, 1, 4]);
        assert_eq!(parts(1, &[(4, 4), (4, 4)]), [1, 0]);
        assert_eq!(parts(0, &[(4, 4)]), [0]);
        let alone = [tenant("a", None, Quota::of(12), 1), tenant("b", None, Quota::of(4), 1)];
        assert_eq!(shared(&alone, 8, &[(0, 1, 99), (1, 1, 99)]), [6, 2]);
    }
}
