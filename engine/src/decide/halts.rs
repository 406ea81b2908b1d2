//! Halts: the pods of a job go, and it waits without being charged. It goes on as one that was just admitted.
//!
//! Must not delete pods that have ended: their results count when the job goes on.

use model::{Cause, CauseKind, Decision, Event, JobSpec, Phase, SlotId, Text, Uid};

use super::reconcile;
use crate::classify::DecisionContext;
use crate::holds::SUSPENDED;
use crate::job::{Job, Pod};

/// Halts a job whose spec asks it to wait, and keeps it halted. Pods that run once, and what else the job owns, are prepared.
pub(super) fn suspend(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<Event> {
    let live = || job.pods.values().filter(|pod| !pod.fact.phase.is_terminal() && lasts(job, pod));
    let has_pods = live().next().is_some() || job.planned_pods.iter().any(|id| waits_for(job, id));
    if job.phase == Phase::Suspended {
        let late = live().filter(|pod| pod.deletion.is_none()).map(|pod| pod.fact.uid.clone());
        let late: Vec<Uid> = late.collect();
        if !late.is_empty() {
            return vec![Event::PodsDropped { uids: late }];
        }
        return reconcile::prepare(context, job, spec);
    }
    if !has_pods {
        return vec![Event::PhaseChanged { to: Phase::Suspended, message: Text::from(SUSPENDED) }];
    }
    let cause = Cause { kind: CauseKind::Suspended, slots: Vec::new(), message: Text::from(SUSPENDED) };
    let message = Text::from(format!("{SUSPENDED}; deleting pods"));
    let decided = Event::Decided(Box::new(Decision::Halt { cause }));
    vec![decided, Event::PhaseChanged { to: Phase::Suspended, message }]
}

/// Returns true if a pod goes when the job halts: those that run once stay.
fn lasts(job: &Job, pod: &Pod) -> bool {
    pod.fact.slot.as_ref().is_none_or(|id| waits_for(job, id))
}

fn waits_for(job: &Job, id: &SlotId) -> bool {
    !job.runs_once(&id.group)
}

/// A halt is over when its pods are gone and no creation is unresolved.
pub(super) fn clear(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<Event> {
    let is_going = |uid: &Uid| job.pods.get(uid).is_none_or(|pod| lasts(job, pod));
    if job.deleting_pods.iter().any(is_going) || job.planned_pods.iter().any(|id| waits_for(job, id)) {
        return reconcile::prepare(context, job, spec);
    }
    let message = Text::from(SUSPENDED);
    // A halt that an older build decided shows the deletion of its pods as a phase.
    let shown = if job.phase == Phase::Suspended {
        Event::MessageChanged { message }
    } else {
        Event::PhaseChanged { to: Phase::Suspended, message }
    };
    vec![Event::RestartCleared, shown]
}
