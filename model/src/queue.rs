//! Queues: what their objects ask for, and what is reported of their jobs.
//!
//! Plain values. `engine::queues` decides by them; `apis::trainingqueue` reads and writes them.

use std::collections::BTreeMap;

use crate::id::{Text, Timestamp};
use crate::progress::SpeedSample;
use crate::selector::LabelSelector;

/// Settings of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// Queues that lend to each other; `None` for a queue that shares with no other.
    pub cohort: Option<Text>,
    /// Quota by resource. A resource not listed is not the queue's own.
    pub quota: BTreeMap<Text, QuotaSpec>,
    /// Share of what is borrowed, against other queues.
    pub weight: u32,
    /// Policy of the scheduler, with its arguments: `gain:a=0.25`.
    pub policy: Text,
    /// Set if jobs of higher priority go first.
    pub by_priority: bool,
    /// Permission of its jobs to halt running jobs of the same queue.
    pub within: WithinQueue,
    /// Permission to take back what other queues borrowed.
    pub reclaim: Reclaim,
    /// Time in milliseconds for which its jobs are left alone after each change.
    pub min_run_ms: u64,
    /// Minimum time in milliseconds between two decisions of targets.
    pub round_ms: u64,
    /// Set if workers are spread over nodes; else nodes are filled.
    pub spread: bool,
    /// Set if nothing new is admitted. What runs continues.
    pub paused: bool,
    /// Namespaces whose jobs it admits; `None`: all.
    pub namespaces: Option<LabelSelector>,
    /// Nodes that its jobs are placed on; `None`: all.
    pub nodes: Option<LabelSelector>,
    /// Set if pods of others use GPUs of these nodes as well: they are counted.
    pub shares_nodes: bool,
}

/// Quota of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaSpec {
    /// GPUs of its own.
    pub nominal: u32,
    /// GPUs that it may use beyond, of what others in its cohort lend.
    pub borrowing: u32,
    /// GPUs of its own that others may use while it does not; `None`: all.
    pub lending: Option<u32>,
}

/// Permission to halt running jobs of the same queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WithinQueue {
    /// None.
    #[default]
    Never,
    /// Jobs of lower priority.
    LowerPriority,
    /// Any job whose places the policy gives to another.
    Any,
}

/// Permission to take back what other queues borrowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// None.
    Never,
    /// From jobs of lower priority.
    LowerPriority,
    /// From any job.
    #[default]
    Any,
}

/// State of a queue, as its object shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Number of jobs that hold a share.
    pub admitted: u32,
    /// Number of jobs that wait.
    pub pending: u32,
    /// GPUs that count against the quota, by resource.
    pub usage: BTreeMap<Text, u32>,
    /// The first jobs that wait, in order.
    pub waiting: Vec<WaitingJob>,
    /// Speed samples of jobs that have ended since the report before.
    pub speed_samples: Vec<SpeedSample>,
}

/// Jobs whose specs reference one object, as that object shows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserCounts {
    /// Number of jobs that neither run nor have ended.
    pub pending: u32,
    /// Number of jobs that run, or did and are restarting or ending.
    pub running: u32,
    /// Number of jobs that ended and are still there.
    pub finished: u32,
    /// GPUs that pods on nodes asked for and have not given back.
    pub gpus: u32,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingJob {
    /// Its namespace and name: `namespace/name`.
    pub name: Text,
    /// Kind of the reason, in one word.
    pub reason: Text,
    /// The reason in words, with numbers.
    pub message: Text,
    /// Time at which it starts at the latest if nothing else happens, as far as time limits show it.
    pub expected_start: Option<Timestamp>,
}
