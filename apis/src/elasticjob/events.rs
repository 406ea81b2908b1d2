//! Kubernetes Events in this API's reasons, as its users look for them.
//!
//! Must not report created and deleted objects: those Events are common to all APIs. Tests: `tests/events.rs`.

use model::{Cause, CauseKind, Decision, JobEvent, JobFact, Phase, PodFact, Timestamp};

use super::constants::sentence;
use super::spec::TEMPLATE_POLICY;
use super::status::{displayed, failed_replicas};
use crate::api::{JobStep, ReportedEvent};
use crate::events::{normal, overridden_policies, warning};

/// Returns the Events that report a record.
pub(super) fn events(step: &JobStep<'_>) -> Vec<ReportedEvent> {
    let mut found = Vec::new();
    for fact in step.facts {
        if let JobFact::Pod(pod) = fact {
            found.extend(exit(&step.key.namespace, pod));
        } else if let JobFact::Spec(spec) = fact {
            found.extend(overridden_policies(spec, TEMPLATE_POLICY));
        }
    }
    found.extend(step.events.iter().filter_map(|event| decision(step, event)));
    found.extend(step.predecessor.filter(|_| is_accepted_first(step)).map(run_id_again));
    found
}

/// Returns true if the job was seen before, and its spec is accepted now.
fn is_accepted_first(step: &JobStep<'_>) -> bool {
    step.from == Phase::New && step.job.phase != Phase::New
}

/// Reports that the rendezvous of an earlier job had the same id: ids are names of jobs.
fn run_id_again(ended: Timestamp) -> ReportedEvent {
    let ended = ended.to_rfc3339();
    let message = format!(
        "a job of this name ended at {ended}: workers of it that still run, and what it left in etcd, have the same \
         --rdzv_id; where workers do not find each other, use another name"
    );
    warning("RunIdReused", message)
}

/// Reports the exit code of an ended pod.
fn exit(namespace: &str, pod: &PodFact) -> Option<ReportedEvent> {
    if !pod.phase.is_terminal() || pod.deleting.is_some() {
        return None;
    }
    crate::events::exit(namespace, pod)
}

/// Reports a decision: in the original's words where it has some, and then why.
fn decision(step: &JobStep<'_>, event: &JobEvent) -> Option<ReportedEvent> {
    let name = &step.key.name;
    if let JobEvent::Replaced { group, slots } = event {
        let names = slots.iter().map(|slot| format!("{group}-{}", slot.index)).collect::<Vec<_>>().join(", ");
        let salt = slots.iter().fold(0, |sum: u32, slot| sum.wrapping_add(slot.failures));
        let words = sentence(name, Phase::Restarting, Some((slots.len(), displayed(step.job, group))));
        let message = format!("{words} replacing failed pods: {names}");
        return Some(ReportedEvent { salt, ..warning("ElasticJobRestarting", message) });
    }
    let JobEvent::Decided(decision) = event else { return None };
    let Cause { kind, slots, message } = decision.cause();
    let of_pods = |phase: Phase| {
        let failed = failed_replicas(step.job, slots);
        failed
            .map_or_else(|| message.to_string(), |failed| format!("{} {message}", sentence(name, phase, Some(failed))))
    };
    let message = message.to_string();
    Some(match (&**decision, kind) {
        (Decision::Restart { .. }, CauseKind::Resized) => warning("ElasticJobRestarting", message),
        (Decision::Restart { .. }, _) => warning("ElasticJobRestarting", of_pods(Phase::Restarting)),
        (Decision::End { phase: Phase::Succeeded, .. }, _) => {
            normal("ElasticJobSucceeded", format!("{} {message}", sentence(name, Phase::Succeeded, None)))
        }
        (Decision::End { .. }, CauseKind::BudgetSpent | CauseKind::TimeLimit) => normal("JobFailed", message),
        (Decision::End { .. }, CauseKind::Exited | CauseKind::PodFailed) => {
            normal("ElasticJobFailed", of_pods(Phase::Failed))
        }
        (Decision::End { .. }, _) => normal("ElasticJobFailed", message),
        (Decision::Halt { .. }, _) => normal("ElasticJobSuspended", message),
    })
}
