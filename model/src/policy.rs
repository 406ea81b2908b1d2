//! Policy values of the job model. A difference between two APIs' lifecycles is a value here, never a branch elsewhere.

use std::collections::BTreeSet;

use crate::event::CauseKind;
use crate::id::Text;

/// Condition under which the pods of one group complete it, or fail it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupEndPolicy {
    /// The first pod decides.
    Any,
    /// Index 0 decides.
    Rank0,
    /// All pods together decide.
    All,
    /// Pods never decide.
    None,
    /// The group's minimum decides. It completes the group when no pod is left that may still succeed, and at least that many
    /// did (one, where the minimum is 0). It fails the group when fewer can still succeed.
    Minimum,
}

/// Condition under which the groups complete the job, or fail it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobEndPolicy {
    /// The first group decides.
    Any,
    /// All groups together decide.
    All,
    /// Groups never decide.
    None,
    /// All groups of one of these sets together decide.
    Sets(Vec<BTreeSet<Text>>),
}

/// Which pod outcomes are answered by a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestartPolicy {
    /// Failure of the pod or of its node.
    Always,
    /// Failure of the pod.
    OnFailure,
    /// Failure of the node. A pod that its node or Kubernetes ended is one, see [`crate::PodFact::is_disrupted`].
    OnNodeFail,
    /// Loss of the node of a pod that has not ended.
    OnNodeLost,
    /// None (a pod that could not be created is restarted all the same, inside its window).
    Never,
    /// Failure of the pod with a listed exit code.
    ExitCode,
    /// Failure of the node, or of the pod with a listed exit code.
    OnNodeFailWithExitCode,
    /// Failure of the pod with a listed exit code, and failures that [`Retryable`] lists.
    Listed,
}

/// Failures without an exit code that [`RestartPolicy::Listed`] answers by a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retryable {
    /// Status reasons of pods, for example `Evicted`.
    pub reasons: Vec<Text>,
    /// Set if pods with the condition `DisruptionTarget` are restarted.
    pub disrupted: bool,
    /// Set if pods of a lost node are restarted.
    pub node: bool,
    /// Set if pods whose device failed are restarted.
    pub gpu: bool,
    /// Set if the exit code of a main container counts as soon as it ended, while others of its pod still run.
    pub main_ended: bool,
}

/// Number of retries after which a job fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The limit that the number is compared with.
    pub limit: u32,
    /// Set if restarts of containers by their kubelet count as retries, besides replaced pods.
    pub containers: bool,
    /// Relation to the limit at which the job fails.
    pub reach: Threshold,
    /// Set if pods that are replaced together count as one retry.
    pub rounds: bool,
}

/// Relation of a number to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// Above the limit.
    Above,
    /// At the limit or above it; a limit of 0 is reached by the first.
    AtLeast,
}

impl Budget {
    /// Returns the number of retries that pods are which are replaced together for these causes. Where restarts of containers count
    /// beside rounds, a round is what a node or Kubernetes ended: each program that failed counts.
    pub fn retries_of(&self, causes: impl Iterator<Item = CauseKind>) -> u32 {
        if self.rounds && !self.containers {
            return 1;
        }
        let is_program = |cause: &CauseKind| matches!(cause, CauseKind::Exited | CauseKind::CreationFailed);
        let (programs, others): (Vec<_>, Vec<_>) = causes.partition(is_program);
        let others = if self.rounds { others.len().min(1) } else { others.len() };
        u32::try_from(programs.len().saturating_add(others)).unwrap_or(u32::MAX)
    }

    /// Returns true if this many retries fail the job.
    #[must_use]
    pub fn is_spent_by(&self, retries: u32) -> bool {
        match self.reach {
            Threshold::Above => retries > self.limit,
            Threshold::AtLeast => retries >= self.limit.max(1),
        }
    }
}

/// Instant from which a job's time limit counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClockStart {
    /// The first pod runs.
    #[default]
    FirstRunning,
    /// The job is admitted: its pods may be created. Starts again after the job was suspended.
    Admitted,
}

/// Part of the job that a restart takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestartScope {
    /// The failed pod.
    Pod,
    /// Every pod of its group.
    Replica,
    /// Every pod of the job.
    All,
    /// Each failed pod by itself, while the others continue. The job's phase follows from the pods that run.
    Each,
}

/// Pods that are deleted once a job completed or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CleanPodPolicy {
    /// All are deleted.
    All,
    /// All are kept, running ones included.
    None,
    /// Those that have not ended are deleted, with their services. The others are kept.
    Running,
}

/// Pods of a job that are deleted, by the way it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanBy {
    /// It succeeded.
    pub succeeded: CleanPodPolicy,
    /// It failed.
    pub failed: CleanPodPolicy,
    /// It ended in another way, for example by its time limit.
    pub other: CleanPodPolicy,
}
