//! A log whose appends fail on demand, for tests of crates that write to a log.
//!
//! Owns the plan of faults and nothing else; the wrapped log is a real one. After a fault the handle is poisoned, as after
//! a real one, and what the disk holds is decided by the [`Fault`]. Tests: `tests/conformance.rs`.

use std::io;

use crate::digest::Head;
use crate::error::Error;
use crate::hooked::{HookedLog, WriteHook};
use crate::types::{Checkpoint, EventLog, NewRecord};

/// Failure of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing reaches the disk.
    Lost,
    /// All of it reaches the disk, yet the caller gets an error.
    Stored,
    /// Nothing reaches the disk because it is full.
    Full,
}

/// A log that fails the appends named in its plan.
pub type FaultyLog<L> = HookedLog<L, PlannedFaults>;

/// The hook of a [`FaultyLog`].
#[derive(Debug)]
pub struct PlannedFaults {
    appends: u64,
    plan: Vec<(u64, Fault)>,
    poisoned: bool,
}

impl<L: EventLog> FaultyLog<L> {
    /// Wraps a log. Appends are counted from 1; those named in `plan` fail.
    pub const fn new(inner: L, plan: Vec<(u64, Fault)>) -> Self {
        Self::with_hook(inner, PlannedFaults { appends: 0, plan, poisoned: false })
    }

    /// Returns the number of appends so far, failed ones included.
    pub const fn appends(&self) -> u64 {
        self.hook().appends
    }
}

impl WriteHook for PlannedFaults {
    fn append(&mut self, log: &mut dyn EventLog, records: &[NewRecord<'_>]) -> Result<Head, Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.appends += 1;
        let Some((_, fault)) = self.plan.iter().find(|(nth, _)| *nth == self.appends).copied() else {
            return log.append(records);
        };
        self.poisoned = true;
        let action = "append (planned fault)";
        match fault {
            Fault::Full => Err(Error::Full { action, source: io::Error::from(io::ErrorKind::StorageFull) }),
            Fault::Lost => Err(Error::Engine { action, message: "nothing was stored".to_owned() }),
            Fault::Stored => {
                log.append(records)?;
                Err(Error::Engine { action, message: "everything was stored".to_owned() })
            }
        }
    }

    fn compact(&mut self, log: &mut dyn EventLog, checkpoint: &Checkpoint) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        log.compact(checkpoint)
    }
}
