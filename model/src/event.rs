//! Events: decisions, in the past tense, by the scope of their record. Folding them never needs the rules that made them.

use crate::autoscaler::Autoscaled;
use crate::fact::EndRequest;
use crate::id::{Incarnation, JobKey, SlotId, Text, Timestamp, Uid};
use crate::owned::OwnedRef;
use crate::phase::Phase;
use crate::policy::RestartScope;
use crate::queue::{QueueReport, UserCounts};
use crate::share::{LossKind, ShareChange, ShareTarget};

/// Something the engine decided, of any scope. Nothing is decided of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Of the queues.
    Queue(QueueEvent),
    /// Of one job.
    Job(JobEvent),
}

impl Event {
    /// Returns the short name of the kind of event, for timelines and matrices.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Queue(event) => event.name(),
            Self::Job(event) => event.name(),
        }
    }
}

/// Something decided of the queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEvent {
    /// The queues decided targets. Only changes are reported.
    Allocated(Box<TargetUpdate>),
    /// Shares that the queues changed.
    Shared {
        /// The jobs, each with its change.
        changes: Vec<(JobKey, ShareChange)>,
    },
    /// Queues whose reports changed.
    Reported {
        /// The queue objects, each with its report.
        queues: Vec<(JobKey, QueueReport)>,
    },
    /// Jobs that wait in the queues for another reason than was reported.
    WaitsReported {
        /// The jobs, each with its reason; `None`: no reason is reported.
        jobs: Vec<(JobKey, Option<Text>)>,
    },
    /// The coordinator dequeues a job.
    Dequeued {
        /// The job.
        job: JobKey,
        /// Queues and the turns that they had, as JSON of `scheduler::queues::Turns`.
        turns: Text,
    },
}

impl QueueEvent {
    /// Returns the short name of the kind of event, for timelines and matrices.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Allocated(_) => "Allocated",
            Self::Shared { .. } => "Shared",
            Self::Reported { .. } => "Reported",
            Self::WaitsReported { .. } => "WaitsReported",
            Self::Dequeued { .. } => "Dequeued",
        }
    }
}

/// Something decided of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// This term needs to act on the job, so it writes itself into the job's mirror first.
    Fenced,
    /// Pods of these slots will be created.
    PodsPlanned {
        /// Slots with the incarnation each new pod gets.
        slots: Vec<(SlotId, Incarnation)>,
    },
    /// Services of these slots will be created.
    ServicesPlanned {
        /// The slots.
        slots: Vec<SlotId>,
    },
    /// These pods are to go: surplus, or left over from an ended job.
    PodsDropped {
        /// Their uids.
        uids: Vec<Uid>,
    },
    /// These services are to go.
    ServicesDropped {
        /// Their uids.
        uids: Vec<Uid>,
    },
    /// These owned objects will be created.
    OwnedPlanned {
        /// The objects.
        objects: Vec<OwnedRef>,
    },
    /// These owned objects are to go.
    OwnedDropped {
        /// The objects.
        objects: Vec<OwnedRef>,
    },
    /// A group of pods that run once completed this run.
    Achieved {
        /// The group.
        group: Text,
        /// The run: the shape of its pods.
        run: Text,
    },
    /// A restart or an ending.
    Decided(Box<Decision>),
    /// Failed pods are replaced, each by itself, while the others continue.
    Replaced {
        /// Their group, which is charged.
        group: Text,
        /// The pods.
        slots: Vec<Replacement>,
    },
    /// The pods of these slots failed for good: they are not created again.
    Lost {
        /// The slots, each with the kind of its failure.
        slots: Vec<(SlotId, CauseKind)>,
    },
    /// The old pods of the restart are gone; replacements may come.
    RestartCleared,
    /// The ending is complete.
    Ended {
        /// The terminal phase.
        phase: Phase,
    },
    /// The phase shown to users changed.
    PhaseChanged {
        /// The new phase.
        to: Phase,
        /// Why, in words; empty when there is nothing to add.
        message: Text,
    },
    /// Every pod has ended and no policy ends the job: as it stands it never will. Without words: that is over.
    Stalled {
        /// Why, in words.
        message: Option<Text>,
    },
    /// The jobs that reference this object were counted again.
    UsersCounted(UserCounts),
    /// The autoscaler took a step.
    Autoscaled(Box<Autoscaled>),
    /// The pod for which a node was searched could not be placed there: it may run on any.
    NodeDropped,
    /// The same phase, shown with other words.
    MessageChanged {
        /// The new words.
        message: Text,
    },
}

