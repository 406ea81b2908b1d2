//! Computes budgets: the number of GPUs that each queue may use in a decision.
//!
//! 1. Every queue is asked with its own quota, or its part of it where there are fewer GPUs than quotas.
//! 2. What that leaves is lent: offered to queues that want more, in steps, to the lowest use per weight first.
//! 3. What a queue could not use of its offer, because its next job is larger, is offered to one queue after the other.
//! 4. Two queues whose next jobs both have to borrow would keep back from each other what both need. So what such a job keeps
//!    back is offered to the queues whose turn is before its own; they get it if their next job starts with it.
//!
//! Budgets depend on quotas and on what is wanted, not on what each holds. So a queue is only cut down to what it may not
//! exceed while the owner can use it, and no reclaim is followed by a counter-reclaim. How a queue uses its budget is the
//! caller's. Tests: at the end of this file.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::Text;

use crate::scheduling::queue::QueueSnapshot;
use crate::scheduling::reclaimable::ReclaimableGpus;
use crate::scheduling::resource_usage::ResourceUsage;
use crate::scheduling::snapshot::{Pools, add, count, take};
use crate::units::GpuType;

/// Demand of a queue that takes part.
#[derive(Debug, Clone)]
pub(super) struct QueueDemand {
    /// Its index among the queues.
    pub(super) queue: usize,
    /// Most GPUs that its jobs could use, by type.
    pub(super) wants: Pools,
    /// GPUs counted for it so far; at first those that are certain, and have been charged.
    pub(super) used: BudgetUse,
}

/// GPUs that a queue uses of a budget, by type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BudgetUse {
    /// All that count for it.
    pub(super) charge: Pools,
    /// Those of them that a waiting job keeps back although it has to borrow more.
    pub(super) kept_back: Pools,
}

impl BudgetUse {
    /// Returns the number of GPUs of jobs that run or start.
    fn started(&self) -> u64 {
        total(&self.charge).saturating_sub(total(&self.kept_back))
    }
}

/// GPUs and their use by queues while they are shared out.
#[derive(Debug)]
pub(super) struct Budgets<'a> {
    pub(super) queues: &'a [QueueSnapshot],
    pub(super) usage: ResourceUsage,
    /// GPUs that no queue uses in this decision yet.
    pub(super) reclaimable: ReclaimableGpus,
}

/// Number of steps in which what is left is offered.
const OFFER_STEPS: u32 = 64;

