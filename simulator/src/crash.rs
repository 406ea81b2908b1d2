//! Planned crashes of the operator's process: counting appends and calls, and a log that fails at a crash.
//!
//! Owns the countdown and the wrapper around a log; what happens after a crash is `simulation`'s. Tests: `simulation`'s, and the
//! crash sweep of the `snapshots` package.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event_log::{Error, EventLog, Head, NewRecord, WriteHook};

use crate::scenario::Boundary;

/// Log that the next operator finds after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogAfterCrash {
    /// The log as it is.
    SameLog,
    /// No log.
    NoLog,
    /// A copy of the log that ends at this position (or at the log's end, if that comes first).
    OldLog(u64),
    /// Another replica takes over, with its own log.
    OtherReplica,
}

/// A planned crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Boundary it happens before or after.
    pub boundary: Boundary,
    /// True if it happens after the append or call, whose result is lost; false if before.
    pub after: bool,
    /// Number of the append or call from now on, counted from 1.
    pub nth: u32,
    /// Log of the next operator.
    pub log_after: LogAfterCrash,
    /// True if it may happen anywhere in the run, not only inside one step.
    pub anywhere: bool,
}

/// Effect of the crash plan on one append or call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashOutcome {
    /// It takes effect, and the process continues.
    Completes,
    /// It does not take effect: the process crashed before.
    CrashedBefore,
    /// It takes effect, and the process crashes before it gets the result.
    CrashesAfter,
}

/// Counts appends and calls, and decides at which the process crashes.
#[derive(Debug, Default)]
pub struct CrashPlan {
    appends: u32,
    calls: u32,
    crashes: Vec<Crash>,
    met: Option<(LogAfterCrash, bool)>,
    /// True if nothing that outlives the process changed since the last append or call.
    follows: bool,
    following_calls: BTreeSet<u32>,
}

impl CrashPlan {
    /// A planned crash.
    pub fn add(&mut self, crash: Crash) {
        self.crashes.push(crash);
    }

    /// Drops the crashes inside a step that did not happen; those that may happen anywhere in the run stay.
    pub fn disarm(&mut self) {
        self.crashes.retain(|crash| crash.anywhere);
    }

    /// Returns the number of appends and of calls since the count began.
    pub const fn counted(&self) -> (u32, u32) {
        (self.appends, self.calls)
    }

    /// Returns the numbers of the calls before which a crash leaves what one after the append or call before them leaves.
    pub const fn following_calls(&self) -> &BTreeSet<u32> {
        &self.following_calls
    }

    /// Begins the count again.
    pub fn count_again(&mut self) {
        self.appends = 0;
        self.calls = 0;
        self.following_calls.clear();
        self.follows = false;
    }

    /// Notes that something changed that outlives the process: the cluster moved, or the state was cached.
    pub const fn separate(&mut self) {
        self.follows = false;
    }

    /// Takes the crash since the last call, and whether its append or call took effect.
    pub const fn take(&mut self) -> Option<(LogAfterCrash, bool)> {
        self.met.take()
    }

    /// Returns whether a crash happened that was not taken yet.
    pub const fn is_met(&self) -> bool {
        self.met.is_some()
    }

    /// Counts one thing of a kind.
    pub fn next(&mut self, boundary: Boundary) -> CrashOutcome {
        let mut verdict = CrashOutcome::Completes;
        for crash in self.crashes.iter_mut().filter(|crash| crash.boundary == boundary) {
            crash.nth = crash.nth.saturating_sub(1);
            if crash.nth == 0 && self.met.is_none() {
                self.met = Some((crash.log_after, crash.after));
                verdict = if crash.after { CrashOutcome::CrashesAfter } else { CrashOutcome::CrashedBefore };
            }
        }
        self.crashes.retain(|crash| crash.nth > 0);
        if verdict != CrashOutcome::CrashedBefore {
            match boundary {
                Boundary::Append => self.appends = self.appends.saturating_add(1),
                Boundary::Call => {
                    self.calls = self.calls.saturating_add(1);
                    if self.follows {
                        self.following_calls.insert(self.calls);
                    }
                }
            }
        }
        self.follows = verdict == CrashOutcome::Completes;
        verdict
    }
}

