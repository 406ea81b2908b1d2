//! Cost-aware gain: our own policy, the default for elastic queues.
//!
//! The next few GPUs always go where `(value gained / GPUs given)` is largest. The value of a size to a job is
//!
//! ```text
//! speed^(1 - theta) x rank^p x (work_left + median x median_work_left)^-a x min(cap, (1 + attained / 100 GPU-s)^inertia)
//! ```
//!
//! and at every size other than the present one of a running job less `b x restart_cost / min(time left there, horizon)`.
//!
//! - `p` prefers jobs with little work left by their rank: 1 for the one with most left, 2 for the next, and so on. In the
//!   optimal policy for jobs of one sub-linear speed, heSRPT (Berg, Vesilo, Harchol-Balter, 2020), shares depend on ranks
//!   alone; so sizes over many orders of magnitude do no harm, and a wrong estimate costs little.
//! - `a` does so by the work itself; the median keeps that from going to extremes.
//! - `theta` is a little fairness: it makes a first GPU worth more than a last one.
//!   `start` adds to that: a job's first grant counts so much more, as waiting helps nobody.
//! - Inertia keeps what has begun going; unbounded it would keep giants going, hence `cap`.
//! - "Next few": several steps are looked ahead, because measured speeds are not concave where a job crosses a node's edge.
//!   The present size is always one of them, so a job is left alone unless a change pays.
//!
//! Where the work left is not known, the service attained so far stands for it: with heavy-tailed sizes the longer a job
//! ran, the longer it will; then there is no inertia. Users' priority goes before everything. With several GPU types, and jobs that can use more than
//! one, the same values are put to `knapsack::Market`. The settings are data ([`Knobs`]). Integer arithmetic; one type costs
//! O(G log J). Tests: below.

use std::collections::{BTreeMap, BinaryHeap};

use crate::fixed::{UNIT, falling_power};
use crate::job::{Grant, JobView};
use crate::memory::Memory;
use crate::policies::heap::Entry;
use crate::policies::knapsack::{Market, Offer};
use crate::policy::Policy;
use crate::round::{Pool, Round};
use crate::units::{GpuType, Micros, Speed};

/// The settings; fractions in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// `p`: how much the rank by work left counts for a job; 0 ignores it.
    pub rank_milli: u32,
    /// `a`: how much the work left counts against a job; 0 ignores it.
    pub work_milli: u32,
    /// `median`: share of the median work left that is added to each job's.
    pub median_milli: u32,
    /// `theta`: concavity of value in speed, below 1,000.
    pub theta_milli: u32,
    /// `inertia`: exponent of the service attained.
    pub inertia_milli: u32,
    /// `cap`: the most that inertia multiplies by.
    pub cap_milli: u32,
    /// `b`: how many times its cost a change has to earn.
    pub change_milli: u32,
    /// `start`: how much more than its value a job's first grant counts.
    pub start_milli: u32,
    /// `horizon`: how long a size is expected to last at most.
    pub horizon: Micros,
    /// How many GPUs ahead is looked, ascending.
    pub steps: Vec<u32>,
}

/// Steps that are looked ahead by default.
pub const STEPS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16];

impl Default for Knobs {
    fn default() -> Self {
        Self {
            rank_milli: 200,
            work_milli: 300,
            median_milli: 1000,
            theta_milli: 100,
            inertia_milli: 100,
            cap_milli: 1600,
            change_milli: 2000,
            start_milli: 0,
            horizon: Micros::from_secs(1000),
            steps: STEPS.to_vec(),
        }
    }
}

/// The policy.
#[derive(Debug, Clone, Default)]
pub struct CostAwareGain {
    /// Its settings.
    pub knobs: Knobs,
}

impl Policy for CostAwareGain {
    fn name(&self) -> &'static str {
        "gain"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        let jobs = || round.jobs.iter().copied();
        if round.pools.len() > 1 && jobs().any(|job| job.speeds.iter().nth(1).is_some()) {
            return self.decide_across(round);
        }
        round.by_home(|pool| self.share(pool))
    }
}

