//! Notes: annotations on a job's object by which its users and the operator talk, free of any API's keys.
//!
//! What stands on the object comes with the spec. What is to be written is derived from that and from the state of the job
//! (`engine::notes`), never stored: a lost log loses nothing.

use crate::id::{Text, Timestamp};

/// Notes that stand on the object of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectAnnotations {
    /// Time of the last round of replaced pods.
    pub failed_over: Option<Timestamp>,
    /// Notes of a job whose pods are replaced when its object changes; `None` where they stay.
    pub elastic: Option<Elastic>,
    /// Set if the labels, annotations and owners stand there that the API puts on the object; `None` where it puts none there.
    pub marked: Option<bool>,
    /// Set if pods that were started for another number of pods may be restarted, unset if not; `None` where it is not said.
    pub restarts: Option<bool>,
    /// Node with the most free storage, on which [`crate::JobSpec::storage_group`] runs; empty once its pod may run on any.
    pub storage_node: Option<Text>,
}

/// Notes of an elastic job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elastic {
    /// Generation of the job's object. Pods of an older one are replaced.
    pub generation: u64,
    /// Set if pods of an older generation may be replaced.
    pub starts: bool,
    /// Set if they may be whatever else is noted.
    pub at_once: bool,
    /// Set while pods are being replaced, and unset once all were; `None` before the first time.
    pub scaling: Option<bool>,
    /// Checkpoint that was asked for last.
    pub requested: Option<Checkpoint>,
    /// Version of the checkpoint that was written last.
    pub completed: Option<u64>,
}

/// A checkpoint that was asked for, because pods are being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checkpoint {
    /// Its version.
    pub version: u64,
    /// Set once it was written and the pods were let go.
    pub done: bool,
}

/// Notes that are to be written. Absent ones stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnotationChanges {
    /// Time of the last round of replaced pods.
    pub failed_over: Option<Timestamp>,
    /// [`Elastic::starts`].
    pub starts: Option<bool>,
    /// [`Elastic::at_once`].
    pub at_once: Option<bool>,
    /// [`Elastic::scaling`].
    pub scaling: Option<bool>,
    /// [`Elastic::requested`].
    pub requested: Option<Checkpoint>,
    /// Number that is written into the spec, so that the generation of the object grows.
    pub generation: Option<u64>,
    /// Set if what [`ObjectAnnotations::marked`] reports is to be written.
    pub marked: bool,
    /// [`ObjectAnnotations::restarts`].
    pub restarts: Option<bool>,
    /// Number of pods of the autoscaled group, which is written into the spec.
    pub replicas: Option<u32>,
    /// [`ObjectAnnotations::storage_node`].
    pub storage_node: Option<Text>,
}
