//! Status throttle: at once what others wait for, mere progress not more often than users look.
//!
//! Owns what was last dispatched of each job's status, and which writes wait. It must not hold back a write that something
//! depends on: a phase and its message, the fence of a term, the evidence of a decision, a clock that started. What waits is
//! derived from state again when it is due, so forgetting it (a crash) loses nothing. Tests: at the end of this file,
//! `snapshots/tests/limits.rs`, and a crash sweep in `snapshots/tests/crashes.rs`.

use std::collections::{BTreeMap, BTreeSet};

use engine::Job;
use model::{JobKey, Phase, Term, Text, Timestamp};

/// Factor on the interval while jobs wait to be dispatched: a status write costs an API server as much as the creation of
/// several pods.
const BUSY_FACTOR: u64 = 10;

/// Members of a status that are written at once, besides what [`Job::awaits_mirror`] names: those that would be lost with
/// the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Urgent {
    phase: Phase,
    /// The message of the phase, and that the job cannot end.
    messages: [Option<Text>; 2],
    /// There are rejected calls. Not their number: a job with a thousand rejected pods does not write a thousand times.
    refused: bool,
    /// The end of the last back-off, `creating_at`, `first_running_at`, `admitted_at`.
    clocks: [Option<Timestamp>; 4],
    /// Number of pods that failed for good: once they are collected, their object alone reports them.
    lost: usize,
    /// Number of replicas of each group that was restarted.
    replicas: Vec<u32>,
    /// What an object without pods is made of, which may be gone later.
    manifest: Option<Text>,
}

impl Urgent {
    fn of(job: &Job) -> Self {
        let message = job.milestones.back().map(|milestone| milestone.message.clone());
        Self {
            phase: job.phase,
            messages: [message, job.stalled.clone()],
            refused: job.refusals().next().is_some(),
            clocks: [job.last_delay(), job.creating_at, job.first_running_at, job.admitted_at],
            lost: job.groups.values().map(|group| group.lost.len()).sum(),
            replicas: job.groups.values().filter(|group| group.restarts > 0).map(|group| group.replicas).collect(),
            manifest: job.spec.as_ref().filter(|_| job.groups.is_empty()).map(|spec| spec.manifest.clone()),
        }
    }
}

/// Status writes of each job, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct StatusThrottle {
    /// Minimum interval between two writes that only report progress; zero for none.
    interval_ms: u64,
    /// Jobs wait to be dispatched.
    busy: bool,
    written: BTreeMap<JobKey, (Urgent, Timestamp)>,
    /// Jobs whose progress waits, by the time of their last write.
    waiting: BTreeSet<(Timestamp, JobKey)>,
}

impl StatusThrottle {
    pub(crate) fn new(interval_ms: u64) -> Self {
        Self { interval_ms, ..Self::default() }
    }

    /// Lengthens the interval while jobs wait to be dispatched.
    pub(crate) fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Returns the time of the next write after one at this time.
    fn after(&self, at: Timestamp) -> Timestamp {
        at.plus_ms(self.interval_ms.saturating_mul(if self.busy { BUSY_FACTOR } else { 1 }))
    }

    /// Returns true if the job's status is written now, which counts as its last write. Otherwise the job waits until
    /// [`StatusThrottle::take_due`] returns it.
    pub(crate) fn admits(&mut self, key: &JobKey, job: &Job, term: Term, now: Timestamp) -> bool {
        let urgent = Urgent::of(job);
        if let Some((last, at)) = self.written.get(key)
            && urgent == *last
            && !job.awaits_mirror(term)
            && now < self.after(*at)
        {
            self.waiting.insert((*at, key.clone()));
            return false;
        }
        self.written.insert(key.clone(), (urgent, now));
        true
    }

    /// Takes out the jobs whose interval has passed.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<JobKey> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first().filter(|(at, _)| self.after(*at) <= now).cloned() {
            self.waiting.remove(&first);
            due.push(first.1);
        }
        due
    }

    /// Returns the time at which the next job is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(at, _)| self.after(*at))
    }

    /// Forgets a job that is gone or finished.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.written.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use model::Stamp;

    use super::*;

    #[test]
    fn progress_waits_and_what_others_wait_for_does_not() {
        let key = JobKey { namespace: "ns".into(), name: "a".into(), kind: "AITrainingJob".into(), uid: "u".into() };
        let (term, at) = (Term(3), |ms: u64| Timestamp(1_000_000 + ms));
        let stamp = |position: u64| Stamp { term, position: model::Position(position) };
        let mut job = Job {
            stamps: engine::StatusStamps::of_mirror(stamp(5)),
            decided: stamp(5),
            phase: Phase::Pending,
            ..Job::default()
        };
        let mut throttle = StatusThrottle::new(1000);
        assert!(throttle.admits(&key, &job, term, at(0)), "the first");
        assert!(!throttle.admits(&key, &job, term, at(999)));
        assert!(!throttle.admits(&key, &job, term, at(500)));
        assert_eq!((throttle.next_due(), throttle.take_due(at(999))), (Some(at(1000)), vec![]));
        assert_eq!((throttle.take_due(at(1000)), throttle.next_due()), (vec![key.clone()], None));
        assert!(!throttle.admits(&key, &job, term, at(999)));
        throttle.set_busy(true);
        assert_eq!(
            (throttle.next_due(), throttle.take_due(at(9999))),
            (Some(at(10_000)), vec![]),
            "jobs wait to be dispatched"
        );
        assert!(!throttle.admits(&key, &job, term, at(9999)));
        assert_eq!(
            (throttle.take_due(at(10_000)), throttle.next_due()),
            (vec![key.clone()], None),
            "it does not wait for ever"
        );
        assert!(!throttle.admits(&key, &job, term, at(1000)));
        throttle.set_busy(false);
        assert_eq!(
            (throttle.take_due(at(1000)), throttle.next_due()),
            (vec![key.clone()], None),
            "no job waits any more"
        );
        assert!(throttle.admits(&key, &job, term, at(1000)), "its time has come");
        job.phase = Phase::Running;
        assert!(throttle.admits(&key, &job, term, at(1001)), "a phase");
        assert!(!throttle.admits(&key, &job, term, at(1002)));
        job.first_running_at = Some(at(1002));
        assert!(throttle.admits(&key, &job, term, at(1002)), "a clock that began");
        assert!(!throttle.admits(&key, &job, term, at(1003)));
        job.decided = stamp(6);
        assert!(throttle.admits(&key, &job, term, at(1003)), "the evidence of a decision");
        job.stamps.acknowledge(stamp(6));
        assert!(!throttle.admits(&key, &job, term, at(1003)));
        assert!(throttle.admits(&key, &job, Term(4), at(1003)), "the fence of a later term");
        throttle.forget(&key);
        assert!(throttle.admits(&key, &job, term, at(1003)), "a job of that name that is new");
        let mut throttle = StatusThrottle::new(0);
        assert!(
            throttle.admits(&key, &job, term, at(2)) && throttle.admits(&key, &job, term, at(2)),
            "without an interval"
        );
    }
}
