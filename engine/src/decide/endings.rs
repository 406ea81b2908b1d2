//! Decides endings: by request, by policy, by time limit; an ending that was decided runs to its end.

use std::collections::BTreeSet;

use model::fact::EndRequest;
use model::{
    Budget, Cause, CauseKind, CleanPodPolicy, ClockStart, Decision, EndTiming, JobEndPolicy, JobEvent, JobSpec, Phase,
    SlotId, Text,
};

use super::{Report, last_failures};
use crate::classify::DecisionContext;
use crate::job::{Job, Pod};
use crate::message::{cause_of_end_request, cause_of_pods, trouble};

/// Errors of a spec that the message of an ending names; more are counted.
const MAX_ERRORS: usize = 4;

/// An ending whose pods are going: ends when all are gone.
pub(super) fn proceed(job: &Job, phase: Phase) -> Vec<JobEvent> {
    let late: Vec<_> = job.pods.keys().filter(|uid| !job.deleting_pods.contains(*uid)).cloned().collect();
    let services: Vec<_> =
        job.services.iter().filter(|(_, s)| s.deletion.is_none()).map(|(uid, _)| uid.clone()).collect();
    let mut events = Vec::new();
    if !late.is_empty() {
        events.push(JobEvent::PodsDropped { uids: late });
    }
    if !services.is_empty() {
        events.push(JobEvent::ServicesDropped { uids: services });
    }
    if events.is_empty() && job.is_empty() {
        events.push(JobEvent::Ended { phase });
    }
    events
}

/// Ends the job because an annotation asks for it; its policies have no say.
pub(super) fn requested(job: &Job, spec: &JobSpec, request: EndRequest, value: &str) -> Vec<JobEvent> {
    let phase = match request {
        EndRequest::Preempted => Phase::Preempted,
        EndRequest::Failed | EndRequest::Stopped => Phase::Failed,
        EndRequest::NodeFailed => Phase::NodeFailed,
    };
    let clean = match spec.clean(phase) {
        // What was stopped does not run on.
        CleanPodPolicy::None if request == EndRequest::Stopped => CleanPodPolicy::Running,
        policy @ (CleanPodPolicy::All | CleanPodPolicy::Running | CleanPodPolicy::None) => policy,
    };
    end_with(job, spec, phase, cause_of_end_request(request, value), clean)
}

/// Returns true if the time limit has passed.
pub(super) fn is_over_time(context: &DecisionContext<'_>, job: &Job) -> bool {
    job.time_limit_at().is_some_and(|limit| limit <= context.now)
}

/// The time limit ends the job.
pub(super) fn time_limit(job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let seconds = spec.time_limit_ms.unwrap_or_default() / 1000;
    let start = match spec.limit_from {
        ClockStart::FirstRunning => "the first pod running",
        ClockStart::Admitted => "the job's start",
    };
    let mut what = format!("the time limit of {seconds} s from {start} has passed");
    let trouble = trouble(job);
    if !trouble.is_empty() {
        what.push_str("; waiting for: ");
        what.push_str(&trouble);
    }
    end(job, spec, Phase::TimedOut, last_failures::cause(job, CauseKind::TimeLimit, &what, |_| true))
}

/// The job's retries end it.
pub(super) fn by_budget(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let retries = job.retries();
    let budget = spec.budget.filter(|budget| budget.is_spent_by(retries))?;
    // Pods that run once are charged to their group.
    let counts = |pod: &Pod| pod.fact.slot.as_ref().is_some_and(|slot| !job.runs_once(&slot.group));
    let cause = last_failures::cause(job, CauseKind::BudgetSpent, &budget_words(budget, retries), counts);
    Some(end(job, spec, Phase::Failed, cause))
}

/// Restarts of containers in the pods that run end the job.
pub(super) fn by_running_restarts(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let limit = spec.running_restart_limit?;
    let restarts = job.running_restarts();
    if restarts < limit.max(1) {
        return None;
    }
    let what = format!("the limit of {limit} restarts of containers in running pods is reached ({restarts} counted)");
    let cause = last_failures::cause(job, CauseKind::BudgetSpent, &what, |pod| pod.fact.restarts > 0);
    Some(end(job, spec, Phase::Failed, cause))
}

