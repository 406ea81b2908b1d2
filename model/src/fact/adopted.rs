//! The state that a job takes from its object where the log does not cover it.

use std::collections::BTreeMap;

use crate::id::{Text, Timestamp};
use crate::mirror::Mirror;

/// A job's state as its object shows it, for a log that does not cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The mirror the object carried.
    pub mirror: Mirror,
    /// Restarts shown per group.
    pub restarts: BTreeMap<Text, u32>,
    /// Milestones shown, oldest first.
    pub milestones: Vec<Milestone>,
    /// First time the job was pending.
    pub started_at: Option<Timestamp>,
    /// First time every pod ran.
    pub running_at: Option<Timestamp>,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
    /// Final counters (succeeded, failed) per group of a job that ended.
    pub finals: BTreeMap<Text, (u32, u32)>,
    /// Set if its status shows remarks besides its phases. Those that are over by now have to be taken off it.
    pub remarks: bool,
}

/// One change of phase as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// The phase entered.
    pub phase: crate::phase::Phase,
    /// Time at which the phase was entered.
    pub at: Timestamp,
    /// Message of the phase; empty where the phase says all.
    pub message: Text,
}
