//! A goodput knapsack for several GPU types, after Sia.
//!
//! Source: Sia (SOSP'23). Each round every job takes one configuration (type, number of GPUs) or none, so that the sum over
//! jobs of `goodput^p`, `p = -0.5`, is smallest, where goodput is relative to the job's slowest configuration, a job without
//! one counts 1.1, and configurations other than the present one are discounted by the cost of a restart. Configurations are
//! powers of two up to a node and whole nodes beyond. One type is solved exactly (`knapsack`) unless that would take too
//! long, several by prices (`market`).
//!
//! Where it differs: the restart factor is `ran / (ran + restart cost)`, as restarts are not counted here; the original
//! solves an integer program. Tests: at the end of this file.

use crate::fixed::{UNIT, falling_power};
use crate::job::{Grant, JobView};
use crate::memory::Memory;
use crate::policies::knapsack::{Choice, best_split};
use crate::policies::market::{Market, Offer};
use crate::policy::Policy;
use crate::round::Round;
use crate::units::GpuType;

/// The policy.
#[derive(Debug, Clone, Copy)]
pub struct Sia {
    /// `-p`, in thousandths.
    pub power_milli: u32,
    /// What a job without GPUs counts, in thousandths.
    pub idle_milli: u32,
    /// GPUs of a node.
    pub node: u32,
}

impl Default for Sia {
    fn default() -> Self {
        Self { power_milli: 500, idle_milli: 1100, node: 4 }
    }
}

/// Values keep this many bits of a unit, so that sums over all jobs fit.
const SHIFT: u32 = 34;

impl Policy for Sia {
    fn name(&self) -> &'static str {
        "sia"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        let most = round.pools.iter().map(|&(_, gpus)| gpus).max().unwrap_or_default();
        let offers: Vec<Vec<Offer>> = round.jobs.iter().map(|job| self.offers(job, most)).collect();
        choose(round, &offers)
    }
}

/// Cells of the exact table beyond which prices are used instead: some milliseconds. With so many jobs the two differ little.
const CELLS: u64 = 4_000_000;

/// Exactly for one type, by prices for several or very many.
fn choose(round: &Round<'_>, offers: &[Vec<Offer>]) -> Vec<Grant> {
    let grant = |offer: Option<&Offer>| offer.map_or(Grant::NONE, |o| Grant::of(o.gpu_type, o.gpus));
    let choices = u64::try_from(offers.iter().flatten().count()).unwrap_or(u64::MAX);
    if let [(gpu_type, gpus)] = round.pools[..]
        && choices.saturating_mul(gpus.into()) <= CELLS
    {
        let none = Choice { units: 0, value: 0 };
        let row = |offers: &Vec<Offer>| {
            let mut row = vec![none];
            row.extend(
                offers.iter().filter(|o| o.gpu_type == gpu_type).map(|o| Choice { units: o.gpus, value: o.value }),
            );
            row
        };
        let rows: Vec<Vec<Choice>> = offers.iter().map(row).collect();
        let split = best_split(rows.iter().map(Vec::as_slice), gpus);
        let units = rows.iter().zip(split).map(|(row, place)| row.get(place).map_or(0, |choice| choice.units));
        return units.map(|units| Grant::of(gpu_type, units)).collect();
    }
    let chosen = Market::new(&round.pools).clear(offers);
    offers.iter().zip(chosen).map(|(offers, place)| grant(place.and_then(|place| offers.get(place)))).collect()
}

impl Sia {
    /// Sizes that may be chosen: powers of two up to a node, then whole nodes; a job's own minimum and maximum too.
    fn sizes(&self, job: &JobView, most: u32) -> impl Iterator<Item = u32> {
        let (min, max, node) = (job.min, job.max.min(most), self.node.max(1));
        let own = move |size: u32| size == min || size == max || size.is_power_of_two() && size <= node;
        (min..=max).filter(move |&size| own(size) || size.is_multiple_of(node))
    }

