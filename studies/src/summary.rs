//! What is measured of a study: completion times, waits, use of the GPUs, fairness.
//!
//! Sums and percentiles are integers; floats appear only where a number is handed on to be printed or drawn. Tests: at the
//! end of this file.

use scheduler::{GpuType, Micros};

use super::input::{Workload, WorkloadJob};
use super::sim::{JobRecord, Sample, StudyOutcome};

/// Seconds as a float, for printing and drawing.
#[expect(clippy::cast_precision_loss, reason = "for display; exact up to 285 years")]
pub fn seconds(time: Micros) -> f64 {
    time.0 as f64 / 1e6
}

/// The quotient as a float, for printing and drawing; 0 when there is nothing to divide by.
#[expect(clippy::cast_precision_loss, reason = "for display")]
pub fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Figures of one study.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Jobs that ended.
    pub jobs: usize,
    /// Completion times (end minus submission): their sum, for an exact average.
    pub total_completion: Micros,
    /// Percentiles of the completion time, interpolated linearly between neighbours.
    pub completion: Percentiles,
    /// Time of the last job's end, counted from the trace's origin.
    pub makespan: Micros,
    /// GPU-microseconds held by jobs.
    pub held: u128,
    /// GPU-microseconds there were until the last end.
    pub offered: u128,
    /// Microseconds of work on one GPU that were done: useful work, independent of the GPUs held for it.
    pub useful: u128,
    /// Sum of waits until the first start.
    pub total_first_wait: Micros,
    /// Sum of all time without GPUs.
    pub total_queued: Micros,
    /// Changes of what a job held, first starts and ends not counted.
    pub changes: u64,
    /// Times everything was taken from a job.
    pub halts: u64,
    /// Starts and changes of size after a first start.
    pub restarts: u64,
    /// Largest finish-time fairness: completion time over what the job would have needed alone on its share of the
    /// cluster, the share being one part in as many as there were jobs on average while it was there.
    pub worst_fairness: f64,
    /// Decisions taken.
    pub decisions: u64,
}

/// Percentiles of a set of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Half are below.
    pub median: Micros,
    /// 90 %.
    pub p90: Micros,
    /// 95 %.
    pub p95: Micros,
    /// 99 %.
    pub p99: Micros,
    /// The largest.
    pub max: Micros,
}

impl Percentiles {
    /// Of the times, in any order.
    pub fn of(mut times: Vec<Micros>) -> Self {
        times.sort_unstable();
        let at = |percent: u64| {
            let last = u64::try_from(times.len()).unwrap_or(u64::MAX).saturating_sub(1);
            let rank = u128::from(percent) * u128::from(last);
            let (below, part) = (usize::try_from(rank / 100).unwrap_or(usize::MAX), rank % 100);
            let low = times.get(below).copied().unwrap_or_default();
            let high = times.get(below + 1).copied().unwrap_or(low);
            let step = u128::from(high.since(low).0) * part / 100;
            low.plus(Micros(u64::try_from(step).unwrap_or(u64::MAX)))
        };
        Self { median: at(50), p90: at(90), p95: at(95), p99: at(99), max: at(100) }
    }
}

impl Summary {
    /// Measures an outcome.
    pub fn of(workload: &Workload, outcome: &StudyOutcome) -> Self {
        let records = &outcome.jobs;
        let sum = |of: fn(&JobRecord) -> Micros| records.iter().map(of).fold(Micros::ZERO, Micros::plus);
        let count = |of: fn(&JobRecord) -> u32| records.iter().map(|r| u64::from(of(r))).sum();
        let makespan = records.iter().map(|r| r.finished).max().unwrap_or_default();
        let load = LoadSummary::of(&outcome.samples);
        let gpus = workload.cluster.gpus();
        let fairness = |r: &JobRecord| fairness(&workload.jobs[r.place], r, &load, gpus);
        Self {
            jobs: records.len(),
            total_completion: sum(JobRecord::completion),
            completion: Percentiles::of(records.iter().map(JobRecord::completion).collect()),
            makespan,
            held: records.iter().map(|r| u128::from(r.attained.0)).sum(),
            offered: u128::from(gpus) * u128::from(makespan.0),
            useful: records.iter().map(|r| u128::from(workload.jobs[r.place].work.serial().0)).sum(),
            total_first_wait: sum(JobRecord::first_wait),
            total_queued: sum(JobRecord::queued),
            changes: count(|r| r.changes),
            halts: count(|r| r.halts),
            restarts: count(|r| r.restarts),
            worst_fairness: records.iter().map(fairness).fold(0.0, f64::max),
            decisions: outcome.decisions,
        }
    }

