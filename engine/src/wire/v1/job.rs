//! Forms of state: jobs and nodes as checkpoints hold them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::{Incarnation, ResourceVersion, SlotId, Stamp, Text, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use serde_with::{Seq, serde_as};

use super::autoscaler::JobAutoscaler;
use super::event::{CauseKind, Decision, EndRequest, Phase};
use super::fact::{Milestone, NodeFact, ObjectRef, Outcome, OwnedFact, PodFact, ReportedEnd, SpecFact};
use super::progress::{Progress, SpeedSample};
use super::share::{Charge, QueueReport, Share, ShareLoss, Usage, UserCounts};
use super::spec::OwnedRef;
use super::{forms, is_default};
use crate::{group, job};

forms! {
    Job: job::Job,
    Trail: job::Trail,
    Group: group::Group,
    Counters: group::Counters,
    Counter: group::Counter,
    Slot: group::Slot,
    Pod: job::Pod,
    PendingDeletion: job::PendingDeletion,
    Service: job::Service,
    Owned: job::Owned,
    Allocation: crate::allocation::Allocation,
    NodeRefusal: model::NodeRefusal,
    JobStorage: crate::storage::JobStorage,
    Attempt: job::Attempt,
    Node: crate::nodes::Node,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "job::Job", default = "Default::default")]
pub(crate) struct Job {
    #[serde(flatten, with = "ObjectState")]
    object: crate::ObjectState,
    #[serde_as(as = "Option<Arc<SpecFact>>")]
    spec: Option<Arc<model::SpecFact>>,
    #[serde_as(as = "Option<Arc<SpecFact>>")]
    valid: Option<Arc<model::SpecFact>>,
    #[serde_as(as = "Phase")]
    phase: model::Phase,
    #[serde_as(as = "VecDeque<Milestone>")]
    milestones: VecDeque<model::fact::Milestone>,
    #[serde_as(as = "Option<Decision>")]
    decision: Option<model::Decision>,
    decided: Stamp,
    #[serde_as(as = "BTreeMap<_, Box<Group>>")]
    groups: BTreeMap<Text, Box<group::Group>>,
    #[serde_as(as = "BTreeMap<_, Box<Pod>>")]
    pods: BTreeMap<Uid, Box<job::Pod>>,
    #[serde_as(as = "BTreeMap<_, Box<Service>>")]
    services: BTreeMap<Uid, Box<job::Service>>,
    #[serde(rename = "strays")]
    surplus_pods: BTreeSet<Uid>,
    #[serde(rename = "stray_services")]
    surplus_services: BTreeSet<Uid>,
    #[serde(rename = "doomed")]
    deleting_pods: BTreeSet<Uid>,
    #[serde_as(as = "Seq<(ObjectRef, Attempt)>")]
    attempts: BTreeMap<model::ObjectRef, job::Attempt>,
    planned_pods: BTreeSet<SlotId>,
    planned_services: BTreeSet<SlotId>,
    retry_at: Option<Timestamp>,
    #[serde(flatten, with = "StatusStamps")]
    stamps: crate::StatusStamps,
    started_at: Option<Timestamp>,
    running_at: Option<Timestamp>,
    first_running_at: Option<Timestamp>,
    creating_at: Option<Timestamp>,
    unschedulable: Option<(Uid, Text)>,
    stalled: Option<Text>,
    adopted: Stamp,
    ended_at: Option<Timestamp>,
    finals: BTreeMap<Text, (u32, u32)>,
    quarantine: Option<Text>,
    deadline: Option<Timestamp>,
    waits_below: BTreeMap<Text, Incarnation>,
    slot_counts: BTreeMap<String, u32>,
    dead: VecDeque<Uid>,
    orphan_since: Option<Timestamp>,
    #[serde_as(as = "VecDeque<Trail>")]
    trail: VecDeque<job::Trail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admitted_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_paused_at: Option<Timestamp>,
    #[serde(flatten, with = "RetryCounts")]
    retry_counts: crate::RetryCounts,
    #[serde_as(as = "Seq<(OwnedRef, Box<Owned>)>")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    owned: BTreeMap<model::OwnedRef, Box<job::Owned>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<Text>,
    #[serde(skip_serializing_if = "is_default")]
    finalized: bool,
    #[serde_as(as = "Option<Box<ReportedEnd>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_end: Option<Box<model::fact::ReportedEnd>>,
    #[serde_as(as = "Option<Box<QueueReport>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Box<model::QueueReport>>,
    #[serde_as(as = "Option<Box<Progress>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Box<model::Progress>>,
    #[serde_as(as = "Vec<SpeedSample>")]
    #[serde(rename = "learnt", skip_serializing_if = "Vec::is_empty")]
    speed_samples: Vec<model::SpeedSample>,
    #[serde_as(as = "UserCounts")]
    #[serde(skip_serializing_if = "is_default")]
    users: model::UserCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    dequeued_at: Option<Timestamp>,
    #[serde_as(as = "Option<Box<JobAutoscaler>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    autoscaler: Option<Box<crate::autoscaler::JobAutoscaler>>,
    #[serde_as(as = "Option<Box<JobStorage>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Box<crate::storage::JobStorage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_reason: Option<Text>,
    /// Derived: not written.
    #[serde(skip)]
    quota_short: Option<Text>,
    #[serde_as(as = "Allocation")]
    #[serde(rename = "holding", skip_serializing_if = "is_default")]
    allocation: crate::allocation::Allocation,
    /// Derived: not written.
    #[serde(skip)]
    unknown_classes: Vec<Text>,
    /// Derived: not written.
    #[serde(skip)]
    key: Option<Arc<model::JobKey>>,
}