impl CostAwareGain {
    /// One type: the heap of next grants.
    fn share(&self, pool: &Pool<'_>) -> Vec<u32> {
        let appraisals = appraise(pool.jobs.iter().map(|m| m.job), &self.knobs);
        let mut given = vec![0_u32; appraisals.len()];
        let mut free = pool.gpus;
        let entry = |i: usize, given: u32, free: u32| {
            let appraisal = appraisals.get(i)?;
            let (worth, to) = appraisal.next(pool.gpu_type, given, free)?;
            Some(Entry::new((appraisal.job.priority, worth), i, (i, to)))
        };
        let mut heap: BinaryHeap<_> = (0..given.len()).filter_map(|i| entry(i, 0, free)).collect();
        while free > 0
            && let Some(best) = heap.pop()
        {
            let (i, to) = best.what;
            let Some(slot) = given.get_mut(i) else { continue };
            if let Some(rest) = free.checked_sub(to.saturating_sub(*slot)) {
                (*slot, free) = (to, rest);
            }
            // Also when it did not fit: a smaller step may.
            heap.extend(entry(i, *slot, free));
        }
        given
    }

    /// Several types: offers of all sizes to a market, one priority after the other.
    fn decide_across(&self, round: &Round<'_>) -> Vec<Grant> {
        let appraisals = appraise(round.jobs.iter().copied(), &self.knobs);
        let mut pools: BTreeMap<GpuType, u32> = round.pools.iter().copied().collect();
        let mut classes: BTreeMap<std::cmp::Reverse<i32>, Vec<usize>> = BTreeMap::new();
        for (place, job) in round.jobs.iter().enumerate() {
            classes.entry(std::cmp::Reverse(job.priority)).or_default().push(place);
        }
        let mut grants = vec![Grant::NONE; round.jobs.len()];
        for class in classes.values() {
            let offers = |&place: &usize| appraisals.get(place).map(|a| a.offers(&pools)).unwrap_or_default();
            let offers: Vec<Vec<Offer>> = class.iter().map(offers).collect();
            let free: Vec<(GpuType, u32)> = pools.iter().map(|(&gpu_type, &gpus)| (gpu_type, gpus)).collect();
            let chosen = Market::new(&free).clear(&offers);
            for ((&place, offers), choice) in class.iter().zip(&offers).zip(chosen) {
                if let (Some(offer), Some(grant)) = (choice.and_then(|c| offers.get(c)), grants.get_mut(place)) {
                    *grant = Grant::of(offer.gpu_type, offer.gpus);
                    if let Some(free) = pools.get_mut(&offer.gpu_type) {
                        *free = free.saturating_sub(offer.gpus);
                    }
                }
            }
        }
        grants
    }
}

/// Work left, or what stands for it.
fn work_left(job: &JobView) -> Micros {
    job.remaining.unwrap_or(Micros(job.attained.0))
}

/// What sizes are worth to each job, given all of them; in their order.
fn appraise<'a>(jobs: impl Iterator<Item = &'a JobView>, knobs: &'a Knobs) -> Vec<Appraisal<'a>> {
    let jobs: Vec<&JobView> = jobs.collect();
    // Most work first; of equals the later job counts as having more.
    let mut order: Vec<(Micros, usize)> = jobs.iter().zip(0..).map(|(job, place)| (work_left(job), place)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    let count = order.len();
    let median = order.get(count / 2).map_or(Micros::ZERO, |&(work, _)| work);
    let mut ranks = vec![0_u64; count];
    for (rank, (_, place)) in (1..).zip(order) {
        if let Some(slot) = ranks.get_mut(place) {
            *slot = rank;
        }
    }
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    jobs.into_iter().zip(ranks).map(|(job, rank)| Appraisal::new(job, (rank, count), median, knobs)).collect()
}

/// Speeds below a thousandth of a reference GPU are valued in proportion.
const SLOW: u64 = 1_000_000;
/// Work below a second is all alike.
const BRIEF: u64 = 1_000_000;
/// Service that inertia is measured against: 100 GPU-seconds.
const BEGUN: u64 = 100_000_000;

/// What sizes are worth to one job.
struct Appraisal<'a> {
    job: &'a JobView,
    knobs: &'a Knobs,
    work: Micros,
    /// In parts of [`UNIT`].
    weight: u128,
}

