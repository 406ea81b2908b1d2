//! Policy values of the job model. A difference between two APIs' lifecycles is a value here, never a branch elsewhere.

/// When the pods of one group complete it, or fail it.
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
}

/// When the groups complete the job, or fail it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobEndPolicy {
    /// The first group decides.
    Any,
    /// All groups together decide.
    All,
    /// Groups never decide.
    None,
}

/// Which pod outcomes are answered by a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestartPolicy {
    /// Failure of the pod or of its node.
    Always,
    /// Failure of the pod.
    OnFailure,
    /// Failure of the node.
    OnNodeFail,
    /// None (a pod that could not be created is restarted all the same, inside its window).
    Never,
    /// Failure of the pod with a listed exit code.
    ExitCode,
    /// Failure of the node, or of the pod with a listed exit code.
    OnNodeFailWithExitCode,
}

/// How much of the job a restart takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestartScope {
    /// The failed pod.
    Pod,
    /// Every pod of its group.
    Replica,
    /// Every pod of the job.
    All,
}

/// What happens to the pods of a job that completed or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CleanPodPolicy {
    /// All are deleted.
    All,
    /// All are kept, running ones included.
    None,
}
