//! One policy asked once about one set of jobs.
//!
//! Tests: in `studies`, whose published rows are played through this function.

use crate::memory::Memory;
use crate::policy::{Allocation, Error, Policy, Snapshot, allocate};

/// Brings the memory up to date and asks the policy. On an error the memory may have changed; [`super::decide()`]
/// leaves the caller's as it was.
///
/// # Errors
/// The policy is faulty: see [`allocate`].
pub fn ask(policy: &dyn Policy, snapshot: Snapshot<'_>, memory: &mut Memory) -> Result<Allocation, Error> {
    policy.review(snapshot.now, snapshot.jobs, memory);
    allocate(policy, snapshot, memory)
}
