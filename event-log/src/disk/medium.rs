//! The seam between the log on disk and the operating system.
//!
//! Owns the list of steps that change what is durable. Product code always uses [`Direct`]; tests count the steps, fail
//! one of them, or end the process at one, which is how "durable when it returns" and "safe to interrupt at any point"
//! are checked. Tests: `tests/compaction.rs`, `tests/syncs.rs`.

use std::io;

/// A step that changes files or makes a change durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A batch of blocks is handed to the engine.
    Put,
    /// Blocks are removed from the engine.
    Remove,
    /// The engine writes its buffers.
    Flush,
    /// The engine's file is synced.
    SyncData,
    /// The head file is written.
    WriteHead,
    /// An epoch's directory and database are made.
    CreateEpoch,
    /// The files of a new epoch, and its directory, are synced.
    SyncEpoch,
    /// The file that will name the live epoch is written and synced.
    WriteCurrent,
    /// That file takes its name.
    RenameCurrent,
    /// The file that will be the state beside the log is written and synced.
    WriteKept,
    /// That file takes its name.
    RenameKept,
    /// The log's directory is synced.
    SyncDir,
    /// An epoch that is not live is removed.
    RemoveEpoch,
}

/// Carries out steps.
pub trait Medium: Send + Sync {
    /// Carries out one step by calling `act`.
    ///
    /// # Errors
    /// The errors of `act`; tests return errors of their own.
    fn run(&self, step: Step, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;
}

/// The medium of the product: every step is done, nothing else is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direct;

impl Medium for Direct {
    fn run(&self, _step: Step, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()
    }
}
