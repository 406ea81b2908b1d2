//! A checked input of a policy, in the form policies work on: jobs in the one order that all share, (submission, id).
//!
//! Owns the split into pools by GPU type. Tests: through `policy`.

use crate::job::{Curve, Grant, JobView};
use crate::units::{GpuType, Micros};

/// A checked input of a policy. Job indices in a round are places in [`Round::jobs`], not in the caller's list.
#[derive(Debug)]
pub struct Round<'a> {
    /// The time of the decision.
    pub now: Micros,
    /// GPUs by type, each type once, in type order.
    pub pools: Vec<(GpuType, u32)>,
    /// The jobs, ordered by submission, then id.
    pub jobs: Vec<&'a JobView>,
}

/// The jobs whose home is one GPU type, and its GPUs: what a policy for one type decides on.
#[derive(Debug)]
pub struct Pool<'a> {
    /// The time of the decision.
    pub now: Micros,
    /// GPUs there are.
    pub gpus: u32,
    /// The type.
    pub gpu_type: GpuType,
    /// The jobs, ordered by submission, then id.
    pub jobs: Vec<Member<'a>>,
}

/// A job in a pool.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The job.
    pub job: &'a JobView,
    /// Its speeds on the pool's type.
    pub curve: &'a Curve,
    /// Its place in [`Round::jobs`].
    pub place: usize,
}

impl<'a> Round<'a> {
    /// Decides each pool alone: a job belongs to its home type and never leaves it. `share` returns one count per member.
    pub fn by_home(&self, mut share: impl FnMut(&Pool<'a>) -> Vec<u32>) -> Vec<Grant> {
        let mut grants = vec![Grant::NONE; self.jobs.len()];
        for &(gpu_type, gpus) in &self.pools {
            let jobs: Vec<Member<'a>> = (self.jobs.iter().enumerate())
                .filter_map(|(place, &job)| match job.speeds.home() {
                    Some((home, curve)) if *home == gpu_type => Some(Member { job, curve, place }),
                    Some(_) | None => None,
                })
                .collect();
            let pool = Pool { now: self.now, gpus, gpu_type, jobs };
            for (member, count) in pool.jobs.iter().zip(share(&pool)) {
                if let Some(grant) = grants.get_mut(member.place) {
                    *grant = Grant::of(gpu_type, count);
                }
            }
        }
        grants
    }
}

impl Member<'_> {
    /// GPUs of the pool's type that it holds now; 0 when it holds another type.
    pub fn held(&self, gpu_type: GpuType) -> u32 {
        if self.job.held.gpu_type == gpu_type { self.job.held.gpus } else { 0 }
    }
}