    fn offers(&self, job: &JobView, most: u32) -> Vec<Offer> {
        let speed = |gpu_type: GpuType, gpus: u32| job.speeds.on(gpu_type).map_or(0, |curve| curve.at(gpus).0);
        let all = || job.speeds.iter().flat_map(|(gpu_type, _)| self.sizes(job, most).map(|gpus| (*gpu_type, gpus)));
        let slowest = all().map(|(gpu_type, gpus)| speed(gpu_type, gpus)).filter(|&speed| speed > 0).min();
        let idle = u128::from(UNIT).saturating_mul(self.idle_milli.into()).checked_div(1000).unwrap_or_default();
        let offer = |(gpu_type, gpus): (GpuType, u32)| {
            let goodput = discounted(job, Grant::of(gpu_type, gpus), speed(gpu_type, gpus));
            let counts = u128::from(falling_power(goodput, slowest?, self.power_milli));
            let value = idle.saturating_sub(counts) >> SHIFT;
            let value = u64::try_from(value).unwrap_or(u64::MAX);
            (goodput > 0 && value > 0).then_some(Offer { gpu_type, gpus, value })
        };
        all().filter_map(offer).collect()
    }
}

/// Speed of a running job with something else than it has, less what a restart costs it.
fn discounted(job: &JobView, grant: Grant, speed: u64) -> u64 {
    if !job.is_running() || grant == job.held {
        return speed;
    }
    let age = u128::from(job.ran.0);
    let share = u128::from(speed).saturating_mul(age).checked_div(age.saturating_add(job.restart_cost.0.into()));
    share.and_then(|speed| u64::try_from(speed).ok()).unwrap_or(speed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Curve, Speeds};
    use crate::policies::testing::{elastic, shares};
    use crate::policy::{PolicyInput, allocate};
    use crate::units::{Micros, Speed};

    const LINEAR: [u64; 8] = [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000];

    #[test]
    fn the_penalty_decides_who_waits() {
        let jobs = ["a", "b", "c", "d"].map(|id| elastic(id, 0, (1, 1, 8), 100, &LINEAR));
        // On 4 GPUs: 4 x 1 against 2 x 0.707 + 2 x 1.1.
        assert_eq!(shares(&Sia::default(), 4, &jobs), [2, 2, 0, 0]);
        assert_eq!(shares(&Sia { idle_milli: 1500, ..Sia::default() }, 4, &jobs), [1, 1, 1, 1]);
        assert_eq!(shares(&Sia::default(), 8, &jobs), [2, 2, 2, 2]);
    }

    #[test]
    fn each_job_goes_where_it_gains_most() {
        let on = |id: &str, fast: u64| {
            let curve = |milli: u64| Curve::new((0..=4_u64).map(|k| Speed::from_milli(k * milli)));
            let speeds = Speeds::new([(GpuType(0), curve(1000)), (GpuType(1), curve(fast))]);
            JobView { speeds, ..JobView::waiting(id, 1, 1, 4, Micros::ZERO) }
        };
        let jobs = [on("a", 1100), on("b", 4000)];
        let input = PolicyInput { now: Micros::ZERO, capacity: &[(GpuType(0), 4), (GpuType(1), 4)], jobs: &jobs };
        let grants = allocate(&Sia::default(), input, &mut Memory::default()).unwrap().grants;
        assert_eq!(grants, [Grant::of(GpuType(0), 4), Grant::of(GpuType(1), 4)]);
    }

    #[test]
    fn a_restart_must_be_worth_it() {
        let mut job = elastic("a", 0, (1, 1, 8), 1000, &[1000, 1900, 2000, 2100, 2100, 2100, 2100, 2100]);
        job.held = Grant::of(GpuType(0), 2);
        job.restart_cost = Micros::from_secs(30);
        for (ran, want) in [(60, 2), (6000, 4)] {
            job.ran = Micros::from_secs(ran);
            assert_eq!(shares(&Sia::default(), 8, &[job.clone()]), [want], "after {ran} s");
        }
    }
}
