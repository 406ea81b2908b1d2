//! Knowledge of all jobs that is kept between decisions: memory of the policy, speeds by kind, start costs, errors.
//!
//! The caller owns the value and stores it. Facts change it here ([`Ledger::hear`], [`Ledger::started`],
//! [`Ledger::ended`]); decisions do not. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::learning::{Errors, Measured, Report};
use crate::memory::{Memory, MemoryChange};
use crate::scheduling::lessons::{Belief, Lessons};
use crate::units::Micros;

/// Knowledge kept between decisions. An empty one is right for a first decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Memory of the policies.
    pub memory: Memory,
    /// Measured speeds by kind of job.
    kinds: BTreeMap<Text, Measured>,
    /// Measured cost of a start by kind of job.
    started: BTreeMap<Text, Micros>,
    /// Errors of estimates of work, of jobs that have ended.
    errors: Errors,
}

impl Ledger {
    /// Takes in a progress report of a job of this kind.
    pub fn hear(&mut self, kind: &Text, report: Report, lessons: &mut Lessons) {
        let measured = self.kinds.entry(kind.clone()).or_default();
        lessons.progress.record(report, measured);
        lessons.correct_total();
    }

    /// Takes in that a start of a job of this kind took `cost`. Later starts count a quarter each.
    pub fn started(&mut self, kind: &Text, cost: Micros) {
        let known = self.started.entry(kind.clone()).or_insert(cost);
        *known = Micros(known.times(3).plus(cost).0 / 4);
    }

    /// Takes in the end of a job, with its estimated and its actual work where there was an estimate. Its marks are
    /// forgotten.
    pub fn ended(&mut self, job: &Text, work: Option<(u64, u64)>) {
        self.memory.queues.remove(job);
        self.memory.leases.remove(job);
        if let Some((estimated, actual)) = work {
            self.errors.record(estimated, actual);
        }
    }

    /// Returns what decisions may know of a job of this kind.
    pub fn belief(&self, kind: &Text, lessons: &Lessons) -> Belief {
        let nothing = Measured::default();
        let measured = self.kinds.get(kind).unwrap_or(&nothing);
        lessons.belief(measured, self.started.get(kind).copied())
    }

    /// Makes the change of memory that a decision came with.
    pub fn apply(&mut self, change: &MemoryChange) {
        self.memory.apply(change);
    }

    /// Usual error of an estimate of work: see [`crate::JobView::doubt`].
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
    fn a_report_teaches_the_kind_and_corrects_the_estimate() {
        let mut ledger = Ledger::default();
        let prior = || Prior::default().speeds(&[GpuType(0)], 4);
        let mut first = Lessons::new(prior(), Some(10));
        let report = Report { gpu_type: GpuType(0), gpus: 1, units: 12, took: Micros::from_secs(24) };
        ledger.hear(&"m".into(), report, &mut first);
        assert_eq!(first.progress.total, Some(20));
        let next = ledger.belief(&"m".into(), &Lessons::new(prior(), Some(5)));
        assert_eq!((next.remaining, next.tried), (Some(Micros::from_secs(10)), Some(1)));
        let other = ledger.belief(&"n".into(), &Lessons::new(prior(), Some(5)));
        assert_eq!((other.remaining, other.tried), (None, Some(0)));
    }

    #[test]
    fn start_costs_are_averaged() {
        let mut ledger = Ledger::default();
        let cost = |ledger: &Ledger| ledger.belief(&"m".into(), &Lessons::new(Prior::default().speeds(&[], 1), None));
        ledger.started(&"m".into(), Micros(100));
        assert_eq!(cost(&ledger).restart_cost, Micros(100));
        ledger.started(&"m".into(), Micros(100));
        assert_eq!(cost(&ledger).restart_cost, Micros(100), "an equal cost changes nothing");
        ledger.started(&"m".into(), Micros(180));
        assert_eq!(cost(&ledger).restart_cost, Micros(120));
    }

    #[test]
    fn a_job_that_ended_leaves_no_marks() {
        let mut ledger = Ledger::default();
        ledger.memory.queues.insert("a".into(), QueueMark::default());
        ledger.memory.leases.insert("a".into(), Lease::default());
        ledger.ended(&"a".into(), Some((100, 400)));
        assert_eq!(ledger.memory, Memory::default());
        assert!(ledger.doubt() > Ledger::default().doubt());
    }
}
