//! Where the operator's process dies: counting appends and calls, and a log that can be cut off from its writer.
//!
//! Owns the countdown and the wrapper around a log; what happens after a death is `world`'s. Tests: `world`'s, and the
//! crash sweep of the `snapshots` package.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event_log::{Checkpoint, Error, EventLog, Frame, Head, NewRecord, Stats};
use model::Position;

use crate::scenario::Boundary;

/// What a death leaves behind for the next operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aftermath {
    /// The log as it is.
    SameLog,
    /// No log.
    NoLog,
    /// A copy of the log that ends at this position (or at the log's end, if that comes first).
    OldLog(u64),
    /// Another replica takes over, with its own log.
    OtherReplica,
}

/// A death that will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// What it falls before or after.
    pub boundary: Boundary,
    /// Whether it falls after (the thing happened, nobody knows) or before (it did not happen).
    pub after: bool,
    /// Which one from now on, counted from 1.
    pub nth: u32,
    /// What it leaves behind.
    pub aftermath: Aftermath,
    /// Whether it may come anywhere in the run, not only inside one step.
    pub anywhere: bool,
}

/// Whether something takes place when its turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does, and life goes on.
    Goes,
    /// It does not: the process died before.
    DiedBefore,
    /// It does, and the process dies before it hears of it.
    DiesAfter,
}

/// Counts what happens, and says when the process dies.
#[derive(Debug, Default)]
pub struct Fate {
    appends: u32,
    calls: u32,
    deaths: Vec<Death>,
    met: Option<(Aftermath, bool)>,
}

impl Fate {
    /// A death that will come.
    pub fn add(&mut self, death: Death) {
        self.deaths.push(death);
    }

    /// Deaths inside a step that have not come will not come any more; one that may come anywhere in the run still will.
    pub fn relent(&mut self) {
        self.deaths.retain(|death| death.anywhere);
    }

    /// How many appends and calls have taken place.
    pub const fn counted(&self) -> (u32, u32) {
        (self.appends, self.calls)
    }

    /// The death that came since the last call, and whether what it fell at had taken place.
    pub const fn take(&mut self) -> Option<(Aftermath, bool)> {
        self.met.take()
    }

    /// Whether a death came that nobody took notice of yet.
    pub const fn is_met(&self) -> bool {
        self.met.is_some()
    }

    /// Counts one thing of a kind.
    pub fn next(&mut self, boundary: Boundary) -> Verdict {
        let mut verdict = Verdict::Goes;
        for death in self.deaths.iter_mut().filter(|death| death.boundary == boundary) {
            death.nth = death.nth.saturating_sub(1);
            if death.nth == 0 && self.met.is_none() {
                self.met = Some((death.aftermath, death.after));
                verdict = if death.after { Verdict::DiesAfter } else { Verdict::DiedBefore };
            }
        }
        self.deaths.retain(|death| death.nth > 0);
        if verdict != Verdict::DiedBefore {
            match boundary {
                Boundary::Append => self.appends = self.appends.saturating_add(1),
                Boundary::Call => self.calls = self.calls.saturating_add(1),
            }
        }
        verdict
    }
}

/// A fate that the log and the world share.
#[derive(Debug, Clone, Default)]
pub struct SharedFate(Arc<Mutex<Fate>>);

impl SharedFate {
    /// Looks at it or changes it.
    pub fn lock(&self) -> MutexGuard<'_, Fate> {
        // Every change is complete before a panic could come, so a poisoned lock still guards a whole value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A log whose writer may die at an append.
pub struct MortalLog<L> {
    inner: L,
    fate: SharedFate,
}

impl<L: EventLog> MortalLog<L> {
    /// Wraps a log.
    pub const fn new(inner: L, fate: SharedFate) -> Self {
        Self { inner, fate }
    }
}

impl<L: EventLog> EventLog for MortalLog<L> {
    fn head(&self) -> Head {
        self.inner.head()
    }

    fn first(&self) -> Position {
        self.inner.first()
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.inner.checkpoint()
    }

    fn append(&mut self, records: &[NewRecord<'_>]) -> Result<Head, Error> {
        if self.fate.lock().is_met() {
            return Err(Error::Poisoned);
        }
        if records.is_empty() {
            return self.inner.append(records);
        }
        let verdict = self.fate.lock().next(Boundary::Append);
        match verdict {
            Verdict::Goes => self.inner.append(records),
            Verdict::DiedBefore => Err(Error::Poisoned),
            Verdict::DiesAfter => self.inner.append(records).and(Err(Error::Poisoned)),
        }
    }

    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error> {
        self.inner.read(from)
    }

    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.inner.compact(checkpoint)
    }

    fn cache_state(&mut self, state: Checkpoint) -> Result<(), Error> {
        self.inner.cache_state(state)
    }

    fn cached_state(&self) -> Result<Option<Checkpoint>, Error> {
        self.inner.cached_state()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use event_log::MemoryLog;
    use model::Term;

    use super::*;

    fn append(log: &mut impl EventLog, body: &str) -> bool {
        log.append(&[NewRecord { term: Term(1), body: body.as_bytes() }]).is_ok()
    }

    fn death(boundary: Boundary, after: bool, nth: u32) -> Death {
        Death { boundary, after, nth, aftermath: Aftermath::SameLog, anywhere: false }
    }

    #[test]
    fn a_death_before_an_append_stores_nothing_and_one_after_it_stores_all() {
        for (after, records) in [(false, 1), (true, 2)] {
            let fate = SharedFate::default();
            let log = MemoryLog::new();
            let disk = log.disk();
            let mut log = MortalLog::new(log, fate.clone());
            fate.lock().add(death(Boundary::Append, after, 2));
            assert!(append(&mut log, "1"));
            assert!(!append(&mut log, "2"));
            assert!(!append(&mut log, "3"), "nothing is written after a death");
            assert_eq!(fate.lock().take(), Some((Aftermath::SameLog, after)));
            drop(log);
            assert_eq!(disk.open().unwrap().head().position, Position(records));
        }
    }

    #[test]
    fn appends_and_calls_are_counted_apart() {
        let mut fate = Fate::default();
        fate.add(death(Boundary::Call, false, 2));
        assert_eq!(fate.next(Boundary::Append), Verdict::Goes);
        assert_eq!(fate.next(Boundary::Append), Verdict::Goes);
        assert_eq!(fate.next(Boundary::Call), Verdict::Goes);
        assert_eq!(fate.next(Boundary::Call), Verdict::DiedBefore);
        assert_eq!(fate.counted(), (2, 1));
        fate.add(death(Boundary::Call, true, 1));
        fate.relent();
        fate.take();
        assert_eq!(fate.next(Boundary::Call), Verdict::Goes);
        assert!(!fate.is_met());
    }
}
