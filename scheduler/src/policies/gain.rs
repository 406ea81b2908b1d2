//! Cost-aware gain: our own policy, the default for elastic queues.
//!
//! The next few GPUs always go where `(value gained / GPUs given)` is largest; what a size is worth to a job is `worth`'s.
//! "Next few": several steps are looked ahead, because measured speeds are not concave where a job crosses a node's edge. The
//! present size is always one of them, so a job is left alone unless a change pays.
//!
//! Where every job has one size and known work, only which jobs run is left to decide, and `lookahead` may change that.
//!
//! Speeds that were not measured are guesses; how far a job may grow on them is `trial`'s.
//!
//! Users' priority goes before everything. With several GPU types, and jobs that can use more than one, the same values are put
//! to `market`. The settings are data ([`Knobs`]). Integer arithmetic; one type costs O(G log J). Tests: below.

use std::collections::{BTreeMap, BinaryHeap};

use crate::job::{Grant, JobView};
use crate::memory::Memory;
use crate::policies::heap::Entry;
use crate::policies::lookahead;
use crate::policies::market::{Market, Offer};
use crate::policies::trial;
use crate::policies::worth::{Worth, worths};
use crate::policy::Policy;
use crate::round::{Pool, Round};
use crate::units::{GpuType, Micros};

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
    /// `unsure-theta`: the same where estimates of the work left say nothing.
    pub unsure_theta_milli: u32,
    /// `inertia`: exponent of the service attained.
    pub inertia_milli: u32,
    /// `cap`: the most that inertia multiplies by.
    pub cap_milli: u32,
    /// `b`: how many times its cost a change has to earn.
    pub change_milli: u32,
    /// `horizon`: a size is expected to last until so many jobs have been submitted.
    pub horizon_milli: u32,
    /// `growth`: how many times as large as what was tried a job may be; 0 for any size.
    pub growth: u32,
    /// How many GPUs ahead is looked, ascending.
    pub steps: Vec<u32>,
}

/// Steps that are looked ahead by default.
pub const STEPS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16];

