//! Rigid orders that give a job what is left when its size does not fit.
//!
//! As in the variants of the AFS authors' simulator (`fifo_relaxed` and the like) that the reference results call `-shrink`: in
//! order, each job gets the smaller of what it asks for and what is free. Never more than it asks for.

use scheduler::{Grant, JobView, Memory, Micros, Policy, Round};

/// Order of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShrinkOrder {
    /// Earliest submission first.
    Submitted,
    /// Least time left at the size asked for, times that size, first.
    Srsf,
}

/// The policy.
#[derive(Debug, Clone, Copy)]
pub struct Shrink {
    /// The order.
    pub order: ShrinkOrder,
}

/// Time left at the size asked for, times that size; unknown work last. As a fraction: work x size / speed.
fn service_left(job: &JobView) -> u128 {
    let speed = job.speeds.home().map_or(0, |(_, curve)| curve.at(job.num).0).max(1);
    let work = u128::from(job.remaining.unwrap_or(Micros::MAX).0);
    work * u128::from(job.num) * 1_000_000_000 / u128::from(speed)
}

impl Policy for Shrink {
    fn name(&self) -> &'static str {
        match self.order {
            ShrinkOrder::Submitted => "fifo-shrink",
            ShrinkOrder::Srsf => "srsf-shrink",
        }
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let mut order: Vec<usize> = (0..pool.jobs.len()).collect();
            if self.order == ShrinkOrder::Srsf {
                order.sort_by_cached_key(|&i| service_left(pool.jobs[i].job));
            }
            let (mut free, mut given) = (pool.gpus, vec![0; pool.jobs.len()]);
            for i in order {
                let job = pool.jobs[i].job;
                let share = Some(job.num.min(free)).filter(|&n| n >= job.min).unwrap_or(0);
                given[i] = share;
                free -= share;
            }
            given
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{GpuType, PolicyInput, allocate};

    #[test]
    fn the_rest_goes_to_the_first_that_does_not_fit() {
        let job = |id: &str, num, at, left| JobView {
            remaining: Some(Micros::from_secs(left)),
            ..JobView::waiting(id, 1, num, num, Micros::from_secs(at))
        };
        let jobs = [job("a", 6, 0, 600), job("b", 8, 1, 80), job("c", 1, 2, 5)];
        let shares = |order| {
            let input = PolicyInput { now: Micros::ZERO, capacity: &[(GpuType(0), 10)], jobs: &jobs };
            let allocation = allocate(&Shrink { order }, input, &mut Memory::default()).unwrap();
            allocation.grants.iter().map(|g| g.gpus).collect::<Vec<_>>()
        };
        assert_eq!(shares(ShrinkOrder::Submitted), [6, 4, 0]);
        assert_eq!(shares(ShrinkOrder::Srsf), [1, 8, 1]);
    }
}
