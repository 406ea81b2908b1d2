//! Defines the trait of all policies, and calls one: [`allocate`].
//!
//! Owns the checks around a policy: a job that cannot be judged is left out and reported, never a reason to stop; an
//! output that breaks a bound is an error, never an allocation. Policies themselves are in [`crate::policies`].
//! Tests: at the end of this file, and `tests/properties.rs`.

use std::collections::BTreeMap;
use std::fmt::Debug;

use model::Text;

use crate::job::{Grant, JobError, JobView};
use crate::memory::Memory;
use crate::round::Round;
use crate::units::{GpuType, Micros};

/// Shares GPUs out. Policies are values without state: their settings are their fields, what they remember is in
/// [`Memory`].
pub trait Policy: Debug + Send + Sync {
    /// Returns its name, as [`crate::by_name`] knows it.
    fn name(&self) -> &str;

    /// Whether it gives sizes other than what was asked for. Rigid policies give [`JobView::num`], or for FIFO and SRJF
    /// [`JobView::min`], or nothing.
    fn is_elastic(&self) -> bool;

    /// Updates what is remembered, as of `now`; true when that may change the next allocation. Call it before
    /// [`allocate`], and whenever [`Policy::wake`] said so. Policies that remember nothing do nothing.
    fn review(&self, now: Micros, jobs: &[JobView], memory: &mut Memory) -> bool {
        let _ = (now, jobs, memory);
        false
    }

    /// The first time after `now` at which [`Policy::review`] would change something, or something will be known that the
    /// decision waits for, if no job came, went, started or was halted; `None`: never. `jobs` must be as of `now`.
    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        let _ = (now, jobs, memory);
        None
    }

    /// One grant per job of the round, in its order; `memory` is for what follows from the decision itself (a lease that
    /// begins). Use [`allocate`], which checks both sides.
    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant>;
}

/// All that an allocation depends on, next to [`Memory`].
#[derive(Debug, Clone, Copy)]
pub struct PolicyInput<'a> {
    /// The time of the decision.
    pub now: Micros,
    /// GPUs by type. A type listed twice counts as the sum.
    pub capacity: &'a [(GpuType, u32)],
    /// The ready jobs, in any order.
    pub jobs: &'a [JobView],
}

/// GPUs granted to each job from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyOutput {
    /// One grant per job, in the order of [`PolicyInput::jobs`].
    pub grants: Vec<Grant>,
    /// Jobs that were left out; their grant is none.
    pub refused: Vec<RejectedJob>,
}

/// A job that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job {id}: {error}")]
pub struct RejectedJob {
    /// Its place in [`PolicyInput::jobs`].
    pub place: usize,
    /// Its id.
    pub id: Text,
    /// What is wrong with it.
    pub error: JobError,
}

/// Output of a policy that cannot be carried out: a fault in the policy. The caller keeps what it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not one grant per job.
    #[error("policy {policy} gave {got} grants for {wanted} jobs")]
    Count {
        /// Name of the policy.
        policy: String,
        /// Grants it gave.
        got: usize,
        /// Jobs there are.
        wanted: usize,
    },
    /// A grant outside the job's bounds, or of a type it cannot use.
    #[error("policy {policy} gave job {id} {} GPUs of type {}, outside {min}..={max}", grant.gpus, grant.gpu_type)]
    Bounds {
        /// Name of the policy.
        policy: String,
        /// The job.
        id: Text,
        /// What it was given.
        grant: Grant,
        /// The job's minimum.
        min: u32,
        /// The job's maximum.
        max: u32,
    },
    /// More GPUs of a type than there are.
    #[error("policy {policy} gave {given} GPUs of type {gpu_type}, of which there are {capacity}")]
    Capacity {
        /// Name of the policy.
        policy: String,
        /// The type.
        gpu_type: GpuType,
        /// GPUs given.
        given: u64,
        /// GPUs there are.
        capacity: u32,
    },
}

