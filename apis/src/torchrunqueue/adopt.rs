//! `status` -> the state from which the engine starts a queue that its log does not cover. Tests: `tests.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{Mirror, Phase, Text};
use serde_json::Value;

use super::status::TERMINATING;
use crate::objects::{MIRROR, at, list_at, mirror_stamp, text_at, time_at};
use crate::remarks;

/// Reads the state of a queue back from its object. What the original controller wrote says nothing that is not found out again.
pub(super) fn adopt(object: &Value) -> Adopted {
    let mirror = at(object, &["status", MIRROR]).and_then(engine::wire::mirror_from_value);
    let mirror = mirror.unwrap_or_else(|| Mirror { stamp: mirror_stamp(object), ..Mirror::default() });
    let at = time_at(object, &["status", "lastUpdateTime"]).unwrap_or_default();
    let mut conditions = list_at(object, &["status", "conditions"]).iter();
    let waits = conditions.find(|condition| text_at(condition, &["type"]) == Some(TERMINATING));
    let message = Text::from(waits.and_then(|condition| text_at(condition, &["message"])).unwrap_or_default());
    let phase = mirror.phase;
    let milestones = if phase == Phase::New { Vec::new() } else { vec![Milestone { phase, at, message }] };
    Adopted {
        restarts: BTreeMap::new(),
        started_at: None,
        running_at: None,
        ended_at: None,
        finals: BTreeMap::new(),
        remarks: remarks::are_shown(object),
        milestones,
        mirror,
    }
}