impl Budgets<'_> {
    /// Shares the GPUs out. `ask` returns the use of a queue with a budget. It is called several times for a queue, and the last call
    /// counts.
    pub(super) fn run<E>(
        &mut self,
        demands: &mut [QueueDemand],
        mut ask: impl FnMut(usize, &Pools) -> Result<BudgetUse, E>,
    ) -> Result<(), E> {
        demands.sort_by(|a, b| self.name(a).cmp(&self.name(b)));
        let own: Vec<Pools> = self.own(demands);
        for (demand, budget) in demands.iter_mut().zip(own) {
            let budget = self.within(demand, budget);
            self.extend(demand, budget, &mut ask)?;
        }
        for (place, offer) in self.offers(demands).into_iter().enumerate() {
            if let Some(demand) = demands.get_mut(place) {
                let offer = self.within(demand, offer);
                self.extend_if_any(demand, offer, &mut ask)?;
            }
        }
        let mut rest: Vec<&mut QueueDemand> = demands.iter_mut().collect();
        rest.sort_by_key(|demand| self.turn(demand, total(&demand.used.charge)));
        for demand in rest {
            let missing = demand.wants.keys().map(|&t| (t, missing(demand, t)));
            let offer = self.within(demand, missing.filter(|&(_, gpus)| gpus > 0).collect());
            self.extend_if_any(demand, offer, &mut ask)?;
        }
        self.offer_kept_back(demands, &mut ask)
    }

    /// Offers what waiting jobs keep back to the queues whose turn is before theirs.
    fn offer_kept_back<E>(
        &mut self,
        demands: &mut [QueueDemand],
        ask: &mut impl FnMut(usize, &Pools) -> Result<BudgetUse, E>,
    ) -> Result<(), E> {
        let mut order: Vec<usize> = (0..demands.len()).collect();
        order.sort_by_key(|&place| demands.get(place).map(|demand| self.turn(demand, demand.used.started())));
        for (n, &place) in (1..).zip(&order) {
            let after = order.get(n..).unwrap_or_default();
            let keeps_back =
                |place: &&usize| demands.get(**place).is_some_and(|other| !other.used.kept_back.is_empty());
            let others: Vec<usize> = after.iter().filter(keeps_back).copied().collect();
            if others.is_empty() || demands.get(place).is_none_or(|demand| demand.used.kept_back.is_empty()) {
                continue;
            }
            let mut withdrawn = Vec::new();
            for other in others {
                let Some(demand) = demands.get_mut(other) else { continue };
                let kept_back = std::mem::take(&mut demand.used.kept_back);
                for (&gpu_type, &gpus) in &kept_back {
                    self.usage.release(demand.queue, gpu_type, gpus);
                    self.reclaimable.give(demand.queue, gpu_type, gpus);
                    take(&mut demand.used.charge, gpu_type, gpus);
                }
                withdrawn.push((other, kept_back));
            }
            if let Some(demand) = demands.get_mut(place) {
                let before = demand.used.clone();
                let missing = demand.wants.keys().map(|&t| (t, missing(demand, t)));
                let offer = self.within(demand, missing.filter(|&(_, gpus)| gpus > 0).collect());
                self.extend_if_any(demand, offer, ask)?;
                if demand.used.started() <= before.started() {
                    self.settle(demand, &before.charge, ask)?;
                }
            }
            for (other, kept_back) in withdrawn {
                if let Some(demand) = demands.get_mut(other) {
                    let offer = self.within(demand, kept_back);
                    self.extend(demand, offer, ask)?;
                }
            }
        }
        Ok(())
    }

    fn queue(&self, demand: &QueueDemand) -> Option<&QueueSnapshot> {
        self.queues.get(demand.queue)
    }

    fn name(&self, demand: &QueueDemand) -> Option<&Text> {
        self.queue(demand).map(|queue| &queue.name)
    }

    /// Returns the order of offers: higher priority, then less use per weight, then the name.
    fn turn(&self, demand: &QueueDemand, used: u64) -> (Reverse<i32>, u64, Option<Text>) {
        let (priority, weight) = self.queue(demand).map_or((0, 1), |queue| (queue.priority, queue.weight.max(1)));
        let per_weight = used.saturating_mul(1_000_000).checked_div(weight.into()).unwrap_or_default();
        (Reverse(priority), per_weight, self.name(demand).cloned())
    }

    /// Returns the number of GPUs of a type that count for a queue.
    fn used(&self, demand: &QueueDemand, gpu_type: GpuType) -> u32 {
        u32::try_from(self.usage.used(demand.queue, gpu_type)).unwrap_or(u32::MAX)
    }

    /// Returns the GPUs that each queue lacks of its own quota, at most those that it wants. Where there are fewer GPUs than quotas, each
    /// gets its part of all of them, those that are certain included: else a decision in several steps would give a queue more.
    fn own(&self, demands: &[QueueDemand]) -> Vec<Pools> {
        let mut own: Vec<Pools> = vec![Pools::new(); demands.len()];
        for (gpu_type, _) in self.reclaimable.types() {
            let cap = |demand: &QueueDemand| {
                let quota = self.queue(demand).and_then(|queue| queue.quota(gpu_type));
                let nominal = quota.map_or(u32::MAX, |quota| quota.nominal);
                (nominal, nominal.min(self.used(demand, gpu_type).saturating_add(missing(demand, gpu_type))))
            };
            let caps: Vec<(u32, u32)> = demands.iter().map(cap).collect();
            let parts = self.parts(demands, gpu_type, caps);
            for ((pools, demand), part) in own.iter_mut().zip(demands).zip(parts) {
                add(pools, gpu_type, part.saturating_sub(self.used(demand, gpu_type)));
            }
        }
        own
    }

    /// Returns the parts of the GPUs of a type for the caps of queues, by the nodes that they may use: the fewest first.
    fn parts(&self, demands: &[QueueDemand], gpu_type: GpuType, mut caps: Vec<(u32, u32)>) -> Vec<u32> {
        let reaches: Vec<BTreeSet<usize>> =
            demands.iter().map(|demand| self.reclaimable.reach(Some(demand.queue), gpu_type)).collect();
        let mut distinct: Vec<&BTreeSet<usize>> = reaches.iter().collect();
        distinct.sort_by_key(|reach| (reach.len(), *reach));
        distinct.dedup();
        for reach in distinct {
            let inside = |(_, own): &(usize, &BTreeSet<usize>)| own.is_subset(reach);
            let places: Vec<usize> = reaches.iter().enumerate().filter(inside).map(|(place, _)| place).collect();
            let of: Vec<(u32, u32)> = places.iter().filter_map(|&place| caps.get(place)).copied().collect();
            let inside = places.iter().filter_map(|&place| demands.get(place));
            let besides = inside.map(|demand| {
                let outside = self.reclaimable.outside(demand.queue, gpu_type);
                outside.saturating_add(self.used(demand, gpu_type))
            });
            let gpus = besides.fold(self.reclaimable.sum(reach), u32::saturating_add);
            for (place, part) in places.into_iter().zip(parts(gpus, &of)) {
                if let Some((_, most)) = caps.get_mut(place) {
                    *most = part;
                }
            }
        }
        caps.into_iter().map(|(_, most)| most).collect()
    }

    /// Cuts an offer to what is left of the limits and of the GPUs.
    fn within(&self, demand: &QueueDemand, offer: Pools) -> Pools {
        let cut = |(gpu_type, gpus): (GpuType, u32)| {
            let left =
                self.usage.left(demand.queue, gpu_type).min(self.reclaimable.count(Some(demand.queue), gpu_type));
            (gpu_type, gpus.min(left))
        };
        offer.into_iter().map(cut).filter(|&(_, gpus)| gpus > 0).collect()
    }

    /// Returns offers of what is left, made in steps, one per queue. Nothing is taken yet.
    fn offers(&mut self, demands: &[QueueDemand]) -> Vec<Pools> {
        let mut offers: Vec<Pools> = vec![Pools::new(); demands.len()];
        let (mut tried, mut reclaimable) = (self.usage.clone(), self.reclaimable.clone());
        for (gpu_type, all) in self.reclaimable.types() {
            let step = all.checked_div(OFFER_STEPS).unwrap_or_default().max(1);
            loop {
                let room = |place: usize, demand: &QueueDemand| {
                    let offered = offers.get(place).map_or(0, |offer| count(offer, gpu_type));
                    let missing = missing(demand, gpu_type).saturating_sub(offered);
                    let open = reclaimable.count(Some(demand.queue), gpu_type);
                    let gpus = missing.min(tried.left(demand.queue, gpu_type)).min(step).min(open);
                    let used = total(&demand.used.charge).saturating_add(offered.into());
                    (gpus > 0).then(|| (self.turn(demand, used), place, demand.queue, gpus))
                };
                let next = demands.iter().enumerate().filter_map(|(place, demand)| room(place, demand)).min();
                let Some((_, place, queue, gpus)) = next else { break };
                tried.charge(queue, gpu_type, gpus);
                reclaimable.take(queue, gpu_type, gpus);
                if let Some(offer) = offers.get_mut(place) {
                    add(offer, gpu_type, gpus);
                }
            }
        }
        offers
    }

    fn extend_if_any<E>(
        &mut self,
        demand: &mut QueueDemand,
        offer: Pools,
        ask: &mut impl FnMut(usize, &Pools) -> Result<BudgetUse, E>,
    ) -> Result<(), E> {
        if offer.is_empty() { Ok(()) } else { self.extend(demand, offer, ask) }
    }

    /// Asks a queue with more than it uses.
    fn extend<E>(
        &mut self,
        demand: &mut QueueDemand,
        offer: Pools,
        ask: &mut impl FnMut(usize, &Pools) -> Result<BudgetUse, E>,
    ) -> Result<(), E> {
        let mut budget = demand.used.charge.clone();
        for (gpu_type, gpus) in offer {
            add(&mut budget, gpu_type, gpus);
        }
        self.settle(demand, &budget, ask)
    }

    /// Asks a queue with a budget, and counts what it uses instead of what it used.
    fn settle<E>(
        &mut self,
        demand: &mut QueueDemand,
        budget: &Pools,
        ask: &mut impl FnMut(usize, &Pools) -> Result<BudgetUse, E>,
    ) -> Result<(), E> {
        for (&gpu_type, &gpus) in &demand.used.charge {
            self.usage.release(demand.queue, gpu_type, gpus);
            self.reclaimable.give(demand.queue, gpu_type, gpus);
        }
        demand.used = ask(demand.queue, budget)?;
        for (&gpu_type, &gpus) in &demand.used.charge {
            self.usage.charge(demand.queue, gpu_type, gpus);
            self.reclaimable.take(demand.queue, gpu_type, gpus);
        }
        Ok(())
    }
}