/// Asks a policy for the grants of all jobs.
///
/// The answer depends on the values in `input` and `memory` alone, not on the order of the jobs. Every job that passes
/// [`JobView::check`] and has a pool takes part; the others are in [`PolicyOutput::refused`]. Of jobs with one id, the one
/// listed first takes part.
///
/// # Errors
/// The policy is faulty: it gave a job less than its minimum or more than its maximum, or more than there is.
pub fn allocate(policy: &dyn Policy, input: PolicyInput<'_>, memory: &mut Memory) -> Result<PolicyOutput, Error> {
    let mut pools: BTreeMap<GpuType, u32> = BTreeMap::new();
    for &(gpu_type, gpus) in input.capacity {
        let pool = pools.entry(gpu_type).or_default();
        *pool = pool.saturating_add(gpus);
    }
    let (places, refused) = admit(input.jobs, &pools);
    let jobs: Vec<&JobView> = places.iter().filter_map(|&place| input.jobs.get(place)).collect();
    let round = Round { now: input.now, pools: pools.into_iter().collect(), jobs };
    let decided = policy.decide(&round, memory);
    verify(policy.name(), &round, &decided)?;
    let mut grants = vec![Grant::NONE; input.jobs.len()];
    for (&place, grant) in places.iter().zip(decided) {
        if let Some(slot) = grants.get_mut(place) {
            *slot = grant;
        }
    }
    Ok(PolicyOutput { grants, refused })
}

/// Places of the jobs that take part, by (submission, id), and the others with the reason.
fn admit(jobs: &[JobView], pools: &BTreeMap<GpuType, u32>) -> (Vec<usize>, Vec<RejectedJob>) {
    let mut order: Vec<(&JobView, usize)> = jobs.iter().zip(0..).collect();
    // Callers that keep their jobs in order are spared the sorting: thousands may wait.
    let is_sorted = jobs.is_sorted_by(|a, b| a.id < b.id && a.submitted <= b.submitted);
    if !is_sorted {
        order.sort_by(|(a, p), (b, q)| a.id.cmp(&b.id).then(p.cmp(q)));
    }
    let mut refused = Vec::new();
    let mut last: Option<&str> = None;
    order.retain(|&(job, place)| {
        let twice = !is_sorted && last.replace(&job.id) == Some(&*job.id);
        let verdict = if twice { Err(JobError::Duplicate) } else { job.check().and_then(|()| has_pool(job, pools)) };
        match verdict {
            Ok(()) => true,
            Err(error) => {
                refused.push(RejectedJob { place, id: job.id.clone(), error });
                false
            }
        }
    });
    refused.sort_by_key(|r| r.place);
    if !is_sorted {
        order.sort_by_key(|(job, _)| job.submitted); // stable: equal times stay in id order
    }
    (order.into_iter().map(|(_, place)| place).collect(), refused)
}

fn has_pool(job: &JobView, pools: &BTreeMap<GpuType, u32>) -> Result<(), JobError> {
    let known = job.speeds.iter().any(|(gpu_type, _)| pools.contains_key(gpu_type));
    match job.speeds.home() {
        Some((home, _)) if !known => Err(JobError::NoPool(*home)),
        Some(_) | None => Ok(()),
    }
}

fn verify(policy: &str, round: &Round<'_>, grants: &[Grant]) -> Result<(), Error> {
    let policy = || policy.to_owned();
    if grants.len() != round.jobs.len() {
        return Err(Error::Count { policy: policy(), got: grants.len(), wanted: round.jobs.len() });
    }
    let mut given: BTreeMap<GpuType, u64> = BTreeMap::new();
    for (job, &grant) in round.jobs.iter().zip(grants).filter(|(_, grant)| !grant.is_none()) {
        let fits = grant.gpus >= job.min && grant.gpus <= job.max && job.speeds.on(grant.gpu_type).is_some();
        if !fits {
            let (id, min, max) = (job.id.clone(), job.min, job.max);
            return Err(Error::Bounds { policy: policy(), id, grant, min, max });
        }
        let sum = given.entry(grant.gpu_type).or_default();
        *sum = sum.saturating_add(u64::from(grant.gpus));
    }
    for (gpu_type, given) in given {
        let capacity = round.pools.iter().find(|(t, _)| *t == gpu_type).map_or(0, |(_, gpus)| *gpus);
        if given > u64::from(capacity) {
            return Err(Error::Capacity { policy: policy(), gpu_type, given, capacity });
        }
    }
    Ok(())
}