    /// Average over the jobs, in seconds.
    fn mean(&self, total: Micros) -> f64 {
        ratio(u128::from(total.0), self.jobs as u128 * 1_000_000)
    }

    /// Average completion time in seconds.
    pub fn average_completion(&self) -> f64 {
        self.mean(self.total_completion)
    }

    /// Average wait until the first start, in seconds.
    pub fn average_first_wait(&self) -> f64 {
        self.mean(self.total_first_wait)
    }

    /// Average time without GPUs, in seconds.
    pub fn average_queued(&self) -> f64 {
        self.mean(self.total_queued)
    }

    /// Share of the GPU time there was that jobs held.
    pub fn utilisation(&self) -> f64 {
        ratio(self.held, self.offered)
    }

    /// Useful work per GPU time held: 1 when every GPU did what it would have done alone.
    pub fn efficiency(&self) -> f64 {
        ratio(self.useful, self.held)
    }
}

/// Number of jobs over time, integrated.
struct LoadSummary {
    /// From when, how many jobs, and job-microseconds before that.
    steps: Vec<(Micros, u64, u128)>,
}

impl LoadSummary {
    fn of(samples: &[Sample]) -> Self {
        let mut steps: Vec<(Micros, u64, u128)> = Vec::with_capacity(samples.len());
        for sample in samples {
            let area = steps.last().map_or(0, |&(from, jobs, area)| area + area_between(from, sample.at, jobs));
            steps.push((sample.at, u64::from(sample.waiting) + u64::from(sample.running), area));
        }
        Self { steps }
    }

    fn area_until(&self, at: Micros) -> u128 {
        let after = self.steps.partition_point(|&(from, ..)| from <= at);
        let step = after.checked_sub(1).and_then(|i| self.steps.get(i));
        step.map_or(0, |&(from, jobs, area)| area + area_between(from, at, jobs))
    }

    /// Average number of jobs in a span, at least 1, in thousandths.
    fn average_milli(&self, from: Micros, to: Micros) -> u64 {
        let area = self.area_until(to) - self.area_until(from);
        let average = area.saturating_mul(1000) / u128::from(to.since(from).0).max(1);
        u64::try_from(average).unwrap_or(u64::MAX).max(1000)
    }
}

fn area_between(from: Micros, to: Micros, jobs: u64) -> u128 {
    u128::from(to.since(from).0) * u128::from(jobs)
}

/// Completion time over the time alone on an equal share of the cluster. A share below the job's minimum counts as that
/// fraction of the time on the minimum; above, the fastest size within the share and the job's range.
fn fairness(job: &WorkloadJob, record: &JobRecord, load: &LoadSummary, gpus: u32) -> f64 {
    let load_milli = load.average_milli(record.submitted, record.finished);
    let share = u32::try_from(u64::from(gpus) * 1000 / load_milli).unwrap_or(u32::MAX);
    let home = job.speeds.home().map_or_else(GpuType::default, |(gpu_type, _)| *gpu_type);
    let alone = if share >= job.min {
        let sizes = job.min..=share.min(job.max);
        sizes.map(|size| job.work.time_at(job.speed(home, size))).min().map_or(0.0, seconds)
    } else {
        let share = ratio(u128::from(gpus) * 1000, u128::from(load_milli));
        seconds(job.work.time_at(job.speed(home, job.min))) * f64::from(job.min) / share
    };
    if alone > 0.0 { seconds(record.completion()) / alone } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(values: &[u64]) -> Vec<Micros> {
        values.iter().map(|&s| Micros::from_secs(s)).collect()
    }

    #[test]
    fn percentiles_are_interpolated() {
        let p = Percentiles::of(secs(&[40, 10, 20, 30]));
        assert_eq!((p.median, p.max), (Micros::from_secs(25), Micros::from_secs(40)));
        assert_eq!(p.p90, Micros::from_secs(37));
        let one = Percentiles::of(secs(&[7]));
        assert_eq!((one.median, one.p99), (Micros::from_secs(7), Micros::from_secs(7)));
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn the_load_is_averaged_over_a_span() {
        let sample = |at, waiting, running| Sample { at: Micros::from_secs(at), waiting, running, gpus: 0 };
        let load = LoadSummary::of(&[sample(10, 0, 1), sample(20, 1, 2), sample(30, 0, 0)]);
        let average = |from, to| load.average_milli(Micros::from_secs(from), Micros::from_secs(to));
        assert_eq!((average(10, 20), average(10, 30), average(15, 25)), (1000, 2000, 2000));
        assert_eq!(average(30, 40), 1000, "never less than the job itself");
    }
}
