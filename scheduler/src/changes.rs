//! What has to be done to get from one allocation to the next.
//!
//! Works from what runs, not from what was once decided: a job that an older decision counts as running but that does not
//! run is started; one that has finished is left alone. Tests: vectors `plan` in `tests/vectors.rs`.

use std::collections::{BTreeMap, BTreeSet};

use model::Text;

/// Jobs by what is to be done to them, each list in name order. Carried out in this order, GPUs are freed before they are
/// used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Jobs that give up all GPUs.
    pub halt: Vec<Text>,
    /// Jobs that continue with fewer GPUs.
    pub scale_in: Vec<Text>,
    /// Jobs that begin.
    pub start: Vec<Text>,
    /// Jobs that continue with more GPUs.
    pub scale_out: Vec<Text>,
}

/// The new allocation says nothing about a running job. Nothing is to be done then: it is no decision to halt it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the allocation does not mention running job {0}")]
pub struct Incomplete(pub Text);

/// Compares two allocations, GPUs by job; `running` are the jobs that run and have not finished.
///
/// # Errors
/// A running job is missing in `new`.
pub fn changes(
    old: &BTreeMap<Text, u32>,
    new: &BTreeMap<Text, u32>,
    running: &BTreeSet<Text>,
) -> Result<Changes, Incomplete> {
    if let Some(job) = running.iter().find(|job| !new.contains_key(*job)) {
        return Err(Incomplete(job.clone()));
    }
    let mut changes = Changes::default();
    for (job, &to) in new {
        let from = if running.contains(job) { old.get(job).copied().unwrap_or_default() } else { 0 };
        let list = match (from, to) {
            (from, to) if from == to => continue,
            (_, 0) => &mut changes.halt,
            (0, _) => &mut changes.start,
            (from, to) if to < from => &mut changes.scale_in,
            (_, _) => &mut changes.scale_out,
        };
        list.push(job.clone());
    }
    Ok(changes)
}
