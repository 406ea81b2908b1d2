//! `status` -> the state from which the engine starts a job that its log does not cover.
//!
//! Reads statuses that `status.rs` wrote. What the original controller wrote says only that a job has ended. Tests:
//! `tests/adopt.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{Cause, CauseKind, Decision, Mirror, Phase, Text};
use serde_json::Value;

use super::constants::{WORKER, phase_of};
use crate::objects::{at, list_at, mirror, mirror_stamp, text_at, time_at};
use crate::{adopt, remarks, replicas};

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value) -> Adopted {
    let known = mirror(object);
    let is_ours = known.is_some();
    let mirror = known.unwrap_or_else(|| without_mirror(object));
    let ends = matches!(mirror.decision, Some(Decision::End { .. }));
    let mut milestones = milestones(object);
    let ended_at = time_at(object, &["status", "completionTime"]);
    if !is_ours && ends && milestones.is_empty() {
        let at = ended_at.or_else(|| time_at(object, &["status", "lastReconcileTime"])).unwrap_or_default();
        milestones.push(Milestone { phase: mirror.phase, at, message: Text::from("") });
    }
    let remarks = !is_ours && ends || remarks::are_shown(object);
    Adopted { remarks, ..adopt::adopted(object, mirror, milestones, finals) }
}

fn milestones(object: &Value) -> Vec<Milestone> {
    let history = list_at(object, &["status", "history"]).iter();
    let milestone = |entry: &Value| {
        Some(Milestone {
            phase: phase_of(text_at(entry, &["phase"])?)?,
            at: time_at(entry, &["time"])?,
            message: Text::from(text_at(entry, &["message"]).unwrap_or_default()),
        })
    };
    history.filter_map(milestone).collect()
}

/// Returns the mirror of a job that the original controller knew. It called jobs Failed that were to be tried again, so only a
/// success with a time is an end.
fn without_mirror(object: &Value) -> Mirror {
    let stamp = mirror_stamp(object);
    let has_ended = time_at(object, &["status", "completionTime"]).is_some();
    if text_at(object, &["status", "phase"]) != Some("Succeeded") || !has_ended {
        return Mirror { stamp, ..Mirror::default() };
    }
    let cause = Cause { kind: CauseKind::Completed, slots: Vec::new(), message: Text::from("") };
    let decision = Decision::End { phase: Phase::Succeeded, cause, clean: true, live_only: true };
    Mirror { stamp, phase: Phase::Succeeded, decision: Some(decision), ..Mirror::default() }
}

fn finals(object: &Value) -> BTreeMap<Text, (u32, u32)> {
    let count = |name: &str| at(object, &["status", "workers", name]).and_then(replicas::count_of).unwrap_or_default();
    BTreeMap::from([(Text::from(WORKER), (count("succeeded"), count("failed")))])
}
