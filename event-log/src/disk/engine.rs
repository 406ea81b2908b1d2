//! One epoch: a sled database that holds blocks.
//!
//! Owns everything that is particular to sled and trusts it with nothing: its panics are caught, its opening is watched
//! by a clock, its flush (which is no fsync) is followed by one. One blocking writer, never `flush_async`, no background
//! flusher. Tests: `tests/conformance.rs`, `tests/damage.rs`, `tests/syncs.rs`.

use std::any::Any;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::layout::Layout;
use super::medium::{Medium, Step};
use crate::block::{Block, BlockKey};
use crate::error::{Damage, Error};
use crate::store::{BlockIter, Blocks};

/// Size of sled's cache, in bytes. The log is read once and in order, so a larger cache gains nothing.
const CACHE_BYTES: u64 = 256 << 10;
/// Time limit of opening sled, which reads about 1 GB/s. Beyond it sled counts as hung.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);
const LOCK_TRIES: u32 = 500;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The engine said no, or panicked: no error of the operating system.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct EngineFault(String);

/// Runs the engine; panics and engine errors become IO errors so that [`Medium`] can carry them.
fn guard<T>(act: impl FnOnce() -> sled::Result<T>) -> io::Result<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(e))) => Err(e),
        Ok(Err(other)) => Err(io::Error::other(EngineFault(other.to_string()))),
        Err(panic) => Err(io::Error::other(EngineFault(format!("panicked: {}", panic_text(&*panic))))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn sorted(action: &'static str, path: &Path, error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<EngineFault>()) {
        Some(fault) => Error::Engine { action, message: fault.0.clone() },
        None if is_locked(&error) => Error::Locked { path: path.to_owned() },
        None => Error::io(action, path, error),
    }
}

/// One sled database.
pub(super) struct Epoch {
    dir: PathBuf,
    db: Option<sled::Db>,
    /// sled's data file, opened a second time: sled offers no sync.
    file: File,
    medium: Arc<dyn Medium>,
    failed: bool,
}

impl Epoch {
    /// Makes a new, empty epoch.
    pub(super) fn create(layout: &Layout, epoch: u64) -> Result<Self, Error> {
        let dir = layout.epoch_dir(epoch);
        let mut made = None;
        let mut act = || {
            fs::create_dir(&dir)?;
            made = Some(start(&dir)?);
            Ok(())
        };
        layout.medium().run(Step::CreateEpoch, &mut act).map_err(|e| sorted("create", &dir, e))?;
        let db = made.ok_or_else(|| Error::Engine { action: "create", message: "the step was skipped".to_owned() })?;
        Self::over(layout, dir, db)
    }

    /// Opens an epoch. A snapshot file that sled itself cannot read is archived, and the log is read without it.
    pub(super) fn open(layout: &Layout, epoch: u64) -> Result<Self, Error> {
        let dir = layout.epoch_dir(epoch);
        set_snapshots_aside(&dir, true)?;
        let db = match start(&dir) {
            Ok(db) => db,
            Err(first) => {
                if !set_snapshots_aside(&dir, false)? {
                    return Err(sorted("open", &dir, first));
                }
                tracing::warn!(error = %first, "storage engine could not open with its snapshot file; trying without");
                start(&dir).map_err(|e| sorted("open", &dir, e))?
            }
        };
        Self::over(layout, dir, db)
    }

    fn over(layout: &Layout, dir: PathBuf, db: sled::Db) -> Result<Self, Error> {
        let path = data_file(&dir);
        let file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        Ok(Self { dir, db: Some(db), file, medium: Arc::clone(layout.medium()), failed: false })
    }

    fn db(&self) -> Result<&sled::Db, Error> {
        self.db.as_ref().ok_or_else(|| Error::Engine { action: "use", message: "the epoch is closed".to_owned() })
    }

