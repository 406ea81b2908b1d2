//! `status` -> the state from which the engine starts a job that its log does not cover.
//!
//! Reads statuses that `status.rs` wrote, and those of the original operator, which have no mirror. Tests: `tests/status.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{CauseKind, Mirror, Phase, Text};
use serde_json::Value;
use settings::TorchSettings;

use super::autoscaler;
use super::conditions::milestones;
use super::spec;
use crate::adopt;
use crate::objects::{at, mirror, mirror_stamp};
use crate::replicas::count_of;

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value, settings: &TorchSettings) -> Adopted {
    let mut milestones = milestones(object);
    let mirror = mirror(object);
    let mirror = mirror.unwrap_or_else(|| without_mirror(object, settings, &mut milestones));
    adopt::adopted(object, mirror, milestones, finals)
}

/// Reads what each type of an ended job came to: succeeded and failed pods by name in lower case.
fn finals(object: &Value) -> BTreeMap<Text, (u32, u32)> {
    let statuses = at(object, &["status", "taskStatuses"]).and_then(Value::as_object);
    let counts = |of: &Value| {
        let count = |key: &str| of.get(key).and_then(count_of).unwrap_or_default();
        (count("succeed"), count("failed"))
    };
    let of_type = |(name, of): (&String, &Value)| (Text::from(name.to_lowercase()), counts(of));
    statuses.into_iter().flatten().map(of_type).collect()
}

/// Returns the mirror that the original operator would have written, and corrects the milestones of its status.
fn without_mirror(object: &Value, settings: &TorchSettings, milestones: &mut Vec<Milestone>) -> Mirror {
    let phase = milestones.last().map(|last| last.phase).unwrap_or_default();
    let stamp = mirror_stamp(object);
    let scaling = autoscaler::adopt(object);
    if phase.is_terminal() {
        let kind = if phase == Phase::Succeeded { CauseKind::Completed } else { CauseKind::PodFailed };
        let decision = adopt::ending(phase, kind, milestones, spec::fact(object, settings));
        return Mirror { stamp, phase, decision: Some(decision), scaling, ..Mirror::default() };
    }
    if matches!(phase, Phase::Running | Phase::Restarting) {
        return Mirror { stamp, phase, scaling, ..Mirror::default() };
    }
    // One that left its queue does not wait again.
    let dequeued_at = milestones.last().filter(|last| last.phase == Phase::Queued).map(|last| last.at);
    milestones.clear();
    Mirror { stamp, dequeued_at, scaling, ..Mirror::default() }
}
