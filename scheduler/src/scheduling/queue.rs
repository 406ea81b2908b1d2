//! Holds queues and cohorts: quota, limits of borrowing and lending, permission to take GPUs from other jobs.
//!
//! Plain values; [`super::resource_usage`] adds up their use, [`super::budgets`] shares GPUs out. Tests: there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::units::{GpuType, Micros};

/// Quota of one GPU type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// GPUs of its own.
    pub nominal: u32,
    /// Most GPUs it may use beyond, of what others in its cohort lend.
    #[serde(default)]
    pub borrowing: u32,
    /// Most of its own GPUs that others may use while it does not; `None`: all.
    #[serde(default)]
    pub lending: Option<u32>,
}

impl Quota {
    /// Returns a quota that borrows nothing and lends all.
    pub const fn of(nominal: u32) -> Self {
        Self { nominal, borrowing: 0, lending: None }
    }
}

/// Permission of a queue's jobs to halt running jobs of the same queue. An elastic job may always be shrunk to its minimum
/// within its queue: that is what its sizes say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WithinQueue {
    /// None.
    #[default]
    Never,
    /// Jobs of lower priority.
    LowerPriority,
    /// Any job, as the policy says. For policies that preempt by themselves.
    Any,
}

/// Permission of a queue to take back GPUs of its own from queues that borrowed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reclaim {
    /// None: its jobs wait until borrowers end.
    Never,
    /// From jobs of lower priority.
    LowerPriority,
    /// From any job.
    #[default]
    Any,
}

/// Rule for jobs that could start before an earlier job that waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backfill {
    /// The first job that waits reserves what it needs; later ones pass only on what it cannot use.
    #[default]
    Reserve,
    /// The policy alone decides, without a reservation: the rule of the published studies.
    Policy,
}

/// Settings of a queue.
#[derive(Debug, Clone)]
pub struct QueueSettings {
    /// Policy by which its jobs share what it may use.
    pub policy: Arc<dyn Policy>,
    /// True if jobs of higher priority go first; else priority is ignored.
    pub by_priority: bool,
    /// Permission within the queue.
    pub within: WithinQueue,
    /// Permission towards queues that borrowed from this one.
    pub reclaim: Reclaim,
    /// Time for which its jobs are protected after each change.
    pub min_run: Micros,
    /// Rule for passing a job that waits.
    pub backfill: Backfill,
    /// True if nothing new is admitted; running jobs continue.
    pub paused: bool,
    /// Nodes that take new workers of its jobs; `None`: all. Workers that run elsewhere continue.
    pub nodes: Option<Arc<BTreeSet<Text>>>,
}

impl QueueSettings {
    /// Default of [`QueueSettings::min_run`]: 120 s.
    pub const MIN_RUN: Micros = Micros::from_secs(120);

    /// Returns a queue with default settings.
    pub fn new(policy: Arc<dyn Policy>) -> Self {
        Self {
            policy,
            by_priority: true,
            within: WithinQueue::default(),
            reclaim: Reclaim::default(),
            min_run: Self::MIN_RUN,
            backfill: Backfill::default(),
            paused: false,
            nodes: None,
        }
    }
}

/// A queue, or a cohort of queues.
#[derive(Debug, Clone)]
pub struct QueueSnapshot {
    /// Name, unique in the snapshot.
    pub name: Text,
    /// Index of its cohort in [`super::Snapshot::queues`]; `None`: it shares with no other.
    pub parent: Option<usize>,
    /// Quota by GPU type; a type not listed is not its own. `None`: all there is, without a limit.
    pub quota: Option<BTreeMap<GpuType, Quota>>,
    /// Share of what is borrowed, against other queues; 0 counts as 1.
    pub weight: u32,
    /// Priority of the queue: what is lent is offered to a higher one first.
    pub priority: i32,
    /// Settings of a queue; `None`: a cohort, which has no jobs.
    pub settings: Option<QueueSettings>,
}

impl QueueSnapshot {
    /// Returns a queue without a cohort and without a quota.
    pub fn root(name: impl Into<Text>, settings: QueueSettings) -> Self {
        Self { name: name.into(), parent: None, quota: None, weight: 1, priority: 0, settings: Some(settings) }
    }

    /// Returns its quota of a type; `None`: without a limit.
    pub fn quota(&self, gpu_type: GpuType) -> Option<Quota> {
        self.quota.as_ref().map(|quota| quota.get(&gpu_type).copied().unwrap_or_default())
    }

    /// Returns the number of GPUs of a type that it may use at most.
    pub fn ceiling(&self, gpu_type: GpuType) -> u32 {
        let borrowing = |quota: Quota| if self.parent.is_some() { quota.borrowing } else { 0 };
        self.quota(gpu_type).map_or(u32::MAX, |quota| quota.nominal.saturating_add(borrowing(quota)))
    }
}