/// A first spec that cannot be accepted fails the job, where its API says so. A job that was accepted before continues, also where
/// the log that shows its spec is lost.
pub(super) fn unacceptable(job: &Job) -> Option<Vec<JobEvent>> {
    let was_accepted = job.phase != Phase::New || !job.pods.is_empty();
    let latest = job.spec.as_ref().filter(|latest| latest.fatal && !was_accepted)?;
    let errors = latest.spec.as_ref().err().filter(|errors| !errors.is_empty())?;
    let words: Vec<String> = errors.iter().take(MAX_ERRORS).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(MAX_ERRORS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = Text::from(format!("{}{more}", words.join("; ")));
    let cause = Cause { kind: CauseKind::Invalid, slots: Vec::new(), message };
    let (phase, clean, live_only) = (Phase::Failed, false, false);
    let decided = JobEvent::Decided(Box::new(Decision::End { phase, cause, clean, live_only }));
    Some(vec![decided, JobEvent::Ended { phase }])
}

/// The retries of a group's own pods end the job.
pub(super) fn by_group_budget(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let spent = spec.groups.iter().find_map(|group| {
        let retries = job.group_retries(group);
        let budget = group.budget.filter(|budget| budget.is_spent_by(retries))?;
        (!job.groups.get(&group.name)?.has_run(group)).then_some((group, budget, retries))
    });
    let (group, budget, retries) = spent?;
    let what = format!("{}: {}", group.display(), budget_words(budget, retries));
    let counts = |pod: &Pod| pod.fact.slot.as_ref().is_some_and(|slot| slot.group == group.name);
    let mut cause = last_failures::cause(job, CauseKind::BudgetSpent, &what, counts);
    if cause.slots.is_empty() {
        cause.slots.push(SlotId { group: group.name.clone(), index: 0 });
    }
    Some(end(job, spec, Phase::Failed, cause))
}

/// Returns a spent budget in words.
pub(super) fn budget_words(budget: Budget, retries: u32) -> String {
    let what = if budget.rounds && !budget.containers {
        "rounds of replaced pods"
    } else if budget.containers {
        "replaced pods and restarts of containers"
    } else {
        "replaced pods"
    };
    format!("the limit of {} retries is used up ({retries} counted: {what})", budget.limit)
}

/// Groups complete the job, or fail it.
pub(super) fn by_policy(
    context: &DecisionContext<'_>,
    job: &Job,
    spec: &JobSpec,
    reports: &[(usize, Report)],
) -> Option<Vec<JobEvent>> {
    let name = |n: usize| spec.groups.get(n).map(|group| &group.name);
    let runs_once = |n: usize| spec.groups.get(n).is_some_and(|group| group.once);
    let decides = |policy: &JobEndPolicy, groups: &BTreeSet<&Text>| match policy {
        JobEndPolicy::Any => !groups.is_empty(),
        JobEndPolicy::All => groups.len() == spec.groups.iter().filter(|group| !group.once).count(),
        JobEndPolicy::None => false,
        JobEndPolicy::Sets(sets) => {
            sets.iter().any(|set| !set.is_empty() && set.iter().all(|group| groups.contains(group)))
        }
    };
    let complete: Vec<(&Text, &Vec<(SlotId, CauseKind)>)> = reports
        .iter()
        .filter_map(|(n, r)| match r {
            // What runs once prepares the job. It does not complete it.
            Report::Complete { slots } if !runs_once(*n) => Some((name(*n)?, slots)),
            Report::Complete { .. } | Report::Failed { .. } | Report::Restart { .. } => None,
        })
        .collect();
    if decides(&spec.complete, &complete.iter().map(|(group, _)| *group).collect()) {
        let found: Vec<_> = complete.into_iter().flat_map(|(_, slots)| slots).cloned().collect();
        return Some(end(job, spec, Phase::Succeeded, cause_of_pods(job, "completed", &found)));
    }
    let mut failed: Vec<_> = reports
        .iter()
        .filter_map(|(n, r)| match r {
            Report::Failed { phase, slots, limited, rank } => {
                Some((*rank, name(*n)?, *phase, slots.as_slice(), *limited))
            }
            Report::Complete { .. } | Report::Restart { .. } => None,
        })
        .collect();
    failed.sort_by_key(|(rank, ..)| *rank);
    let (.., phase, _, limited) = failed.first().copied()?;
    let is_needed = |group: &Text| spec.group(group).is_some_and(|group| group.once);
    let lasting: BTreeSet<&Text> =
        failed.iter().map(|(_, group, ..)| *group).filter(|group| !is_needed(group)).collect();
    // Without what runs once the job cannot continue.
    if !failed.iter().any(|(_, group, ..)| is_needed(group)) && !decides(&spec.fail, &lasting) {
        return None;
    }
    let found: Vec<_> = failed.into_iter().flat_map(|(.., slots, _)| slots).cloned().collect();
    let mut lead = String::new();
    let group = found.first().and_then(|(id, _)| spec.group(&id.group)).filter(|_| limited);
    if let Some((group, limit)) =
        group.and_then(|group| Some((group, job.restart_limit(group, context.config).filter(|limit| *limit > 0)?)))
    {
        lead = format!("restart limit {limit} of {} already used", group.display());
    }
    Some(end(job, spec, phase, cause_of_pods(job, &lead, &found)))
}

/// Ends the job in this phase.
pub(super) fn end(job: &Job, spec: &JobSpec, phase: Phase, cause: Cause) -> Vec<JobEvent> {
    end_with(job, spec, phase, cause, spec.clean(phase))
}

fn end_with(job: &Job, spec: &JobSpec, phase: Phase, cause: Cause, policy: CleanPodPolicy) -> Vec<JobEvent> {
    let (clean, live_only) = match policy {
        CleanPodPolicy::All => (true, false),
        CleanPodPolicy::Running => (true, true),
        CleanPodPolicy::None => (false, false),
    };
    let message = Text::from(format!("{}; deleting pods", cause.message));
    let decided = JobEvent::Decided(Box::new(Decision::End { phase, cause, clean, live_only }));
    let at_once = spec.phase_rules.ends == EndTiming::Decided || (!clean && job.planned_pods.is_empty());
    let next =
        if at_once { JobEvent::Ended { phase } } else { JobEvent::PhaseChanged { to: Phase::Terminating, message } };
    vec![decided, next]
}