/// Members of a job that hold the state of its object.
#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::ObjectState")]
struct ObjectState {
    #[serde(default, getter = "crate::ObjectState::is_known")]
    known: bool,
    #[serde(default, getter = "crate::ObjectState::is_gone")]
    gone: bool,
    #[serde(default, getter = "crate::ObjectState::is_deleting")]
    deleting: bool,
    #[serde(default, getter = "crate::ObjectState::rv")]
    rv: ResourceVersion,
    #[serde_as(as = "BTreeMap<EndRequest, _>")]
    #[serde(default, rename = "marks", getter = "crate::ObjectState::end_requests")]
    end_requests: BTreeMap<model::fact::EndRequest, Text>,
    #[serde(default, rename = "marker", getter = "crate::ObjectState::end_annotated")]
    end_annotated: bool,
}

impl From<ObjectState> for crate::ObjectState {
    fn from(form: ObjectState) -> Self {
        let ObjectState { known, gone, deleting, rv, end_requests, end_annotated } = form;
        Self::of_version(rv).with_flags(known, gone, deleting).with_metadata(end_requests, end_annotated)
    }
}

/// Members of a job that hold the stamps of its status.
#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::StatusStamps")]
struct StatusStamps {
    #[serde(default, rename = "shown", getter = "crate::StatusStamps::wanted")]
    wanted: Stamp,
    #[serde(default, rename = "acked", getter = "crate::StatusStamps::acknowledged")]
    acknowledged: Stamp,
    #[serde(default, rename = "mirror", getter = "crate::StatusStamps::observed")]
    observed: Stamp,
    #[serde(default, rename = "fenced", getter = "crate::StatusStamps::fenced_by")]
    fenced_by: Stamp,
}

impl From<StatusStamps> for crate::StatusStamps {
    fn from(form: StatusStamps) -> Self {
        let StatusStamps { wanted, acknowledged, observed, fenced_by } = form;
        Self::new(wanted, acknowledged, observed, fenced_by)
    }
}

/// Members of a job that its counts of retries hold.
#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::RetryCounts")]
struct RetryCounts {
    #[serde(default, getter = "crate::RetryCounts::past_container_restarts", skip_serializing_if = "is_default")]
    past_container_restarts: u32,
    #[serde(default, getter = "crate::RetryCounts::container_restarts", skip_serializing_if = "is_default")]
    container_restarts: u32,
    #[serde(default, getter = "crate::RetryCounts::rounds", skip_serializing_if = "is_default")]
    rounds: u32,
    #[serde(default, getter = "crate::RetryCounts::round_at", skip_serializing_if = "Option::is_none")]
    round_at: Option<Timestamp>,
}

impl From<RetryCounts> for crate::RetryCounts {
    fn from(form: RetryCounts) -> Self {
        let RetryCounts { past_container_restarts, container_restarts, rounds, round_at } = form;
        Self::new(past_container_restarts, container_restarts, rounds, round_at)
    }
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::allocation::Allocation", default = "Default::default")]
pub(super) struct Allocation {
    #[serde(skip_serializing_if = "is_default")]
    gated: bool,
    #[serde_as(as = "Share")]
    #[serde(skip_serializing_if = "is_default")]
    share: model::Share,
    #[serde_as(as = "Option<Box<Charge>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    charge: Option<Box<model::Charge>>,
    #[serde(skip_serializing_if = "is_default")]
    stamp: Stamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde_as(as = "Usage")]
    #[serde(skip_serializing_if = "is_default")]
    usage: model::Usage,
    #[serde_as(as = "Vec<(_, Share)>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    released: Vec<(Stamp, model::Share)>,
    #[serde_as(as = "Option<ShareLoss>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<model::ShareLoss>,
    #[serde(skip_serializing_if = "is_default")]
    has_target: bool,
    #[serde(skip_serializing_if = "is_default")]
    whole: bool,
    #[serde(skip_serializing_if = "is_default")]
    failed_starts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_after: Option<Timestamp>,
    #[serde_as(as = "BTreeMap<_, NodeRefusal>")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<Text, model::NodeRefusal>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::NodeRefusal")]
pub(super) struct NodeRefusal {
    times: u32,
    until: Timestamp,
    words: Text,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "job::Trail")]
