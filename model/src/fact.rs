//! Facts: what came from outside, reduced to what decisions read. One type for each scope of a record, so that a fact of another
//! scope cannot stand in it.
//!
//! A fact never holds a rendered object. `engine::wire` says how a fact is written.

mod adopted;
mod objects;

use std::collections::BTreeMap;

pub use self::adopted::{Adopted, Milestone};
pub use self::objects::{
    ClassFact, EndRequest, GateFact, JudgedNode, Missing, NamespaceFact, NodeFact, ObjectFact, OwnedFact, ReportedEnd,
    ServiceFact, SpecFact,
};
use crate::command::{ObjectRef, Outcome};
use crate::config::Config;
use crate::coordination::QuotaFact;
use crate::id::{Kind, ResourceVersion, Stamp, Term, Text, Uid};
use crate::pod::PodFact;
use crate::queue::QueueReport;
use crate::share::ShareChange;

/// Implements `name` of facts, and `NAMES`, for every variant: one without a name does not compile.
macro_rules! named {
    ($facts:ident: $($variant:ident => $name:literal,)+) => {
        impl $facts {
            /// Names of the kinds of fact of this scope, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the short name of the kind of fact, for matrices, metrics and messages.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)+
                }
            }
        }
    };
}

/// Something observed outside the engine, of any scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// About the cluster.
    Cluster(ClusterFact),
    /// About the queues.
    Queue(QueueFact),
    /// About one job.
    Job(JobFact),
}

impl Fact {
    /// Returns the short name of the kind of fact, for matrices, metrics and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cluster(fact) => fact.name(),
            Self::Queue(fact) => fact.name(),
            Self::Job(fact) => fact.name(),
        }
    }
}

/// Something observed of the cluster: nodes, configuration, terms, and views of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterFact {
    /// A term began: this process decides from here on.
    TermBegan {
        /// The term.
        term: Term,
    },
    /// The configuration in force from here on.
    Configured(Box<Config>),
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
    /// A complete view of a kind, or of one source's part of it, was taken in; differences are facts of their own.
    Relisted {
        /// The kind.
        kind: Kind,
        /// The source; absent for the whole kind.
        of: Option<Text>,
        /// The resourceVersion of the view.
        rv: ResourceVersion,
    },
}

named!(
    ClusterFact:
    TermBegan => "TermBegan",
    Configured => "Configured",
    Node => "Node",
    ForeignUse => "ForeignUse",
    NodeGone => "NodeGone",
    Class => "Class",
    ClassGone => "ClassGone",
    Quota => "Quota",
    QuotaGone => "QuotaGone",
    Namespace => "Namespace",
    NamespaceGone => "NamespaceGone",
    Relisted => "Relisted",
);

/// Something that begins a record of the queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueFact {
    /// A scheduling cycle of the queues. The events of the same record are its decisions.
    SchedulingCycle {
        /// Set if targets were decided; otherwise only places that became free were granted.
        round: bool,
    },
}

named!(
    QueueFact:
    SchedulingCycle => "QueuesAsked",
);

/// Something observed of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobFact {
    /// The job object's metadata and mirror.
    Object(Box<ObjectFact>),
    /// The job object's spec.
    Spec(Box<SpecFact>),
    /// The job object is gone.
    Gone,
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
    /// A node of this job's pods changed; what it is now stands in the cluster record named as cause.
    NodeChanged {
        /// Its name.
        name: Text,
    },
    /// The API answered a call in a way that no observed object shows.
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
        /// Time that one step of the training took, in microseconds; `None` where the log does not show one.
        latency_us: Option<u64>,
    },
    /// A node with free storage was searched for.
    NodeFound {
        /// The node with the most; empty where no node shows how much it has.
        node: Text,
    },
}

named!(
    JobFact:
    Object => "Job",
    Spec => "Spec",
    Gone => "JobGone",
    Pod => "Pod",
    PodGone => "PodGone",
    Service => "Service",
    ServiceGone => "ServiceGone",
    Owned => "Owned",
    OwnedGone => "OwnedGone",
    NodeChanged => "NodeChanged",
    Answered => "Answered",
    Published => "Published",
    Due => "Due",
    Adopted => "Adopted",
    ShareChanged => "ShareChanged",
    QueueReported => "QueueReported",
    WaitReported => "WaitReported",
    Dequeued => "Dequeued",
    Measured => "Measured",
    NodeFound => "NodeFound",
);
