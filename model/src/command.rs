//! Commands and effects: what follows from state. They are derived, never stored.

use std::fmt;

use crate::id::{Incarnation, ResourceVersion, SlotId, Stamp, Text, Timestamp, Uid};
use crate::notes::AnnotationChanges;
use crate::owned::{GateReport, OwnedRef};

/// An object of one job that commands are about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectRef {
    /// The pod of a slot.
    Pod(SlotId),
    /// The service of a slot.
    Service(SlotId),
    /// A pod known by its uid, in any slot.
    PodUid(Uid),
    /// A service known by its uid.
    ServiceUid(Uid),
    /// The job's status with its mirror.
    Status,
    /// The end annotation on the job that older tools read.
    EndAnnotation,
    /// The job's own object.
    Job,
    /// An object that the job owns.
    Owned(OwnedRef),
    /// The finalizer on the job's object.
    Finalizer,
    /// The notes on the job's object.
    Annotations,
    /// The log of the pod that the job is measured by.
    Log,
    /// The search for the node with the most free storage.
    StorageNode,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(slot) => write!(f, "pod {slot}"),
            Self::Service(slot) => write!(f, "service {slot}"),
            Self::PodUid(uid) => write!(f, "pod {uid}"),
            Self::ServiceUid(uid) => write!(f, "service {uid}"),
            Self::Status => f.write_str("status"),
            Self::EndAnnotation => f.write_str("ending annotation"),
            Self::Job => f.write_str("job"),
            Self::Owned(object) => object.fmt(f),
            Self::Finalizer => f.write_str("finalizer"),
            Self::Annotations => f.write_str("annotations"),
            Self::Log => f.write_str("log"),
            Self::StorageNode => f.write_str("search for a node with free storage"),
        }
    }
}

/// An operation on an object that the engine asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Create the pod of a slot.
    CreatePod {
        /// The slot.
        slot: SlotId,
        /// The incarnation the pod gets.
        incarnation: Incarnation,
        /// The restart count the pod shows.
        count: u32,
    },
    /// Create the service of a slot.
    CreateService {
        /// The slot.
        slot: SlotId,
    },
    /// Delete a pod, by uid.
    DeletePod {
        /// Its uid: a precondition.
        uid: Uid,
        /// Its name.
        name: Text,
        /// Grace period in seconds; 0 where its node is lost, so that no kubelet ends it; `None` for the pod's own.
        grace_seconds: Option<u32>,
    },
    /// Delete a service, by uid.
    DeleteService {
        /// Its uid: a precondition.
        uid: Uid,
        /// Its name.
        name: Text,
    },
    /// Read the pod of a slot whose creation was given up but may have happened.
    ReadPod {
        /// The slot.
        slot: SlotId,
    },
    /// Write the end annotation.
    WriteEndAnnotation,
    /// Delete the job's own object: its time after the end has passed.
    DeleteJob,
    /// Create an object that the job owns.
    CreateOwned {
        /// The object.
        object: OwnedRef,
    },
    /// Patch an object that the job owns with its present contents.
    UpdateOwned {
        /// The object.
        object: OwnedRef,
        /// Its uid: a precondition.
        uid: Uid,
        /// Its resourceVersion last observed: a precondition.
        rv: ResourceVersion,
    },
    /// Report the state of the job on the object that admits its pods.
    ReportOwned {
        /// The object.
        object: OwnedRef,
        /// Its uid: a precondition.
        uid: Uid,
        /// Its resourceVersion last observed: a precondition.
        rv: ResourceVersion,
        /// What is reported.
        report: GateReport,
    },
    /// Delete an object that the job owns, by uid.
    DeleteOwned {
        /// The object.
        object: OwnedRef,
        /// Its uid: a precondition.
        uid: Uid,
    },
    /// Read an object that the job owns whose creation was given up but may have happened.
    ReadOwned {
        /// The object.
        object: OwnedRef,
    },
    /// Put the finalizer on the job's object, or take it off.
    SetFinalizer {
        /// True if it is put on.
        on: bool,
        /// The job's resourceVersion last observed: a precondition.
        rv: ResourceVersion,
    },
    /// Take the API's finalizer off a pod that is being deleted.
    ReleasePod {
        /// Its uid: a precondition.
        uid: Uid,
        /// Its name.
        name: Text,
        /// Its resourceVersion last observed: a precondition.
        rv: ResourceVersion,
        /// Finalizers that stay.
        others: Vec<Text>,
    },
    /// Write notes on the job's object.
    WriteAnnotations {
        /// The notes.
        notes: AnnotationChanges,
        /// The job's resourceVersion last observed: a precondition.
        rv: ResourceVersion,
    },
    /// Mark a pod whose containers are restarted in place.
    MarkPod {
        /// Its uid: a precondition.
        uid: Uid,
        /// Its name.
        name: Text,
        /// The mark.
        mark: PodMark,
    },
    /// Read the last line of a pod's log.
    ReadLog {
        /// Name of the pod.
        pod: Text,
    },
    /// Search for the node with the most free storage: list nodes, and the pods on them.
    FindNode,
    /// Write the status and the mirror.
    WriteStatus {
        /// The stamp the mirror carries.
        stamp: Stamp,
        /// The job's resourceVersion last observed: a precondition.
        rv: ResourceVersion,
    },
}

