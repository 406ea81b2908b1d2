//! A log in a directory, kept by sled.
//!
//! Owns opening, copying, verifying and saving what a directory holds:
//!
//! * [`SledLog::open`] for the one writer. Before the engine may touch its files, the blocks in them are read as raw bytes
//!   and linked up to the stored head: sled erases what it takes for torn, and damage must stay as it was found. If the
//!   blocks are all there and sled loses them, the epoch is rebuilt from them.
//! * [`SledLog::open_copy`] for readers in other processes, writer or not.
//! * [`SledLog::open_recent`] for readers that need the present state only.
//! * [`verify`] and [`salvage`] for damaged logs: what is wrong where, and the records before it.
//!
//! Nothing here panics or hangs on any content of the files. Tests: `tests/` (`conformance`, `damage`, `crash`,
//! `compaction`, `copy`, `recent`, `syncs`).

mod copy;
mod engine;
mod examine;
mod inventory;
mod layout;
mod links;
pub mod medium;
mod open;
mod opening;
mod raw;
mod recent;
mod store;

use std::path::Path;
use std::sync::Arc;

use model::Position;

use self::inventory::Inventory;
use self::layout::Layout;
use self::medium::{Direct, Medium};
use crate::digest::Head;
use crate::error::{Damage, Error};
pub use crate::log::Verify;
use crate::log::delegate_log;
use crate::types::EventLog;

pub use self::copy::{salvage, verify};
pub use self::recent::Recent;

/// Settings for opening a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Open a copy that cannot be appended to; the same as [`SledLog::open_copy`].
    pub read_only: bool,
    /// Extent of the verification at open. [`Verify::Tail`] reads all raw blocks only after an unclean stop.
    pub verify: Verify,
    /// Refuse a directory that holds no log, instead of beginning one there.
    pub must_exist: bool,
}

/// Findings about a stored log, damaged or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The head of the good prefix: everything up to here is verified.
    pub good_prefix_head: Head,
    /// First readable position.
    pub first: Position,
    /// Records in the good prefix.
    pub records: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// The stored head.
    pub stored_head: Option<Head>,
    /// The first position that cannot be trusted, and why; `None` for a sound log.
    pub first_bad: Option<(Position, Damage)>,
}

/// A log in a directory.
pub struct SledLog(Box<dyn EventLog>);

delegate_log!(SledLog);

impl std::fmt::Debug for SledLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledLog").field("head", &self.head()).finish_non_exhaustive()
    }
}

impl SledLog {
    /// Opens the log in `dir`, and makes one where there is none.
    ///
    /// # Errors
    /// [`Error::Locked`] while another handle has it open for writing, [`Error::Damaged`] when records that were
    /// acknowledged cannot be read back, [`Error::TooNew`], [`Error::NotALog`], or IO errors.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        Self::open_with(dir, options, Arc::new(Direct))
    }

    /// Opens the log in `dir` with another medium below it; for tests.
    ///
    /// # Errors
    /// As for [`SledLog::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: Options, medium: Arc<dyn Medium>) -> Result<Self, Error> {
        let dir = dir.as_ref();
        if options.read_only {
            return Self::open_copy(dir);
        }
        let layout = Layout::new(dir, medium);
        let lock = open::claim(&layout, options.must_exist)?;
        let opening = opening::decide(&Inventory::read(&layout)?, options.verify);
        let log = open::execute(&layout, opening, options.verify, lock)?;
        Ok(Self(Box::new(log)))
    }

    /// Opens a private copy of the log in `dir`, for reading, even while a writer has it open. The writer is not disturbed
    /// and nothing in `dir` changes.
    ///
    /// The copy is a verified prefix of the log: it holds at least every record that was acknowledged before this call,
    /// and, while a writer is at work, none that was not acknowledged when it was made. It does not grow.
    ///
    /// # Errors
    /// [`Error::Damaged`] when acknowledged records cannot be read, [`Error::NotALog`], or IO errors.
    pub fn open_copy(dir: impl AsRef<Path>) -> Result<Self, Error> {
        copy::open_copy(dir.as_ref())
    }

    /// Opens the end of the log in `dir` for reading, even while a writer has it open: the state that is cached beside it, and the
    /// records after that. Nothing in `dir` changes, and of the records before nothing is read.
    ///
    /// `None` where that is not possible: no state is cached, it does not belong to this log, or a file cannot be read. A copy of
    /// the whole log ([`SledLog::open_copy`]) shows what is wrong.
    pub fn open_recent(dir: impl AsRef<Path>) -> Option<Recent> {
        recent::open(dir.as_ref())
    }
}