fn missing(demand: &QueueDemand, gpu_type: GpuType) -> u32 {
    count(&demand.wants, gpu_type).saturating_sub(count(&demand.used.charge, gpu_type))
}

fn total(pools: &Pools) -> u64 {
    pools.values().fold(0_u64, |sum, &gpus| sum.saturating_add(gpus.into()))
}

/// Returns the parts of `free` GPUs for caps of (weight, most): all of each cap where that fits, else in proportion to the weights.
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
            let budgets = u64::from(before).saturating_mul(own.max(1).into()).checked_div(weight).unwrap_or_default();
            let more = u32::try_from(budgets).unwrap_or(u32::MAX).min(most.saturating_sub(*part)).min(left);
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
    use crate::scheduling::queue::Quota;

    const TYPE: GpuType = GpuType(0);

    fn queue(name: &str, parent: Option<usize>, quota: Quota, weight: u32) -> QueueSnapshot {
        QueueSnapshot {
            name: name.into(),
            parent,
            quota: Some([(TYPE, quota)].into()),
            weight,
            priority: 0,
            settings: None,
        }
    }

    /// Returns the use by queue: each takes whole jobs of one size, as many as it wants and its budget holds.
    fn shared(queues: &[QueueSnapshot], free: u32, jobs: &[(usize, u32, u32)]) -> Vec<u32> {
        let pools: Pools = [(TYPE, free)].into();
        let reclaimable = ReclaimableGpus::new(&[], &[Node::new("n", free)]);
        let mut budgets = Budgets { queues, usage: ResourceUsage::new(queues, &pools), reclaimable };
        let demand = |&(queue, size, number): &(usize, u32, u32)| QueueDemand {
            queue,
            wants: [(TYPE, size * number)].into(),
            used: BudgetUse::default(),
        };
        let mut demands: Vec<QueueDemand> = jobs.iter().map(demand).collect();
        let ask = |queue: usize, budget: &Pools| {
            let &(_, size, number) = jobs.iter().find(|job| job.0 == queue).unwrap();
            let charge = [(TYPE, size * number.min(count(budget, TYPE) / size))].into();
            Ok::<BudgetUse, ()>(BudgetUse { charge, kept_back: Pools::new() })
        };
        budgets.run(&mut demands, ask).unwrap();
        jobs.iter().map(|job| count(&demands.iter().find(|b| b.queue == job.0).unwrap().used.charge, TYPE)).collect()
    }

    fn cohort(limits: [Quota; 2], weights: [u32; 2]) -> [QueueSnapshot; 3] {
        [
            queue("pool", None, Quota::default(), 1),
            queue("a", Some(0), limits[0], weights[0]),
            queue("b", Some(0), limits[1], weights[1]),
        ]
    }

    #[test]
    fn own_quota_first_and_the_rest_is_lent() {
        let quota = |borrowing, lending| Quota { nominal: 8, borrowing, lending };
        let queues = cohort([quota(8, None), quota(0, None)], [1, 1]);
        assert_eq!(shared(&queues, 16, &[(1, 1, 99), (2, 1, 99)]), [8, 8]);
        assert_eq!(shared(&queues, 16, &[(1, 1, 99), (2, 1, 3)]), [13, 3]);
        assert_eq!(shared(&queues, 16, &[(1, 1, 3), (2, 1, 99)]), [3, 8], "b borrows nothing");
        let stingy = cohort([quota(8, None), quota(0, Some(2))], [1, 1]);
        assert_eq!(shared(&stingy, 16, &[(1, 1, 99), (2, 1, 0)]), [10, 0]);
    }

    #[test]
    fn what_is_lent_goes_by_weight_and_whole_jobs_still_fit() {
        let quota = |nominal, borrowing| Quota { nominal, borrowing, lending: None };
        let mut queues = cohort([quota(0, 12), quota(0, 12)], [3, 1]).to_vec();
        queues[0].quota = Some([(TYPE, Quota::of(12))].into());
        assert_eq!(shared(&queues, 12, &[(1, 1, 99), (2, 1, 99)]), [9, 3]);
        // Parts of 6 and 6 hold no job of 8; the first in turn gets what there is.
        queues[1].weight = 1;
        assert_eq!(shared(&queues, 12, &[(1, 8, 1), (2, 8, 1)]), [8, 0]);
    }

    #[test]
    fn fewer_gpus_than_quotas_go_in_proportion() {
        assert_eq!(parts(10, &[(8, 8), (8, 2)]), [8, 2]);
        assert_eq!(parts(8, &[(12, 12), (4, 4)]), [6, 2]);
        assert_eq!(parts(9, &[(4, 4), (4, 1), (4, 9)]), [4, 1, 4]);
        assert_eq!(parts(1, &[(4, 4), (4, 4)]), [1, 0]);
        assert_eq!(parts(0, &[(4, 4)]), [0]);
        let alone = [queue("a", None, Quota::of(12), 1), queue("b", None, Quota::of(4), 1)];
        assert_eq!(shared(&alone, 8, &[(0, 1, 99), (1, 1, 99)]), [6, 2]);
    }
}
