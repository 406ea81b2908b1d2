//! Progress that a job reports of its work, and speed samples that a queue keeps of the jobs of a category.
//!
//! Plain values. `apis::progress` reads reports; `engine::queues` learns from them.

use std::collections::BTreeMap;

use crate::id::{Text, Timestamp, Uid};

/// Units of work done on one number of GPUs. A unit is an epoch, a step, or whatever else the job counts in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Units done.
    pub units: u64,
    /// Time in milliseconds that took, without start-up.
    pub took_ms: u64,
}

impl Measurement {
    /// Adds another measurement on the same number of GPUs.
    pub const fn add(&mut self, other: Self) {
        self.units = self.units.saturating_add(other.units);
        self.took_ms = self.took_ms.saturating_add(other.took_ms);
    }
}

/// Measurements by the number of GPUs that they were made on.
pub type Measurements = BTreeMap<u32, Measurement>;

/// Progress of a job since it was created. A later report replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Units of work done.
    pub done: u64,
    /// Units of work in all; `None`: not known.
    pub total: Option<u64>,
    /// Measurements of all its runs.
    pub sizes: Measurements,
}

/// Speeds that jobs of one category measured on one GPU resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeedSample {
    /// Namespace and category: `namespace/category`.
    pub category: Text,
    /// Resource that counts as GPUs.
    pub resource: Text,
    /// Jobs that the measurements are of, the last ones: a job whose end is seen again after the log was lost counts once.
    pub jobs: Vec<Uid>,
    /// Time at which the last measurements were added.
    pub at: Timestamp,
    /// Measurements of these jobs together.
    pub sizes: Measurements,
}
