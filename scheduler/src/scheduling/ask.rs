//! Asks one policy once about one set of jobs.
//!
//! Tests: in `studies`, whose published rows are played through this function.

use crate::memory::Memory;
use crate::policy::{Error, Policy, PolicyInput, PolicyOutput, allocate};

/// Brings the memory up to date and asks the policy. On an error the memory may have changed; [`super::decide()`]
/// leaves the caller's as it was.
///
/// # Errors
/// The policy is faulty: see [`allocate`].
pub fn ask(policy: &dyn Policy, input: PolicyInput<'_>, memory: &mut Memory) -> Result<PolicyOutput, Error> {
    policy.review(input.now, input.jobs, memory);
    allocate(policy, input, memory)
}
