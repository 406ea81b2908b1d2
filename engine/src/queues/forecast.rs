//! Forecasts expected starts: decides again at the times at which running jobs reach their time limits.
//!
//! Derived on demand and recorded nowhere. A start is expected under two assumptions: every job takes its whole time limit, and
//! nothing else happens. A job without a time limit holds its places for ever, so what waits for it has no expected start.
//! Tests: `cli/tests/local/queue.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{JobKey, Timestamp};
use scheduler::scheduling::Reason;

use super::cycle::{self, SchedulingCycle};
use super::grant;
use crate::state::State;

/// Bounds on the work of one forecast.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Most jobs looked at, over all times at which a decision is forecast.
    jobs: usize,
    /// Fewest and most times at which a decision is forecast.
    times: (usize, usize),
}

/// Bounds for a request, as `trainyard queue` makes one.
pub(super) const ON_DEMAND: Work = Work { jobs: 100_000, times: (8, 200) };
/// Bounds for the status of queues, which is written in each cycle.
pub(super) const IN_STATUS: Work = Work { jobs: 4_000, times: (0, 40) };

/// Expected starts by job.
pub(super) type Starts = BTreeMap<JobKey, Start>;

/// When a job that waits is expected to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this time, if every job takes its whole time limit and nothing else happens.
    At(Timestamp),
    /// It is not known.
    Unknown(Why),
}

/// Reason why no start is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Time alone changes nothing: its queue is paused or missing, or it needs more than there will ever be.
    Barred,
    /// No running job has a time limit.
    NoLimits,
    /// The places that it needs are held by jobs without a time limit.
    Unlimited,
    /// Too many other starts and ends come first.
    TooFar,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Barred => "time alone does not start it",
            Self::NoLimits => "no running job has a time limit",
            Self::Unlimited => "jobs without a time limit hold what it needs",
            Self::TooFar => "too many other jobs start and end before it",
        })
    }
}

impl Start {
    /// Returns the time, in whole seconds, where it is known.
    pub(super) fn at(self) -> Option<Timestamp> {
        match self {
            Self::At(at) => Some(Timestamp(at.0.div_ceil(1000).saturating_mul(1000))),
            Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "expected start {}", at.to_rfc3339()),
            Self::Unknown(why) => write!(f, "expected start unknown: {why}"),
        }
    }
}

/// Returns the time at which a job ends at the latest that has places from `since` on; `None` where it has no time limit.
fn end(state: &State, key: &JobKey, since: Timestamp) -> Option<Timestamp> {
    let job = state.jobs.live(key)?;
    job.time_limit_from(since).map(|at| at.max(since))
}

/// Returns when each job is expected to start that holds no places and wants some.
pub(super) fn starts(state: &State, now: Timestamp, work: Work) -> Starts {
    let mut cycle = SchedulingCycle::new(state, &grant::seen(state), now);
    let mut waiting: BTreeSet<JobKey> =
        cycle.requests.iter().filter(|request| request.held.is_empty()).map(|request| request.key.clone()).collect();
    let mut starts = BTreeMap::new();
    let mut ends: BTreeMap<JobKey, Timestamp> = BTreeMap::new();
    for request in cycle.requests.iter().filter(|request| !request.held.is_empty()) {
        ends.extend(end(state, request.key, now).map(|at| (request.key.clone(), at)));
    }
    let mut history = state.queues.history.clone();
    let times = work.jobs.checked_div(cycle.requests.len()).unwrap_or_default().clamp(work.times.0, work.times.1);
    let mut at = now;
    let mut barred: BTreeSet<JobKey> = BTreeSet::new();
    let mut has_limits = !ends.is_empty();
    let mut is_cut = true;
    for _ in 0..times {
        let Some(decision) = cycle.ask(&history, at) else { break };
        history.apply(&decision.memory);
        let is_barred = |reason: &Reason| {
            matches!(
                reason,
                Reason::NoQueue | Reason::Paused | Reason::Faulty(_) | Reason::NeverQuota | Reason::NeverNodes
            )
        };
        let ids: BTreeSet<_> =
            decision.pending.iter().filter(|wait| is_barred(&wait.reason)).map(|wait| &wait.id).collect();
        barred = cycle
            .requests
            .iter()
            .filter(|request| ids.contains(request.id()))
            .map(|request| request.key.clone())
            .collect();
        for (request, target) in cycle.requests.iter_mut().zip(decision.targets) {
            if target.change.is_none() {
                continue;
            }
            if target.on.is_empty() {
                ends.remove(request.key);
            } else if request.held.is_empty() {
                ends.extend(end(state, request.key, at).map(|end| (request.key.clone(), end)));
                if waiting.remove(request.key) {
                    starts.insert(request.key.clone(), Start::At(at));
                }
            }
            request.held = target.on;
            request.changed = Some(at);
        }
        has_limits |= !ends.is_empty();
        let wake = decision.wake.map(cycle::timestamp);
        let next = ends.values().copied().chain(wake).filter(|next| *next > at).min();
        let (Some(next), true) = (next, waiting.iter().any(|key| !barred.contains(key))) else {
            is_cut = false;
            break;
        };
        at = next;
        cycle.requests.retain(|request| ends.get(request.key).is_none_or(|end| *end > at));
        ends.retain(|_, end| *end > at);
    }
    let why = |key: &JobKey| {
        if barred.contains(key) {
            Why::Barred
        } else if is_cut {
            Why::TooFar
        } else if has_limits {
            Why::Unlimited
        } else {
            Why::NoLimits
        }
    };
    starts.extend(waiting.iter().map(|key| (key.clone(), Start::Unknown(why(key)))));
    starts
}
