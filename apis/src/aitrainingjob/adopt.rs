//! `status` -> the state from which the engine starts a job that its log does not cover.
//!
//! Reads statuses that `status.rs` wrote, and those of the original operator. The latter have no mirror, so a decision in
//! progress is put together from the phase, the end annotation and the name of the restarting group. Tests:
//! `tests/adopt.rs`.

use std::collections::BTreeMap;

use model::fact::{Adopted, Milestone};
use model::{
    Cause, CauseKind, CleanPodPolicy, Decision, Incarnation, JobSpec, Mirror, Phase, RestartScope, SlotId, Text,
    Timestamp,
};
use serde_json::Value;

use super::constants::phase_of;
use super::metadata::endings;
use super::spec::TRANSLATION;
use crate::objects::{at, list_at, mirror, mirror_stamp, text_at, time_at};
use crate::{remarks, replicas};

/// Reads the state of a job back from its object.
pub(super) fn adopt(object: &Value) -> Adopted {
    let milestones = milestones(object);
    let restarts = counts(object, "RestartCount");
    let restarting = text_at(object, &["status", "RestartReplicaName"])
        .filter(|name| !name.is_empty())
        .map(|name| Text::from(name.to_lowercase()));
    let running_at = time_at(object, &["status", "startRunningTime"]);
    let mirror = mirror(object)
        .unwrap_or_else(|| without_mirror(object, &milestones, &restarts, restarting.as_ref(), running_at));
    let ends = mirror.phase.is_terminal() || matches!(mirror.decision, Some(Decision::End { .. }));
    let finals = if ends { replicas::finals(object) } else { BTreeMap::new() };
    Adopted {
        mirror,
        restarts,
        milestones,
        started_at: time_at(object, &["status", "startTime"]),
        running_at,
        ended_at: time_at(object, &["status", "endTime"]),
        finals,
        remarks: remarks::are_shown(object),
    }
}

/// Returns the mirror that the original operator would have written.
fn without_mirror(
    object: &Value,
    milestones: &[Milestone],
    restarts: &BTreeMap<Text, u32>,
    restarting: Option<&Text>,
    running_at: Option<Timestamp>,
) -> Mirror {
    // A word that is no phase says nothing; such a job starts like a new one.
    let shown = text_at(object, &["status", "phase"]).and_then(phase_of).unwrap_or_default();
    let spec = TRANSLATION.fact(object).spec.ok();
    let mut mirror = Mirror {
        // Of a mirror that this build cannot read, the stamp still says which log it came from.
        stamp: mirror_stamp(object),
        phase: shown,
        // It counted every restart a group took part in, and its limits went by that.
        charged: restarts.clone(),
        first_creating_at: first_creating(shown, milestones),
        first_running_at: running_at,
        ..Mirror::default()
    };
    if shown.is_terminal() {
        let keeps = matches!(shown, Phase::Succeeded | Phase::Failed)
            && spec.as_ref().is_some_and(|spec| spec.clean_pods == CleanPodPolicy::None);
        mirror.decision = Some(ending(shown, last_words(milestones), !keeps));
    } else if let Some(group) = restarting {
        let scope = spec.as_ref().and_then(|spec| spec.group(group)).map_or(RestartScope::All, |group| group.scope);
        mirror.phase = Phase::Terminating;
        mirror.wait_below = old_pods(spec.as_ref(), group, scope);
        mirror.decision = Some(Decision::Restart {
            group: group.clone(),
            scope,
            slot: SlotId { group: group.clone(), index: 0 },
            cause: Cause { kind: CauseKind::PodFailed, slots: Vec::new(), message: last_words(milestones) },
            failures: 0,
            retry_at: None,
        });
    } else if shown == Phase::Terminating {
        match endings(object).first() {
            Some((phase, message)) => mirror.decision = Some(ending(*phase, Text::from(*message), true)),
            // Someone took the annotation away: the original kept the job, and so do we.
            None => mirror.phase = Phase::Pending,
        }
    }
    mirror
}

/// Pods that the original's restart waits for. They carry no incarnation, so 1 stands above all of them. A restart of one
/// pod waits for none here: the pods that go have a deletionTimestamp, and which of them it was is not recorded.
fn old_pods(spec: Option<&JobSpec>, group: &Text, scope: RestartScope) -> BTreeMap<Text, Incarnation> {
    let all = || spec.into_iter().flat_map(|spec| &spec.groups).map(|group| group.name.clone()).collect();
    let groups: Vec<Text> = match scope {
        RestartScope::Pod | RestartScope::Each => Vec::new(),
        RestartScope::Replica => vec![group.clone()],
        RestartScope::All => all(),
    };
    groups.into_iter().map(|group| (group, Incarnation(1))).collect()
}

fn ending(phase: Phase, message: Text, clean: bool) -> Decision {
    let kind = match phase {
        Phase::Succeeded => CauseKind::Completed,
        Phase::TimedOut => CauseKind::TimeLimit,
        Phase::Preempted => CauseKind::EndRequested(model::fact::EndRequest::Preempted),
        Phase::NodeFailed => CauseKind::NodeLost,
        Phase::Failed
        | Phase::New
        | Phase::Pending
        | Phase::Creating
        | Phase::Running
        | Phase::Restarting
        | Phase::Terminating
        | Phase::Suspended
        | Phase::Preparing
        | Phase::Queued => CauseKind::PodFailed,
    };
    Decision::End { phase, cause: Cause { kind, slots: Vec::new(), message }, clean, live_only: false }
}

/// Reads the phases shown, oldest first, up to the number that the engine keeps.
fn milestones(object: &Value) -> Vec<Milestone> {
    let all: Vec<Milestone> = list_at(object, &["status", "conditions"])
        .iter()
        .filter_map(|condition| {
            let phase = text_at(condition, &["type"]).and_then(phase_of).filter(|phase| *phase != Phase::New)?;
            let message = Text::from(text_at(condition, &["message"]).unwrap_or_default());
            let at = time_at(condition, &["lastTransitionTime"]).unwrap_or_default();
            Some(Milestone { phase, at, message })
        })
        .collect();
    let surplus = all.len().saturating_sub(engine::job::MAX_MILESTONES);
    all.into_iter().skip(surplus).collect()
}

/// Returns the time since which the job waits for containers to be created, in its present period of creation.
fn first_creating(shown: Phase, milestones: &[Milestone]) -> Option<Timestamp> {
    milestones.last().filter(|last| shown == Phase::Creating && last.phase == Phase::Creating).map(|last| last.at)
}

fn last_words(milestones: &[Milestone]) -> Text {
    milestones.last().map(|last| last.message.clone()).unwrap_or_default()
}

/// Reads a map of counts by group. Keys of the status keep the user's spelling; the engine's are in lower case.
fn counts(object: &Value, member: &str) -> BTreeMap<Text, u32> {
    at(object, &["status", member])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, count)| Some((Text::from(name.to_lowercase()), replicas::count_of(count)?)))
        .filter(|(_, count)| *count > 0)
        .collect()
}
