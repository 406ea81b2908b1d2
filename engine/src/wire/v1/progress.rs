//! Forms of progress and of speed samples.

use std::collections::BTreeMap;

use model::{Text, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::forms;

forms! {
    Measurement: model::Measurement,
    Progress: model::Progress,
    SpeedSample: model::SpeedSample,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Measurement", rename_all = "camelCase")]
pub(super) struct Measurement {
    units: u64,
    took_ms: u64,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Progress")]
pub(super) struct Progress {
    done: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde_as(as = "BTreeMap<_, Measurement>")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sizes: BTreeMap<u32, model::Measurement>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::SpeedSample")]
pub(super) struct SpeedSample {
    category: Text,
    resource: Text,
    jobs: Vec<Uid>,
    at: Timestamp,
    #[serde_as(as = "BTreeMap<_, Measurement>")]
    sizes: BTreeMap<u32, model::Measurement>,
}
