//! Forms of events, of the decisions in them, and of the mirror, which holds the last decision.

use std::collections::{BTreeMap, BTreeSet};

use model::{Incarnation, SlotId, Stamp, Text, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::autoscaler::{Autoscaled, Scaling};
use super::job::NodeRefusal;
use super::progress::SpeedSample;
use super::share::{Charge, LossKind, QueueReport, Share, ShareChange, ShareLoss, TargetUpdate, Usage, UserCounts};
use super::spec::{OwnedRef, RestartScope};
use super::{forms, is_default};

forms! {
    QueueEvent: model::QueueEvent,
    JobEvent: model::JobEvent,
    Replacement: model::Replacement,
    Decision: model::Decision,
    Cause: model::Cause,
    CauseKind: model::CauseKind,
    EndRequest: model::fact::EndRequest,
    Phase: model::Phase,
    Mirror: model::Mirror,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QueueEvent")]
pub(crate) enum QueueEvent {
    Allocated(#[serde_as(as = "Box<TargetUpdate>")] Box<model::TargetUpdate>),
    Shared {
        #[serde_as(as = "Vec<(_, ShareChange)>")]
        changes: Vec<(model::JobKey, model::ShareChange)>,
    },
    Reported {
        #[serde_as(as = "Vec<(_, QueueReport)>")]
        queues: Vec<(model::JobKey, model::QueueReport)>,
    },
    WaitsReported {
        jobs: Vec<(model::JobKey, Option<Text>)>,
    },
    Dequeued {
        job: model::JobKey,
        turns: Text,
    },
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::JobEvent")]
pub(crate) enum JobEvent {
    Fenced,
    PodsPlanned {
        slots: Vec<(SlotId, Incarnation)>,
    },
    ServicesPlanned {
        slots: Vec<SlotId>,
    },
    PodsDropped {
        uids: Vec<Uid>,
    },
    ServicesDropped {
        uids: Vec<Uid>,
    },
    OwnedPlanned {
        #[serde_as(as = "Vec<OwnedRef>")]
        objects: Vec<model::OwnedRef>,
    },
    OwnedDropped {
        #[serde_as(as = "Vec<OwnedRef>")]
        objects: Vec<model::OwnedRef>,
    },
    Achieved {
        group: Text,
        run: Text,
    },
    Decided(#[serde_as(as = "Box<Decision>")] Box<model::Decision>),
    Replaced {
        group: Text,
        #[serde_as(as = "Vec<Replacement>")]
        slots: Vec<model::Replacement>,
    },
    Lost {
        #[serde_as(as = "Vec<(_, CauseKind)>")]
        slots: Vec<(SlotId, model::CauseKind)>,
    },
    RestartCleared,
    Ended {
        #[serde_as(as = "Phase")]
        phase: model::Phase,
    },
    PhaseChanged {
        #[serde_as(as = "Phase")]
        to: model::Phase,
        #[serde(default, skip_serializing_if = "str::is_empty")]
        message: Text,
    },
    Stalled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Text>,
    },
    MessageChanged {
        message: Text,
    },
    UsersCounted(#[serde_as(as = "UserCounts")] model::UserCounts),
    Autoscaled(#[serde_as(as = "Box<Autoscaled>")] Box<model::Autoscaled>),
    NodeDropped,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Decision", rename_all = "camelCase")]
pub(crate) enum Decision {
    Restart {
        group: Text,
        #[serde_as(as = "RestartScope")]
        scope: model::RestartScope,
        slot: SlotId,
        #[serde_as(as = "Cause")]
        cause: model::Cause,
        #[serde(default)]
        failures: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    End {
        #[serde_as(as = "Phase")]
        phase: model::Phase,
        #[serde_as(as = "Cause")]
        cause: model::Cause,
        clean: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        live_only: bool,
    },
    Halt {
        #[serde_as(as = "Cause")]
        cause: model::Cause,
    },
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Replacement")]
pub(super) struct Replacement {
    index: u32,
    uid: Uid,
    #[serde_as(as = "CauseKind")]
    kind: model::CauseKind,
    failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_at: Option<Timestamp>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Cause", rename_all = "camelCase")]
pub(super) struct Cause {
    #[serde_as(as = "CauseKind")]
    kind: model::CauseKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    slots: Vec<SlotId>,
    message: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::CauseKind")]
pub(super) enum CauseKind {
    Completed,
    Exited,
    PodFailed,
    NodeLost,
    GpuFault,
    CreationFailed,
    #[serde(rename = "Marked")]
    EndRequested(#[serde_as(as = "EndRequest")] model::fact::EndRequest),
    TimeLimit,
    NoPods,
    BudgetSpent,
    Resized,
    Suspended,
    ShareLost(#[serde_as(as = "LossKind")] model::LossKind),
    NotStarted,
    Invalid,
    NotAdmitted,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::fact::EndRequest")]
pub(super) enum EndRequest {
    Preempted,
    Failed,
    NodeFailed,
    Stopped,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Phase")]
pub(crate) enum Phase {
    New,
    Pending,
    Creating,
    Running,
    Restarting,
    Terminating,
    Succeeded,
    Failed,
    TimedOut,
    Preempted,
    NodeFailed,
    Suspended,
    Preparing,
    Queued,
}

/// The mirror stands in facts, and in the status of job objects (`status.trainyard`).
#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Mirror", rename_all = "camelCase")]
pub(crate) struct Mirror {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde_as(as = "Phase")]
    phase: model::Phase,
    #[serde_as(as = "Option<Decision>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decision: Option<model::Decision>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    wait_uids: BTreeSet<Uid>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    wait_below: BTreeMap<Text, Incarnation>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    charged: BTreeMap<Text, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    slot_retry: BTreeMap<String, Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    grown_from: BTreeMap<Text, u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    replicas: BTreeMap<Text, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_creating_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_running_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    slot_counts: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    lost: BTreeMap<Text, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admitted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_paused_at: Option<Timestamp>,
    #[serde_as(as = "Option<Box<ShareLoss>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share_loss: Option<Box<model::ShareLoss>>,
    #[serde_as(as = "BTreeMap<_, NodeRefusal>")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<Text, model::NodeRefusal>,
    #[serde(default, skip_serializing_if = "is_default")]
    container_restarts: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    rounds: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    achieved: BTreeMap<Text, Text>,
    #[serde_as(as = "Share")]
    #[serde(default, skip_serializing_if = "is_default")]
    share: model::Share,
    #[serde_as(as = "Option<Box<Charge>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    charge: Option<Box<model::Charge>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share_at: Option<Timestamp>,
    #[serde_as(as = "Usage")]
    #[serde(default, skip_serializing_if = "is_default")]
    usage: model::Usage,
    #[serde(default, skip_serializing_if = "is_default")]
    failed_starts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_after: Option<Timestamp>,
    #[serde_as(as = "Vec<SpeedSample>")]
    #[serde(rename = "learnt", default, skip_serializing_if = "Vec::is_empty")]
    speed_samples: Vec<model::SpeedSample>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dequeued_at: Option<Timestamp>,
    #[serde_as(as = "Option<Box<Scaling>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaling: Option<Box<model::Scaling>>,
}
