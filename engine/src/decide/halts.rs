//! Halts: the pods of a job go, and it waits without being charged. It continues as one that was just admitted.
//!
//! Must not delete pods that have ended: their results count when the job continues.

use model::{Cause, CauseKind, Decision, JobEvent, JobSpec, LossKind, Outcome, Phase, ShareLoss, Text, Uid};

use super::reconcile;
use crate::allocation::Allocation;
use crate::blocked_by::{BlockedBy, SUSPENDED};
use crate::classify::DecisionContext;
use crate::job::Job;
use crate::message::{loss_words, unplaced_pod};

/// Halts a job whose spec asks it to wait, and keeps it halted. Pods that run once, and what else the job owns, are prepared.
pub(super) fn suspend(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    if job.phase == Phase::Suspended {
        let late = job.live_pods().filter(|pod| pod.deletion.is_none()).map(|pod| pod.fact.uid.clone());
        let late: Vec<Uid> = late.collect();
        if !late.is_empty() {
            return vec![JobEvent::PodsDropped { uids: late }];
        }
        return reconcile::prepare(context, job, spec);
    }
    if !job.has_unended_pods() {
        return vec![JobEvent::PhaseChanged { to: Phase::Suspended, message: Text::from(SUSPENDED) }];
    }
    let cause = Cause { kind: CauseKind::Suspended, slots: Vec::new(), message: Text::from(SUSPENDED) };
    let message = Text::from(format!("{SUSPENDED}; {}", job.deletion_words()));
    let decided = JobEvent::Decided(Box::new(Decision::Halt { cause }));
    vec![decided, JobEvent::PhaseChanged { to: Phase::Suspended, message }]
}

/// Halts a job whose share was taken away, or that did not come whole in time. `None` while it may continue.
pub(super) fn without_share(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let allocation = &job.allocation;
    if !allocation.gated || !spec.groups.iter().any(|group| job.is_gated(group)) {
        return None;
    }
    let has_pods = job.has_unended_pods();
    let cause = if !allocation.share.is_empty() {
        let is_over =
            || job.start_deadline(context.now, &context.node_view, context.config).is_some_and(|at| at <= context.now);
        if job.requests_otherwise(spec) {
            (CauseKind::ShareLost(LossKind::Resized), "its pods request another number of GPUs".to_owned())
        } else if is_over() {
            (CauseKind::NotStarted, not_started(context, job))
        } else {
            return None;
        }
    } else if allocation.at.is_none() {
        // Pods that were there before anything was granted: the queues take them in.
        return None;
    } else {
        (CauseKind::ShareLost(loss_kind(allocation)), words(allocation.loss.as_ref(), job))
    };
    if !has_pods && allocation.share.is_empty() {
        return wait(job, spec);
    }
    let (kind, message) = cause;
    Some(halt(job, kind, message))
}

/// Halts a job that the object of another system does not admit, or no longer does. `None` while it may continue, and while that
/// object is not there: the creation of it shows whether there is such a system.
pub(super) fn without_admission(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let why = job.withdrawal()?;
    if !job.has_unended_pods() {
        return wait(job, spec);
    }
    Some(halt(job, CauseKind::NotAdmitted, why))
}

fn halt(job: &Job, kind: CauseKind, message: String) -> Vec<JobEvent> {
    let cause = Cause { kind, slots: Vec::new(), message: Text::from(message) };
    let mut events = vec![JobEvent::Decided(Box::new(Decision::Halt { cause: cause.clone() }))];
    reconcile::show(
        job,
        Phase::Pending,
        Text::from(format!("{}; {}", cause.message, job.deletion_words())),
        &mut events,
    );
    events
}

/// Has a job without pods show that it waits. Of one that does so already, what it waits for is shown with what else blocks it.
fn wait(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let waits = matches!(job.phase, Phase::New | Phase::Pending | Phase::Preparing | Phase::Queued | Phase::Suspended);
    let message = Text::from(awaited(job, spec).to_string());
    (!waits && !job.has_lasting_pods()).then(|| vec![JobEvent::PhaseChanged { to: Phase::Pending, message }])
}

/// Returns what a job waits for that has neither a share nor an admission.
fn awaited<'a>(job: &'a Job, spec: &'a JobSpec) -> BlockedBy<'a> {
    job.blocked_by_gate().unwrap_or_else(|| job.no_share(spec))
}

fn loss_kind(allocation: &Allocation) -> LossKind {
    allocation.loss.as_ref().map_or(LossKind::Preempted, |loss| loss.kind)
}

fn words(loss: Option<&ShareLoss>, job: &Job) -> String {
    let queue = || job.queue().map_or_else(String::new, |queue| format!(" of queue {queue}"));
    loss.map_or_else(|| format!("its GPUs{} were taken back", queue()), |loss| loss_words(loss, job.queue()))
}

fn not_started(context: &DecisionContext<'_>, job: &Job) -> String {
    let seconds =
        job.start_limit_ms(context.now, &context.node_view, context.config).checked_div(1000).unwrap_or_default();
    let refused = job.refusals().next().map(|(object, outcome)| format!(": {object}: {}", refusal_words(outcome)));
    let why = unplaced_pod(job).map(|why| format!(": {why}"));
    format!("not every pod was placed within {seconds} s{}", refused.or(why).unwrap_or_default())
}

fn refusal_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused { code, message } => format!("refused ({code}): {message}"),
        Outcome::Taken { .. } => "its name is taken".to_owned(),
        Outcome::Done | Outcome::Forced | Outcome::Gone | Outcome::Unknown { .. } => "not created".to_owned(),
    }
}

/// A halt is over when its pods are gone and no creation is unresolved.
pub(super) fn clear(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let is_going = |uid: &Uid| job.pods.get(uid).is_none_or(|pod| job.is_lasting(pod));
    if job.deleting_pods.iter().any(is_going) || job.has_planned_pods() {
        return reconcile::prepare(context, job, spec);
    }
    if job.decision.as_ref().is_some_and(|decision| decision.cause().kind != CauseKind::Suspended) {
        let mut events = vec![JobEvent::RestartCleared];
        let message = if spec.suspended { SUSPENDED.to_owned() } else { awaited(job, spec).to_string() };
        reconcile::show(job, Phase::Pending, Text::from(message), &mut events);
        return events;
    }
    let message = Text::from(SUSPENDED);
    // A halt that an older build decided shows the deletion of its pods as a phase.
    let shown = if job.phase == Phase::Suspended {
        JobEvent::MessageChanged { message }
    } else {
        JobEvent::PhaseChanged { to: Phase::Suspended, message }
    };
    vec![JobEvent::RestartCleared, shown]
}