impl Default for Knobs {
    fn default() -> Self {
        Self {
            rank_milli: 300,
            work_milli: 250,
            median_milli: 1000,
            theta_milli: 100,
            unsure_theta_milli: 500,
            inertia_milli: 100,
            cap_milli: 1400,
            change_milli: 1500,
            horizon_milli: 8000,
            growth: 4,
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

    fn wake(&self, now: Micros, jobs: &[JobView], _: &Memory) -> Option<Micros> {
        trial::measured(now, jobs, self.knobs.growth)
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
        let worths = worths(pool.jobs.iter().map(|m| m.job), pool.now, &self.knobs);
        let mut given = vec![0_u32; worths.len()];
        let mut free = pool.gpus;
        let entry = |i: usize, given: u32, free: u32| {
            let job = worths.get(i)?;
            let (worth, to) = next(job, &self.knobs, pool.gpu_type, given, free)?;
            Some(Entry::new((job.job.priority, worth), i, (i, to)))
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
        lookahead::improve(pool, self.knobs.change_milli, &mut given);
        given
    }

    /// Several types: offers of all sizes to a market, one priority after the other.
    fn decide_across(&self, round: &Round<'_>) -> Vec<Grant> {
        let worths = worths(round.jobs.iter().copied(), round.now, &self.knobs);
        let mut pools: BTreeMap<GpuType, u32> = round.pools.iter().copied().collect();
        let mut classes: BTreeMap<std::cmp::Reverse<i32>, Vec<usize>> = BTreeMap::new();
        for (place, job) in round.jobs.iter().enumerate() {
            classes.entry(std::cmp::Reverse(job.priority)).or_default().push(place);
        }
        let mut grants = vec![Grant::NONE; round.jobs.len()];
        for class in classes.values() {
            let growth = self.knobs.growth;
            let offers =
                |&place: &usize| worths.get(place).map(|worth| offers(worth, growth, &pools)).unwrap_or_default();
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

/// The best next grant with at most `free` GPUs more: its worth per GPU, and the size it leads to.
fn next(worth: &Worth<'_>, knobs: &Knobs, gpu_type: GpuType, given: u32, free: u32) -> Option<(u128, u32)> {
    let (job, held) = (worth.job, worth.job.held);
    let most = trial::most(job, knobs.growth);
    if given >= most {
        return None;
    }
    let now = if given == 0 { 0 } else { worth.of(Grant::of(gpu_type, given)) };
    let base = if given == 0 { job.min.saturating_sub(1) } else { given };
    let ahead = knobs.steps.iter().map(|&step| base.saturating_add(step).min(most));
    let present = (held.gpu_type == gpu_type).then_some(held.gpus);
    let mut best: Option<(u128, u32)> = None;
    let mut last = given;
    for to in ahead.chain(present) {
        let more = to.saturating_sub(given);
        if to == last || more == 0 || more > free || to < job.min || to > most {
            continue;
        }
        last = to;
        let gain = u128::from(worth.of(Grant::of(gpu_type, to)).saturating_sub(now));
        // Weights are below 2^64 and values below 2^53, so a little is to spare for the division.
        let per_gpu = gain.saturating_mul(worth.weight).checked_div(more.into()).unwrap_or_default();
        if per_gpu > best.map_or(0, |(worth, _)| worth) {
            best = Some((per_gpu, to));
        }
    }
    best
}

/// Offers on all types: every size up to 16, then every fourth, the largest, and the present size.
fn offers(worth: &Worth<'_>, growth: u32, pools: &BTreeMap<GpuType, u32>) -> Vec<Offer> {
    let (job, held) = (worth.job, worth.job.held);
    let largest = trial::most(job, growth);
    let mut offers = Vec::new();
    for (gpu_type, _) in job.speeds.iter() {
        let most = largest.min(pools.get(gpu_type).copied().unwrap_or_default());
        let present = |gpus: u32| held == Grant::of(*gpu_type, gpus);
        let offered = |&gpus: &u32| gpus <= 16 || gpus.is_multiple_of(4) || gpus == largest || present(gpus);
        for gpus in (job.min..=most).filter(offered) {
            let value = u128::from(worth.of(Grant::of(*gpu_type, gpus))).saturating_mul(worth.weight);
            // Sums over all jobs stay below 2^64.
            let value = u64::try_from(value.checked_shr(OFFER_SHIFT).unwrap_or_default()).unwrap_or(u64::MAX);
            if value > 0 {
                offers.push(Offer { gpu_type: *gpu_type, gpus, value });
            }
        }
    }
    offers
}

/// Bits left out of offers' values.
const OFFER_SHIFT: u32 = 56;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Curve, JobView, Speeds};
    use crate::policies::testing::{elastic, shares};
    use crate::policy::{PolicyInput, allocate};
    use crate::units::{GpuMicros, Micros, Speed};

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
        // Its cost one and a half times, 45 s, against the time left on 8 GPUs: it must keep more than 2^-0.9 of its value.
        let job = |work| [running(elastic("a", 0, (1, 1, 8), work, &LINEAR), 4, 30)];
        assert_eq!(shares(&CostAwareGain::default(), 8, &job(750)), [4]); // 45 of 94 s
        assert_eq!(shares(&CostAwareGain::default(), 8, &job(800)), [8]); // 45 of 100 s
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
        let mut begun = running(elastic("begun", 1, (4, 4, 8), 1000, &LINEAR), 4, 30);
        begun.attained = GpuMicros::from_gpu_secs(1000);
        let jobs = |work| [elastic("new", 0, (4, 4, 8), work, &LINEAR), begun.clone()];
        assert_eq!(shares(&CostAwareGain::default(), 4, &jobs(900)), [0, 4]);
        assert_eq!(shares(&CostAwareGain::default(), 4, &jobs(100)), [4, 0]);
    }

    #[test]
    fn rigid_jobs_run_in_the_order_of_work_left_whatever_has_begun() {
        let mut begun = running(elastic("begun", 1, (4, 4, 4), 1000, &LINEAR), 4, 30);
        begun.attained = GpuMicros::from_gpu_secs(1_000_000);
        let jobs = [elastic("new", 0, (1, 1, 1), 999, &LINEAR), begun, elastic("newer", 2, (4, 4, 4), 998, &LINEAR)];
        assert_eq!(shares(&CostAwareGain::default(), 4, &jobs), [0, 0, 4]);
        assert_eq!(shares(&CostAwareGain::default(), 5, &jobs), [1, 0, 4]);
    }

    #[test]
    fn wrong_estimates_make_it_fair() {
        // A long and a short job share 8 GPUs: the more its size is doubted, the less the short one gets.
        let sub_linear = [1000, 1900, 2700, 3400, 4000, 4500, 4900, 5200];
        let job = |id: &str, work, doubt| JobView { doubt, ..elastic(id, 0, (1, 1, 8), work, &sub_linear) };
        let ask =
            |doubt| shares(&CostAwareGain::default(), 8, &[job("long", 8000, doubt), job("short", 500, doubt)])[1];
        let got = [0, 1500, 3000].map(ask);
        assert!(got[0] > got[2] && got[2] >= 4 && got.is_sorted_by(|a, b| a >= b), "{got:?}");
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
    fn what_was_not_measured_is_tried_from_below() {
        let job = |tried| [JobView { tried, ..elastic("a", 0, (1, 2, 8), 1000, &LINEAR) }];
        let policy = CostAwareGain::default();
        assert_eq!([None, Some(0), Some(1), Some(2)].map(|tried| shares(&policy, 8, &job(tried))[0]), [8, 2, 4, 8]);
        let running = running(job(Some(0))[0].clone(), 2, 30);
        assert_eq!(policy.wake(Micros::ZERO, &[running], &Memory::default()), Some(Micros::from_secs(60)));
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
            let input = PolicyInput { now: Micros::ZERO, capacity: &capacity, jobs };
            allocate(&CostAwareGain::default(), input, &mut Memory::default()).unwrap().grants
        };
        let jobs = [on("a", 1100, 0), on("b", 4000, 0)];
        assert_eq!(ask(&jobs, 4), [Grant::of(GpuType(0), 4), Grant::of(GpuType(1), 4)]);
        let urgent = [on("a", 1100, 1), on("b", 4000, 0)];
        assert_eq!(ask(&urgent, 0), [Grant::of(GpuType(1), 4), Grant::NONE]);
    }
}
