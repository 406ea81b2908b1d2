//! Reports of groups: what the pods of each come to by its policies. Decides nothing about the job.

use std::collections::BTreeSet;

use model::GroupEndPolicy as Policy;
use model::{CauseKind, GroupSpec, Phase, PodPhase, RestartScope, SlotId};

use super::first_failure::Rank;
use crate::classify::{DecisionContext, PodOutcome};
use crate::group::Group;
use crate::job::{Job, Pod};

/// Report of the pods of one group about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// A pod is to be restarted.
    Restart { index: u32, kind: CauseKind, rank: Rank },
    /// The group completed.
    Complete { slots: Vec<(SlotId, CauseKind)> },
    /// The group failed, as this phase; `limited`: a restart would have been the answer, had its limit allowed one.
    Failed { phase: Phase, slots: Vec<(SlotId, CauseKind)>, limited: bool, rank: Rank },
}

/// Walks a group's slots that have something to say, in index order. Of those that decide, the one that failed first does.
pub(super) fn report(context: &DecisionContext<'_>, job: &Job, spec: &GroupSpec) -> Option<Report> {
    let group = job.groups.get(&spec.name)?;
    if spec.scope == RestartScope::Each {
        return report_each(context, job, spec, group);
    }
    let id = |index: u32| SlotId { group: spec.name.clone(), index };
    let first_done = match spec.complete {
        Policy::Any => group.done.first().copied(),
        Policy::Rank0 => group.done.first().copied().filter(|n| *n == 0),
        Policy::All | Policy::None | Policy::Minimum => None,
    };
    let open = job.restart_limit(spec, context.config).is_none_or(|limit| group.charged < limit);
    let mut ended = Vec::new();
    let mut node_failed = false;
    let mut limited = false;
    let mut first: Option<(Rank, Report)> = None;
    let mut decides_if_first = |rank: Rank, report: Report| {
        if first.as_ref().is_none_or(|(known, _)| rank < *known) {
            first = Some((rank, report));
        }
    };
    for index in &group.to_evaluate {
        if first_done.is_some_and(|done| done < *index) {
            break;
        }
        let Some(pod) = group.slot(*index).and_then(|s| s.pod.as_ref()).and_then(|uid| job.pods.get(uid)) else {
            continue;
        };
        match context.classify(job, spec, pod) {
            PodOutcome::Retry if open => {
                let (index, kind, rank) = (*index, CauseKind::CreationFailed, Rank::LAST);
                decides_if_first(rank, Report::Restart { index, kind, rank });
            }
            PodOutcome::Failed { kind, restartable: true, .. } if open => {
                let (index, rank) = (*index, Rank::of(pod));
                decides_if_first(rank, Report::Restart { index, kind, rank });
            }
            PodOutcome::Failed { phase, kind, restartable } => {
                limited |= restartable;
                let decides = match spec.fail {
                    Policy::Any => true,
                    Policy::Rank0 => *index == 0,
                    Policy::All | Policy::None | Policy::Minimum => false,
                };
                if decides {
                    let (slots, rank) = (vec![(id(*index), kind)], Rank::of(pod));
                    decides_if_first(rank, Report::Failed { phase, slots, limited: restartable, rank });
                    continue;
                }
                node_failed |= phase == Phase::NodeFailed;
                if kind == CauseKind::CreationFailed || counts_as_failed(pod) {
                    ended.push((id(*index), kind));
                }
            }
            PodOutcome::Fine if counts_as_failed(pod) => ended.push((id(*index), CauseKind::PodFailed)),
            PodOutcome::Retry | PodOutcome::Fine => {}
        }
    }
    if let Some((_, report)) = first {
        return Some(report);
    }
    if let Some(done) = first_done {
        return Some(Report::Complete { slots: vec![(id(done), CauseKind::Completed)] });
    }
    let all = |count: usize| u32::try_from(count).is_ok_and(|n| n == spec.replicas);
    if spec.complete == Policy::All && all(group.done.len()) {
        return Some(Report::Complete { slots: group.done.iter().map(|n| (id(*n), CauseKind::Completed)).collect() });
    }
    if spec.fail == Policy::All && all(ended.len()) {
        let phase = if node_failed { Phase::NodeFailed } else { Phase::Failed };
        return Some(Report::Failed { phase, slots: ended, limited, rank: Rank::LAST });
    }
    None
}

/// Returns true if a pod counts where all pods of a group have to fail: by its phase, and not while it is on its way out.
const fn counts_as_failed(pod: &Pod) -> bool {
    !pod.is_leaving() && matches!(pod.fact.phase, PodPhase::Failed | PodPhase::Unknown)
}

/// Reports a group whose failed pods are replaced each by itself: those to be replaced are, so that only lost ones count.
fn report_each(context: &DecisionContext<'_>, job: &Job, spec: &GroupSpec, group: &Group) -> Option<Report> {
    let id = |index: &u32| SlotId { group: spec.name.clone(), index: *index };
    let first = |set: &BTreeSet<u32>| set.first().copied();
    let is_whole = |set: &BTreeSet<u32>| count(set) == spec.replicas && !set.is_empty();
    let (lost, done) = (count(&group.lost), count(&group.done));
    let fails = match spec.fail {
        Policy::Any => lost > 0,
        Policy::Rank0 => first(&group.lost) == Some(0),
        Policy::All => is_whole(&group.lost),
        Policy::Minimum => spec.replicas.saturating_sub(lost) < spec.minimum(),
        Policy::None => false,
    };
    if fails {
        let kind = |index: &u32| {
            let pod = group.slot(*index)?.pod.as_ref().and_then(|uid| job.pods.get(uid))?;
            match context.classify(job, spec, pod) {
                PodOutcome::Failed { kind, .. } => Some(kind),
                PodOutcome::Retry | PodOutcome::Fine => None,
            }
        };
        let slots = group.lost.iter().map(|index| (id(index), kind(index).unwrap_or(CauseKind::PodFailed))).collect();
        return Some(Report::Failed { phase: Phase::Failed, slots, limited: false, rank: Rank::LAST });
    }
    let completes = match spec.complete {
        Policy::Any => done > 0,
        Policy::Rank0 => first(&group.done) == Some(0),
        Policy::All => is_whole(&group.done),
        Policy::Minimum => done.saturating_add(lost) == spec.replicas && done >= spec.minimum().max(1),
        Policy::None => false,
    };
    completes
        .then(|| Report::Complete { slots: group.done.iter().map(|index| (id(index), CauseKind::Completed)).collect() })
}

fn count(set: &BTreeSet<u32>) -> u32 {
    u32::try_from(set.len()).unwrap_or(u32::MAX)
}