impl JobEvent {
    /// Returns the short name of the kind of event, for timelines and matrices.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fenced => "Fenced",
            Self::PodsPlanned { .. } => "PodsPlanned",
            Self::ServicesPlanned { .. } => "ServicesPlanned",
            Self::PodsDropped { .. } => "PodsDropped",
            Self::ServicesDropped { .. } => "ServicesDropped",
            Self::OwnedPlanned { .. } => "OwnedPlanned",
            Self::OwnedDropped { .. } => "OwnedDropped",
            Self::Achieved { .. } => "Achieved",
            Self::Decided(_) => "Decided",
            Self::Replaced { .. } => "Replaced",
            Self::Lost { .. } => "Lost",
            Self::RestartCleared => "RestartCleared",
            Self::Ended { .. } => "Ended",
            Self::PhaseChanged { .. } => "PhaseChanged",
            Self::Stalled { .. } => "Stalled",
            Self::UsersCounted(_) => "UsersCounted",
            Self::Autoscaled(_) => "Autoscaled",
            Self::NodeDropped => "NodeDropped",
            Self::MessageChanged { .. } => "MessageChanged",
        }
    }
}

/// Targets that a scheduling cycle changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetUpdate {
    /// Targets that changed: the places that each job shall hold.
    pub targets: Vec<(JobKey, ShareTarget)>,
    /// Change of the policies' memory, as JSON of `scheduler::MemoryChange`; empty when there is none.
    pub memory: Text,
}

/// A failed pod that is replaced by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// Index of its slot in the group.
    pub index: u32,
    /// The pod.
    pub uid: Uid,
    /// Kind of its failure.
    pub kind: CauseKind,
    /// Failures of this slot by this kind of cause so far, this one included.
    pub failures: u32,
    /// The new pod is not created before this; `None` is at once.
    pub retry_at: Option<Timestamp>,
}

/// A restart or an ending: what pods are deleted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Pods are replaced.
    Restart {
        /// The group that asked for it and is charged.
        group: Text,
        /// The pods that are replaced.
        scope: RestartScope,
        /// The slot that failed.
        slot: SlotId,
        /// Why.
        cause: Cause,
        /// Failures of this slot by this kind of cause so far, this one included.
        failures: u32,
        /// Replacements are not created before this; `None` is at once.
        retry_at: Option<Timestamp>,
    },
    /// The job ends.
    End {
        /// The terminal phase it ends in.
        phase: Phase,
        /// Why.
        cause: Cause,
        /// Set if pods and services are deleted.
        clean: bool,
        /// Set if of these only pods that have not ended are deleted, with their services.
        live_only: bool,
    },
    /// Pods that have not ended go, and the job waits. No failure is charged.
    Halt {
        /// Why.
        cause: Cause,
    },
}

impl Decision {
    /// Why it was taken.
    pub const fn cause(&self) -> &Cause {
        match self {
            Self::Restart { cause, .. } | Self::End { cause, .. } | Self::Halt { cause } => cause,
        }
    }
}

/// Why a decision was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Kind of the cause.
    pub kind: CauseKind,
    /// The slots it happened to, first one first; empty for causes that concern the whole job.
    pub slots: Vec<SlotId>,
    /// In words that name pods, containers, nodes and codes.
    pub message: Text,
}

/// Kinds of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    /// Pods succeeded.
    Completed,
    /// A container exited with an error.
    Exited,
    /// The pod failed without a container's exit, for example evicted.
    PodFailed,
    /// The pod's node is lost.
    NodeLost,
    /// A device of the pod's node failed.
    GpuFault,
    /// A container could not be created.
    CreationFailed,
    /// An annotation asked for it.
    EndRequested(EndRequest),
    /// The time limit passed.
    TimeLimit,
    /// No pod was asked for.
    NoPods,
    /// The job's retries are spent.
    BudgetSpent,
    /// The number of replicas changed, and with it the shape of the pods.
    Resized,
    /// The spec asks the job to wait.
    Suspended,
    /// A queue took the job's share away.
    ShareLost(LossKind),
    /// The job did not start as a whole in time.
    NotStarted,
    /// The spec cannot be accepted.
    Invalid,
    /// Another system does not admit its pods, or no longer does.
    NotAdmitted,
}
