//! Halts: the pods of a job go, and it waits without being charged. It goes on as one that was just admitted.
//!
//! Must not delete pods that have ended: their results count when the job goes on.

use model::{Cause, CauseKind, Decision, Event, Phase, Text, Uid};

use crate::job::Job;

/// Message of a job that waits because its spec says so.
const SUSPENDED: &str = "suspended: spec.suspend is true";

/// Halts a job whose spec asks it to wait, and keeps it halted.
pub(super) fn suspend(job: &Job) -> Vec<Event> {
    let live = || job.pods.values().filter(|pod| !pod.fact.phase.is_terminal());
    let has_pods = live().next().is_some() || !job.planned_pods.is_empty();
    if job.phase == Phase::Suspended {
        let late = live().filter(|pod| pod.deletion.is_none()).map(|pod| pod.fact.uid.clone());
        let late: Vec<Uid> = late.collect();
        return if late.is_empty() { Vec::new() } else { vec![Event::PodsDropped { uids: late }] };
    }
    if !has_pods {
        return vec![Event::PhaseChanged { to: Phase::Suspended, message: Text::from(SUSPENDED) }];
    }
    let cause = Cause { kind: CauseKind::Suspended, slots: Vec::new(), message: Text::from(SUSPENDED) };
    let message = Text::from(format!("{SUSPENDED}; deleting pods"));
    let decided = Event::Decided(Box::new(Decision::Halt { cause }));
    vec![decided, Event::PhaseChanged { to: Phase::Terminating, message }]
}

/// A halt is over when its pods are gone and no creation is unresolved.
pub(super) fn clear(job: &Job) -> Vec<Event> {
    if !job.deleting_pods.is_empty() || !job.planned_pods.is_empty() {
        return Vec::new();
    }
    vec![Event::RestartCleared, Event::PhaseChanged { to: Phase::Suspended, message: Text::from(SUSPENDED) }]
}
