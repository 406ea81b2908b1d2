//! What sizes are worth to each job, for `gain`.
//!
//! ```text
//! speed^(1 - theta) x rank^p x (work_left + median x median_work_left)^-a x min(cap, (1 + attained / 100 GPU-s)^inertia)
//! ```
//!
//! and at every size other than the present one of a running job less `b x restart_cost / min(time left there, lasting)`.
//!
//! - `p` prefers jobs with little work left by their rank: 1 for the one with most left, 2 for the next, and so on. In the
//!   optimal policy for jobs of one sub-linear speed, heSRPT (Berg, Vesilo, Harchol-Balter, 2020), shares depend on ranks
//!   alone; so sizes over many orders of magnitude do no harm, and a wrong estimate costs little.
//! - `a` does so by the work itself; the median keeps that from going to extremes.
//! - `theta` is a little fairness: it makes a first GPU worth more than a last one.
//! - Inertia keeps what has begun going; unbounded it would keep giants going, hence `cap`.
//! - A size lasts until jobs come and go: `lasting` is `horizon` times the mean time between submissions, estimated from the
//!   jobs there are. In a quiet cluster a change may so take long to pay, in a busy one it must pay soon.
//! - *Trust*: where the estimates of the work left differ by no more than their usual error ([`JobView::doubt`]) they say
//!   nothing about the order, and `theta` is `unsure-theta`; in between, in between.
//! - *Rigid*: the less of the GPUs asked for can change, the more the decision is one of order only, and for that the shortest
//!   remaining service first is best, but for holes and starts (see `lookahead`): `a` goes to 1, and theta, median and, as far
//!   as estimates are trusted, inertia to 0. Where estimates are usually wrong, the order turns over again and again as they
//!   are corrected; so the work of a rigid job that waits counts with `b` times what its start costs.
//!
//! Work left is what `size` makes of an estimate that may be wrong. Where the work is not known there is no inertia. Owns no
//! decision. Tests: below, and in `gain`.

use crate::fixed::{UNIT, between, falling_power, log2_milli};
use crate::job::{Grant, JobView};
use crate::policies::gain::Knobs;
use crate::policies::size::{believed, sizes};
use crate::units::{Micros, Speed};

/// What sizes are worth to one job.
pub(super) struct Worth<'a> {
    pub(super) job: &'a JobView,
    /// What values are multiplied by, in parts of [`UNIT`]: below 2^64.
    pub(super) weight: u128,
    theta_milli: u32,
    change_milli: u32,
    lasting: Micros,
    work: Micros,
}

/// What sizes are worth to each job, given all of them; in their order.
pub(super) fn worths<'a>(jobs: impl Iterator<Item = &'a JobView>, now: Micros, knobs: &Knobs) -> Vec<Worth<'a>> {
    let jobs: Vec<&JobView> = jobs.collect();
    let among = Among::new(&jobs, now, knobs);
    let sizes = sizes(&jobs);
    // Most work first; of equals the later job counts as having more.
    let to_do = jobs.iter().zip(&sizes).map(|(job, &size)| work_to_do(job, size, among.start_milli));
    let mut order: Vec<(Micros, usize)> = to_do.zip(0..).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    let median = order.get(order.len() / 2).map_or(Micros::ZERO, |&(work, _)| work);
    let among = among.with_median(median);
    let mut ranks = vec![0_u64; order.len()];
    for (rank, (_, place)) in (1..).zip(order) {
        if let Some(slot) = ranks.get_mut(place) {
            *slot = rank;
        }
    }
    let jobs = jobs.into_iter().zip(sizes).zip(ranks);
    jobs.map(|((job, size), rank)| Worth::new(job, size, rank, &among)).collect()
}

/// The work left, and for a job that waits what it could have done while it starts, so many thousandths of it.
fn work_to_do(job: &JobView, work: Micros, start_milli: u32) -> Micros {
    if job.is_running() || start_milli == 0 {
        return work;
    }
    let speed = job.speeds.home().map_or(Speed::ZERO, |(_, curve)| curve.at(job.num));
    let start = u128::from(speed.work_in(job.restart_cost).0).saturating_mul(start_milli.into()) / 1000;
    work.plus(Micros(u64::try_from(start).unwrap_or(u64::MAX)))
}

/// What the values of all jobs share: the settings as these jobs make them.
struct Among {
    count: u64,
    /// Added to the work left of each: so many thousandths of the median.
    median: u64,
    median_milli: u32,
    lasting: Micros,
    rank_milli: u32,
    work_milli: u32,
    theta_milli: u32,
    inertia_milli: u32,
    cap_milli: u32,
    change_milli: u32,
    start_milli: u32,
}

