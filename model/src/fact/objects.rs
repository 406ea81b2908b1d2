//! Objects, reduced to what decisions read.

use std::collections::BTreeMap;

use crate::id::{ResourceVersion, SlotId, Stamp, Text, Uid};
use crate::notes::ObjectAnnotations;
use crate::owned::{OwnedRef, Retain};
use crate::phase::Phase;
use crate::progress::Progress;
use crate::requirements::Taint;
use crate::spec::{FieldError, JobSpec};

/// Metadata of the job object, besides its spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFact {
    /// Its version.
    pub rv: ResourceVersion,
    /// Set if it has a deletionTimestamp.
    pub deleting: bool,
    /// Requests to end it, put on it by users or schedulers and meant for this very job.
    pub end_requests: BTreeMap<EndRequest, Text>,
    /// Set if the end annotation that we write for older tools is there.
    pub end_annotated: bool,
    /// Stamp of the mirror it carries.
    pub mirror: Stamp,
    /// Its finalizers, where its API has one.
    pub finalizers: Vec<Text>,
    /// Set if its API's finalizer is among them.
    pub finalized: bool,
    /// End that the controller of its pods reports on it, where that is another one.
    pub reported_end: Option<Box<ReportedEnd>>,
    /// Progress that its program reports; `None` where it reports none.
    pub progress: Option<Box<Progress>>,
}

/// End of a job as another controller reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedEnd {
    /// The terminal phase.
    pub phase: Phase,
    /// Reason and message of the report.
    pub message: Text,
}

/// A request to end a job, made by an annotation; strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndRequest {
    /// End as preempted.
    Preempted,
    /// End as failed.
    Failed,
    /// End as failed by its node.
    NodeFailed,
    /// End as failed, because its user stops it.
    Stopped,
}

/// The job object's spec, translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFact {
    /// The job it describes, or the reasons why it cannot be accepted: never empty, unless an object is missing.
    pub spec: Result<JobSpec, Vec<FieldError>>,
    /// Remarks on accepted values, for the user.
    pub warnings: Vec<FieldError>,
    /// Canonical JSON of what rendering needs from the object; opaque to the engine.
    pub manifest: Text,
    /// Objects that the spec references besides the job, and that cannot be used. While there are any, the job waits.
    pub missing: Vec<Missing>,
    /// Jobs of other kinds whose objects the spec references: kind and name, in the job's namespace.
    pub needs: Vec<(Text, Text)>,
    /// Set if a spec that cannot be accepted fails a job that never had another one.
    pub fatal: bool,
    /// Notes on the job's object, whether its spec can be accepted or not; `None` where its API has none.
    pub notes: Option<Box<ObjectAnnotations>>,
}

impl SpecFact {
    /// Returns the translation of a spec, with what its objects are rendered from and nothing beside it.
    pub fn of(spec: Result<JobSpec, Vec<FieldError>>, manifest: Text) -> Self {
        Self { spec, warnings: Vec::new(), manifest, missing: Vec::new(), needs: Vec::new(), fatal: false, notes: None }
    }

    /// Returns the translation of a spec that cannot be accepted: nothing is rendered from it.
    pub fn refused(errors: Vec<FieldError>) -> Self {
        Self::of(Err(errors), Text::from("{}"))
    }
}

/// An object that a spec needs and that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Kind of the object.
    pub kind: Text,
    /// Its name.
    pub name: Text,
    /// Why it cannot be used; absent when it does not exist.
    pub problem: Option<Text>,
}

/// A service, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFact {
    /// Its uid.
    pub uid: Uid,
    /// The slot it serves; `None` when its labels name none.
    pub slot: Option<SlotId>,
    /// Its name.
    pub name: Text,
    /// Its version.
    pub rv: ResourceVersion,
    /// Set if it has a deletionTimestamp.
    pub deleting: bool,
}

/// An object that a job owns, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFact {
    /// Its type and name.
    pub object: OwnedRef,
    /// Its uid.
    pub uid: Uid,
    /// Its version.
    pub rv: ResourceVersion,
    /// Set if it has a deletionTimestamp.
    pub deleting: bool,
    /// Time for which it is kept, as it says itself. An object with an owner is kept with it.
    pub keep: Retain,
    /// Set if it is ready, for example bound.
    pub ready: bool,
    /// Why it cannot become ready.
    pub failed: Option<Text>,
    /// Digest of the contents it was last given.
    pub digest: Option<Text>,
    /// State of an object that admits the pods of the job; [`OwnedFact::ready`] says whether it does.
    pub gate: Option<Box<GateFact>>,
    /// Part of it that pods get something from, or that a report leaves as it is: canonical JSON.
    pub contents: Option<Text>,
}

/// State of an object that admits the pods of a job: another system's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateFact {
    /// Set while it holds quota.
    pub holds_quota: bool,
    /// Set if the pods shall go.
    pub evicted: bool,
    /// Set if the end of the job stands on it.
    pub finished: bool,
    /// Set if it shows that all pods run.
    pub pods_ready: bool,
    /// Digest of the pods that it counts.
    pub pods: Option<Text>,
    /// Why it does not admit the pods, in the words of the other system.
    pub message: Option<Text>,
    /// Other objects of that system that admitted pods get something from.
    pub reads: Vec<OwnedRef>,
}

/// A node, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFact {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub rv: ResourceVersion,
    /// Set if its `Ready` condition is True.
    pub ready: bool,
    /// Other condition types that are True.
    pub conditions: Vec<Text>,
    /// Allocatable GPUs by resource name; resources of which there are none are absent.
    pub gpus: BTreeMap<Text, u32>,
    /// Set if it takes no new pods: it is cordoned.
    pub closed: bool,
    /// Labels of a node with GPUs, but for those that describe its hardware: see `apis::node`.
    pub labels: BTreeMap<Text, Text>,
    /// Taints of a node with GPUs that keep pods away.
    pub taints: Vec<Taint>,
    /// Allocatable amounts of a node with GPUs, in thousandths, of other resources than those.
    pub allocatable: BTreeMap<Text, u64>,
}

/// Members of a node that decisions read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JudgedNode<'a> {
    /// [`NodeFact::ready`].
    pub ready: bool,
    /// [`NodeFact::conditions`].
    pub conditions: &'a [Text],
    /// [`NodeFact::gpus`].
    pub gpus: &'a BTreeMap<Text, u32>,
    /// [`NodeFact::closed`].
    pub closed: bool,
    /// [`NodeFact::labels`].
    pub labels: &'a BTreeMap<Text, Text>,
    /// [`NodeFact::taints`].
    pub taints: &'a [Taint],
    /// [`NodeFact::allocatable`].
    pub allocatable: &'a BTreeMap<Text, u64>,
}

impl NodeFact {
    /// Returns the members that decisions read. Whether a node changed is judged by them alone: a heartbeat leaves them as
    /// they are.
    pub const fn judged(&self) -> JudgedNode<'_> {
        let Self { name: _, rv: _, ready, conditions, gpus, closed, labels, taints, allocatable } = self;
        JudgedNode {
            ready: *ready,
            conditions: conditions.as_slice(),
            gpus,
            closed: *closed,
            labels,
            taints: taints.as_slice(),
            allocatable,
        }
    }
}

/// A PriorityClass, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFact {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub rv: ResourceVersion,
    /// Priority of the pods that name it.
    pub value: i32,
    /// Set if pods that name no class have this one.
    pub is_default: bool,
}

/// A namespace, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceFact {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub rv: ResourceVersion,
    /// Its labels, but for the one that every namespace has.
    pub labels: BTreeMap<Text, Text>,
}
