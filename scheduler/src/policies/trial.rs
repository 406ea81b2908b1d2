//! How large a job may be whose speeds are not all measured, for `gain`.
//!
//! Before anything is measured speeds are assumed to grow with every GPU, so the first job of a kind would take all that it can
//! use. Measured there alone the rest of the curve keeps the shape that was assumed; nothing then shows that half
//! of the GPUs do nearly as much, or even more, and every job of that kind does the same. So the first ones start with what
//! was asked for, and no job grows to more than a few times the most that was tried ([`JobView::tried`]); thus the curve becomes
//! known from below, for the whole kind. Pollux does so for each job, by doubling (Qiao et al., OSDI 2021). As nothing need happen
//! in the meantime, the next decision falls when such a size will have been measured.
//!
//! A job that can use several GPU types is not bounded: that pays on some traces only, as its restarts cost more than is learnt
//! where speeds are as assumed (`docs/scheduling.md`).
//!
//! Decides nothing but bounds and times. Tests: below.

use crate::job::JobView;
use crate::units::Micros;

/// Progress of a job is reported some time after it has begun to make any.
const REPORTED: Micros = Micros::from_secs(30);

/// The most GPUs for a job: `growth` times what was tried; any number if that is 0.
pub(super) fn most(job: &JobView, growth: u32) -> u32 {
    let of_one_type = job.speeds.iter().nth(1).is_none();
    let bound = match job.tried.filter(|_| growth > 0 && of_one_type) {
        None => job.max,
        Some(0) => job.num,
        Some(tried) => tried.saturating_mul(growth),
    };
    // Neither below what it needs nor what it has.
    bound.max(job.min).max(job.held.gpus).min(job.max)
}

/// When to decide again: where a size that is held is being tried and bounds a job, once it has been measured.
pub(super) fn measured(now: Micros, jobs: &[JobView], growth: u32) -> Option<Micros> {
    let is_tried = |job: &&JobView| {
        job.is_running() && job.tried.is_some_and(|tried| tried < job.held.gpus) && most(job, growth) < job.max
    };
    jobs.iter().filter(is_tried).map(|job| reported(now, job)).min()
}

/// When the size that a job holds will have been reported. Without the time at which it got that size it is counted from
/// now, and recedes with every question: the rule of the studies.
fn reported(now: Micros, job: &JobView) -> Micros {
    let span = job.restart_cost.plus(REPORTED);
    let Some(changed) = job.changed else { return now.plus(span) };
    let first = changed.plus(span);
    // The report is late: it is looked for at whole multiples.
    let late = now.since(first).0.checked_div(REPORTED.0).unwrap_or_default().saturating_add(1);
    if first > now { first } else { first.plus(REPORTED.times(late)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Curve, Grant, Speeds};
    use crate::units::GpuType;

    fn job(tried: Option<u32>, held: u32) -> JobView {
        let restart_cost = Micros::from_secs(60);
        let held = Grant::of(GpuType(0), held);
        JobView { tried, restart_cost, held, ..JobView::waiting("a", 2, 6, 64, Micros::ZERO) }
    }

    #[test]
    fn a_job_grows_from_what_was_asked_for_to_a_few_times_what_was_tried() {
        let by_tried = [None, Some(0), Some(1), Some(6), Some(20), Some(u32::MAX)].map(|tried| most(&job(tried, 0), 4));
        assert_eq!(by_tried, [64, 6, 4, 24, 64, 64]);
        assert_eq!(most(&job(Some(0), 0), 0), 64, "without a bound");
        let speeds = Speeds::new([0, 1].map(|n| (GpuType(n), Curve::linear(64))));
        assert_eq!(most(&JobView { speeds, ..job(Some(0), 0) }, 4), 64, "on several types");
        assert_eq!(most(&job(Some(1), 0), 1), 2, "not below what it needs");
        assert_eq!([Some(0), Some(1)].map(|tried| most(&job(tried, 16), 4)), [16, 16], "no job shrinks for it");
    }

    #[test]
    fn the_next_decision_falls_when_the_size_was_measured() {
        let now = Micros::from_secs(1000);
        let ask = |job: JobView| measured(now, &[job], 4);
        assert_eq!(ask(job(Some(0), 6)), Some(Micros::from_secs(1090)));
        assert_eq!(ask(job(Some(1), 4)), Some(Micros::from_secs(1090)));
        assert_eq!(ask(job(Some(0), 0)), None, "it waits");
        assert_eq!(ask(job(Some(6), 6)), None, "it was measured");
        assert_eq!(ask(job(Some(16), 64)), None, "it cannot grow");
        assert_eq!(ask(job(None, 6)), None, "its speeds are known");
        assert_eq!(measured(now, &[job(Some(0), 6)], 0), None, "without a bound");
        // Where it is known since when the size is held, the time does not recede.
        let since = |secs| ask(JobView { changed: Some(Micros::from_secs(secs)), ..job(Some(0), 6) });
        let due = [950, 990, 910, 909, 879].map(|secs| since(secs).map(|due| due.0 / 1_000_000));
        assert_eq!(due, [1040, 1080, 1030, 1029, 1029].map(Some));
    }
}
