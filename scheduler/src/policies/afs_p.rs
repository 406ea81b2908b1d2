//! AFS-P: elastic sharing without knowledge of job lengths; GPUs are leased.
//!
//! Source: AFS (NSDI'21) and its authors' simulator. While jobs outnumber GPUs, a job that was given GPUs keeps them for
//! the length of a lease; those whose lease is over stand in line again, fewest served leases first. Otherwise everyone
//! gets the minimum and the rest goes by a tournament on relative gains. Where the original tosses a coin between two jobs,
//! the earlier one stays. Tests: at the end of this file.

use std::collections::BTreeSet;

use crate::job::{Grant, JobView};
use crate::memory::{Lease, Memory};
use crate::policies::ordered::fill;
use crate::policies::tournament::{Candidate, run};
use crate::policy::Policy;
use crate::round::{Pool, Round};
use crate::units::{GpuType, Micros};

/// The policy.
#[derive(Debug, Clone, Copy)]
pub struct AfsP {
    /// Length of a lease.
    pub lease: Micros,
}

impl Default for AfsP {
    /// Two hours, as in the authors' simulator.
    fn default() -> Self {
        Self { lease: Micros::from_secs(7200) }
    }
}

impl Policy for AfsP {
    fn name(&self) -> &'static str {
        "afs-p"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        let until = |job: &JobView| memory.leases.get(&job.id).filter(|_| job.is_running()).map(|lease| lease.until);
        jobs.iter().filter_map(until).filter(|&until| until > now).min()
    }

    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let needed = pool.jobs.iter().fold(0_u32, |sum, m| sum.saturating_add(m.job.min));
            // At exactly as many jobs as GPUs leases hold, as in the original.
            if needed < pool.gpus { self.everyone(pool, memory) } else { self.in_line(pool, memory) }
        })
    }
}

impl AfsP {
    /// Leases that run are kept; the others stand in line at their minimum.
    fn in_line(self, pool: &Pool<'_>, memory: &mut Memory) -> Vec<u32> {
        let mut kept = BTreeSet::new();
        let mut free = pool.gpus;
        let mut given = vec![0; pool.jobs.len()];
        for (i, member) in pool.jobs.iter().enumerate().filter(|(_, m)| m.job.is_running()) {
            let lease = memory.leases.entry(member.job.id.clone()).or_default();
            let held = holds(member.job, pool.gpu_type);
            if lease.until <= pool.now {
                // A lease without an end has been counted, so that it counts once however often it is asked about.
                let ended = u32::from(lease.until > Micros::ZERO);
                *lease = Lease { until: Micros::ZERO, expired: lease.expired.saturating_add(ended) };
            } else if let (1.., Some(rest), Some(slot)) = (held, free.checked_sub(held), given.get_mut(i)) {
                (*slot, free) = (held, rest);
                kept.insert(i);
            }
        }
        let mut order: Vec<usize> = (0..pool.jobs.len()).filter(|i| !kept.contains(i)).collect();
        order.sort_by_cached_key(|&i| {
            let key = |job: &JobView| (served(job, memory), job.first_start.unwrap_or(Micros::MAX));
            pool.jobs.get(i).map(|m| key(m.job))
        });
        let line = Pool { now: pool.now, gpus: free, gpu_type: pool.gpu_type, jobs: pool.jobs.clone() };
        for ((slot, member), more) in given.iter_mut().zip(&pool.jobs).zip(fill(&line, &order, false, |job| job.min)) {
            if more > 0 {
                *slot = more;
                self.begin(member.job, pool.now, memory);
            }
        }
        given
    }

    /// Everyone fits: the minimum each, then the tournament. Every grant begins a lease.
    fn everyone(self, pool: &Pool<'_>, memory: &mut Memory) -> Vec<u32> {
        let candidate = |m: &crate::round::Member<'_>| Candidate::new(0, (m.job.min, m.job.max), m.curve, m.job.min);
        let mut field: Vec<_> = pool.jobs.iter().map(candidate).collect();
        let needed = field.iter().fold(0_u32, |sum, c| sum.saturating_add(c.given));
        run(&mut field, |i| pool.jobs.get(i).map(|m| m.curve), pool.gpus.saturating_sub(needed), later_wins);
        for member in &pool.jobs {
            self.begin(member.job, pool.now, memory);
        }
        field.iter().map(|c| c.given).collect()
    }

    fn begin(self, job: &JobView, now: Micros, memory: &mut Memory) {
        let lease = memory.leases.entry(job.id.clone()).or_default();
        *lease = Lease { until: now.plus(self.lease), ..*lease };
    }
}

fn holds(job: &JobView, gpu_type: GpuType) -> u32 {
    let fits = job.held.gpu_type == gpu_type && job.held.gpus >= job.min && job.held.gpus <= job.max;
    if fits { job.held.gpus } else { 0 }
}

fn served(job: &JobView, memory: &Memory) -> u32 {
    memory.leases.get(&job.id).map_or(0, |lease| lease.expired)
}

/// The later job replaces the earlier if `S'/(S' - S)` of it is at most `S/(S' - S)` of the earlier one.
fn later_wins(earlier: &Candidate, later: &Candidate) -> bool {
    let gain = |c: &Candidate| i128::from(c.faster).saturating_sub(i128::from(c.speed));
    let (gain_earlier, gain_later) = (gain(earlier), gain(later));
    if gain_later <= 0 {
        return false;
    }
    if gain_earlier <= 0 {
        return true;
    }
    i128::from(later.faster).saturating_mul(gain_earlier) <= i128::from(earlier.speed).saturating_mul(gain_later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::elastic;
    use crate::policy::{PolicyInput, allocate};

    fn decide(now: u64, jobs: &mut [JobView], memory: &mut Memory) -> Vec<u32> {
        let input = PolicyInput { now: Micros::from_secs(now), capacity: &[(GpuType(0), 2)], jobs };
        let grants = allocate(&AfsP::default(), input, memory).unwrap().grants;
        for (job, &grant) in jobs.iter_mut().zip(&grants) {
            if grant.gpus > 0 && job.first_start.is_none() {
                job.first_start = Some(Micros::from_secs(now));
            }
            job.held = grant;
        }
        grants.iter().map(|g| g.gpus).collect()
    }

    #[test]
    fn leases_hold_until_they_end_and_then_the_line_moves() {
        let linear = [1000, 2000];
        let mut jobs = ["a", "b", "c"].map(|id| elastic(id, 0, (1, 1, 2), 1, &linear));
        let mut memory = Memory::default();
        assert_eq!(decide(0, &mut jobs, &mut memory), [1, 1, 0]);
        assert_eq!(decide(7199, &mut jobs, &mut memory), [1, 1, 0]);
        assert_eq!(AfsP::default().wake(Micros::from_secs(7199), &jobs, &memory), Some(Micros::from_secs(7200)));
        // a and b served one lease; c never ran and goes first, then a by its first start.
        assert_eq!(decide(7200, &mut jobs, &mut memory), [1, 0, 1]);
        assert_eq!(decide(14_400, &mut jobs, &mut memory), [0, 1, 1]);
    }
}
