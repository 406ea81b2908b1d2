//! Autoscaling: a group of a job grows while its pods train faster for it.
//!
//! Plain values. `engine::decide::autoscale` has the rule; `apis` reads the measurements.

use crate::id::{Text, Timestamp};

/// Bounds of a group that is resized by what its pods report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autoscaler {
    /// The group.
    pub group: Text,
    /// Minimum number of its pods.
    pub min: u32,
    /// Maximum number of its pods.
    pub max: u32,
}

/// Condition of an autoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingCondition {
    /// Nothing is measured yet.
    Start,
    /// The group grew, and is measured again.
    Continue,
    /// The last growth did not pay: the group is back at the number before.
    ReachMaxMetric,
    /// The group has its maximum.
    ReachMaxReplicas,
    /// The group is resized no more.
    Stop,
}

/// State of an autoscaler, as the job's status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaling {
    /// Its condition.
    pub condition: ScalingCondition,
    /// Set while it continues.
    pub continues: bool,
    /// Number of pods that it set last.
    pub replicas: u32,
    /// Number of pods before; 0 before the first change.
    pub last: u32,
    /// Time of the last change.
    pub at: Timestamp,
    /// Why, where the condition does not say it; empty otherwise.
    pub message: Text,
}

/// The next thing that an autoscaler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingStep {
    /// Looks at the job again.
    Look {
        /// Time of that.
        at: Timestamp,
    },
    /// Waits until no pod is pending.
    AwaitPods {
        /// Upper bound of the wait.
        until: Timestamp,
    },
    /// Reads the log of a pod.
    ReadLog,
    /// Judges what was read.
    Judge {
        /// Time that one step of the training took, in microseconds; `None` where the log did not show one.
        latency_us: Option<u64>,
    },
    /// Waits until the pods that were started for another number are replaced.
    RestartPods,
    /// Nothing more.
    Rest,
}

/// A step that an autoscaler took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autoscaled {
    /// Its new state; `None` where that stays.
    pub scaling: Option<Scaling>,
    /// A measurement that counts for the present number of pods: the time of one step of the training in microseconds.
    pub latency_us: Option<u64>,
    /// The next step.
    pub next: ScalingStep,
}
