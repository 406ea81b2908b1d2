//! `status` -> the state from which the engine starts a queue that its log does not cover. Tests: `tests.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{Mirror, Phase, Text};
use serde_json::Value;

use crate::objects::{MIRROR, at, mirror_stamp};
use crate::remarks;

/// Reads the state of a queue back from its object: nothing of it but the mirror. Its jobs tell the rest.
pub(super) fn adopt(object: &Value) -> Adopted {
    let mirror = at(object, &["status", MIRROR]).and_then(engine::wire::mirror_from_value);
    let mirror = mirror.unwrap_or_else(|| Mirror { stamp: mirror_stamp(object), ..Mirror::default() });
    let phase = mirror.phase;
    let shown = Milestone { phase, at: model::Timestamp::default(), message: Text::from("") };
    Adopted {
        restarts: BTreeMap::new(),
        started_at: None,
        running_at: None,
        ended_at: None,
        finals: BTreeMap::new(),
        remarks: remarks::are_shown(object),
        milestones: if phase == Phase::New { Vec::new() } else { vec![shown] },
        mirror,
    }
}
