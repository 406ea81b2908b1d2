//! A log whose appends fail on demand, for tests of whoever writes to a log.
//!
//! Owns the plan of faults and nothing else; the wrapped log is a real one. After a fault the handle is poisoned, as after
//! a real one, and what the disk holds is decided by the [`Fault`]. Tests: `tests/conformance.rs`.

use std::io;

use model::Position;

use crate::digest::Head;
use crate::error::Error;
use crate::types::{Checkpoint, EventLog, Frame, NewRecord, Stats};

/// How an append fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing reaches the disk.
    Lost,
    /// All of it reaches the disk, yet the caller is told of an error.
    Stored,
    /// Nothing reaches the disk because it is full.
    Full,
}

/// A log that fails the appends it is told to.
pub struct FaultyLog<L> {
    inner: L,
    appends: u64,
    plan: Vec<(u64, Fault)>,
    poisoned: bool,
}

impl<L: EventLog> FaultyLog<L> {
    /// Wraps a log. Appends are counted from 1; those named in `plan` fail.
    pub fn new(inner: L, plan: Vec<(u64, Fault)>) -> Self {
        Self { inner, appends: 0, plan, poisoned: false }
    }

    /// Appends seen so far, failed ones included.
    pub const fn appends(&self) -> u64 {
        self.appends
    }

    /// The wrapped log.
    pub fn into_inner(self) -> L {
        self.inner
    }
}

impl<L: EventLog> EventLog for FaultyLog<L> {
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
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.appends += 1;
        let Some((_, fault)) = self.plan.iter().find(|(nth, _)| *nth == self.appends).copied() else {
            return self.inner.append(records);
        };
        self.poisoned = true;
        let action = "append (planned fault)";
        match fault {
            Fault::Full => Err(Error::Full { action, source: io::Error::from(io::ErrorKind::StorageFull) }),
            Fault::Lost => Err(Error::Engine { action, message: "nothing was stored".to_owned() }),
            Fault::Stored => {
                self.inner.append(records)?;
                Err(Error::Engine { action, message: "everything was stored".to_owned() })
            }
        }
    }

    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error> {
        self.inner.read(from)
    }

    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
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
