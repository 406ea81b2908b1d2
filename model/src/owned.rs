//! Objects of a job besides its pods and the services of its slots: claims, services of the whole job, pod groups, and others.
//!
//! The engine decides when they are created, brought up to date and deleted. It knows nothing of their contents.

use std::fmt;

use crate::id::Text;

/// Type and name of an object that a job owns. It stands in the job's namespace, unless its type has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnedRef {
    /// API version of its type, for example `v1`.
    pub api_version: Text,
    /// Kind of its type, for example `PersistentVolumeClaim`.
    pub kind: Text,
    /// Its name.
    pub name: Text,
}

impl OwnedRef {
    /// Returns the object of a type and a name.
    pub fn new(api_version: &str, kind: &str, name: &str) -> Self {
        Self { api_version: Text::from(api_version), kind: Text::from(kind), name: Text::from(name) }
    }
}

impl fmt::Display for OwnedRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// An object that the job owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSpec {
    /// Its type and name.
    pub object: OwnedRef,
    /// Time at which it is created.
    pub when: CreatePhase,
    /// State of it that the pods of the job wait for.
    pub awaits: ReadinessGate,
    /// Time for which it is kept.
    pub keep: Retain,
    /// Digest of its contents. An object that shows another digest is patched. Absent where it is only created.
    pub digest: Option<Text>,
    /// Group of [`crate::GroupSpec::once`] whose last completed run is a part of its contents.
    pub follows: Option<Text>,
    /// Digest of the pods that it admits; present for one of [`ReadinessGate::Admitted`] alone. It cannot change while the object holds
    /// quota.
    pub pods: Option<Text>,
}

/// Time at which an owned object is created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CreatePhase {
    /// The job is accepted, even if it is suspended.
    #[default]
    Accepted,
    /// The job succeeded.
    Succeeded,
}

/// State of an owned object that the pods of a job wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadinessGate {
    /// None.
    Nothing,
    /// It exists.
    #[default]
    Exists,
    /// It is ready, for example bound.
    Ready,
    /// It exists, or the cluster does not serve its type. It is created only while the job has no pods.
    ExistsIfServed,
    /// It admits the pods, or the cluster does not serve its type. Pods go when it no longer admits them, unless they run once.
    Admitted,
}

/// Time for which an owned object is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Retain {
    /// As long as the job's object: the garbage collector deletes it, because the job is its owner.
    #[default]
    WithJob,
    /// Until the job has ended.
    UntilEnd,
    /// For good. A later job that names it takes it over.
    Retained,
    /// As long as the job's object. It cannot have the job as its owner, so the job's finalizer waits until it is deleted. These
    /// objects are created in the order of the spec, each once the one before it exists.
    Finalized,
    /// Not kept at all: whatever has the name serves, and nothing is made of it when it is deleted. Created where none is there.
    Left,
}

impl Retain {
    /// Returns true for an object that is not kept beyond the job's own object.
    pub const fn ends_with_job(self) -> bool {
        matches!(self, Self::WithJob | Self::UntilEnd | Self::Finalized)
    }
}

/// What a job reports on the object that admits its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateReport {
    /// It was evicted and its pods are gone: the quota is free.
    Released,
    /// All of its pods run, or no longer do.
    PodsReady(bool),
    /// The job has ended.
    Finished {
        /// Set if it succeeded.
        succeeded: bool,
    },
}
