//! Decides a job whose pods another controller creates: whether that controller may have them, and what is shown of them.
//!
//! The job's object shows the controller: a write of the job's state carries the answer. It must not create or delete a pod, nor
//! judge one: the controller restarts and ends them, and reports the end. Tests: the scenarios of `MPIJob`.

use std::collections::BTreeSet;

use model::{Cause, CauseKind, Decision, JobEvent, JobSpec, Phase, PodPhase, SlotId, Text};

use super::{endings, halts, reconcile};
use crate::classify::DecisionContext;
use crate::job::{Job, Pod};

/// Message of a job whose user asks it to wait. Its field `suspend` is no request: it shows what was decided.
const SUSPENDED: &str = "suspended by an annotation of its user";

/// Decides the job. A job that asks the queues for nothing is left to its controller.
pub(super) fn rules(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    if job.phase.is_terminal() || spec.demand.is_none() {
        return Vec::new();
    }
    if let Some(end) = &job.reported_end {
        let kind = if end.phase == Phase::Succeeded { CauseKind::Completed } else { CauseKind::PodFailed };
        let cause = Cause { kind, slots: Vec::new(), message: end.message.clone() };
        return endings::end(job, spec, end.phase, cause);
    }
    let has_pods = job.live_pods().next().is_some();
    if job.is_halting() {
        return if has_pods { Vec::new() } else { cleared(job, spec) };
    }
    if spec.suspended {
        return suspend(job, has_pods);
    }
    halts::without_share(context, job, spec).unwrap_or_else(|| progress(job, spec))
}

/// Shows whether the job waits, starts or runs. One that runs keeps running while its controller replaces a pod.
fn progress(job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let mut events = Vec::new();
    let share = &job.allocation.share;
    if job.allocation.gated && share.is_empty() {
        reconcile::show(job, Phase::Pending, Text::from(job.no_share(spec).to_string()), &mut events);
        return events;
    }
    let is_granted = |slot: &&SlotId| !job.allocation.gated || share.node(slot).is_some();
    let active = |pod: &Pod| pod.fact.phase == PodPhase::Running && !pod.is_leaving();
    let slots = job.pods.values().filter(|pod| active(pod)).filter_map(|pod| pod.fact.slot.as_ref());
    let running = slots.filter(is_granted).collect::<BTreeSet<_>>().len();
    let replicas = spec.groups.iter().fold(0u32, |sum, group| sum.saturating_add(group.size_range().preferred));
    let wanted = if job.allocation.gated { share.len() } else { usize::try_from(replicas).unwrap_or(usize::MAX) };
    if job.phase == Phase::Running || running >= wanted {
        let workers = spec.groups.first().and_then(|group| share.groups.get(&group.name)).map(Vec::len);
        let workers = workers.filter(|_| job.allocation.gated).unwrap_or(wanted);
        let runs = reconcile::with_trouble(job, format!("its number of workers is {workers}"));
        reconcile::show(job, Phase::Running, runs, &mut events);
    } else {
        let waits = reconcile::waiting_for(job, "waiting until its workers run");
        reconcile::show(job, Phase::Pending, waits, &mut events);
    }
    events
}

/// A halt is over when the controller has deleted the pods.
fn cleared(job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let mut events = vec![JobEvent::RestartCleared];
    if spec.suspended {
        reconcile::show(job, Phase::Suspended, Text::from(SUSPENDED), &mut events);
    } else {
        reconcile::show(job, Phase::Pending, Text::from(job.no_share(spec).to_string()), &mut events);
    }
    events
}

fn suspend(job: &Job, has_pods: bool) -> Vec<JobEvent> {
    let mut events = Vec::new();
    if has_pods || !job.allocation.share.is_empty() {
        let cause = Cause { kind: CauseKind::Suspended, slots: Vec::new(), message: Text::from(SUSPENDED) };
        events.push(JobEvent::Decided(Box::new(Decision::Halt { cause })));
    }
    reconcile::show(job, Phase::Suspended, Text::from(SUSPENDED), &mut events);
    events
}
