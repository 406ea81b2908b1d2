//! Tiresias as the Pollux artifact's simulator plays it: two queues in order of arrival, decided in rounds.
//!
//! A job whose GPUs times time held reaches the threshold goes to the end of the second queue, for good. Each queue is
//! gone through in order, and what does not fit is skipped, so an earlier arrival takes back what a later one was given.
//! Memory: `level` is the queue, `promoted` when it was entered.

use scheduler::memory::QueueMark;
use scheduler::{GpuMicros, Grant, JobView, Memory, Micros, Policy, Round};

use super::give_in_order;

/// The policy.
#[derive(Debug, Clone)]
pub struct PolluxTiresias {
    /// Service from which on a job is in the second queue.
    pub threshold: GpuMicros,
}

impl Default for PolluxTiresias {
    /// 16 GPU-hours, as published.
    fn default() -> Self {
        Self { threshold: GpuMicros::from_gpu_secs(16 * 3600) }
    }
}

impl Policy for PolluxTiresias {
    fn name(&self) -> &'static str {
        "tiresias-pollux"
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn review(&self, now: Micros, jobs: &[JobView], memory: &mut Memory) -> bool {
        let before = memory.queues.len();
        let over = jobs.iter().filter(|job| job.is_running() && job.attained >= self.threshold);
        for job in over {
            let fallen = QueueMark { level: 1, promoted: now, ..QueueMark::default() };
            memory.queues.entry(job.id.clone()).or_insert(fallen);
        }
        memory.queues.len() > before
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        let first = jobs.iter().filter(|job| job.is_running() && !memory.queues.contains_key(&job.id));
        let due =
            |job: &JobView| now.plus(Micros(self.threshold.beyond(job.attained).0.div_ceil(job.held.gpus.into())));
        first.map(due).min()
    }

    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant> {
        let mut order: Vec<usize> = (0..round.jobs.len()).collect();
        order.sort_by_key(|&place| memory.queues.get(&round.jobs[place].id).map(|mark| (mark.level, mark.promoted)));
        give_in_order(round, &order, |_, _| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{GpuType, PolicyInput, allocate};

    #[test]
    fn a_job_over_the_threshold_goes_behind() {
        let policy = PolluxTiresias { threshold: GpuMicros::from_gpu_secs(100) };
        let mut memory = Memory::default();
        let held = Grant::of(GpuType(0), 2);
        let mut jobs = [
            JobView { held, ..JobView::waiting("a", 2, 2, 2, Micros::ZERO) },
            JobView::waiting("b", 2, 2, 2, Micros::ZERO),
        ];
        assert_eq!(policy.wake(Micros::ZERO, &jobs, &memory), Some(Micros::from_secs(50)));
        let mut shares = |jobs: &[JobView]| {
            policy.review(Micros::from_secs(60), jobs, &mut memory);
            let input = PolicyInput { now: Micros::from_secs(60), capacity: &[(GpuType(0), 3)], jobs };
            allocate(&policy, input, &mut memory).unwrap().grants.iter().map(|g| g.gpus).collect::<Vec<_>>()
        };
        assert_eq!(shares(&jobs), [2, 0]);
        jobs[0].attained = GpuMicros::from_gpu_secs(120);
        assert_eq!(shares(&jobs), [0, 2]);
    }
}