impl Command {
    /// The object it is about; at most one command per object is under way.
    #[must_use]
    pub fn object(&self) -> ObjectRef {
        match self {
            Self::CreatePod { slot, .. } | Self::ReadPod { slot } => ObjectRef::Pod(slot.clone()),
            Self::CreateService { slot } => ObjectRef::Service(slot.clone()),
            Self::DeletePod { uid, .. } | Self::ReleasePod { uid, .. } | Self::MarkPod { uid, .. } => {
                ObjectRef::PodUid(uid.clone())
            }
            Self::DeleteService { uid, .. } => ObjectRef::ServiceUid(uid.clone()),
            Self::WriteEndAnnotation => ObjectRef::EndAnnotation,
            Self::DeleteJob => ObjectRef::Job,
            Self::CreateOwned { object }
            | Self::UpdateOwned { object, .. }
            | Self::ReportOwned { object, .. }
            | Self::DeleteOwned { object, .. }
            | Self::ReadOwned { object } => ObjectRef::Owned(object.clone()),
            Self::SetFinalizer { .. } => ObjectRef::Finalizer,
            Self::WriteAnnotations { .. } => ObjectRef::Annotations,
            Self::ReadLog { .. } => ObjectRef::Log,
            Self::FindNode => ObjectRef::StorageNode,
            Self::WriteStatus { .. } => ObjectRef::Status,
        }
    }
}

/// A mark on a pod whose containers are restarted in place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodMark {
    /// The number of pods that it trains with, before the restart.
    Size(Text),
    /// The shape that it has, after the restart.
    Shape(Text),
}

/// A consequence of the state: a command to dispatch, or the time of the next look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Hand this to the API.
    Dispatch(Command),
    /// Decide again at this time.
    WakeAt(Timestamp),
}

/// Answer of the API, where no observed object shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Done, without grace (a delete).
    Forced,
    /// The object is not there.
    Gone,
    /// The name belongs to something that is not ours; `waiting` when it is going away.
    Taken {
        /// Set if the other object is on its way out.
        waiting: bool,
        /// Set if it is this job's own, but its labels were changed, so that no watch shows it.
        unseen: bool,
    },
    /// Refused for good: trying the same again cannot help by itself.
    Refused {
        /// HTTP status code.
        code: u16,
        /// Message of the API.
        message: Text,
    },
    /// Not known whether it was done: overload, server error, time-out.
    Unknown {
        /// HTTP status code; 0 for no answer at all.
        code: u16,
    },
}