impl<'a> Appraisal<'a> {
    fn new(job: &'a JobView, (rank, count): (u64, u64), median: Micros, knobs: &'a Knobs) -> Self {
        let work = work_left(job);
        let share = u128::from(median.0).saturating_mul(knobs.median_milli.into()).checked_div(1000);
        let flat = work.plus(Micros(share.and_then(|s| u64::try_from(s).ok()).unwrap_or_default()));
        let little = falling_power(flat.0, BRIEF, knobs.work_milli);
        // rank^p over its largest value.
        let standing = falling_power(count, rank, knobs.rank_milli);
        let little = u128::from(little).saturating_mul(standing.into()).checked_div(UNIT.into()).unwrap_or_default();
        // The inverse of a falling power is a rising one.
        let begun = falling_power(job.attained.0.saturating_add(BEGUN), BEGUN, knobs.inertia_milli);
        let inertia = match job.remaining {
            Some(_) => u128::from(UNIT).saturating_mul(1000).checked_div(begun.into()).unwrap_or(1000),
            None => 1000, // service already counts as size
        };
        let weight = little.saturating_mul(inertia.min(knobs.cap_milli.max(1000).into()));
        Self { job, knobs, work, weight: weight.checked_div(1000).unwrap_or_default() }
    }

    /// Value before the weight: below 2^53.
    fn value(&self, grant: Grant) -> u64 {
        let speed = self.job.speeds.on(grant.gpu_type).map_or(Speed::ZERO, |curve| curve.at(grant.gpus));
        let worth = match self.knobs.theta_milli {
            0 => speed.0,
            theta => {
                // speed x (speed / SLOW)^-theta; two bits of the unit are spare.
                let product = u128::from(speed.0).saturating_mul(falling_power(speed.0, SLOW, theta).into());
                u64::try_from(product.checked_div(UNIT.into()).unwrap_or_default()).unwrap_or(u64::MAX)
            }
        };
        if !self.job.is_running() || grant == self.job.held {
            return worth;
        }
        let stay = speed.time_for(self.work).min(self.knobs.horizon).0.max(1);
        let cost = u128::from(self.job.restart_cost.0).saturating_mul(self.knobs.change_milli.into());
        let lost = u128::from(worth).saturating_mul(cost).checked_div(u128::from(stay).saturating_mul(1000));
        worth.saturating_sub(lost.and_then(|lost| u64::try_from(lost).ok()).unwrap_or(u64::MAX))
    }

    /// The best next grant with at most `free` GPUs more: its worth per GPU, and the size it leads to.
    fn next(&self, gpu_type: GpuType, given: u32, free: u32) -> Option<(u128, u32)> {
        let (job, held) = (self.job, self.job.held);
        if given >= job.max {
            return None;
        }
        let now = if given == 0 { 0 } else { self.value(Grant::of(gpu_type, given)) };
        let base = if given == 0 { job.min.saturating_sub(1) } else { given };
        let ahead = self.knobs.steps.iter().map(|&step| base.saturating_add(step).min(job.max));
        let present = (held.gpu_type == gpu_type).then_some(held.gpus);
        let mut best: Option<(u128, u32)> = None;
        let mut last = given;
        for to in ahead.chain(present) {
            let more = to.saturating_sub(given);
            if to == last || more == 0 || more > free || to < job.min || to > job.max {
                continue;
            }
            last = to;
            let gain = u128::from(self.value(Grant::of(gpu_type, to)).saturating_sub(now));
            let bonus = if given == 0 { u128::from(self.knobs.start_milli).saturating_add(1000) } else { 1000 };
            let per_gpu = u128::from(more).saturating_mul(1000);
            let worth = gain.saturating_mul(self.weight).saturating_mul(bonus).checked_div(per_gpu).unwrap_or_default();
            if worth > best.map_or(0, |(most, _)| most) {
                best = Some((worth, to));
            }
        }
        best
    }

    /// Offers on all types: every size up to 16, then every fourth, the maximum, and the present size.
    fn offers(&self, pools: &BTreeMap<GpuType, u32>) -> Vec<Offer> {
        let (job, held) = (self.job, self.job.held);
        let mut offers = Vec::new();
        for (gpu_type, _) in job.speeds.iter() {
            let most = job.max.min(pools.get(gpu_type).copied().unwrap_or_default());
            let present = |gpus: u32| held == Grant::of(*gpu_type, gpus);
            let offered = |&gpus: &u32| gpus <= 16 || gpus.is_multiple_of(4) || gpus == job.max || present(gpus);
            for gpus in (job.min..=most).filter(offered) {
                let value = u128::from(self.value(Grant::of(*gpu_type, gpus))).saturating_mul(self.weight);
                // Sums over all jobs stay below 2^64.
                let value = u64::try_from(value.checked_shr(OFFER_SHIFT).unwrap_or_default()).unwrap_or(u64::MAX);
                if value > 0 {
                    offers.push(Offer { gpu_type: *gpu_type, gpus, value });
                }
            }
        }
        offers
    }
}

