//! Series over time, averaged over bins, so that a plot's size does not grow with the trace.
//!
//! Floats: for drawing only. Tests: at the end of this file.

use scheduler::Micros;

use crate::sim::{Sample, SizeChange};
use crate::summary::{ratio, seconds};

/// A span of time, cut into equal bins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bins {
    from: Micros,
    width: Micros,
    pub(super) count: usize,
}

impl Bins {
    pub(super) fn new(from: Micros, to: Micros, count: usize) -> Self {
        let width = Micros(to.since(from).0.div_ceil(count.max(1) as u64).max(1));
        Self { from, width, count: count.max(1) }
    }

    /// Middle of a bin in hours since the origin of time.
    pub(super) fn middle_hours(&self, bin: usize) -> f64 {
        let at = self.from.plus(self.width.times(bin as u64)).plus(Micros(self.width.0 / 2));
        seconds(at) / 3600.0
    }

    fn of(&self, at: Micros) -> usize {
        usize::try_from(at.since(self.from).0 / self.width.0).unwrap_or(usize::MAX).min(self.count - 1)
    }

    /// Adds `value` from one time to another to the sums of the bins.
    fn add(&self, sums: &mut [u128], from: Micros, to: Micros, value: u32) {
        if value == 0 || to <= from {
            return;
        }
        let (first, last) = (self.of(from), self.of(Micros(to.0 - 1)));
        for (bin, sum) in sums.iter_mut().enumerate().take(last + 1).skip(first) {
            let start = self.from.plus(self.width.times(bin as u64));
            let covered = to.min(start.plus(self.width)).since(from.max(start));
            *sum += u128::from(covered.0) * u128::from(value);
        }
    }

    fn averages(&self, sums: &[u128]) -> Vec<f64> {
        sums.iter().map(|&sum| ratio(sum, u128::from(self.width.0))).collect()
    }

    /// Time-weighted average of a value of the samples, per bin.
    pub(super) fn of_samples(&self, samples: &[Sample], value: impl Fn(&Sample) -> u32) -> Vec<f64> {
        let mut sums = vec![0; self.count];
        for pair in samples.windows(2) {
            self.add(&mut sums, pair[0].at, pair[1].at, value(&pair[0]));
        }
        self.averages(&sums)
    }

    /// Average GPUs of one job per bin.
    pub(super) fn of_job(&self, changes: &[SizeChange], job: usize) -> Vec<f64> {
        let mut sums = vec![0; self.count];
        let mut last: Option<&SizeChange> = None;
        for change in changes.iter().filter(|c| c.job == job) {
            if let Some(last) = last {
                self.add(&mut sums, last.at, change.at, last.grant.gpus);
            }
            last = Some(change);
        }
        self.averages(&sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{GpuType, Grant};

    #[test]
    fn averages_are_weighted_by_time() {
        let bins = Bins::new(Micros(0), Micros(40), 4);
        let sample = |at, gpus| Sample { at: Micros(at), waiting: 0, running: 0, gpus };
        let samples = [sample(0, 4), sample(5, 2), sample(25, 8), sample(40, 0)];
        assert_eq!(bins.of_samples(&samples, |s| s.gpus), [3.0, 2.0, 5.0, 8.0]);
    }

    #[test]
    fn a_job_is_followed_through_its_changes() {
        let bins = Bins::new(Micros(0), Micros(20), 2);
        let change = |at, job, gpus| SizeChange { at: Micros(at), job, grant: Grant::of(GpuType(0), gpus) };
        let changes = [change(0, 1, 2), change(5, 0, 9), change(10, 1, 4), change(15, 1, 0)];
        assert_eq!(bins.of_job(&changes, 1), [2.0, 2.0]);
    }
}
