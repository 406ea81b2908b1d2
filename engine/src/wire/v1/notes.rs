//! Forms of notes on a job's object.

use model::{Text, Timestamp};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::{forms, is_default};

forms! {
    ObjectAnnotations: model::ObjectAnnotations,
    Elastic: model::Elastic,
    Checkpoint: model::Checkpoint,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ObjectAnnotations", default = "Default::default")]
pub(super) struct ObjectAnnotations {
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_over: Option<Timestamp>,
    #[serde_as(as = "Option<Elastic>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    elastic: Option<model::Elastic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    marked: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restarts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_node: Option<Text>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Elastic", default = "Default::default")]
pub(super) struct Elastic {
    generation: u64,
    #[serde(skip_serializing_if = "is_default")]
    starts: bool,
    #[serde(skip_serializing_if = "is_default")]
    at_once: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling: Option<bool>,
    #[serde_as(as = "Option<Checkpoint>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    requested: Option<model::Checkpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Checkpoint")]
pub(super) struct Checkpoint {
    version: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    done: bool,
}
