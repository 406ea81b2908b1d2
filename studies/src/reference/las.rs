//! Two-queue least attained service as the AFS authors' simulator plays it (`tiresias_las` without starvation knob).
//!
//! A job that has held its GPUs for the threshold since its last start falls behind all that have not; halted and started
//! again it counts from zero. In each queue the earliest first start goes first. The check is made once the threshold is
//! reached, or up to a second late when it does not divide by the size. Memory: the level says that a job was put back, the
//! lease when to look again.

use scheduler::{Grant, JobView, Memory, Micros, Policy, Round};

use super::give_in_order;

/// The policy.
#[derive(Debug, Clone)]
pub struct Las {
    name: String,
    /// Threshold in seconds of one GPU.
    threshold: u64,
}

impl Las {
    /// With a threshold in GPU-hours.
    pub fn of_gpu_hours(hours: u64) -> Self {
        Self { name: format!("tiresias-las-{hours}h"), threshold: hours * 3600 }
    }

    fn is_over(&self, job: &JobView, now: Micros) -> bool {
        let held = u128::from(now.since(job.since).0) * u128::from(job.held.gpus);
        job.is_running() && held >= u128::from(self.threshold) * 1_000_000
    }

    /// From a start to the look at its threshold: `(threshold + size - 1) / size` seconds.
    fn span(&self, num: u32) -> Micros {
        let size = u64::from(num);
        Micros(((self.threshold + size - 1) * 1_000_000).div_ceil(size))
    }
}

impl Policy for Las {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        let ends = jobs.iter().filter_map(|job| memory.leases.get(&job.id)).map(|lease| lease.until);
        ends.filter(|&until| until > now).min()
    }

    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant> {
        let mut keys = Vec::with_capacity(round.jobs.len());
        for job in &round.jobs {
            let mark = memory.queues.entry(job.id.clone()).or_default();
            mark.level = u32::from(mark.level > 0 || self.is_over(job, round.now));
            keys.push((mark.level, job.first_start.unwrap_or(Micros::MAX)));
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&place| keys[place]); // stable: submission breaks ties
        give_in_order(round, &order, |place, starts| {
            let job = round.jobs[place];
            let lease = memory.leases.entry(job.id.clone()).or_default();
            if !starts {
                lease.until = Micros::ZERO;
                return;
            }
            if !job.is_running() || lease.until <= round.now {
                lease.until = round.now.plus(self.span(job.num));
            }
            memory.queues.entry(job.id.clone()).or_default().level = 0;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{GpuType, PolicyInput, allocate};

    #[test]
    fn a_job_over_the_threshold_gives_way_and_then_starts_from_nothing() {
        let policy = Las::of_gpu_hours(1);
        let mut memory = Memory::default();
        let mut jobs = [JobView::waiting("a", 3, 3, 3, Micros::ZERO), JobView::waiting("b", 2, 2, 2, Micros(1))];
        let mut decide = |now, jobs: &mut [JobView; 2]| {
            let input = PolicyInput { now, capacity: &[(GpuType(0), 4)], jobs: &*jobs };
            let grants = allocate(&policy, input, &mut memory).unwrap().grants;
            for (job, grant) in jobs.iter_mut().zip(grants) {
                if job.held.is_none() != grant.is_none() {
                    job.since = now;
                }
                if !grant.is_none() {
                    job.first_start = job.first_start.or(Some(now));
                }
                job.held = grant;
            }
            (jobs[0].held.gpus, jobs[1].held.gpus, policy.wake(now, &*jobs, &memory))
        };
        let secs = Micros::from_secs;
        assert_eq!(decide(secs(0), &mut jobs), (3, 0, Some(Micros(1_200_666_667))));
        assert_eq!(decide(secs(1199), &mut jobs).0, 3);
        assert_eq!(decide(secs(1201), &mut jobs), (0, 2, Some(Micros(3_001_500_000))));
        // Both were over it once; the first to start comes first again.
        assert_eq!(decide(secs(3002), &mut jobs), (3, 0, Some(Micros(4_202_666_667))));
    }
}
