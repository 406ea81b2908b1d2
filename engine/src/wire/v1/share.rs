//! Forms of shares, and of the changes that queues make to them. Nodes are written as runs: `["n1", 4]` are four replicas.

use model::{Text, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::serde_as;
use std::collections::{BTreeMap, BTreeSet};

use super::namespaces::Namespaces;
use super::progress::SpeedSample;
use super::{forms, is_default};

forms! {
    GpuRequest: model::GpuRequest,
    SizeRange: model::SizeRange,
    Resize: model::Resize,
    Usage: model::Usage,
    Demand: model::Demand,
    Share: model::Share,
    Charge: model::Charge,
    ShareChange: model::ShareChange,
    ShareTarget: model::ShareTarget,
    ShareLoss: model::ShareLoss,
    LossKind: model::LossKind,
    TargetUpdate: model::TargetUpdate,
    QueueSpec: model::QueueSpec,
    QuotaSpec: model::QuotaSpec,
    WithinQueue: model::WithinQueue,
    Reclaim: model::Reclaim,
    QueueReport: model::QueueReport,
    WaitingJob: model::WaitingJob,
    UserCounts: model::UserCounts,
    LabelSelector: model::LabelSelector,
    LabelRequirement: model::LabelRequirement,
    LabelOperator: model::LabelOperator,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::GpuRequest")]
pub(super) struct GpuRequest {
    resource: Text,
    count: u32,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::SizeRange")]
pub(super) struct SizeRange {
    min: u32,
    preferred: u32,
    max: u32,
    #[serde_as(as = "Resize")]
    resize: model::Resize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Resize")]
pub(super) enum Resize {
    InPlace,
    Restart,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Usage", default = "Default::default", rename_all = "camelCase")]
pub(super) struct Usage {
    #[serde(skip_serializing_if = "is_default")]
    gpu_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    held_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    spell_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_start: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Demand")]
pub(super) struct Demand {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    classes: BTreeSet<Text>,
    submitted: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    units: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    level: u32,
}

/// Written as an object of groups, each a list of runs.
pub(super) struct Share;

impl Share {
    pub(super) fn serialize<S: Serializer>(share: &model::Share, serializer: S) -> Result<S::Ok, S::Error> {
        let runs = |nodes: &Vec<Text>| {
            let mut runs: Vec<(Text, u32)> = Vec::new();
            for node in nodes {
                match runs.last_mut() {
                    Some((last, count)) if last == node => *count = count.saturating_add(1),
                    Some(_) | None => runs.push((node.clone(), 1)),
                }
            }
            runs
        };
        serializer.collect_map(share.groups.iter().map(|(group, nodes)| (group, runs(nodes))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<model::Share, D::Error> {
        let groups = BTreeMap::<Text, Vec<(Text, u32)>>::deserialize(deserializer)?;
        let nodes = |runs: Vec<(Text, u32)>| {
            runs.into_iter().flat_map(|(node, count)| (0..count).map(move |_| node.clone())).collect()
        };
        Ok(model::Share { groups: groups.into_iter().map(|(group, runs)| (group, nodes(runs))).collect() })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Charge")]
pub(super) struct Charge {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Text>,
    gpus: BTreeMap<Text, u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    resource: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ShareChange")]
pub(super) struct ShareChange {
    #[serde_as(as = "Share")]
    share: model::Share,
    #[serde_as(as = "Option<Share>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<model::Share>,
    #[serde_as(as = "Option<ShareLoss>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<model::ShareLoss>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ShareTarget")]
pub(super) struct ShareTarget {
    #[serde_as(as = "Share")]
    share: model::Share,
    #[serde_as(as = "Option<ShareLoss>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<model::ShareLoss>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ShareLoss")]
pub(super) struct ShareLoss {
    #[serde_as(as = "LossKind")]
    kind: model::LossKind,
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    beneficiary: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Text>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::LossKind")]
pub(super) enum LossKind {
    Preempted,
    Reclaimed,
    Moved,
    Resized,
    NodesLost,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::TargetUpdate")]
pub(super) struct TargetUpdate {
    #[serde_as(as = "Vec<(_, ShareTarget)>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    targets: Vec<(model::JobKey, model::ShareTarget)>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    memory: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QueueSpec")]
pub(super) struct QueueSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cohort: Option<Text>,
    #[serde_as(as = "BTreeMap<_, QuotaSpec>")]
    quota: BTreeMap<Text, model::QuotaSpec>,
    weight: u32,
    policy: Text,
    by_priority: bool,
    #[serde_as(as = "WithinQueue")]
    within: model::WithinQueue,
    #[serde_as(as = "Reclaim")]
    reclaim: model::Reclaim,
    min_run_ms: u64,
    round_ms: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    spread: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    paused: bool,
    #[serde_as(as = "Option<Namespaces>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespaces: Option<model::LabelSelector>,
    #[serde_as(as = "Option<LabelSelector>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<model::LabelSelector>,
    #[serde(default, skip_serializing_if = "is_default")]
    shares_nodes: bool,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::LabelSelector")]
pub(super) struct LabelSelector {
    #[serde_as(as = "Vec<LabelRequirement>")]
    requirements: Vec<model::LabelRequirement>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::LabelRequirement")]
pub(super) struct LabelRequirement {
    key: Text,
    #[serde_as(as = "LabelOperator")]
    operator: model::LabelOperator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<Text>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::LabelOperator")]
pub(super) enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QuotaSpec")]
pub(super) struct QuotaSpec {
    nominal: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    borrowing: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lending: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::WithinQueue")]
pub(super) enum WithinQueue {
    Never,
    LowerPriority,
    Any,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Reclaim")]
pub(super) enum Reclaim {
    Never,
    LowerPriority,
    Any,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QueueReport", default = "Default::default")]
pub(super) struct QueueReport {
    #[serde(skip_serializing_if = "is_default")]
    admitted: u32,
    #[serde(skip_serializing_if = "is_default")]
    pending: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    usage: BTreeMap<Text, u32>,
    #[serde_as(as = "Vec<WaitingJob>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<model::WaitingJob>,
    #[serde_as(as = "Vec<SpeedSample>")]
    #[serde(rename = "lessons", skip_serializing_if = "Vec::is_empty")]
    speed_samples: Vec<model::SpeedSample>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::UserCounts", default = "Default::default")]
pub(super) struct UserCounts {
    #[serde(skip_serializing_if = "is_default")]
    pending: u32,
    #[serde(skip_serializing_if = "is_default")]
    running: u32,
    #[serde(skip_serializing_if = "is_default")]
    finished: u32,
    #[serde(skip_serializing_if = "is_default")]
    gpus: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::WaitingJob")]
pub(super) struct WaitingJob {
    name: Text,
    reason: Text,
    message: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected_start: Option<Timestamp>,
}