/// A crash plan that the log and the simulation share.
#[derive(Debug, Clone, Default)]
pub struct SharedCrashPlan(Arc<Mutex<CrashPlan>>);

impl SharedCrashPlan {
    /// Looks at it or changes it.
    pub fn lock(&self) -> MutexGuard<'_, CrashPlan> {
        // Every change is complete before a panic could come, so a poisoned lock still guards a whole value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a log's writer crash at an append.
impl WriteHook for SharedCrashPlan {
    fn append(&mut self, log: &mut dyn EventLog, records: &[NewRecord<'_>]) -> Result<Head, Error> {
        if self.lock().is_met() {
            return Err(Error::Poisoned);
        }
        if records.is_empty() {
            return log.append(records);
        }
        let verdict = self.lock().next(Boundary::Append);
        match verdict {
            CrashOutcome::Completes => log.append(records),
            CrashOutcome::CrashedBefore => Err(Error::Poisoned),
            CrashOutcome::CrashesAfter => log.append(records).and(Err(Error::Poisoned)),
        }
    }
}

#[cfg(test)]
mod tests {
    use event_log::{HookedLog, MemoryLog};
    use model::{Position, Term};

    use super::*;

    fn append(log: &mut impl EventLog, body: &str) -> bool {
        log.append(&[NewRecord { term: Term(1), body: body.as_bytes() }]).is_ok()
    }

    fn crash(boundary: Boundary, after: bool, nth: u32) -> Crash {
        Crash { boundary, after, nth, log_after: LogAfterCrash::SameLog, anywhere: false }
    }

    #[test]
    fn a_crash_before_an_append_stores_nothing_and_one_after_it_stores_all() {
        for (after, records) in [(false, 1), (true, 2)] {
            let crash_plan = SharedCrashPlan::default();
            let log = MemoryLog::new();
            let disk = log.disk();
            let mut log = HookedLog::with_hook(log, crash_plan.clone());
            crash_plan.lock().add(crash(Boundary::Append, after, 2));
            assert!(append(&mut log, "1"));
            assert!(!append(&mut log, "2"));
            assert!(!append(&mut log, "3"), "nothing is written after a crash");
            assert_eq!(crash_plan.lock().take(), Some((LogAfterCrash::SameLog, after)));
            drop(log);
            assert_eq!(disk.open().unwrap().head().position, Position(records));
        }
    }

    #[test]
    fn appends_and_calls_are_counted_apart() {
        let mut crash_plan = CrashPlan::default();
        crash_plan.add(crash(Boundary::Call, false, 2));
        assert_eq!(crash_plan.next(Boundary::Append), CrashOutcome::Completes);
        assert_eq!(crash_plan.next(Boundary::Append), CrashOutcome::Completes);
        assert_eq!(crash_plan.next(Boundary::Call), CrashOutcome::Completes);
        assert_eq!(crash_plan.next(Boundary::Call), CrashOutcome::CrashedBefore);
        assert_eq!(crash_plan.counted(), (2, 1));
        crash_plan.add(crash(Boundary::Call, true, 1));
        crash_plan.disarm();
        crash_plan.take();
        assert_eq!(crash_plan.next(Boundary::Call), CrashOutcome::Completes);
        assert!(!crash_plan.is_met());
    }

    #[test]
    fn a_call_follows_what_came_before_it_in_its_turn() {
        let mut crash_plan = CrashPlan::default();
        let calls = |crash_plan: &CrashPlan| crash_plan.following_calls().iter().copied().collect::<Vec<_>>();
        crash_plan.next(Boundary::Call);
        crash_plan.next(Boundary::Call);
        crash_plan.separate();
        crash_plan.next(Boundary::Append);
        crash_plan.next(Boundary::Call);
        crash_plan.next(Boundary::Append);
        crash_plan.separate();
        crash_plan.next(Boundary::Call);
        assert_eq!(calls(&crash_plan), [2, 3]);
        crash_plan.count_again();
        crash_plan.next(Boundary::Call);
        crash_plan.next(Boundary::Call);
        assert_eq!(calls(&crash_plan), [2]);
    }
}
