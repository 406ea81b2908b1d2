//! Facts: what came from outside, reduced to what decisions read.
//!
//! A fact never holds a rendered object. `engine::wire` says how a fact is written.

use std::collections::BTreeMap;

use crate::command::{ObjectRef, Outcome};
use crate::config::Config;
use crate::coordination::QuotaFact;
use crate::id::{Kind, ResourceVersion, SlotId, Stamp, Term, Text, Timestamp, Uid};
use crate::mirror::Mirror;
use crate::notes::Noted;
use crate::owned::{Keep, OwnedRef};
use crate::phase::Phase;
use crate::pod::PodFact;
use crate::progress::Progress;
use crate::queue::QueueReport;
use crate::requirements::Taint;
use crate::share::ShareChange;
use crate::spec::{FieldError, JobSpec};

/// Something observed outside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A term began: this process decides from here on.
    TermBegan {
        /// The term.
        term: Term,
    },
    /// The configuration in force from here on.
    Configured(Box<Config>),
    /// The job object's metadata and mirror.
    Job(Box<JobFact>),
    /// The job object's spec.
    Spec(Box<SpecFact>),
    /// The job object is gone.
    JobGone,
    /// A pod as it stands.
    Pod(Box<PodFact>),
    /// A pod is gone.
    PodGone {
        /// Its uid.
        uid: Uid,
        /// The version as of which no watch shows it. If it is shown later, it was not gone: its labels were changed for a while.
        rv: Option<ResourceVersion>,
    },
    /// A service as it stands.
    Service(Box<ServiceFact>),
    /// A service is gone.
    ServiceGone {
        /// Its uid.
        uid: Uid,
    },
    /// An object that the job owns as it stands.
    Owned(Box<OwnedFact>),
    /// An object that the job owned is gone.
    OwnedGone {
        /// Its uid.
        uid: Uid,
    },
    /// A node as it stands.
    Node(Box<NodeFact>),
    /// Amounts that pods for which no job has places hold on a node: those of others, and those of jobs that request no GPU.
    ForeignUse {
        /// Name of the node.
        node: Text,
        /// The GPUs by resource; empty when they hold none.
        gpus: BTreeMap<Text, u32>,
        /// Requests of other resources that the node lists, in thousandths of their units.
        requests: BTreeMap<Text, u64>,
    },
    /// A node is gone.
    NodeGone {
        /// Its name.
        name: Text,
    },
    /// A PriorityClass as it stands.
    Class(Box<ClassFact>),
    /// A PriorityClass is gone.
    ClassGone {
        /// Its name.
        name: Text,
    },
    /// A ResourceQuota as it stands.
    Quota(Box<QuotaFact>),
    /// A ResourceQuota is gone.
    QuotaGone {
        /// Its namespace.
        namespace: Text,
        /// Its name.
        name: Text,
    },
    /// A namespace as it stands.
    Namespace(Box<NamespaceFact>),
    /// A namespace is gone.
    NamespaceGone {
        /// Its name.
        name: Text,
    },
    /// A node of this job's pods changed; what it is now stands in the cluster record named as cause.
    NodeChanged {
        /// Its name.
        name: Text,
    },
    /// A complete view of a kind, or of one source's part of it, was taken in; differences are facts of their own.
    Relisted {
        /// The kind.
        kind: Kind,
        /// The source; absent for the whole kind.
        of: Option<Text>,
        /// The resourceVersion of the view.
        rv: ResourceVersion,
    },
    /// The API answered a call in a way that no observed object tells.
    Answered {
        /// The object the call was about.
        object: ObjectRef,
        /// The answer.
        outcome: Outcome,
    },
    /// A status write carrying this stamp was acknowledged.
    Published {
        /// Stamp the written mirror carried.
        stamp: Stamp,
        /// The job's resourceVersion after the write.
        rv: ResourceVersion,
    },
    /// The job's deadline has passed.
    Due,
    /// The log does not cover the job's mirror: its state is taken from its object.
    Adopted(Box<Adopted>),
    /// A scheduling cycle of the queues. The events of the same record are its decisions.
    SchedulingCycle {
        /// Set if targets were decided; otherwise only places that became free were granted.
        round: bool,
    },
    /// The queues changed the job's share or its target; the record named as cause decided it.
    ShareChanged(Box<ShareChange>),
    /// The jobs of the queue that this object is changed.
    QueueReported(Box<QueueReport>),
    /// Reason for which the job waits in its queue; the record named as cause decided it. `None`: no reason is reported.
    WaitReported(Option<Text>),
    /// The coordinator dequeued the job; the record named as cause decided it.
    Dequeued,
    /// The log of a pod was read.
    Measured {
        /// Time that one step of the training took, in microseconds; `None` where the log does not tell one.
        latency_us: Option<u64>,
    },
    /// A node with free storage was searched for.
    NodeFound {
        /// The node with the most; empty where no node tells how much it has.
        node: Text,
    },
}

