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
    /// `retry_at`, `creating_at`, `first_running_at`.
    clocks: [Option<Timestamp>; 3],
}

impl Told {
    fn of(job: &Job) -> Self {
        let words = job.milestones.back().map(|milestone| milestone.message.clone());
        Self {
            phase: job.phase,
            words: [words, job.stalled.clone()],
            refused: job.refusals().next().is_some(),
            clocks: [job.retry_at, job.creating_at, job.first_running_at],
        }
    }
}

/// Keeps count of status writes.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Least time between two writes that only tell of progress; zero for none.
    every_ms: u64,
    written: BTreeMap<JobKey, (Told, Timestamp)>,
    waiting: BTreeSet<(Timestamp, JobKey)>,
}

impl Pace {
    pub(crate) fn new(every_ms: u64) -> Self {
        Self { every_ms, ..Self::default() }
    }

    /// Whether the job's status is written now, which is noted; otherwise it waits, and is told by [`Pace::due`]. `busy`: calls
    /// wait for room.
    pub(crate) fn lets(&mut self, key: &JobKey, job: &Job, term: Term, now: Timestamp, busy: bool) -> bool {
        let told = Told::of(job);
        if let Some((last, at)) = self.written.get(key)
            && told == *last
            && !job.awaits_mirror(term)
        {
            let next = at.plus_ms(self.every_ms);
            let patient = busy && now < at.plus_ms(self.every_ms.saturating_mul(WHILE_BUSY));
            if now < next || patient {
                let again = if now < next { next } else { now.plus_ms(self.every_ms) };
                self.waiting.insert((again, key.clone()));
                return false;
            }
        }
        self.written.insert(key.clone(), (told, now));
        true
    }

    /// Jobs whose time has come.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<JobKey> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first().filter(|(at, _)| *at <= now).cloned() {
            self.waiting.remove(&first);
            due.push(first.1);
        }
        due
    }

    /// When the next job's time comes.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(at, _)| *at)
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
        assert!(pace.lets(&key, &job, term, at(0), false), "the first");
        assert!(!pace.lets(&key, &job, term, at(999), false));
        assert!(!pace.lets(&key, &job, term, at(500), false));
        assert_eq!((pace.next(), pace.due(at(999))), (Some(at(1000)), vec![]));
        assert_eq!((pace.due(at(1000)), pace.next()), (vec![key.clone()], None));
        assert!(!pace.lets(&key, &job, term, at(1000), true), "there is work that waits");
        assert_eq!((pace.due(at(1999)), pace.due(at(2000))), (vec![], vec![key.clone()]), "it is asked again");
        assert!(!pace.lets(&key, &job, term, at(9999), true));
        let mut patient = Pace { every_ms: 1000, waiting: pace.waiting.clone(), written: pace.written.clone() };
        assert!(patient.lets(&key, &job, term, at(10_000), true), "it does not wait for ever");
        assert!(pace.lets(&key, &job, term, at(1000), false), "its time has come");
        job.phase = Phase::Running;
        assert!(pace.lets(&key, &job, term, at(1001), false), "a phase");
        assert!(!pace.lets(&key, &job, term, at(1002), false));
        job.first_running_at = Some(at(1002));
        assert!(pace.lets(&key, &job, term, at(1002), false), "a clock that began");
        assert!(!pace.lets(&key, &job, term, at(1003), false));
        job.decided = stamp(6);
        assert!(pace.lets(&key, &job, term, at(1003), false), "the evidence of a decision");
        job.acked = stamp(6);
        assert!(!pace.lets(&key, &job, term, at(1003), false));
        assert!(pace.lets(&key, &job, Term(4), at(1003), false), "the fence of a later term");
        pace.forget(&key);
        assert!(pace.lets(&key, &job, term, at(1003), false), "a job of that name that is new");
        let mut pace = Pace::new(0);
        assert!(
            pace.lets(&key, &job, term, at(2), false) && pace.lets(&key, &job, term, at(2), false),
            "without a pace"
        );
    }
}
