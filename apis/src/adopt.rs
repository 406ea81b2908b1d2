//! Reads the state of a job back from its object: from conditions that are the states that the job was in, or from the mirror alone.
//!
//! Must not know what an API calls its states. Tests: each API's `tests/adopt.rs` or `tests/status.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{Cause, CauseKind, CleanPodPolicy, Decision, Mirror, Phase, SpecFact, Text, Timestamp};
use serde_json::Value;

use crate::objects::{mirror, mirror_stamp, time_at};
use crate::remarks;

/// Returns the state of a job, given its mirror and milestones and a reader of what the groups of an ended job came to.
pub(crate) fn adopted(
    object: &Value,
    mirror: Mirror,
    milestones: Vec<Milestone>,
    finals: fn(&Value) -> BTreeMap<Text, (u32, u32)>,
) -> Adopted {
    let ends = matches!(mirror.decision, Some(Decision::End { .. }));
    let ended_at = time_at(object, &["status", "completionTime"]);
    let lacks_time = ends && ended_at.is_none();
    Adopted {
        restarts: BTreeMap::new(),
        started_at: time_at(object, &["status", "startTime"]),
        running_at: None,
        // The originals lost the time of some ends.
        ended_at: ended_at.or_else(|| milestones.last().filter(|_| ends).map(|last| last.at)),
        finals: if ends { finals(object) } else { BTreeMap::new() },
        // A status that lacks the time is to be written again, too.
        remarks: lacks_time || remarks::are_shown(object),
        milestones,
        mirror,
    }
}

/// Returns the end of a job that an original operator ended in a phase; pods are cleaned up by the spec.
pub(crate) fn ending(phase: Phase, kind: CauseKind, milestones: &[Milestone], spec: SpecFact) -> Decision {
    let message = milestones.last().map(|last| last.message.clone()).unwrap_or_default();
    let clean = spec.spec.map_or(CleanPodPolicy::None, |spec| spec.clean(phase));
    Decision::End {
        phase,
        cause: Cause { kind, slots: Vec::new(), message },
        clean: clean != CleanPodPolicy::None,
        live_only: clean == CleanPodPolicy::Running,
    }
}

/// Returns the state of an object of whose status nothing counts but the mirror: other objects show the rest.
pub(crate) fn mirror_alone(object: &Value) -> Adopted {
    of_mirror(object, mirror(object).unwrap_or_else(|| Mirror { stamp: mirror_stamp(object), ..Mirror::default() }))
}

/// Returns the state that a mirror shows.
pub(crate) fn of_mirror(object: &Value, mirror: Mirror) -> Adopted {
    let phase = mirror.phase;
    let shown = Milestone { phase, at: Timestamp::default(), message: Text::from("") };
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
