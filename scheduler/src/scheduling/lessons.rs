//! Knowledge of one job: its progress as it was reported, and the estimates that follow from it.
//!
//! [`crate::learning`] does the estimating; this file owns the rules around it: an estimate that the job outlives is
//! doubled, and a start costs [`RESTART_PRIOR`] until one was seen. Reports are taken in by [`super::Ledger::hear`].
//! Tests: at the end of this file, and in `studies`.

use serde::{Deserialize, Serialize};

use crate::job::{JobView, Speeds};
use crate::learning::{Measured, Progress};
use crate::units::Micros;

/// Assumed cost of a restart until one was measured: 60 s.
pub const RESTART_PRIOR: Micros = Micros::from_secs(60);

/// Learnt values of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lessons {
    /// Its progress and its own measurements.
    pub progress: Progress,
    /// Units of work it was believed to have when it was submitted; `None`: not known.
    pub expected: Option<u64>,
    /// Speeds assumed before anything is measured, home type first.
    pub prior: Speeds,
}

impl Lessons {
    /// Returns the knowledge of a job just submitted: `expected` units of work, and speeds as `prior` has them.
    pub fn new(prior: Speeds, expected: Option<u64>) -> Self {
        Self { progress: Progress { total: expected, ..Progress::default() }, expected, prior }
    }

    /// Doubles the estimate of the work until it exceeds the work done.
    pub fn correct_total(&mut self) {
        if let Some(total) = self.progress.total.filter(|&total| total <= self.progress.done) {
            let total = outlived(total.into(), self.progress.done.into());
            self.progress.total = Some(u64::try_from(total).unwrap_or(u64::MAX));
        }
    }

    /// Returns what follows for decisions, given what its kind taught.
    pub fn belief(&self, kind: &Measured, restart_cost: Option<Micros>) -> Belief {
        let (estimate, remaining) = self.progress.estimate(self.prior.clone(), kind);
        Belief {
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
pub struct Belief {
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

impl Belief {
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
    let mut believed = estimate.max(1);
    while believed <= done && believed < u128::MAX {
        believed = believed.saturating_mul(2);
    }
    believed
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
        let lessons = Lessons::new(Prior::default().speeds(&[GpuType(0)], 8), Some(100));
        let belief = lessons.belief(&Measured::default(), None);
        assert_eq!((belief.remaining, belief.restart_cost, belief.tried), (None, RESTART_PRIOR, Some(0)));
        assert_eq!(belief.speeds, lessons.prior);
    }
}
