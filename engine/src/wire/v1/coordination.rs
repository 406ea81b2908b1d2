//! Forms of the coordinator's words: what a job requests of it, and the quotas that it reads.

use std::collections::BTreeMap;

use model::{ResourceVersion, Text, Timestamp};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::share::LabelSelector;
use super::{forms, is_default};

forms! {
    Coordination: model::Coordination,
    ScopedRequest: model::ScopedRequest,
    QueueSelector: model::QueueSelector,
    QuotaFact: model::QuotaFact,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Coordination")]
pub(super) struct Coordination {
    #[serde(rename = "tenant")]
    queue: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    tasks: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    request: BTreeMap<Text, u64>,
    #[serde_as(as = "Vec<ScopedRequest>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scoped: Vec<model::ScopedRequest>,
    submitted: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ScopedRequest")]
pub(super) struct ScopedRequest {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    scopes: BTreeMap<Text, Text>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    request: BTreeMap<Text, u64>,
}

#[allow(clippy::enum_variant_names)] // the names that the flag has
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QueueSelector")]
pub(super) enum QueueSelector {
    RoundRobin,
    WeightedRoundRobin,
    SmoothWeightedRoundRobin,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::QuotaFact")]
pub(super) struct QuotaFact {
    namespace: Text,
    name: Text,
    rv: ResourceVersion,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hard: BTreeMap<Text, u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    used: BTreeMap<Text, u64>,
    #[serde_as(as = "LabelSelector")]
    #[serde(default, skip_serializing_if = "is_default")]
    scopes: model::LabelSelector,
}
