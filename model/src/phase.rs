//! Phases of a job, in the engine's own words; each served API translates them.

/// Stage of a job's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Seen, nothing decided yet (or its spec is invalid).
    #[default]
    New,
    /// At least one expected pod is missing or unscheduled.
    Pending,
    /// All pods are scheduled, at least one has not started.
    Creating,
    /// Every group has all of its pods running.
    Running,
    /// The old pods of a restart are gone, the replacements are not all running.
    Restarting,
    /// Pods are being deleted, for a restart or for an ending.
    Terminating,
    /// Completed.
    Succeeded,
    /// Failed.
    Failed,
    /// Its time limit passed.
    TimedOut,
    /// Ended by a request to preempt it.
    Preempted,
    /// Ended because of a lost node.
    NodeFailed,
    /// It has no pods, because it was asked to wait.
    Suspended,
    /// Pods that run once prepare what its other pods wait for.
    Preparing,
    /// Its pods may be created, but wait for nodes. Only jobs of [`crate::PhaseRules::queued`].
    Queued,
}

impl Phase {
    /// Every phase, in declaration order.
    pub const ALL: [Self; 14] = [
        Self::New,
        Self::Pending,
        Self::Creating,
        Self::Running,
        Self::Restarting,
        Self::Terminating,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Preempted,
        Self::NodeFailed,
        Self::Suspended,
        Self::Preparing,
        Self::Queued,
    ];

    /// Returns true if a job in this phase waits for pods that have not run yet, or has none.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::New | Self::Pending | Self::Creating | Self::Suspended | Self::Preparing | Self::Queued)
    }

    /// Returns true if a job in this phase has ended for good.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::TimedOut | Self::Preempted | Self::NodeFailed)
    }
}