impl Among {
    fn new(jobs: &[&JobView], now: Micros, knobs: &Knobs) -> Self {
        let (trust, rigid) = (trust(jobs), rigid(jobs));
        // Inertia guards against wrong estimates as well.
        let sure_and_rigid = part(rigid, 0, trust);
        Self {
            count: u64::try_from(jobs.len()).unwrap_or(u64::MAX),
            median: 0,
            median_milli: part(rigid, knobs.median_milli, 0),
            lasting: lasting(jobs, now, knobs.horizon_milli),
            rank_milli: knobs.rank_milli,
            work_milli: part(rigid, knobs.work_milli, knobs.work_milli.max(1000)),
            theta_milli: part(rigid, part(trust, knobs.unsure_theta_milli, knobs.theta_milli), 0),
            inertia_milli: part(sure_and_rigid, knobs.inertia_milli, 0),
            cap_milli: knobs.cap_milli.max(1000),
            change_milli: knobs.change_milli,
            start_milli: part(part(doubt(jobs), 0, rigid), 0, knobs.change_milli),
        }
    }

    fn with_median(self, median: Micros) -> Self {
        let median = u128::from(median.0).saturating_mul(self.median_milli.into()) / 1000;
        Self { median: u64::try_from(median).unwrap_or(u64::MAX), ..self }
    }
}

/// From `zero` to `all` by so many thousandths.
fn part(thousandths: u32, zero: u32, all: u32) -> u32 {
    u32::try_from(between(zero.into(), all.into(), thousandths.min(1000), 1000)).unwrap_or(u32::MAX)
}

/// How much of the differences in work left is to be believed, in thousandths: the part of their variance that is not error.
fn trust(jobs: &[&JobView]) -> u32 {
    let known = || jobs.iter().filter(|job| job.remaining.is_some());
    let square = |n: u128| n.saturating_mul(n);
    let errors = known().map(|job| square(job.doubt.into())).fold(0, u128::saturating_add);
    if errors == 0 {
        return 1000;
    }
    // In thousandths of a doubling, as doubt is.
    let logs = || known().map(|job| u128::from(log2_milli(believed(job).0)));
    let count = logs().fold(0_u128, |count, _| count.saturating_add(1));
    let sum = logs().fold(0, u128::saturating_add);
    let squares = logs().map(square).fold(0, u128::saturating_add);
    // Both times the square of the count.
    let variance = squares.saturating_mul(count).saturating_sub(square(sum));
    let believed = variance.saturating_sub(errors.saturating_mul(count)).saturating_mul(1000).checked_div(variance);
    u32::try_from(believed.unwrap_or_default()).unwrap_or(1000)
}

/// How wrong estimates of the work left usually are, in thousandths of a doubling, up to one.
fn doubt(jobs: &[&JobView]) -> u32 {
    let known = || jobs.iter().filter(|job| job.remaining.is_some());
    let sum = known().fold(0_u64, |sum, job| sum.saturating_add(job.doubt.into()));
    let count = known().fold(0_u64, |count, _| count.saturating_add(1));
    u32::try_from(sum.checked_div(count).unwrap_or_default()).unwrap_or(u32::MAX).min(1000)
}

/// How much of the GPUs asked for is asked for by jobs that have one size only, in thousandths.
fn rigid(jobs: &[&JobView]) -> u32 {
    let asked = |only_rigid: bool| {
        let of = jobs.iter().filter(|job| !only_rigid || job.min == job.max).map(|job| u64::from(job.num));
        of.fold(0_u64, u64::saturating_add)
    };
    let share = asked(true).saturating_mul(1000).checked_div(asked(false)).unwrap_or_default();
    u32::try_from(share).unwrap_or(1000)
}

/// How long a size is expected to last: until so many jobs have been submitted.
///
/// As many are submitted per unit of time as end. Of jobs that take long more are there at any one time, so each counts with
/// the inverse of the time it takes in all; that makes the sum the rate, whatever the mixture.
fn lasting(jobs: &[&JobView], now: Micros, horizon_milli: u32) -> Micros {
    /// One, in rates per microsecond.
    const ONE: u128 = 1 << 80;
    let stay = |job: &&JobView| {
        let (home, _) = job.speeds.home()?;
        let grant = if job.is_running() { job.held } else { Grant::of(*home, job.num) };
        let left = job.speeds.on(grant.gpu_type)?.at(grant.gpus).time_for(believed(job));
        ONE.checked_div(now.since(job.submitted).plus(left).0.max(BRIEF).into())
    };
    let rate = jobs.iter().filter_map(stay).fold(0, u128::saturating_add).max(1);
    let span = ONE.checked_div(rate).unwrap_or_default().saturating_mul(horizon_milli.into()) / 1000;
    Micros(u64::try_from(span).unwrap_or(u64::MAX))
}

