//! Configuration that decisions depend on. It is a fact: recorded when a term begins and when it changes.

use crate::coordination::QueueSelector;

/// Settings the engine decides by. All durations are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Window after a pod began to be created in which a creation failure is answered by a restart.
    pub creating_restart_ms: u64,
    /// Time that a pod must have been stuck before a creation failure restarts it, in milliseconds.
    pub creating_timeout_ms: u64,
    /// Set if a creation failure past its window fails the pod.
    pub creating_failed: bool,
    /// Time that a node may be not ready before its pods count as lost, in milliseconds.
    pub node_grace_ms: u64,
    /// First delay before a pod that keeps failing is created again (the first restart of a cause is immediate).
    pub restart_backoff_ms: u64,
    /// Upper bound of that delay.
    pub restart_backoff_max_ms: u64,
    /// A pod that ran this long before failing starts its back-off from zero.
    pub restart_backoff_reset_ms: u64,
    /// First delay before an API call that failed for unknown reasons is tried a third time (the second try is at once).
    pub retry_ms: u64,
    /// Upper bound of that delay.
    pub retry_max_ms: u64,
    /// Time that a pod whose job does not exist may stay before it is deleted, in milliseconds.
    pub orphan_grace_ms: u64,
    /// Node or pod condition types, and words in container messages, that name a GPU failure.
    pub gpu_faults: Vec<String>,
    /// Restarts of a group whose spec names no limit; `None`: unlimited.
    pub restart_limit: Option<u32>,
    /// Time after a first failed pod in which failures of other pods are waited for, so that the cause is distinguished from what
    /// followed. 0: none.
    pub failure_window_ms: u64,
    /// Set if jobs that name no queue are not held back until the nodes have room for all their GPUs.
    pub ignores_capacity: bool,
    /// Time at the start of a term in which no share grows, in milliseconds: requests of an earlier leader may still be
    /// carried out.
    pub quiet_ms: u64,
    /// Time in which a job must have come whole after it was granted a share, in milliseconds.
    pub start_timeout_ms: u64,
    /// Rule by which the coordinator serves queues.
    pub queue_selector: QueueSelector,
    /// Least time between two jobs that the coordinator dequeues, in milliseconds.
    pub dequeue_period_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            creating_restart_ms: 0,
            creating_timeout_ms: 15 * 60_000,
            creating_failed: false,
            node_grace_ms: 0,
            restart_backoff_ms: 10_000,
            restart_backoff_max_ms: 300_000,
            restart_backoff_reset_ms: 600_000,
            retry_ms: 1_000,
            retry_max_ms: 60_000,
            orphan_grace_ms: 10 * 60_000,
            gpu_faults: ["GpuUnhealthy", "GPUUnhealthy", "NvidiaXidError", "Xid"].map(str::to_owned).to_vec(),
            restart_limit: None,
            failure_window_ms: 0,
            ignores_capacity: false,
            quiet_ms: 0,
            start_timeout_ms: 300_000,
            queue_selector: QueueSelector::default(),
            dequeue_period_ms: 100,
        }
    }
}
