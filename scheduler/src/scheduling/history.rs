//! Keeps what is known of all jobs between decisions: memory of the policies, speeds by kind, start costs, errors.
//!
//! The caller owns the value and stores it. Facts change it here ([`History::record_report`], [`History::record_start`],
//! [`History::record_end`]); decisions do not. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::learning::{Errors, Measured, Report};
use crate::memory::{Memory, MemoryChange};
use crate::scheduling::estimate::{SpeedEstimate, SpeedSamples};
use crate::units::Micros;

/// Knowledge kept between decisions. An empty one is right for a first decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Memory of the policies.
    pub memory: Memory,
    /// Measured speeds by kind of job.
    kinds: BTreeMap<Text, Measured>,
    /// Measured cost of a start by kind of job.
    started: BTreeMap<Text, Micros>,
    /// Errors of estimates of work, of jobs that have ended.
    errors: Errors,
}

impl History {
    /// Adds a progress report of a job to the measurements of its kind.
    pub fn record_report(&mut self, kind: &Text, report: Report, samples: &mut SpeedSamples) {
        let measured = self.kinds.entry(kind.clone()).or_default();
        samples.progress.record(report, measured);
        samples.correct_total();
    }

    /// Adds the cost of a start of a job to the average of its kind. Later starts count a quarter each.
    pub fn record_start(&mut self, kind: &Text, cost: Micros) {
        let known = self.started.entry(kind.clone()).or_insert(cost);
        *known = Micros(known.times(3).plus(cost).0 / 4);
    }

    /// Removes the marks of a job that ended. `work`: its estimated and its actual work, where there was an
    /// estimate.
    pub fn record_end(&mut self, job: &Text, work: Option<(u64, u64)>) {
        self.memory.queues.remove(job);
        self.memory.leases.remove(job);
        if let Some((estimated, actual)) = work {
            self.errors.record(estimated, actual);
        }
    }

    /// Returns the speed estimate of a job of this kind.
    pub fn estimate(&self, kind: &Text, samples: &SpeedSamples) -> SpeedEstimate {
        let nothing = Measured::default();
        let measured = self.kinds.get(kind).unwrap_or(&nothing);
        samples.estimate(measured, self.started.get(kind).copied())
    }

    /// Applies the change of memory that a decision came with.
    pub fn apply(&mut self, change: &MemoryChange) {
        self.memory.apply(change);
    }

    /// Returns the usual error of an estimate of work: see [`crate::JobView::doubt`].
    pub fn doubt(&self) -> u32 {
        self.errors.doubt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::Prior;
    use crate::memory::{Lease, QueueMark};
    use crate::units::GpuType;

    #[test]
    fn a_report_is_a_sample_of_its_kind_and_corrects_the_estimate() {
        let mut history = History::default();
        let prior = || Prior::default().speeds(&[GpuType(0)], 4);
        let mut first = SpeedSamples::new(prior(), Some(10));
        let report = Report { gpu_type: GpuType(0), gpus: 1, units: 12, took: Micros::from_secs(24) };
        history.record_report(&"m".into(), report, &mut first);
        assert_eq!(first.progress.total, Some(20));
        let next = history.estimate(&"m".into(), &SpeedSamples::new(prior(), Some(5)));
        assert_eq!((next.remaining, next.tried), (Some(Micros::from_secs(10)), Some(1)));
        let other = history.estimate(&"n".into(), &SpeedSamples::new(prior(), Some(5)));
        assert_eq!((other.remaining, other.tried), (None, Some(0)));
    }

    #[test]
    fn start_costs_are_averaged() {
        let mut history = History::default();
        let cost = |history: &History| {
            history.estimate(&"m".into(), &SpeedSamples::new(Prior::default().speeds(&[], 1), None))
        };
        history.record_start(&"m".into(), Micros(100));
        assert_eq!(cost(&history).restart_cost, Micros(100));
        history.record_start(&"m".into(), Micros(100));
        assert_eq!(cost(&history).restart_cost, Micros(100), "an equal cost changes nothing");
        history.record_start(&"m".into(), Micros(180));
        assert_eq!(cost(&history).restart_cost, Micros(120));
    }

    #[test]
    fn a_job_that_ended_leaves_no_marks() {
        let mut history = History::default();
        history.memory.queues.insert("a".into(), QueueMark::default());
        history.memory.leases.insert("a".into(), Lease::default());
        history.record_end(&"a".into(), Some((100, 400)));
        assert_eq!(history.memory, Memory::default());
        assert!(history.doubt() > History::default().doubt());
    }
}