/// Speeds below a thousandth of a reference GPU are valued in proportion.
const SLOW: u64 = 1_000_000;
/// Work below a second is all alike.
const BRIEF: u64 = 1_000_000;
/// Service that inertia is measured against: 100 GPU-seconds.
const BEGUN: u64 = 100_000_000;

impl<'a> Worth<'a> {
    fn new(job: &'a JobView, work: Micros, rank: u64, among: &Among) -> Self {
        let to_do = work_to_do(job, work, among.start_milli);
        let little = falling_power(to_do.0.saturating_add(among.median), BRIEF, among.work_milli);
        // rank^p over its largest value.
        let standing = falling_power(among.count, rank, among.rank_milli);
        let little = u128::from(little).saturating_mul(standing.into()).checked_div(UNIT.into()).unwrap_or_default();
        // The inverse of a falling power is a rising one.
        let begun = falling_power(job.attained.0.saturating_add(BEGUN), BEGUN, among.inertia_milli);
        let inertia = match job.remaining {
            Some(_) => u128::from(UNIT).saturating_mul(1000).checked_div(begun.into()).unwrap_or(1000),
            None => 1000, // service already counts as size
        };
        let weight = little.saturating_mul(inertia.min(among.cap_milli.into())) / 1000;
        let &Among { theta_milli, change_milli, lasting, .. } = among;
        Self { job, weight, theta_milli, change_milli, lasting, work }
    }

    /// Value of a size before the weight: below 2^53.
    pub(super) fn of(&self, grant: Grant) -> u64 {
        let speed = self.job.speeds.on(grant.gpu_type).map_or(Speed::ZERO, |curve| curve.at(grant.gpus));
        let worth = match self.theta_milli {
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
        let stay = speed.time_for(self.work).min(self.lasting).0.max(1);
        let cost = u128::from(self.job.restart_cost.0).saturating_mul(self.change_milli.into());
        let lost = u128::from(worth).saturating_mul(cost).checked_div(u128::from(stay).saturating_mul(1000));
        worth.saturating_sub(lost.and_then(|lost| u64::try_from(lost).ok()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::elastic;

    fn views(jobs: &[JobView]) -> Vec<&JobView> {
        jobs.iter().collect()
    }

    fn job(submitted: u64, sizes: (u32, u32, u32), work: u64, doubt: u32) -> JobView {
        let linear: Vec<u64> = (1..=u64::from(sizes.2)).map(|k| k * 1000).collect();
        JobView { doubt, ..elastic(&format!("{submitted}-{work}"), submitted, sizes, work, &linear) }
    }

    #[test]
    fn differences_are_believed_as_far_as_they_exceed_the_error() {
        let two = |doubt| [job(0, (1, 1, 1), 1000, doubt), job(0, (1, 1, 1), 16_000, doubt)];
        // Four doublings apart: their standard deviation is two.
        assert_eq!([0, 1000, 2000, 5000].map(|doubt| trust(&views(&two(doubt)))), [1000, 750, 0, 0]);
        let unknown = JobView { remaining: None, ..job(0, (1, 1, 1), 1, 2000) };
        assert_eq!(trust(&[&unknown]), 1000, "nothing is estimated");
    }

    #[test]
    fn rigid_is_what_asks_for_one_size_only() {
        let jobs = [job(0, (2, 2, 2), 1, 0), job(0, (1, 6, 8), 1, 0)];
        assert_eq!((rigid(&views(&jobs)), rigid(&[])), (250, 0));
    }

    #[test]
    fn a_size_lasts_for_so_many_submissions_whatever_the_mixture() {
        // One in 100 s, and one that takes ten times as long: of these ten are there at a time.
        let short = job(900, (1, 1, 1), 0, 0);
        let long = |n: u64| job(n * 100, (1, 1, 1), 1000 - (1000 - n * 100), 0);
        let jobs: Vec<JobView> = std::iter::once(short).chain((0..10).map(long)).collect();
        let lasts = lasting(&views(&jobs), Micros::from_secs(1000), 8000);
        // Each of both kinds comes every 100 s: one in 50 s.
        assert_eq!(lasts.0.div_ceil(1_000_000), 400);
        assert_eq!(lasting(&[], Micros::ZERO, 8000), Micros::MAX);
    }
}
