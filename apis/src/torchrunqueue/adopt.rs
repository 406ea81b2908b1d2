//! `status` -> the state from which the engine starts a queue that its log does not cover. Tests: `tests.rs`.

use model::fact::{Adopted, Milestone};
use model::{Phase, Text};
use serde_json::Value;

use super::status::TERMINATING;
use crate::adopt;
use crate::objects::{list_at, text_at, time_at};

/// Reads the state of a queue back from its object. What the original controller wrote says nothing that is not found out again.
pub(super) fn adopt(object: &Value) -> Adopted {
    let adopted = adopt::mirror_alone(object);
    let at = time_at(object, &["status", "lastUpdateTime"]).unwrap_or_default();
    let mut conditions = list_at(object, &["status", "conditions"]).iter();
    let waits = conditions.find(|condition| text_at(condition, &["type"]) == Some(TERMINATING));
    let message = Text::from(waits.and_then(|condition| text_at(condition, &["message"])).unwrap_or_default());
    let phase = adopted.mirror.phase;
    let milestones = if phase == Phase::New { Vec::new() } else { vec![Milestone { phase, at, message }] };
    Adopted { milestones, ..adopted }
}
