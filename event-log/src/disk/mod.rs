//! A log in a directory, kept by sled.
//!
//! Owns opening, copying, verifying and saving what a directory holds:
//!
//! * [`SledLog::open`] for the one writer. Before the engine may touch its files, the blocks in them are read as raw bytes
//!   and linked up to the noted head: sled erases what it takes for torn, and damage must stay as it was found. If the
//!   blocks are all there and sled loses them, the epoch is rebuilt from them.
//! * [`SledLog::open_copy`] for readers in other processes, writer or not.
//! * [`verify`] and [`salvage`] for damaged logs: what is wrong where, and the records before it.
//!
//! Nothing here panics or hangs on any content of the files. Tests: `tests/` (`conformance`, `damage`, `crash`,
//! `compaction`, `copy`, `syncs`).

mod copy;
mod engine;
mod layout;
pub mod medium;
mod raw;
mod store;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use model::Position;

use self::engine::{Epoch, data_file};
use self::layout::{Layout, Noted, read_head};
use self::medium::{Direct, Medium};
use self::raw::{Chosen, Harvest, RawBlocks};
use self::store::DiskStore;
use crate::chain::{Tip, base_of, read_checkpoint, verify_all};
use crate::error::{Damage, Error};
pub use crate::log::Verify;
use crate::log::{Log, copy_chain, delegate_log};
use crate::types::{EventLog, Head};

pub use self::copy::{salvage, verify};

/// How a log is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Open a copy that cannot be appended to; the same as [`SledLog::open_copy`].
    pub read_only: bool,
    /// How much is verified at once. [`Verify::Tail`] reads all raw blocks only after an unclean stop.
    pub verify: Verify,
    /// Refuse a directory that holds no log, instead of beginning one there.
    pub must_exist: bool,
}

/// What is known of a stored log, whatever its state.
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
    /// The head noted beside the log.
    pub noted_head: Option<Head>,
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
    /// Opens the log in `dir`, beginning one where there is none.
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
        if !options.must_exist {
            fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
        } else if !dir.join("current").exists() {
            return Err(Error::NotALog { path: dir.to_owned(), reason: "no log is there" });
        }
        let layout = Layout::new(dir, medium);
        if layout.live()?.is_none() {
            layout.check_unused()?;
        }
        let lock = layout.lock()?;
        let noted = read_head(dir)?;
        let log = match layout.live()? {
            None => begin(&layout, noted, lock)?,
            Some(live) => reopen(&layout, live, noted, options.verify, lock)?,
        };
        Ok(Self(Box::new(log)))
    }

    /// Opens a private copy of the log in `dir`, for reading, whether or not a writer has it open. The writer is not
    /// disturbed and nothing in `dir` changes.
    ///
    /// The copy is a verified prefix of the log: it holds at least every record that was acknowledged before this call,
    /// and, while a writer is at work, none that was not acknowledged when it was made. It does not grow.
    ///
    /// # Errors
    /// [`Error::Damaged`] when acknowledged records cannot be read, [`Error::NotALog`], or IO errors.
    pub fn open_copy(dir: impl AsRef<Path>) -> Result<Self, Error> {
        copy::open_copy(dir.as_ref())
    }
}

/// Begins a log in a directory that holds none.
fn begin(layout: &Layout, noted: Option<Noted>, lock: File) -> Result<Log<DiskStore>, Error> {
    // Epochs without a name for the live one: a first start that was interrupted, unless there are records in them.
    for epoch in layout.epochs()? {
        let path = data_file(&layout.epoch_dir(epoch));
        if path.exists() {
            let mut harvest = Harvest::new(layout.dir())?;
            harvest.read(&path)?;
            let (chosen, _) = harvest.choose(None)?;
            if chosen.end > Position(0) || chosen.suspect {
                return Err(Error::damaged(Position(0), Damage::Current("missing")));
            }
        }
    }
    if noted.is_some_and(|noted| noted.head.position > Position(0)) {
        return Err(Error::damaged(Position(0), Damage::Current("missing")));
    }
    layout.sweep(0)?;
    let epoch = Epoch::create(layout, 1)?;
    layout.sync_epoch(1)?;
    layout.set_live(1)?;
    Log::open(DiskStore::new(layout.clone(), 1, epoch, None, lock)?, Verify::Tail)
}

