//! `status` -> the state from which the engine starts a build that its log does not cover. Tests: `tests.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{CauseKind, Decision, Mirror, Phase, Text};
use serde_json::Value;
use settings::ModelSettings;

use super::constants::phase_of;
use super::spec;
use crate::adopt;
use crate::api::Referenced;
use crate::objects::{mirror, mirror_stamp, text_at, time_at};

/// Reads the state of a build back from its object, also from a status that the original controller wrote.
pub(super) fn adopt(object: &Value) -> Adopted {
    let message = Text::from(text_at(object, &["status", "message"]).unwrap_or_default());
    let known = mirror(object);
    let shown = text_at(object, &["status", "imageBuildPhase"]).and_then(phase_of);
    let phase = known.as_ref().map(|mirror| mirror.phase).or(shown).unwrap_or_default();
    let ended_at = time_at(object, &["status", "finishTime"]);
    let milestone = Milestone { phase, at: ended_at.unwrap_or_default(), message: message.clone() };
    let milestones = if phase == Phase::New { Vec::new() } else { vec![milestone] };
    let mirror = known.unwrap_or_else(|| {
        let stamp = mirror_stamp(object);
        let kind = if phase == Phase::Succeeded { CauseKind::Completed } else { CauseKind::PodFailed };
        let decision = phase.is_terminal().then(|| {
            adopt::ending(phase, kind, &milestones, spec::fact(object, &Referenced::new(), &ModelSettings::default()))
        });
        Mirror { stamp, phase, decision, ..Mirror::default() }
    });
    let ends = matches!(mirror.decision, Some(Decision::End { .. }));
    Adopted {
        restarts: BTreeMap::new(),
        started_at: None,
        running_at: None,
        ended_at: ended_at.or_else(|| milestones.last().filter(|_| ends).map(|last| last.at)),
        finals: BTreeMap::new(),
        // A remark is part of the message.
        remarks: !message.is_empty() && !ends,
        milestones,
        mirror,
    }
}
