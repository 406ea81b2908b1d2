//! `status` -> the state from which the engine starts a job that its log does not cover.
//!
//! Reads statuses that `status.rs` wrote, and those of the original operator, which have no mirror. Tests: `tests/status.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{Cause, CauseKind, CleanPodPolicy, Decision, Mirror, Phase, Text};
use serde_json::Value;
use settings::TorchSettings;

use super::conditions::milestones;
use super::spec;
use crate::objects::{MIRROR, at, mirror_stamp, time_at};
use crate::remarks;
use crate::replicas::count_of;

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value, settings: TorchSettings) -> Adopted {
    let mut milestones = milestones(object);
    let mirror = at(object, &["status", MIRROR]).and_then(engine::wire::mirror_from_value);
    let mirror = mirror.unwrap_or_else(|| without_mirror(object, settings, &mut milestones));
    let ends = matches!(mirror.decision, Some(Decision::End { .. }));
    let ended_at = time_at(object, &["status", "completionTime"]);
    let lacks_time = ends && ended_at.is_none();
    Adopted {
        restarts: BTreeMap::new(),
        started_at: time_at(object, &["status", "startTime"]),
        running_at: None,
        ended_at: ended_at.or_else(|| milestones.last().filter(|_| ends).map(|last| last.at)),
        finals: if ends { finals(object) } else { BTreeMap::new() },
        // A status that lacks the time is to be written again, too.
        remarks: lacks_time || remarks::are_shown(object),
        milestones,
        mirror,
    }
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
fn without_mirror(object: &Value, settings: TorchSettings, milestones: &mut Vec<Milestone>) -> Mirror {
    let phase = milestones.last().map(|last| last.phase).unwrap_or_default();
    let stamp = mirror_stamp(object);
    if phase.is_terminal() {
        let kind = if phase == Phase::Succeeded { CauseKind::Completed } else { CauseKind::PodFailed };
        let message = milestones.last().map(|last| last.message.clone()).unwrap_or_default();
        let clean = spec::fact(object, settings).spec.map_or(CleanPodPolicy::None, |spec| spec.clean(phase));
        let decision = Decision::End {
            phase,
            cause: Cause { kind, slots: Vec::new(), message },
            clean: clean != CleanPodPolicy::None,
            live_only: clean == CleanPodPolicy::Running,
        };
        return Mirror { stamp, phase, decision: Some(decision), ..Mirror::default() };
    }
    if matches!(phase, Phase::Running | Phase::Restarting) {
        return Mirror { stamp, phase, ..Mirror::default() };
    }
    milestones.clear();
    Mirror { stamp, ..Mirror::default() }
}