/// Opens a log that exists.
fn reopen(
    layout: &Layout,
    live: u64,
    noted: Option<Noted>,
    verify: Verify,
    lock: File,
) -> Result<Log<DiskStore>, Error> {
    let head = noted.map(|noted| noted.head);
    let path = data_file(&layout.epoch_dir(live));
    if !path.exists() {
        return Err(Error::damaged(Position(0), Damage::Current("it names an epoch that is not there")));
    }
    let trusted = verify == Verify::Tail && noted.is_some_and(|noted| noted.shut);
    let evidence = if trusted { None } else { Some(sound_evidence(layout, live, head)?) };
    layout.sweep(live)?;
    let attempt = Epoch::open(layout, live).and_then(|epoch| {
        let store = DiskStore::new(layout.clone(), live, epoch, head, lock_again(&lock, layout)?)?;
        Log::open(store, verify)
    });
    match attempt {
        Err(Error::Damaged { at, reason }) => rebuild(layout, live, head, evidence, lock, &at, reason.to_string()),
        Err(Error::Engine { message, .. }) => rebuild(layout, live, head, evidence, lock, &Position(0), message),
        other => other,
    }
}

fn lock_again(lock: &File, layout: &Layout) -> Result<File, Error> {
    // Both handles are one lock; it is released when the last of them is closed.
    lock.try_clone().map_err(|e| Error::io("share the lock of", layout.dir(), e))
}

/// Copies the raw blocks of an epoch and makes sure that they reach the noted head.
fn sound_evidence(layout: &Layout, epoch: u64, noted: Option<Head>) -> Result<RawBlocks, Error> {
    let mut harvest = Harvest::new(layout.dir())?;
    harvest.read(&data_file(&layout.epoch_dir(epoch)))?;
    let (chosen, _) = harvest.choose(noted)?;
    if chosen.suspect {
        let examined = examine(&chosen, noted)?;
        if let Some((at, reason)) = examined.first_bad {
            return Err(Error::Damaged { at, reason });
        }
    }
    Ok(chosen.blocks)
}

/// Writes a new epoch from raw blocks: the engine lost, or cannot open, what its file still holds.
fn rebuild(
    layout: &Layout,
    live: u64,
    noted: Option<Head>,
    evidence: Option<RawBlocks>,
    lock: File,
    at: &Position,
    reason: String,
) -> Result<Log<DiskStore>, Error> {
    let blocks = match evidence {
        Some(blocks) => blocks,
        None => sound_evidence(layout, live, noted)?,
    };
    let base = base_of(&blocks)?.unwrap_or_default();
    let (tip, result) = verify_all(&blocks, base)?;
    result?;
    if noted.is_some_and(|noted| noted.position > tip.head.position) {
        return Err(Error::damaged(tip.head.position.next(), Damage::Engine(reason)));
    }
    tracing::warn!(%at, %reason, records = tip.head.position.0, "storage engine lost records its file holds; epoch rebuilt");
    layout.sweep(live)?;
    let next = live.saturating_add(1);
    let mut epoch = Epoch::create(layout, next)?;
    copy_chain(&blocks, base, tip, &mut epoch)?;
    layout.sync_epoch(next)?;
    layout.set_live(next)?;
    let log = Log::open(DiskStore::new(layout.clone(), next, epoch, noted, lock)?, Verify::Full)?;
    layout.remove_epoch(live)?;
    Ok(log)
}

/// What reading a chosen chain shows.
struct Examined {
    base: Tip,
    tip: Tip,
    first_bad: Option<(Position, Damage)>,
}

/// Reads the whole chain.
fn examine(chosen: &Chosen, noted: Option<Head>) -> Result<Examined, Error> {
    let blocks = &chosen.blocks;
    let bad_base = |at, reason| Examined { base: Tip::default(), tip: Tip::default(), first_bad: Some((at, reason)) };
    let base = match base_of(blocks) {
        Ok(base) => base.unwrap_or_default(),
        Err(Error::Damaged { at, reason }) => return Ok(bad_base(at, reason)),
        Err(other) => return Err(other),
    };
    if base.head.position > Position(0) {
        match read_checkpoint(blocks, &base) {
            Ok(_) => {}
            Err(Error::Damaged { at, reason }) => return Ok(bad_base(at, reason)),
            Err(other) => return Err(other),
        }
    }
    let (tip, result) = verify_all(blocks, base)?;
    let next = tip.head.position.next();
    let first_bad = match result {
        Err(Error::Damaged { at, reason }) => Some((at, reason)),
        Err(other) => return Err(other),
        Ok(()) if chosen.beyond_gap => Some((next, Damage::Missing)),
        Ok(()) => match crate::log::check_noted(blocks, base, tip, noted) {
            Ok(()) => None,
            Err(Error::Damaged { at, reason }) => Some((at, reason)),
            Err(other) => return Err(other),
        },
    };
    Ok(Examined { base, tip, first_bad })
}
