//! `status` -> the state from which the engine starts a job that its log does not cover.
//!
//! Reads statuses that `status.rs` wrote, and those of the original controller. The latter have no mirror, and say that a job
//! runs from the moment it was seen. Tests: `tests/adopt.rs`.

use model::fact::{Adopted, Milestone};
use model::{CauseKind, Decision, Mirror, Phase};
use serde_json::Value;

use super::constants::{CONDITIONS, WORKER, without_sentence};
use super::spec::TRANSLATION;
use crate::objects::{at, list_at, mirror, mirror_stamp, name, text_at, time_at};
use crate::{adopt, replicas};

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value) -> Adopted {
    let mut milestones = CONDITIONS.milestones(object);
    let mirror = match mirror(object) {
        Some(mirror) => {
            let name = name(object);
            for milestone in &mut milestones {
                milestone.message = without_sentence(&name, &milestone.message).into();
            }
            mirror
        }
        None => without_mirror(object, &mut milestones),
    };
    adopt::adopted(object, mirror, milestones, replicas::finals)
}

/// Returns the mirror that the original controller would have written, and corrects the milestones of its status.
fn without_mirror(object: &Value, milestones: &mut Vec<Milestone>) -> Mirror {
    let phase = milestones.last().map(|last| last.phase).unwrap_or_default();
    let stamp = mirror_stamp(object);
    if phase.is_terminal() {
        return Mirror { stamp, phase, decision: Some(ending(object, phase, milestones)), ..Mirror::default() };
    }
    let runs =
        at(object, &["status", "replicaStatuses", WORKER, "active"]).and_then(Value::as_u64).is_some_and(|n| n > 0);
    if phase == Phase::Running && runs {
        // It did not say that it had seen the job before.
        let created = time_at(object, &["metadata", "creationTimestamp"]);
        let first = created.filter(|_| milestones.iter().all(|milestone| milestone.phase != Phase::Pending));
        milestones.splice(0..0, first.map(|at| Milestone { phase: Phase::Pending, at, message: "".into() }));
        return Mirror { stamp, phase, ..Mirror::default() };
    }
    milestones.clear();
    Mirror { stamp, ..Mirror::default() }
}

fn ending(object: &Value, phase: Phase, milestones: &[Milestone]) -> Decision {
    let by_limit = || {
        let conditions = list_at(object, &["status", "conditions"]);
        conditions.last().and_then(|last| text_at(last, &["reason"])) == Some("JobFailed")
    };
    let kind = if phase == Phase::Succeeded {
        CauseKind::Completed
    } else if by_limit() {
        // The only limit of the original that could be reached.
        CauseKind::BudgetSpent
    } else {
        CauseKind::PodFailed
    };
    adopt::ending(phase, kind, milestones, TRANSLATION.fact(object))
}
