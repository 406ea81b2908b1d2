//! Reports progress as an operator would get it: whole units of work, and how long they took.
//!
//! Owns turning exact progress into reports; [`scheduler::scheduling`] adds them to samples and makes the estimates. A unit of work is
//! one second on one reference GPU, standing for some number of steps; how long it takes is not known. Tests: at the end
//! of this file.

use scheduler::learning::{Prior, Report};
use scheduler::scheduling::{History, SpeedSamples};
use scheduler::{GpuType, JobView, Micros, Speed};

use super::live::Live;
use crate::input::{Cluster, Work, WorkloadJob};

/// Work of one unit: a second at the reference speed.
const UNIT: Work = Work(Speed::ONE.0 as u128 * 1_000_000);
/// GPUs of a node where the cluster does not say.
const NODE: u32 = 8;

/// Makes reports and estimates of jobs.
#[derive(Debug)]
pub(super) struct Estimator {
    prior: Prior,
    /// True cost of a start, which is known once a job reports.
    restart_cost: Micros,
}

/// Speed samples of one job, and the work that it has reported.
#[derive(Debug, Clone)]
pub(super) struct JobEstimate {
    samples: SpeedSamples,
    /// Work done that has been reported.
    reported: Work,
}

impl Estimator {
    pub(super) fn new(cluster: &Cluster, restart_cost: Micros) -> Self {
        let node = cluster.pools.iter().filter_map(|pool| pool.per_node).max().unwrap_or(NODE);
        Self { prior: Prior { node, ..Prior::default() }, restart_cost }
    }

    /// Returns the estimate of a job just submitted, with `estimate` as its assumed work.
    pub(super) fn start(&self, job: &WorkloadJob, estimate: Option<Work>) -> JobEstimate {
        let types: Vec<GpuType> = job.speeds.iter().map(|(gpu_type, _)| *gpu_type).collect();
        let prior = self.prior.speeds(&types, job.max.max(job.requested));
        JobEstimate { samples: SpeedSamples::new(prior, estimate.map(units)), reported: Work(0) }
    }

    /// Reports the work that a running job has done since its last report. Call it before its GPUs change.
    pub(super) fn report(&self, job: &WorkloadJob, live: &Live, estimate: &mut JobEstimate, history: &mut History) {
        let done = job.work.minus(live.left);
        let new = units(done.minus(estimate.reported));
        if live.held.is_none() || new == 0 {
            return;
        }
        let work = Work(UNIT.0 * u128::from(new));
        estimate.reported = Work(estimate.reported.0 + work.0);
        let (gpu_type, gpus) = (live.held.gpu_type, live.held.gpus);
        let report = Report { gpu_type, gpus, units: new, took: work.time_at(live.speed) };
        history.record_report(&job.category, report, &mut estimate.samples);
        // One that reports has started.
        history.record_start(&job.category, self.restart_cost);
    }
}

impl JobEstimate {
    /// Writes the estimates of a job into its view for decisions.
    pub(super) fn update_view(&self, job: &WorkloadJob, history: &History, view: &mut JobView) {
        history.estimate(&job.category, &self.samples).write(view);
    }
}

/// Returns the whole units in some work.
fn units(work: Work) -> u64 {
    u64::try_from(work.0 / UNIT.0).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{OnBadRow, Profile, Trace, Workload};
    use scheduler::Grant;

    fn workload() -> Workload {
        let rows = "a,0,4,100,1,8,m,8\nb,0,4,100,1,8,m,8\nc,0,4,100,1,8,n,8\n";
        let text = format!("job_id,submit_time_s,gpus_requested,duration_s,min_gpus,max_gpus,model,batch_size\n{rows}");
        let trace = Trace::read("t.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
        let curve = |m: &str| format!("{m},8,1,1\n{m},8,4,2\n{m},8,8,3\n");
        let text = format!("model,batch_size,gpus,speedup\n{}{}", curve("m"), curve("n"));
        let profile = Profile::read("p.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
        Workload::join(trace, Some(&profile), Cluster::parse("4x4").unwrap(), OnBadRow::Refuse).unwrap()
    }

    #[test]
    fn samples_of_one_job_are_estimates_of_the_next_of_its_kind_only() {
        let workload = workload();
        let [a, b, c] = &workload.jobs[..] else { panic!("three jobs") };
        let (estimator, mut history) = (Estimator::new(&workload.cluster, Micros::from_secs(30)), History::default());
        let mut estimate = estimator.start(a, Some(a.work));
        let view = |history: &History, job: &WorkloadJob, estimate: &JobEstimate| {
            let mut view = JobView::waiting("x", 1, 4, 8, Micros::ZERO);
            estimate.update_view(job, history, &mut view);
            view
        };
        // In thousandths, rounded: estimates go through times per unit.
        let milli = |view: &JobView, gpus| (view.speeds.home().unwrap().1.at(gpus).0 + 500_000) / 1_000_000;
        let first = view(&history, a, &estimate);
        assert_eq!((milli(&first, 4), milli(&first, 8)), (4000, 6800), "linear up to a node, less beyond");
        assert_eq!((first.remaining, first.restart_cost, first.tried), (None, Micros::from_secs(60), Some(0)));
        // It runs on 1 and then on 4 GPUs.
        let mut live = Live::new(a.work, Micros::ZERO);
        for (gpus, until) in [(1, 50), (4, 100)] {
            live.hold(Grant::of(GpuType(0), gpus), a.speed(GpuType(0), gpus), live.counted, Micros::ZERO);
            live.advance(Micros::from_secs(until));
            estimator.report(a, &live, &mut estimate, &mut history);
        }
        let own = view(&history, a, &estimate);
        assert_eq!(milli(&own, 4), 2000);
        assert_eq!(own.remaining, Some(Micros::from_secs(50)));
        let like = view(&history, b, &estimator.start(b, Some(b.work)));
        assert_eq!((milli(&like, 4), like.tried), (2000, Some(4)));
        assert_eq!((like.remaining, like.restart_cost), (Some(Micros::from_secs(200)), Micros::from_secs(30)));
        let other = view(&history, c, &estimator.start(c, Some(c.work)));
        assert_eq!((other.remaining, other.tried), (None, Some(0)));
    }

    #[test]
    fn an_estimate_that_was_outlived_is_doubled() {
        let workload = workload();
        let a = &workload.jobs[0];
        let (estimator, mut history) = (Estimator::new(&workload.cluster, Micros::ZERO), History::default());
        let mut estimate = estimator.start(a, Some(Work(UNIT.0 * 10)));
        let mut live = Live::new(a.work, Micros::ZERO);
        live.hold(Grant::of(GpuType(0), 1), Speed::ONE, Micros::ZERO, Micros::ZERO);
        live.advance(Micros::from_secs(25));
        estimator.report(a, &live, &mut estimate, &mut history);
        assert_eq!(estimate.samples.progress.left(), Some(15));
    }
}