/// Bits left out of offers' values.
const OFFER_SHIFT: u32 = 56;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Curve, Speeds};
    use crate::policies::testing::{elastic, shares};
    use crate::policy::{Snapshot, allocate};
    use crate::units::GpuMicros;

    fn running(mut job: JobView, gpus: u32, cost: u64) -> JobView {
        (job.held, job.restart_cost) = (Grant::of(GpuType(0), gpus), Micros::from_secs(cost));
        job
    }

    const LINEAR: [u64; 8] = [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000];

    #[test]
    fn looks_past_the_edge_of_a_node() {
        // The fifth GPU alone slows the job down; with eight it is far faster.
        let edge = [1000, 2000, 3000, 4000, 3000, 3800, 5500, 7500];
        let jobs = [elastic("a", 0, (1, 1, 8), 1000, &edge)];
        let by_gpus = [5, 6, 7, 8].map(|gpus| shares(&CostAwareGain::default(), gpus, &jobs)[0]);
        assert_eq!(by_gpus, [4, 4, 7, 8]);
    }

    #[test]
    fn grows_only_when_that_pays() {
        // Twice the cost, 60 s, against the time left on 8 GPUs: it must keep more than 2^-0.9 of its value.
        let job = |work| [running(elastic("a", 0, (1, 1, 8), work, &LINEAR), 4, 30)];
        assert_eq!(shares(&CostAwareGain::default(), 8, &job(1000)), [4]); // 60 of 125 s
        assert_eq!(shares(&CostAwareGain::default(), 8, &job(1100)), [8]); // 60 of 137 s
    }

    #[test]
    fn little_work_first_and_priority_before_all() {
        let jobs = [elastic("long", 0, (4, 4, 4), 10_000, &LINEAR), elastic("short", 1, (4, 4, 4), 100, &LINEAR)];
        assert_eq!(shares(&CostAwareGain::default(), 4, &jobs), [0, 4]);
        let urgent = [JobView { priority: 1, ..jobs[0].clone() }, jobs[1].clone()];
        assert_eq!(shares(&CostAwareGain::default(), 4, &urgent), [4, 0]);
    }

    #[test]
    fn what_has_begun_goes_on() {
        let mut begun = running(elastic("begun", 1, (4, 4, 4), 1000, &LINEAR), 4, 30);
        begun.attained = GpuMicros::from_gpu_secs(1000);
        let jobs = |work| [elastic("new", 0, (4, 4, 4), work, &LINEAR), begun.clone()];
        assert_eq!(shares(&CostAwareGain::default(), 4, &jobs(900)), [0, 4]);
        assert_eq!(shares(&CostAwareGain::default(), 4, &jobs(100)), [4, 0]);
    }

    #[test]
    fn work_that_is_not_known_is_judged_by_service() {
        let unknown = |id: &str, secs| JobView {
            remaining: None,
            attained: GpuMicros::from_gpu_secs(secs),
            ..elastic(id, 0, (4, 4, 4), 0, &LINEAR)
        };
        assert_eq!(shares(&CostAwareGain::default(), 4, &[unknown("old", 90_000), unknown("new", 10)]), [0, 4]);
    }

    #[test]
    fn several_types_priorities_first() {
        let on = |id: &str, fast: u64, priority| {
            let curve = |milli: u64| Curve::new((0..=4_u64).map(|k| Speed::from_milli(k * milli)));
            let speeds = Speeds::new([(GpuType(0), curve(1000)), (GpuType(1), curve(fast))]);
            let remaining = Some(Micros::from_secs(1000));
            JobView { priority, remaining, speeds, ..JobView::waiting(id, 4, 4, 4, Micros::ZERO) }
        };
        let ask = |jobs: &[JobView], gpus| {
            let capacity = [(GpuType(0), gpus), (GpuType(1), 4)];
            let snapshot = Snapshot { now: Micros::ZERO, capacity: &capacity, jobs };
            allocate(&CostAwareGain::default(), snapshot, &mut Memory::default()).unwrap().grants
        };
        let jobs = [on("a", 1100, 0), on("b", 4000, 0)];
        assert_eq!(ask(&jobs, 4), [Grant::of(GpuType(0), 4), Grant::of(GpuType(1), 4)]);
        let urgent = [on("a", 1100, 1), on("b", 4000, 0)];
        assert_eq!(ask(&urgent, 0), [Grant::of(GpuType(1), 4), Grant::NONE]);
    }
}
