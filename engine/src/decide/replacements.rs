//! Replaces failed pods, each by itself, while the others continue; pods that failed for good are lost.
//!
//! Only groups of [`RestartScope::Each`]. All pods that failed in one turn are replaced together, so that a lost node costs one
//! record. Must not end the job but by its budget, which a replacement would exceed.

use model::{CauseKind, GroupSpec, JobEvent, JobSpec, Phase, Replacement, RestartScope, SlotId, Uid};

use super::endings;
use super::restarts::next_try;
use crate::classify::{DecisionContext, PodOutcome};
use crate::job::{Job, Pod};
use crate::message::cause_of_pods;

/// Failed pods of one group.
#[derive(Default)]
struct Failed<'a> {
    replaced: Vec<(u32, &'a Pod, CauseKind)>,
    lost: Vec<(u32, &'a Pod, CauseKind)>,
}

/// Replaces the pods that failed and may be tried again, and notes those that failed for good.
pub(super) fn failed_pods(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let groups = spec.groups.iter().filter(|group| group.scope == RestartScope::Each);
    let failed: Vec<(&GroupSpec, Failed<'_>)> = groups.map(|group| (group, of_group(context, job, group))).collect();
    let slots = |group: &GroupSpec, pods: &[(u32, &Pod, CauseKind)]| -> Vec<(SlotId, CauseKind)> {
        pods.iter().map(|(index, _, kind)| (SlotId { group: group.name.clone(), index: *index }, *kind)).collect()
    };
    let found: Vec<_> = failed.iter().flat_map(|(group, failed)| slots(group, &failed.replaced)).collect();
    let new = spec.budget.map_or(0, |budget| budget.retries_of(found.iter().map(|(_, kind)| *kind)));
    let retries = new.saturating_add(job.retries());
    if !found.is_empty()
        && let Some(budget) = spec.budget.filter(|budget| budget.is_spent_by(retries))
    {
        let cause = cause_of_pods(job, &endings::budget_words(budget, retries), &found);
        return Some(endings::end(job, spec, Phase::Failed, model::Cause { kind: CauseKind::BudgetSpent, ..cause }));
    }
    let mut events = Vec::new();
    let mut dropped: Vec<Uid> = Vec::new();
    let mut lost = Vec::new();
    for (group, failed) in failed {
        let replaced: Vec<Replacement> =
            failed.replaced.iter().map(|found| replacement(context, job, group, found)).collect();
        if !replaced.is_empty() {
            events.push(JobEvent::Replaced { group: group.name.clone(), slots: replaced });
        }
        lost.extend(slots(group, &failed.lost));
        // A pod on a lost node, or with a failed device, has not ended by itself.
        let unended = failed.lost.iter().filter(|(_, pod, _)| !pod.fact.phase.is_terminal());
        dropped.extend(unended.map(|(_, pod, _)| pod.fact.uid.clone()));
    }
    if !lost.is_empty() {
        events.push(JobEvent::Lost { slots: lost });
    }
    if !dropped.is_empty() {
        events.push(JobEvent::PodsDropped { uids: dropped });
    }
    (!events.is_empty()).then_some(events)
}

fn of_group<'a>(context: &DecisionContext<'_>, job: &'a Job, spec: &GroupSpec) -> Failed<'a> {
    let mut failed = Failed::default();
    let Some(group) = job.groups.get(&spec.name) else { return failed };
    let limit = job.restart_limit(spec, context.config).map(|limit| limit.saturating_sub(group.charged));
    for index in &group.to_evaluate {
        let slot = group.slot(*index).filter(|slot| !slot.lost);
        let Some(pod) = slot.and_then(|slot| slot.pod.as_ref()).and_then(|uid| job.pods.get(uid)) else { continue };
        let open = || limit.is_none_or(|limit| u32::try_from(failed.replaced.len()).is_ok_and(|n| n < limit));
        match context.classify(job, spec, pod) {
            PodOutcome::Failed { kind, restartable: true, .. } if open() => failed.replaced.push((*index, pod, kind)),
            PodOutcome::Retry if open() => failed.replaced.push((*index, pod, CauseKind::CreationFailed)),
            PodOutcome::Failed { kind, .. } => failed.lost.push((*index, pod, kind)),
            // A pod whose state is not known may continue: it is judged once its node is lost, or says more.
            PodOutcome::Retry | PodOutcome::Fine => {}
        }
    }
    failed
}

fn replacement(
    context: &DecisionContext<'_>,
    job: &Job,
    group: &GroupSpec,
    (index, pod, kind): &(u32, &Pod, CauseKind),
) -> Replacement {
    let slot = SlotId { group: group.name.clone(), index: *index };
    let (failures, retry_at) = next_try(context, job, &slot, *kind);
    Replacement { index: *index, uid: pod.fact.uid.clone(), kind: *kind, failures, retry_at }
}
