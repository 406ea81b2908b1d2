//! Restarts: one at a time per job. Old pods go first; replacements come when all of them are seen gone.

use model::{Cause, CauseKind, Decision, JobEvent, JobSpec, Phase, RestartScope, SlotId, Text, Timestamp};

use super::Report;
use crate::classify::DecisionContext;
use crate::facts::answers::backoff;
use crate::job::Job;
use crate::message::{cause_of_pods, scope_words};

/// The group whose pod failed first gets its restart; among equals the first in spec order.
pub(super) fn first(
    context: &DecisionContext<'_>,
    job: &Job,
    spec: &JobSpec,
    reports: &[(usize, Report)],
) -> Option<Vec<JobEvent>> {
    let asking = reports.iter().filter_map(|(n, report)| match report {
        Report::Restart { index, kind, rank } => Some((spec.groups.get(*n)?, *index, *kind, *rank)),
        Report::Complete { .. } | Report::Failed { .. } => None,
    });
    let (group, index, kind, _) = asking.min_by_key(|(.., rank)| *rank)?;
    let slot = SlotId { group: group.name.clone(), index };
    let cause = cause_of_pods(job, "", &[(slot.clone(), kind)]);
    let (failures, retry_at) = next_try(context, job, &slot, kind);
    let message = Text::from(format!(
        "restart {} of {}: {}; deleting {}",
        job.groups.get(&group.name).map_or(0, |g| g.charged).saturating_add(1),
        group.display(),
        cause.message,
        scope_words(group.scope, group.display(), &slot)
    ));
    let decision = Decision::Restart { group: group.name.clone(), scope: group.scope, slot, cause, failures, retry_at };
    Some(vec![JobEvent::Decided(Box::new(decision)), JobEvent::PhaseChanged { to: Phase::Terminating, message }])
}

/// Returns the number of failures of this kind in the slot, and the end of its replacement's back-off. The first failure has none.
pub(super) fn next_try(
    context: &DecisionContext<'_>,
    job: &Job,
    slot: &SlotId,
    kind: CauseKind,
) -> (u32, Option<Timestamp>) {
    let config = context.config;
    let Some(state) = job.slot(slot) else { return (1, None) };
    let ran = state.pod.as_ref().and_then(|uid| job.pods.get(uid)).and_then(|p| p.running_at);
    let healthy = ran.is_some_and(|since| context.now.since_ms(since) >= config.restart_backoff_reset_ms);
    let before = if healthy { 0 } else { state.failures.get(&kind).copied().unwrap_or_default() };
    let failures = before.saturating_add(1);
    let delay = backoff(failures, config.restart_backoff_ms, config.restart_backoff_max_ms);
    (failures, (delay > 0).then(|| context.now.plus_ms(delay)))
}

/// Restarts a group some of whose pods were made for another number of replicas. No failure is charged.
pub(super) fn outdated(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    if job.elastic().is_some() {
        // Its old pods are replaced by [`super::refresh`].
        return None;
    }
    let of = |group: &model::GroupSpec| Some((group.name.clone(), *job.groups.get(&group.name)?.outdated.first()?));
    let (group, index) = spec.groups.iter().filter(|group| !group.once).find_map(of)?;
    let wanted = spec.group(&group)?;
    let slot = SlotId { group: group.clone(), index };
    let shape = wanted.shape.as_deref().unwrap_or_default();
    let what = format!("{} is resized to {} replicas ({shape})", wanted.display(), wanted.replicas);
    let cause = Cause { kind: CauseKind::Resized, slots: vec![slot.clone()], message: Text::from(what) };
    let scope = RestartScope::Replica;
    let taken = scope_words(scope, wanted.display(), &slot);
    let message = Text::from(format!("{}; replacing {taken}", cause.message));
    let decision = Decision::Restart { group, scope, slot, cause, failures: 0, retry_at: None };
    Some(vec![JobEvent::Decided(Box::new(decision)), JobEvent::PhaseChanged { to: Phase::Terminating, message }])
}

/// The restart is over when every pod that is to go is gone.
pub(super) fn clear(context: &DecisionContext<'_>, job: &Job, restart: &Decision) -> Vec<JobEvent> {
    let Decision::Restart { scope, slot, group, retry_at, .. } = restart else { return Vec::new() };
    if !job.deleting_pods.is_empty() {
        return Vec::new();
    }
    let display = job.spec().and_then(|s| s.group(group)).map_or(group, |g| g.display());
    let wait = retry_at.filter(|until| *until > context.now);
    let wait = wait.map(|until| format!(", not before {}", until.to_rfc3339())).unwrap_or_default();
    let message = Text::from(format!("restarting {}{wait}", scope_words(*scope, display, slot)));
    vec![JobEvent::RestartCleared, JobEvent::PhaseChanged { to: Phase::Restarting, message }]
}
