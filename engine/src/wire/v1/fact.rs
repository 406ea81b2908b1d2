//! Forms of facts and of what was observed in them.

use std::collections::BTreeMap;

use model::{Incarnation, ResourceVersion, SlotId, Stamp, Term, Text, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::coordination::QuotaFact;
use super::event::{EndRequest, Mirror, Phase};
use super::notes::ObjectAnnotations;
use super::progress::Progress;
use super::requirements::Taint;
use super::share::{QueueReport, ShareChange};
use super::spec::{Config, FieldError, JobSpec, Kind, OwnedRef, Retain};
use super::{forms, is_default};

forms! {
    ClusterFact: model::ClusterFact,
    QueueFact: model::QueueFact,
    JobFact: model::JobFact,
    ObjectFact: model::ObjectFact,
    SpecFact: model::SpecFact,
    PodPhase: model::PodPhase,
    PodFact: model::PodFact,
    PodHolding: model::PodHolding,
    ContainerEnd: model::ContainerEnd,
    ContainerFact: model::ContainerFact,
    ContainerState: model::ContainerState,
    ServiceFact: model::ServiceFact,
    OwnedFact: model::OwnedFact,
    GateFact: model::GateFact,
    ReportedEnd: model::fact::ReportedEnd,
    Missing: model::Missing,
    NodeFact: model::NodeFact,
    ClassFact: model::ClassFact,
    NamespaceFact: model::NamespaceFact,
    Adopted: model::fact::Adopted,
    Milestone: model::fact::Milestone,
    ObjectRef: model::ObjectRef,
    Outcome: model::Outcome,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ClusterFact")]
pub(crate) enum ClusterFact {
    TermBegan {
        term: Term,
    },
    Configured(#[serde_as(as = "Box<Config>")] Box<model::Config>),
    Node(#[serde_as(as = "Box<NodeFact>")] Box<model::NodeFact>),
    ForeignUse {
        node: Text,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        gpus: BTreeMap<Text, u32>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        requests: BTreeMap<Text, u64>,
    },
    NodeGone {
        name: Text,
    },
    Class(#[serde_as(as = "Box<ClassFact>")] Box<model::ClassFact>),
    ClassGone {
        name: Text,
    },
    Quota(#[serde_as(as = "Box<QuotaFact>")] Box<model::QuotaFact>),
    QuotaGone {
        namespace: Text,
        name: Text,
    },
    Namespace(#[serde_as(as = "Box<NamespaceFact>")] Box<model::NamespaceFact>),
    NamespaceGone {
        name: Text,
    },
    Relisted {
        #[serde_as(as = "Kind")]
        kind: model::Kind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Text>,
        rv: ResourceVersion,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QueueFact")]
pub(crate) enum QueueFact {
    #[serde(rename = "QueuesAsked")]
    SchedulingCycle {
        #[serde(default, skip_serializing_if = "is_default")]
        round: bool,
    },
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::JobFact")]
pub(crate) enum JobFact {
    #[serde(rename = "Job")]
    Object(#[serde_as(as = "Box<ObjectFact>")] Box<model::ObjectFact>),
    Spec(#[serde_as(as = "Box<SpecFact>")] Box<model::SpecFact>),
    #[serde(rename = "JobGone")]
    Gone,
    Pod(#[serde_as(as = "Box<PodFact>")] Box<model::PodFact>),
    PodGone {
        uid: Uid,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rv: Option<ResourceVersion>,
    },
    Service(#[serde_as(as = "Box<ServiceFact>")] Box<model::ServiceFact>),
    ServiceGone {
        uid: Uid,
    },
    Owned(#[serde_as(as = "Box<OwnedFact>")] Box<model::OwnedFact>),
    OwnedGone {
        uid: Uid,
    },
    NodeChanged {
        name: Text,
    },
    Answered {
        #[serde_as(as = "ObjectRef")]
        object: model::ObjectRef,
        #[serde_as(as = "Outcome")]
        outcome: model::Outcome,
    },
    Published {
        stamp: Stamp,
        rv: ResourceVersion,
    },
    Due,
    Adopted(#[serde_as(as = "Box<Adopted>")] Box<model::fact::Adopted>),
    ShareChanged(#[serde_as(as = "Box<ShareChange>")] Box<model::ShareChange>),
    QueueReported(#[serde_as(as = "Box<QueueReport>")] Box<model::QueueReport>),
    WaitReported(Option<Text>),
    Dequeued,
    Measured {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latency_us: Option<u64>,
    },
    NodeFound {
        #[serde(default, skip_serializing_if = "str::is_empty")]
        node: Text,
    },
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ObjectFact")]
pub(super) struct ObjectFact {
    rv: ResourceVersion,
    #[serde(default, skip_serializing_if = "is_default")]
    deleting: bool,
    #[serde_as(as = "BTreeMap<EndRequest, _>")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(rename = "marks")]
    end_requests: BTreeMap<model::fact::EndRequest, Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    #[serde(rename = "marker")]
    end_annotated: bool,
    #[serde(default)]
    mirror: Stamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    finalized: bool,
    #[serde_as(as = "Option<Box<ReportedEnd>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reported_end: Option<Box<model::fact::ReportedEnd>>,
    #[serde_as(as = "Option<Box<Progress>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Box<model::Progress>>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::fact::ReportedEnd")]
pub(super) struct ReportedEnd {
    #[serde_as(as = "Phase")]
    phase: model::Phase,
    message: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::SpecFact")]
pub(super) struct SpecFact {
    #[serde_as(as = "Result<JobSpec, Vec<FieldError>>")]
    spec: Result<model::JobSpec, Vec<model::FieldError>>,
    #[serde_as(as = "Vec<FieldError>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<model::FieldError>,
    manifest: Text,
    #[serde_as(as = "Vec<Missing>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<model::Missing>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs: Vec<(Text, Text)>,
    #[serde(default, skip_serializing_if = "is_default")]
    fatal: bool,
    #[serde_as(as = "Option<Box<ObjectAnnotations>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notes: Option<Box<model::ObjectAnnotations>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Missing")]
pub(super) struct Missing {
    kind: Text,
    name: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<Text>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::OwnedFact")]
pub(super) struct OwnedFact {
    #[serde_as(as = "OwnedRef")]
    object: model::OwnedRef,
    uid: Uid,
    rv: ResourceVersion,
    #[serde(default, skip_serializing_if = "is_default")]
    deleting: bool,
    #[serde_as(as = "Retain")]
    #[serde(default, skip_serializing_if = "is_default")]
    keep: model::Retain,
    #[serde(default, skip_serializing_if = "is_default")]
    ready: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Text>,
    #[serde_as(as = "Option<Box<GateFact>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<Box<model::GateFact>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contents: Option<Text>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::GateFact")]
pub(super) struct GateFact {
    #[serde(default, skip_serializing_if = "is_default")]
    holds_quota: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    evicted: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    finished: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pods_ready: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pods: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Text>,
    #[serde_as(as = "Vec<OwnedRef>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reads: Vec<model::OwnedRef>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::PodPhase")]
pub(crate) enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::PodFact")]
pub(super) struct PodFact {
    uid: Uid,
    name: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<SlotId>,
    rv: ResourceVersion,
    #[serde(default)]
    incarnation: Incarnation,
    #[serde_as(as = "PodPhase")]
    phase: model::PodPhase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting: Option<Timestamp>,
    #[serde_as(as = "Vec<ContainerFact>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    containers: Vec<model::ContainerFact>,
    #[serde_as(as = "Vec<ContainerFact>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    init: Vec<model::ContainerFact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protected: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    lingers: bool,
    #[serde_as(as = "Option<Box<PodHolding>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holds: Option<Box<model::PodHolding>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::PodHolding")]
pub(super) struct PodHolding {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Text>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    gpus: BTreeMap<Text, u32>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ContainerFact")]
pub(super) struct ContainerFact {
    name: Text,
    #[serde(default, skip_serializing_if = "is_default")]
    main: bool,
    #[serde_as(as = "ContainerState")]
    state: model::ContainerState,
    #[serde_as(as = "Option<Box<ContainerEnd>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<Box<model::ContainerEnd>>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ContainerState")]
pub(super) enum ContainerState {
    Waiting {
        reason: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Text>,
    },
    Running,
    Terminated(#[serde_as(as = "ContainerEnd")] model::ContainerEnd),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ContainerEnd")]
pub(super) struct ContainerEnd {
    code: i32,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    reason: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    lost_peer: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ServiceFact")]
pub(super) struct ServiceFact {
    uid: Uid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<SlotId>,
    name: Text,
    rv: ResourceVersion,
    #[serde(default, skip_serializing_if = "is_default")]
    deleting: bool,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::NodeFact")]
pub(super) struct NodeFact {
    name: Text,
    rv: ResourceVersion,
    ready: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Text>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    gpus: BTreeMap<Text, u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    closed: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<Text, Text>,
    #[serde_as(as = "Vec<Taint>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taints: Vec<model::Taint>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    allocatable: BTreeMap<Text, u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ClassFact")]
pub(super) struct ClassFact {
    name: Text,
    rv: ResourceVersion,
    value: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    #[serde(rename = "default")]
    is_default: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::NamespaceFact")]
pub(super) struct NamespaceFact {
    name: Text,
    rv: ResourceVersion,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<Text, Text>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::fact::Adopted")]
pub(super) struct Adopted {
    #[serde_as(as = "Mirror")]
    mirror: model::Mirror,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    restarts: BTreeMap<Text, u32>,
    #[serde_as(as = "Vec<Milestone>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    milestones: Vec<model::fact::Milestone>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    finals: BTreeMap<Text, (u32, u32)>,
    #[serde(default, skip_serializing_if = "is_default")]
    remarks: bool,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::fact::Milestone")]
pub(super) struct Milestone {
    #[serde_as(as = "Phase")]
    phase: model::Phase,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    message: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ObjectRef")]
pub(super) enum ObjectRef {
    Pod(SlotId),
    Service(SlotId),
    PodUid(Uid),
    ServiceUid(Uid),
    Status,
    #[serde(rename = "Marker")]
    EndAnnotation,
    Job,
    Owned(#[serde_as(as = "OwnedRef")] model::OwnedRef),
    Finalizer,
    #[serde(rename = "Notes")]
    Annotations,
    Log,
    StorageNode,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Outcome")]
pub(super) enum Outcome {
    Done,
    Forced,
    Gone,
    Taken {
        waiting: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        unseen: bool,
    },
    Refused {
        code: u16,
        message: Text,
    },
    Unknown {
        code: u16,
    },
}
