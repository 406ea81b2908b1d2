//! Decides one job from what is known, and from nothing else. Total and level-triggered.
//!
//! Ranking: `AITrainingJob` specification, section 2.6, corrected: end requests and the time limit also act while a restart waits;
//! the whole job is evaluated before any pod is created or deleted. The rules are grouped by what they lead to:
//! [`endings`], [`restarts`], [`reconcile`].

mod endings;
mod first_failure;
mod reconcile;
mod restarts;

use model::{CauseKind, Event, JobKey, Phase, SlotId, Term, Timestamp};

use self::first_failure::Rank;
use crate::classify::{DecisionContext, PodOutcome};
use crate::job::Job;
use crate::state::State;

/// Rounds after which a record is closed even if more would follow; the rest goes into the next record.
const MAX_ROUNDS: u32 = 8;

/// Decides one job at `now`. The events change nothing until they are applied.
pub fn decide(state: &State, key: &JobKey, now: Timestamp) -> Vec<Event> {
    let Some(job) = state.jobs.live(key) else { return Vec::new() };
    if job.quarantine.is_some() {
        return Vec::new();
    }
    let context = DecisionContext { now, config: &state.config, node_view: state.node_view() };
    if !job.known || job.gone {
        return reconcile::orphan(&context, job);
    }
    if job.deleting {
        return Vec::new();
    }
    fence(job, state.stamp.term, rules(&context, job))
}

pub(crate) use self::first_failure::until as failures_awaited_until;

/// Decides and applies until nothing follows or the phase changed: the events of one record. At its end the job's deadline stands.
pub fn step(state: &mut State, key: &JobKey) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let round = decide(state, key, state.at);
        if round.is_empty() {
            break;
        }
        for event in &round {
            // Deciding only names jobs and slots that are there; an event that does not fit would be a fault in this crate.
            let applied = state.apply_job(key, event);
            debug_assert_eq!(applied, Ok(()), "decided event must apply");
        }
        let closes =
            round.iter().any(|e| matches!(e, Event::PhaseChanged { .. } | Event::Ended { .. } | Event::Fenced));
        events.extend(round);
        if closes {
            break;
        }
    }
    state.finish_record(key);
    events
}

fn rules(context: &DecisionContext<'_>, job: &Job) -> Vec<Event> {
    if job.phase.is_terminal() {
        return reconcile::collect_leftovers(job);
    }
    if let Some((phase, ..)) = job.ending() {
        return endings::proceed(job, phase);
    }
    // An edit that cannot be accepted is reported; the job goes on with the spec before.
    let Some(spec) = job.spec() else { return Vec::new() };
    if let Some((request, value)) = job.end_requests.first_key_value() {
        return endings::requested(job, spec, *request, value);
    }
    if let Some(restart) = job.restart() {
        if endings::is_over_time(context, job) {
            return endings::time_limit(job, spec);
        }
        return restarts::clear(context, job, restart);
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
    if endings::is_over_time(context, job) {
        return endings::time_limit(job, spec);
    }
    reconcile::active_job(context, job, spec)
}

/// Holds decisions back until the term is fenced. A term acts on a job only once it stands in the job's mirror; of what was decided before, only the first phase is shown.
fn fence(job: &Job, term: Term, events: Vec<Event>) -> Vec<Event> {
    let waiting = !job.planned_pods.is_empty() || !job.planned_services.is_empty();
    if job.is_fenced(term) || (events.is_empty() && !waiting) {
        return events;
    }
    if job.fenced_by.term == term {
        return Vec::new();
    }
    let first = |e: &Event| job.phase == Phase::New && matches!(e, Event::PhaseChanged { to: Phase::Pending, .. });
    std::iter::once(Event::Fenced).chain(events.into_iter().filter(first)).collect()
}

/// Report of the pods of one group about it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Report {
    /// A pod is to be restarted.
    Restart { index: u32, kind: CauseKind, rank: Rank },
    /// The group completed.
    Complete { slots: Vec<(SlotId, CauseKind)> },
    /// The group failed, as this phase; `limited`: a restart would have been the answer, had its limit allowed one.
    Failed { phase: Phase, slots: Vec<(SlotId, CauseKind)>, limited: bool, rank: Rank },
}

/// Walks a group's slots that have something to say, in index order. Of those that decide, the one that failed first does.
fn report(context: &DecisionContext<'_>, job: &Job, spec: &model::GroupSpec) -> Option<Report> {
    use model::GroupEndPolicy as Policy;
    let group = job.groups.get(&spec.name)?;
    let id = |index: u32| SlotId { group: spec.name.clone(), index };
    let first_done = match spec.complete {
        Policy::Any => group.done.first().copied(),
        Policy::Rank0 => group.done.first().copied().filter(|n| *n == 0),
        Policy::All | Policy::None => None,
    };
    let open = restart_limit(context, spec).is_none_or(|limit| group.charged < limit);
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
                    Policy::All | Policy::None => false,
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

/// The limit of a group's restarts: its own, or else the configured one.
fn restart_limit(context: &DecisionContext<'_>, spec: &model::GroupSpec) -> Option<u32> {
    spec.restart_limit.or(context.config.restart_limit)
}

/// Returns true if a pod counts where all pods of a group have to fail: by its phase, and not while it is on its way out.
const fn counts_as_failed(pod: &crate::job::Pod) -> bool {
    !pod.is_leaving() && matches!(pod.fact.phase, model::PodPhase::Failed | model::PodPhase::Unknown)
}
