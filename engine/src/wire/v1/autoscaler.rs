//! Forms of autoscalers: their settings, their state and their steps.

use std::collections::BTreeMap;

use model::{Text, Timestamp};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::progress::Measurement;
use super::{forms, is_default};

forms! {
    Autoscaler: model::Autoscaler,
    ScalingCondition: model::ScalingCondition,
    Scaling: model::Scaling,
    ScalingStep: model::ScalingStep,
    Autoscaled: model::Autoscaled,
    JobAutoscaler: crate::autoscaler::JobAutoscaler,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Autoscaler")]
pub(super) struct Autoscaler {
    group: Text,
    min: u32,
    max: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ScalingCondition")]
pub(super) enum ScalingCondition {
    Start,
    Continue,
    ReachMaxMetric,
    ReachMaxReplicas,
    Stop,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Scaling")]
pub(super) struct Scaling {
    #[serde_as(as = "ScalingCondition")]
    condition: model::ScalingCondition,
    #[serde(default, skip_serializing_if = "is_default")]
    continues: bool,
    replicas: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    last: u32,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    message: Text,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ScalingStep")]
pub(super) enum ScalingStep {
    Look {
        at: Timestamp,
    },
    AwaitPods {
        until: Timestamp,
    },
    ReadLog,
    Judge {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latency_us: Option<u64>,
    },
    RestartPods,
    Rest,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Autoscaled")]
pub(super) struct Autoscaled {
    #[serde_as(as = "Option<Scaling>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaling: Option<model::Scaling>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency_us: Option<u64>,
    #[serde_as(as = "ScalingStep")]
    next: model::ScalingStep,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "crate::autoscaler::JobAutoscaler")]
pub(super) struct JobAutoscaler {
    #[serde_as(as = "Scaling")]
    scaling: model::Scaling,
    #[serde_as(as = "ScalingStep")]
    next: model::ScalingStep,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    latencies_us: BTreeMap<u32, Vec<u64>>,
    #[serde_as(as = "Measurement")]
    #[serde(default, skip_serializing_if = "is_default")]
    measured: model::Measurement,
    #[serde(default, skip_serializing_if = "is_default")]
    resizes: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    reverts: u32,
}