    fn step(
        &mut self,
        step: Step,
        action: &'static str,
        mut act: impl FnMut(&sled::Db, &File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let db = self.db()?;
        let done = self.medium.run(step, &mut || act(db, &self.file));
        self.failed |= done.is_err();
        done.map_err(|e| sorted(action, &self.dir, e))
    }

    /// Closes the database, which writes what sled still holds. `true` when everything went well from first to last.
    pub(super) fn close(&mut self) -> bool {
        let Some(db) = self.db.take() else { return false };
        // sled panics when it is closed after an IO error.
        let closed = catch_unwind(AssertUnwindSafe(move || drop(db))).is_ok();
        closed && !self.failed && self.file.sync_data().is_ok()
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the path of sled's data file in an epoch's directory.
pub(super) fn data_file(dir: &Path) -> PathBuf {
    dir.join("db")
}

/// Opens sled. Its lock outlives the handle by as long as its threads take to notice; the log's own lock is ours already,
/// so waiting is enough.
fn start(dir: &Path) -> io::Result<sled::Db> {
    for _ in 0..LOCK_TRIES {
        match start_watched(dir) {
            Err(e) if is_locked(&e) => std::thread::sleep(LOCK_PAUSE),
            other => return other,
        }
    }
    start_watched(dir)
}

fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.to_string().contains("could not acquire lock")
}

/// Opens sled in a thread of its own: on damaged files it may panic, and might not come back.
fn start_watched(dir: &Path) -> io::Result<sled::Db> {
    let config = sled::Config::new()
        .path(dir)
        .flush_every_ms(None)
        .cache_capacity(CACHE_BYTES)
        .mode(sled::Mode::LowSpace)
        .use_compression(false);
    let (send, receive) = mpsc::channel();
    let thread = std::thread::Builder::new().name("event-log-open".to_owned());
    thread.spawn(move || send.send(guard(|| config.open())))?;
    match receive.recv_timeout(OPEN_TIMEOUT) {
        Ok(opened) => opened,
        Err(_) => Err(io::Error::other(EngineFault("no answer while opening".to_owned()))),
    }
}

/// Renames sled's snapshot files so that it reads the log from the start; only empty ones with `only_empty`. Gives whether
/// there were any.
fn set_snapshots_aside(dir: &Path, only_empty: bool) -> Result<bool, Error> {
    let mut any = false;
    let entries = fs::read_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("list", dir, e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let empty = entry.metadata().map_err(|e| Error::io("read", &entry.path(), e))?.len() == 0;
        if name.starts_with("snap.") && (empty || !only_empty) {
            let aside = dir.join(format!("aside.{name}"));
            fs::rename(entry.path(), &aside).map_err(|e| Error::io("rename", &entry.path(), e))?;
            any = true;
        }
    }
    Ok(any)
}

impl Blocks for Epoch {
    type Bytes = sled::IVec;

    fn put(&mut self, blocks: &[Block]) -> Result<(), Error> {
        self.step(Step::Put, "append", |db, _| {
            let mut batch = sled::Batch::default();
            for block in blocks {
                batch.insert(&block.key.to_bytes(), &block.bytes[..]);
            }
            guard(|| db.apply_batch(batch))
        })
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.step(Step::Flush, "flush", |db, _| guard(|| db.flush()).map(drop))?;
        self.step(Step::SyncData, "sync", |_, file| file.sync_data())
    }

    fn remove(&mut self, keys: &[BlockKey]) -> Result<(), Error> {
        self.step(Step::Remove, "remove a torn group", |db, _| {
            let mut batch = sled::Batch::default();
            for key in keys {
                batch.remove(&key.to_bytes());
            }
            guard(|| db.apply_batch(batch))
        })
    }

    fn scan(&self, from: BlockKey) -> BlockIter<'_, sled::IVec> {
        let db = match self.db() {
            Ok(db) => db,
            Err(e) => return Box::new(std::iter::once(Err(e))),
        };
        let mut iter = db.range(from.to_bytes()..);
        Box::new(std::iter::from_fn(move || {
            let item = guard(|| iter.next().transpose()).transpose()?;
            Some(item.map_err(|e| sorted("read", &self.dir, e)).and_then(|(key, value)| Ok((key_of(&key)?, value))))
        }))
    }

    fn last_at(&self, upto: BlockKey) -> Result<Option<(BlockKey, sled::IVec)>, Error> {
        let db = self.db()?;
        let found = guard(|| db.range(..=upto.to_bytes()).next_back().transpose());
        match found.map_err(|e| sorted("read", &self.dir, e))? {
            Some((key, value)) => Ok(Some((key_of(&key)?, value))),
            None => Ok(None),
        }
    }

    fn disk_bytes(&self) -> u64 {
        let Ok(entries) = fs::read_dir(&self.dir) else { return 0 };
        entries.flatten().filter_map(|entry| entry.metadata().ok()).filter(fs::Metadata::is_file).map(|m| m.len()).sum()
    }
}

fn key_of(bytes: &[u8]) -> Result<BlockKey, Error> {
    BlockKey::from_bytes(bytes)
        .ok_or_else(|| Error::damaged(model::Position(0), Damage::Engine("a key of the wrong length".to_owned())))
}
