//! Decides endings: by request, by policy, by time limit; an ending that was decided runs to its end.

use model::fact::EndRequest;
use model::{Cause, CauseKind, CleanPodPolicy, Decision, Event, JobEndPolicy, JobSpec, Phase, SlotId, Text};

use super::Report;
use crate::classify::DecisionContext;
use crate::job::Job;
use crate::words::{cause_of_end_request, cause_of_pods};

/// An ending whose pods are going: ends when all are gone.
pub(super) fn proceed(job: &Job, phase: Phase) -> Vec<Event> {
    let late: Vec<_> = job.pods.keys().filter(|uid| !job.deleting_pods.contains(*uid)).cloned().collect();
    let services: Vec<_> =
        job.services.iter().filter(|(_, s)| s.deletion.is_none()).map(|(uid, _)| uid.clone()).collect();
    let mut events = Vec::new();
    if !late.is_empty() {
        events.push(Event::PodsDropped { uids: late });
    }
    if !services.is_empty() {
        events.push(Event::ServicesDropped { uids: services });
    }
    if events.is_empty() && job.is_empty() {
        events.push(Event::Ended { phase });
    }
    events
}

/// Ends the job because an annotation asks for it; its policies have no say.
pub(super) fn requested(job: &Job, spec: &JobSpec, request: EndRequest, value: &str) -> Vec<Event> {
    let phase = match request {
        EndRequest::Preempted => Phase::Preempted,
        EndRequest::Failed => Phase::Failed,
        EndRequest::NodeFailed => Phase::NodeFailed,
    };
    end(job, spec, phase, cause_of_end_request(request, value))
}

/// Returns true if the time limit has passed.
pub(super) fn is_over_time(context: &DecisionContext<'_>, job: &Job) -> bool {
    job.time_limit_at().is_some_and(|limit| limit <= context.now)
}

/// The time limit ends the job.
pub(super) fn time_limit(job: &Job, spec: &JobSpec) -> Vec<Event> {
    let seconds = spec.time_limit_ms.unwrap_or_default() / 1000;
    let message = Text::from(format!("the time limit of {seconds} s from the first pod running has passed"));
    end(job, spec, Phase::TimedOut, Cause { kind: CauseKind::TimeLimit, slots: Vec::new(), message })
}

/// Groups complete the job, or fail it.
pub(super) fn by_policy(
    context: &DecisionContext<'_>,
    job: &Job,
    spec: &JobSpec,
    reports: &[(usize, Report)],
) -> Option<Vec<Event>> {
    let decides = |policy: JobEndPolicy, count: usize| match policy {
        JobEndPolicy::Any => count > 0,
        JobEndPolicy::All => count == spec.groups.len(),
        JobEndPolicy::None => false,
    };
    let complete: Vec<&Vec<(SlotId, CauseKind)>> = reports
        .iter()
        .filter_map(|(_, r)| match r {
            Report::Complete { slots } => Some(slots),
            Report::Failed { .. } | Report::Restart { .. } => None,
        })
        .collect();
    if decides(spec.complete, complete.len()) {
        let found: Vec<_> = complete.into_iter().flatten().cloned().collect();
        return Some(end(job, spec, Phase::Succeeded, cause_of_pods(job, "completed", &found)));
    }
    let mut failed: Vec<_> = reports
        .iter()
        .filter_map(|(_, r)| match r {
            Report::Failed { phase, slots, limited, rank } => Some((*rank, *phase, slots.as_slice(), *limited)),
            Report::Complete { .. } | Report::Restart { .. } => None,
        })
        .collect();
    failed.sort_by_key(|(rank, ..)| *rank);
    let (_, phase, _, limited) = failed.first().copied()?;
    if !decides(spec.fail, failed.len()) {
        return None;
    }
    let found: Vec<_> = failed.into_iter().flat_map(|(_, _, slots, _)| slots).cloned().collect();
    let mut lead = String::new();
    let group = found.first().and_then(|(id, _)| spec.group(&id.group)).filter(|_| limited);
    if let Some((group, limit)) =
        group.and_then(|group| Some((group, super::restart_limit(context, group).filter(|limit| *limit > 0)?)))
    {
        lead = format!("restart limit {limit} of {} already used", group.display());
    }
    Some(end(job, spec, phase, cause_of_pods(job, &lead, &found)))
}

fn end(job: &Job, spec: &JobSpec, phase: Phase, cause: Cause) -> Vec<Event> {
    let keep = spec.clean_pods == CleanPodPolicy::None && matches!(phase, Phase::Succeeded | Phase::Failed);
    let message = Text::from(format!("{}; deleting pods", cause.message));
    let decided = Event::Decided(Box::new(Decision::End { phase, cause, clean: !keep }));
    let next = if keep && job.planned_pods.is_empty() {
        Event::Ended { phase }
    } else {
        Event::PhaseChanged { to: Phase::Terminating, message }
    };
    vec![decided, next]
}
