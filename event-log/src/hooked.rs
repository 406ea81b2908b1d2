//! A log whose writes pass through a hook: timed, failed or counted by others, and read as ever.
//!
//! Owns the one place where a wrapper forwards [`EventLog`]. Tests: `tests/conformance.rs`, with the hook of [`FaultyLog`].
//!
//! [`FaultyLog`]: crate::FaultyLog

use model::Position;

use crate::digest::Head;
use crate::error::Error;
use crate::types::{Checkpoint, EventLog, Frame, NewRecord, Stats};

/// Stands between the writer of a log and the log.
pub trait WriteHook: Send {
    /// Appends the records to the log, or fails instead.
    ///
    /// # Errors
    /// Those of [`EventLog::append`], or what the hook is there for.
    fn append(&mut self, log: &mut dyn EventLog, records: &[NewRecord<'_>]) -> Result<Head, Error>;

    /// Compacts the log, or fails instead.
    ///
    /// # Errors
    /// Those of [`EventLog::compact`], or what the hook is there for.
    fn compact(&mut self, log: &mut dyn EventLog, checkpoint: &Checkpoint) -> Result<(), Error> {
        log.compact(checkpoint)
    }
}

/// A log with a hook.
pub struct HookedLog<L, H> {
    inner: L,
    hook: H,
}

impl<L: EventLog, H: WriteHook> HookedLog<L, H> {
    /// Wraps a log.
    pub const fn with_hook(inner: L, hook: H) -> Self {
        Self { inner, hook }
    }

    /// Returns the hook.
    pub const fn hook(&self) -> &H {
        &self.hook
    }

    /// Returns the wrapped log.
    pub fn into_inner(self) -> L {
        self.inner
    }
}

impl<L: EventLog, H: WriteHook> EventLog for HookedLog<L, H> {
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
        self.hook.append(&mut self.inner, records)
    }

    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error> {
        self.inner.read(from)
    }

    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.hook.compact(&mut self.inner, checkpoint)
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
