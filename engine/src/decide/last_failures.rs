//! The failures that led to an ending which no single pod decides: retries are used up, or time is.
//!
//! Reads how containers ended, before they were started again as well. Must not decide that the job ends. Tests: at the end, and the
//! scenarios of each API.

use std::fmt::Write as _;

use model::{Cause, CauseKind, SlotId, Text, Timestamp, exit};

use crate::job::{Job, Pod};
use crate::message::{MAX_NAMED, pod_outcome};

/// Failures of one round lie within this time, in milliseconds. Earlier ones were answered by restarts that held.
const ROUND_MS: u64 = 60_000;

/// Returns the cause of an ending: what is used up, followed by the failure that came first, and the pods that failed with it.
/// Only pods that `counts` selects are named.
pub(super) fn cause(job: &Job, kind: CauseKind, what: &str, counts: impl Fn(&Pod) -> bool) -> Cause {
    let failed = of_last_round(job, counts);
    let mut message = String::from(what);
    if let Some((first, others)) = failed.split_first() {
        let outcome = if first.fact.is_disrupted() { CauseKind::PodFailed } else { CauseKind::Exited };
        let _ = write!(message, ": {}", pod_outcome(first, outcome));
        let named: Vec<String> = others.iter().take(MAX_NAMED).map(|pod| short(pod)).collect();
        if !named.is_empty() {
            let _ = write!(message, "; after it also {}", named.join(", "));
        }
        if let Some(more) = others.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
            let _ = write!(message, " and {more} more");
        }
    }
    let slots = failed.iter().filter_map(|pod| pod.fact.slot.clone()).take(MAX_NAMED).collect::<Vec<SlotId>>();
    Cause { kind, slots, message: Text::from(message) }
}

/// Returns the pods that failed in the newest round of failures, the one that failed first before the others.
fn of_last_round(job: &Job, counts: impl Fn(&Pod) -> bool) -> Vec<&Pod> {
    let pods = job.pods.values().map(|pod| &**pod).filter(|pod| pod.fact.slot.is_some() && !pod.is_leaving());
    let mut failed: Vec<(bool, Option<Timestamp>, &Pod)> = pods
        .filter(|pod| counts(pod))
        .filter_map(|pod| {
            let disrupted = pod.fact.is_disrupted().then_some((false, pod.failed_at, pod));
            let end = || pod.fact.failures().first().map(|(_, end)| (end.lost_peer, end.finished, pod));
            disrupted.or_else(end)
        })
        .collect();
    let by_itself = failed.iter().filter(|(followed, ..)| !followed).filter_map(|(_, at, _)| *at).max();
    let newest = by_itself.or_else(|| failed.iter().filter_map(|(_, at, _)| *at).max());
    failed.retain(|(_, at, _)| at.zip(newest).is_none_or(|(at, newest)| newest.since_ms(at) <= ROUND_MS));
    failed.sort_by(|(followed, at, pod), (other_followed, other_at, other)| {
        (followed, at, &pod.fact.slot).cmp(&(other_followed, other_at, &other.fact.slot))
    });
    failed.into_iter().map(|(_, _, pod)| pod).collect()
}

/// A pod that failed, with the end of its container.
fn short(pod: &Pod) -> String {
    let failures = pod.fact.failures();
    let end = failures.first().map(|(_, end)| match exit::signal(end.code) {
        Some((_, name)) => format!(" ({name})"),
        None => format!(" (code {})", end.code),
    });
    format!("pod {}{}", pod.fact.name, end.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use model::{ContainerEnd, ContainerFact, ContainerState, PodFact, PodPhase, ResourceVersion};

    use super::*;

    /// A job whose containers failed then, and were started again.
    fn job(ends: &[(u32, u64, bool)]) -> Job {
        let mut job = Job::default();
        for (index, at, lost_peer) in ends {
            let end = ContainerEnd {
                code: 1,
                finished: Some(Timestamp(*at)),
                lost_peer: *lost_peer,
                ..ContainerEnd::default()
            };
            let (name, last) = (Text::from("main"), Some(Box::new(end)));
            let container = ContainerFact { name, main: true, state: ContainerState::Running, last };
            let slot = SlotId { group: "worker".into(), index: *index };
            let uid = model::Uid::from(format!("u{index}").as_str());
            let fact = PodFact {
                phase: PodPhase::Running,
                containers: vec![container],
                ..PodFact::accepted(uid.clone(), format!("j-{index}").as_str().into(), Some(slot), ResourceVersion(1))
            };
            job.pods.insert(uid, Box::new(Pod { deletion: None, running_at: None, failed_at: None, fact }));
        }
        job
    }

    fn named(ends: &[(u32, u64, bool)]) -> (String, Vec<u32>) {
        let cause = cause(&job(ends), CauseKind::BudgetSpent, "used up", |_| true);
        (cause.message.to_string(), cause.slots.iter().map(|slot| slot.index).collect())
    }

    #[test]
    fn the_failure_that_came_first_is_named_before_those_that_followed() {
        let first = |n: u32| format!("used up: pod j-{n}, container main exited with code 1");
        for (ends, want) in [
            (vec![(0, 900, true), (1, 1000, false), (2, 950, false)], vec![2, 1, 0]),
            // An earlier failure was answered by a restart that held.
            (vec![(0, 900, false), (1, 100_000, false)], vec![1]),
            // Those that only follow are named where nothing else is known.
            (vec![(0, 900, true), (1, 800, true)], vec![1, 0]),
        ] {
            let (message, slots) = named(&ends);
            assert_eq!(slots, want, "{ends:?}");
            assert!(message.starts_with(&first(want[0])), "{message}");
        }
        assert_eq!(named(&[(0, 1, false), (1, 2, false)]).0, format!("{}; after it also pod j-1 (code 1)", first(0)));
        assert_eq!(named(&[]), ("used up".to_owned(), vec![]));
    }
}
