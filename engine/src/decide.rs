//! Decides one job from what is known, and from nothing else. Total and level-triggered.
//!
//! Ranking: `AITrainingJob` specification, section 2.6, corrected: end requests and the time limit also act while a restart waits;
//! the whole job is evaluated before any pod is created or deleted. The rules are grouped by what they lead to:
//! [`endings`] (with [`last_failures`]), [`restarts`], [`replacements`], [`refresh`], [`halts`], [`reconcile`], [`autoscale`]; [`report`] says what the pods of a group come to.
//! [`observed`] decides jobs whose pods another controller creates, [`crate::referrers`] what an object shows of the jobs that reference it.

mod autoscale;
mod endings;
mod first_failure;
mod halts;
mod last_failures;
mod observed;
pub(crate) mod owned;
mod reconcile;
mod refresh;
mod replacements;
mod report;
mod restarts;

use model::{JobEvent, JobKey, Phase, Term, Timestamp};

use self::report::{Report, report};
use crate::classify::DecisionContext;
use crate::job::Job;
use crate::state::State;

/// Rounds after which a record is closed even if more would follow; the rest goes into the next record.
const MAX_ROUNDS: u32 = 8;

/// Decides one job at `now`. The events change nothing until they are applied.
pub fn decide(state: &State, key: &JobKey, now: Timestamp) -> Vec<JobEvent> {
    let Some(job) = state.jobs.live(key) else { return Vec::new() };
    if job.quarantine.is_some() {
        return Vec::new();
    }
    let context = DecisionContext { now, config: &state.config, node_view: state.node_view() };
    if !job.object.exists() {
        return reconcile::orphan(&context, job);
    }
    let counted = state.count_referrers(key, job);
    if job.object.is_deleting() {
        return owned::finalize(state, key, job).into_iter().chain(counted).collect();
    }
    fence(job, state.stamp.term, rules(&context, job).into_iter().chain(counted).collect())
}

pub(crate) use self::first_failure::until as failures_awaited_until;
pub(crate) use self::refresh::old_pods;

/// Decides and applies until nothing follows or the phase changed: the events of one record. At its end the job's deadline stands.
pub fn step(state: &mut State, key: &JobKey) -> Vec<JobEvent> {
    let mut events = Vec::new();
    state.refresh_quota(key);
    for _ in 0..MAX_ROUNDS {
        let round = decide(state, key, state.at);
        if round.is_empty() {
            break;
        }
        for event in &round {
            // Deciding only names jobs and slots that are there; an event that does not fit would be a fault in this crate.
            let applied = state.apply_job_event(key, event);
            debug_assert_eq!(applied, Ok(()), "decided event must apply");
        }
        let closes = round
            .iter()
            .any(|e| matches!(e, JobEvent::PhaseChanged { .. } | JobEvent::Ended { .. } | JobEvent::Fenced));
        events.extend(round);
        if closes {
            break;
        }
    }
    state.finish_record(key);
    events
}

fn rules(context: &DecisionContext<'_>, job: &Job) -> Vec<JobEvent> {
    if let Some(spec) = job.spec().filter(|spec| spec.externally_managed) {
        return observed::rules(context, job, spec);
    }
    if job.phase.is_terminal() {
        return reconcile::collect_leftovers(job);
    }
    if let Some((phase, ..)) = job.ending() {
        return endings::proceed(job, phase);
    }
    // An edit that cannot be accepted is reported; the job keeps the previous spec.
    let Some(spec) = job.spec() else {
        return endings::unacceptable(job).unwrap_or_else(|| reconcile::without_spec(job));
    };
    if let Some((request, value)) = job.object.end_requests().first_key_value() {
        return endings::requested(job, spec, *request, value);
    }
    if job.is_halting() {
        return halts::clear(context, job, spec);
    }
    if let Some(restart) = job.restart() {
        if endings::is_over_time(context, job) {
            return endings::time_limit(job, spec);
        }
        return restarts::clear(context, job, restart);
    }
    if let Some(events) = replacements::failed_pods(context, job, spec) {
        return events;
    }
    let reports: Vec<(usize, Report)> =
        job.spec_groups().enumerate().filter_map(|(n, (spec, _))| Some((n, report(context, job, spec)?))).collect();
    if first_failure::is_awaited(context, job, &reports) {
        return Vec::new();
    }
    if let Some(events) = restarts::first(context, job, spec, &reports) {
        return events;
    }
    if let Some(events) = endings::by_policy(context, job, spec, &reports) {
        return events;
    }
    if let Some(events) = endings::by_budget(job, spec)
        .or_else(|| endings::by_group_budget(job, spec))
        .or_else(|| endings::by_running_restarts(job, spec))
    {
        return events;
    }
    if endings::is_over_time(context, job) {
        return endings::time_limit(job, spec);
    }
    if spec.suspended {
        return halts::suspend(context, job, spec);
    }
    if let Some(events) = halts::without_admission(job, spec) {
        return events;
    }
    if let Some(events) = halts::without_share(context, job, spec) {
        return events;
    }
    if let Some(events) = refresh::renew(job, spec) {
        return events;
    }
    if let Some(events) = restarts::outdated(job, spec) {
        return events;
    }
    if let Some(events) = job.unplaced(context.now) {
        return events;
    }
    let mut events = reconcile::active_job(context, job, spec);
    events.extend(autoscale::next_step(context, job, spec));
    events
}

/// Holds decisions back until the term is fenced. A term acts on a job only once it stands in the job's mirror; of what was decided before, only the first phase is shown.
fn fence(job: &Job, term: Term, events: Vec<JobEvent>) -> Vec<JobEvent> {
    let waiting = job.owned.values().any(|owned| owned.planned)
        || !job.planned_pods.is_empty()
        || !job.planned_services.is_empty()
        || job.has_outdated_objects()
        || job.missing_notes().is_some()
        || job.spec().is_some_and(|spec| !job.marks(spec).is_empty())
        || job.allocation.has_target;
    if job.is_fenced(term) || (events.is_empty() && !waiting) {
        return events;
    }
    if job.stamps.fenced_by().term == term {
        return Vec::new();
    }
    let waits = |phase| matches!(phase, Phase::Pending | Phase::Suspended | Phase::Preparing | Phase::Queued);
    let is_first = |e: &JobEvent| matches!(e, JobEvent::PhaseChanged { to, .. } if waits(*to));
    let first = |e: &JobEvent| job.phase == Phase::New && is_first(e);
    std::iter::once(JobEvent::Fenced).chain(events.into_iter().filter(first)).collect()
}