impl Fact {
    /// Short name of the kind of fact, for matrices, metrics and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TermBegan { .. } => "TermBegan",
            Self::Configured(_) => "Configured",
            Self::Job(_) => "Job",
            Self::Spec(_) => "Spec",
            Self::JobGone => "JobGone",
            Self::Pod(_) => "Pod",
            Self::PodGone { .. } => "PodGone",
            Self::Service(_) => "Service",
            Self::ServiceGone { .. } => "ServiceGone",
            Self::Owned(_) => "Owned",
            Self::OwnedGone { .. } => "OwnedGone",
            Self::Node(_) => "Node",
            Self::ForeignUse { .. } => "ForeignUse",
            Self::NodeGone { .. } => "NodeGone",
            Self::Class(_) => "Class",
            Self::ClassGone { .. } => "ClassGone",
            Self::Quota(_) => "Quota",
            Self::QuotaGone { .. } => "QuotaGone",
            Self::Namespace(_) => "Namespace",
            Self::NamespaceGone { .. } => "NamespaceGone",
            Self::NodeChanged { .. } => "NodeChanged",
            Self::Relisted { .. } => "Relisted",
            Self::Answered { .. } => "Answered",
            Self::Published { .. } => "Published",
            Self::Due => "Due",
            Self::Adopted(_) => "Adopted",
            Self::SchedulingCycle { .. } => "QueuesAsked",
            Self::ShareChanged(_) => "ShareChanged",
            Self::QueueReported(_) => "QueueReported",
            Self::WaitReported(_) => "WaitReported",
            Self::Dequeued => "Dequeued",
            Self::Measured { .. } => "Measured",
            Self::NodeFound { .. } => "NodeFound",
        }
    }
}

/// Metadata of the job object, besides its spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFact {
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
    /// Objects that the spec is made of besides the job, and that cannot be used. While there are any, the job waits.
    pub missing: Vec<Missing>,
    /// Jobs of other kinds whose objects the spec is made of: kind and name, in the job's namespace.
    pub needs: Vec<(Text, Text)>,
    /// Set if a spec that cannot be accepted fails a job that never had another one.
    pub fatal: bool,
    /// Notes on the job's object, whether its spec can be accepted or not; `None` where its API has none.
    pub notes: Option<Box<Noted>>,
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
    pub keep: Keep,
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
    /// Returns the members that decisions read. Whether a node changed is told by them alone: a heartbeat leaves them as
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

/// A job's state as its object tells it, for a log that does not cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The mirror the object carried.
    pub mirror: Mirror,
    /// Restarts shown per group.
    pub restarts: BTreeMap<Text, u32>,
    /// Milestones shown, oldest first.
    pub milestones: Vec<Milestone>,
    /// First time the job was pending.
    pub started_at: Option<Timestamp>,
    /// First time every pod ran.
    pub running_at: Option<Timestamp>,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
    /// Final counters (succeeded, failed) per group of a job that ended.
    pub finals: BTreeMap<Text, (u32, u32)>,
    /// Set if its status shows remarks besides its phases. Those that are over by now have to be taken off it.
    pub remarks: bool,
}

/// One change of phase as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// The phase entered.
    pub phase: crate::phase::Phase,
    /// When.
    pub at: Timestamp,
    /// Why, in words; empty when there is nothing to add.
    pub message: Text,
}
