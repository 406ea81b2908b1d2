//! Forms of what pods require of nodes, and of the taints of nodes.

use std::collections::BTreeMap;

use model::Text;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::share::LabelRequirement;
use super::{forms, is_default};

forms! {
    PodRequirements: model::PodRequirements,
    NodeSelectorTerm: model::NodeSelectorTerm,
    Toleration: model::Toleration,
    Taint: model::Taint,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::PodRequirements")]
pub(super) struct PodRequirements {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    requests: BTreeMap<Text, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_name: Option<Text>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<Text, Text>,
    #[serde_as(as = "Option<Vec<NodeSelectorTerm>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    affinity: Option<Vec<model::NodeSelectorTerm>>,
    #[serde_as(as = "Vec<Toleration>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tolerations: Vec<model::Toleration>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::NodeSelectorTerm")]
pub(super) struct NodeSelectorTerm {
    #[serde_as(as = "Vec<LabelRequirement>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    expressions: Vec<model::LabelRequirement>,
    #[serde_as(as = "Vec<LabelRequirement>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<model::LabelRequirement>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Toleration")]
pub(super) struct Toleration {
    #[serde(default, skip_serializing_if = "str::is_empty")]
    key: Text,
    #[serde(default, skip_serializing_if = "is_default")]
    exists: bool,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    value: Text,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    effect: Text,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Taint")]
pub(super) struct Taint {
    key: Text,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    value: Text,
    effect: Text,
}