pub(super) struct Trail {
    stamp: Stamp,
    at: Timestamp,
    text: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "group::Group", default = "Default::default")]
pub(super) struct Group {
    #[serde_as(as = "Vec<Slot>")]
    slots: Vec<group::Slot>,
    replicas: u32,
    restarts: u32,
    charged: u32,
    #[serde_as(as = "Counters")]
    counters: group::Counters,
    missing: BTreeSet<u32>,
    #[serde(rename = "unserved")]
    missing_services: BTreeSet<u32>,
    done: BTreeSet<u32>,
    #[serde(rename = "suspects")]
    to_evaluate: BTreeSet<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    delays: BTreeMap<u32, Timestamp>,
    #[serde(skip_serializing_if = "is_default")]
    past: Incarnation,
    #[serde(skip_serializing_if = "Option::is_none")]
    grown_from: Option<u32>,
    #[serde_as(as = "Counters")]
    #[serde(skip_serializing_if = "is_default")]
    grown: group::Counters,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    lost: BTreeSet<u32>,
    #[serde(rename = "misshapen", skip_serializing_if = "BTreeSet::is_empty")]
    outdated: BTreeSet<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    achieved: Option<Text>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "group::Counters")]
pub(super) struct Counters {
    pending: u32,
    scheduled: u32,
    active: u32,
    succeeded: u32,
    failed: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "group::Counter")]
pub(super) enum Counter {
    Pending,
    Scheduled,
    Active,
    Succeeded,
    Failed,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "group::Slot", default = "Default::default")]
pub(super) struct Slot {
    incarnation: Incarnation,
    count: Option<u32>,
    pod: Option<Uid>,
    planned: bool,
    cancelled: bool,
    done: bool,
    service: Option<Uid>,
    service_planned: bool,
    #[serde_as(as = "Seq<(CauseKind, _)>")]
    failures: BTreeMap<model::CauseKind, u32>,
    last_gone: Option<Uid>,
    #[serde(skip_serializing_if = "is_default")]
    last_gone_rv: ResourceVersion,
    #[serde(skip_serializing_if = "is_default")]
    lost: bool,
    #[serde_as(as = "Option<Counter>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    counter: Option<group::Counter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    planned_on: Option<Text>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "job::Pod")]
pub(super) struct Pod {
    #[serde_as(as = "PodFact")]
    fact: model::PodFact,
    #[serde_as(as = "Option<Box<PendingDeletion>>")]
    #[serde(rename = "doom")]
    deletion: Option<Box<job::PendingDeletion>>,
    running_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "job::PendingDeletion")]
pub(super) struct PendingDeletion {
    #[serde(rename = "evidence")]
    requires: Stamp,
    ordered: bool,
    forced: bool,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "job::Service")]
pub(super) struct Service {
    name: Text,
    slot: Option<SlotId>,
    rv: ResourceVersion,
    deleting: bool,
    #[serde_as(as = "Option<Box<PendingDeletion>>")]
    #[serde(rename = "doom")]
    deletion: Option<Box<job::PendingDeletion>>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "job::Owned", default = "Default::default")]
pub(super) struct Owned {
    #[serde_as(as = "Option<OwnedFact>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    fact: Option<model::OwnedFact>,
    #[serde(skip_serializing_if = "is_default")]
    planned: bool,
    #[serde_as(as = "Option<Box<PendingDeletion>>")]
    #[serde(rename = "doom", skip_serializing_if = "Option::is_none")]
    deletion: Option<Box<job::PendingDeletion>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::storage::JobStorage")]
pub(super) struct JobStorage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unplaced_since: Option<Timestamp>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "job::Attempt")]
pub(super) struct Attempt {
    failures: u32,
    retry_at: Option<Timestamp>,
    #[serde_as(as = "Outcome")]
    last: model::Outcome,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::nodes::Node")]
pub(super) struct Node {
    #[serde_as(as = "NodeFact")]
    fact: model::NodeFact,
    not_ready_since: Option<Timestamp>,
}
