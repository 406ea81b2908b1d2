//! When a job's status is written: what others wait for at once, mere progress not more often than users look.
//!
//! Owns what was last handed out of each job's status, and which writes wait. It must not keep back a write that something
//! depends on: a phase and its words, the fence of a term, the evidence of a decision, a clock that began. What waits is
//! derived from state anew when its time has come, so forgetting it (a crash) loses nothing. Tests: at the end of this file,
//! `snapshots/tests/room.rs`, and a crash sweep in `snapshots/tests/crashes.rs`.

use std::collections::{BTreeMap, BTreeSet};

use engine::Job;
use model::{JobKey, Phase, Term, Text, Timestamp};

/// How many times longer progress waits while pods and services wait to be created: a status write costs an API server as much
/// as several of those.
const WHILE_BUSY: u64 = 10;

/// What of a status is told at once, besides what [`Job::awaits_mirror`] says: what a log that is lost would take along.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    phase: Phase,
    /// What is said beside the phase, and that the job cannot end.
    words: [Option<Text>; 2],
    /// Whether there are refusals: a job that is refused a thousand pods does not write a thousand times.
    refused: bool,
    /// The end of the last back-off, `creating_at`, `first_running_at`.
    clocks: [Option<Timestamp>; 3],
    /// Number of replicas of each group that was restarted.
    replicas: Vec<u32>,
}

impl Told {
    fn of(job: &Job) -> Self {
        let words = job.milestones.back().map(|milestone| milestone.message.clone());
        Self {
            phase: job.phase,
            words: [words, job.stalled.clone()],
            refused: job.refusals().next().is_some(),
            clocks: [job.last_delay(), job.creating_at, job.first_running_at],
            replicas: job.groups.values().filter(|group| group.restarts > 0).map(|group| group.replicas).collect(),
        }
    }
}

/// Keeps count of status writes.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Least time between two writes that only tell of progress; zero for none.
    every_ms: u64,
    /// Whether there is more to do than room for it.
    busy: bool,
    written: BTreeMap<JobKey, (Told, Timestamp)>,
    /// Jobs whose progress waits, by when they were last written.
    waiting: BTreeSet<(Timestamp, JobKey)>,
}

impl Pace {
    pub(crate) fn new(every_ms: u64) -> Self {
        Self { every_ms, ..Self::default() }
    }

    /// Tells whether there is more to do than room for it.
    pub(crate) fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// When progress is written that was last written at this time.
    fn after(&self, at: Timestamp) -> Timestamp {
        at.plus_ms(self.every_ms.saturating_mul(if self.busy { WHILE_BUSY } else { 1 }))
    }

    /// Whether the job's status is written now, which is noted; otherwise it waits, and is told by [`Pace::due`].
    pub(crate) fn lets(&mut self, key: &JobKey, job: &Job, term: Term, now: Timestamp) -> bool {
        let told = Told::of(job);
        if let Some((last, at)) = self.written.get(key)
            && told == *last
            && !job.awaits_mirror(term)
            && now < self.after(*at)
        {
            self.waiting.insert((*at, key.clone()));
            return false;
        }
        self.written.insert(key.clone(), (told, now));
        true
    }

    /// Jobs whose time has come.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<JobKey> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first().filter(|(at, _)| self.after(*at) <= now).cloned() {
            self.waiting.remove(&first);
            due.push(first.1);
        }
        due
    }

    /// When the next job's time comes.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(at, _)| self.after(*at))
    }

    /// The job is gone.
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
        let mut job = Job { acked: stamp(5), decided: stamp(5), phase: Phase::Pending, ..Job::default() };
        let mut pace = Pace::new(1000);
        assert!(pace.lets(&key, &job, term, at(0)), "the first");
        assert!(!pace.lets(&key, &job, term, at(999)));
        assert!(!pace.lets(&key, &job, term, at(500)));
        assert_eq!((pace.next(), pace.due(at(999))), (Some(at(1000)), vec![]));
        assert_eq!((pace.due(at(1000)), pace.next()), (vec![key.clone()], None));
        assert!(!pace.lets(&key, &job, term, at(999)));
        pace.set_busy(true);
        assert_eq!((pace.next(), pace.due(at(9999))), (Some(at(10_000)), vec![]), "there is work that waits");
        assert!(!pace.lets(&key, &job, term, at(9999)));
        assert_eq!((pace.due(at(10_000)), pace.next()), (vec![key.clone()], None), "it does not wait for ever");
        assert!(!pace.lets(&key, &job, term, at(1000)));
        pace.set_busy(false);
        assert_eq!((pace.due(at(1000)), pace.next()), (vec![key.clone()], None), "nothing waits any more");
        assert!(pace.lets(&key, &job, term, at(1000)), "its time has come");
        job.phase = Phase::Running;
        assert!(pace.lets(&key, &job, term, at(1001)), "a phase");
        assert!(!pace.lets(&key, &job, term, at(1002)));
        job.first_running_at = Some(at(1002));
        assert!(pace.lets(&key, &job, term, at(1002)), "a clock that began");
        assert!(!pace.lets(&key, &job, term, at(1003)));
        job.decided = stamp(6);
        assert!(pace.lets(&key, &job, term, at(1003)), "the evidence of a decision");
        job.acked = stamp(6);
        assert!(!pace.lets(&key, &job, term, at(1003)));
        assert!(pace.lets(&key, &job, Term(4), at(1003)), "the fence of a later term");
        pace.forget(&key);
        assert!(pace.lets(&key, &job, term, at(1003)), "a job of that name that is new");
        let mut pace = Pace::new(0);
        assert!(pace.lets(&key, &job, term, at(2)) && pace.lets(&key, &job, term, at(2)), "without a pace");
    }
}
