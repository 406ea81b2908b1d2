//! Estimates the speeds and the remaining time of one job from its progress reports.
//!
//! [`crate::learning`] does the arithmetic. This file owns the rules around it: an estimate that the job outlives is
//! doubled, and a start costs [`RESTART_PRIOR`] until one was measured. [`super::History::record_report`] adds reports.
//! Tests: at the end of this file, and in `studies`.

use serde::{Deserialize, Serialize};

use crate::job::{JobView, Speeds};
use crate::learning::{Measured, MeasuredProgress};
use crate::units::Micros;

/// Assumed cost of a restart until one was measured: 60 s.
pub const RESTART_PRIOR: Micros = Micros::from_secs(60);

/// Speed samples of one job, and what was assumed of it before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeedSamples {
    /// Its progress and its own measurements.
    pub progress: MeasuredProgress,
    /// Units of work estimated at submission; `None`: not known.
    pub expected: Option<u64>,
    /// Speeds assumed before anything is measured, home type first.
    pub prior: Speeds,
}

impl SpeedSamples {
    /// Returns the samples of a job just submitted: none, with `expected` units of work, and speeds as `prior` has them.
    pub fn new(prior: Speeds, expected: Option<u64>) -> Self {
        Self { progress: MeasuredProgress { total: expected, ..MeasuredProgress::default() }, expected, prior }
    }

    /// Doubles the estimate of the work until it exceeds the work done.
    pub fn correct_total(&mut self) {
        if let Some(total) = self.progress.total.filter(|&total| total <= self.progress.done) {
            let total = outlived(total.into(), self.progress.done.into());
            self.progress.total = Some(u64::try_from(total).unwrap_or(u64::MAX));
        }
    }

    /// Returns the estimate for decisions, from these samples and those of its kind.
    pub fn estimate(&self, kind: &Measured, restart_cost: Option<Micros>) -> SpeedEstimate {
        let (estimate, remaining) = self.progress.estimate(self.prior.clone(), kind);
        SpeedEstimate {
            expected: self.expected.and_then(|units| estimate.time_for(units)),
            done: estimate.time_for(self.progress.done).unwrap_or_default(),
            speeds: estimate.speeds,
            remaining,
            tried: Some(kind.largest()),
            restart_cost: restart_cost.unwrap_or(RESTART_PRIOR),
        }
    }
}

/// Estimates of one job for decisions. They change with reports only, so a caller may keep them between decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeedEstimate {
    /// Speeds by type, home first.
    pub speeds: Speeds,
    /// Time left at the reference speed; `None`: not known.
    pub remaining: Option<Micros>,
    /// All its work as estimated at submission.
    pub expected: Option<Micros>,
    /// Work done of that.
    pub done: Micros,
    /// The most GPUs that its kind was measured on; `None`: all speeds are known.
    pub tried: Option<u32>,
    /// Time without progress that a start or a change of size costs.
    pub restart_cost: Micros,
}

impl SpeedEstimate {
    /// Writes the estimates into a view.
    pub fn write(self, view: &mut JobView) {
        view.expected = self.expected;
        view.done = self.done;
        view.speeds = self.speeds;
        view.remaining = self.remaining;
        view.tried = self.tried;
        view.restart_cost = self.restart_cost;
    }
}

/// Returns an estimate of all work that exceeds the work done: the first estimate, doubled as often as needed.
pub fn outlived(estimate: u128, done: u128) -> u128 {
    let mut corrected = estimate.max(1);
    while corrected <= done && corrected < u128::MAX {
        corrected = corrected.saturating_mul(2);
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::Prior;
    use crate::units::GpuType;

    #[test]
    fn an_estimate_is_doubled_until_it_exceeds_the_work_done() {
        assert_eq!([0, 9, 10, 19, 20, 25].map(|done| outlived(10, done)), [10, 10, 20, 20, 40, 40]);
        assert_eq!((outlived(0, 0), outlived(0, 5), outlived(7, u128::MAX)), (1, 8, u128::MAX));
    }

    #[test]
    fn a_job_without_measurements_follows_its_prior() {
        let samples = SpeedSamples::new(Prior::default().speeds(&[GpuType(0)], 8), Some(100));
        let estimate = samples.estimate(&Measured::default(), None);
        assert_eq!((estimate.remaining, estimate.restart_cost, estimate.tried), (None, RESTART_PRIOR, Some(0)));
        assert_eq!(estimate.speeds, samples.prior);
    }
}
