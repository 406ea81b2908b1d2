//! Files of a log's directory, other than the engine's own.
//!
//! Owns `lock`, `current`, `HEAD`, `cached_state` and the names of epochs; knows nothing of blocks. `current` changes only by rename;
//! `HEAD` is overwritten in place and is never the only witness of anything. Tests: at the end of this file, and
//! `tests/damage.rs`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::Position;

use super::medium::{Medium, Step};
use crate::block::FORMAT;
use crate::digest::{Digest, Head};
use crate::error::{Damage, Error};

const CURRENT: &str = "current";
const CURRENT_NEW: &str = "current.new";
const CACHED_STATE: &str = "kept";
const CACHED_STATE_NEW: &str = "kept.new";
const HEAD: &str = "HEAD";
const LOCK: &str = "lock";
const EPOCH: &str = "epoch-";
const EVIDENCE: &str = "evidence-";
const EVIDENCE_NEW: &str = "evidence.new";
/// A reader that looks whether a writer is alive holds the lock for a moment; a writer outwaits it.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The directory of a log.
#[derive(Clone)]
pub(super) struct Layout {
    dir: PathBuf,
    medium: Arc<dyn Medium>,
}

impl Layout {
    pub(super) fn new(dir: &Path, medium: Arc<dyn Medium>) -> Self {
        Self { dir: dir.to_owned(), medium }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    pub(super) fn epoch_dir(&self, epoch: u64) -> PathBuf {
        self.dir.join(format!("{EPOCH}{epoch}"))
    }

    /// Returns the path of the copy of an epoch's blocks, which exists while the engine opens it.
    pub(super) fn evidence(&self, epoch: u64) -> PathBuf {
        self.dir.join(format!("{EVIDENCE}{epoch}"))
    }

    /// Returns the path of the evidence while it is being written.
    pub(super) fn evidence_new(&self) -> PathBuf {
        self.dir.join(EVIDENCE_NEW)
    }

    /// Removes that copy, if there is one.
    pub(super) fn drop_evidence(&self, epoch: u64) -> Result<(), Error> {
        let path = self.evidence(epoch);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// Takes the writer's lock, which lives as long as the file does.
    pub(super) fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join(LOCK);
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(|e| Error::io("open", &path, e))?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < LOCK_TRIES => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(Error::Locked { path: self.dir.clone() }),
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path, e)),
            }
        }
        Ok(file)
    }

    /// Returns true if a writer has the log open.
    pub(super) fn has_writer(&self) -> bool {
        File::open(self.dir.join(LOCK))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Returns the live epoch; `None` when nothing names one.
    pub(super) fn live(&self) -> Result<Option<u64>, Error> {
        let Some(bytes) = self.read(CURRENT)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let bad = || Error::damaged(Position(0), Damage::Current("unreadable"));
        let (format, epoch) = text.split_once('\n').ok_or_else(bad)?;
        let format: u16 = format.strip_prefix("trainyard-log ").and_then(|n| n.parse().ok()).ok_or_else(bad)?;
        if format > FORMAT {
            return Err(Error::TooNew { needed: format, have: FORMAT });
        }
        let epoch = epoch.strip_suffix('\n').and_then(epoch_number).ok_or_else(bad)?;
        Ok(Some(epoch))
    }

    /// Names the live epoch, durably and at once.
    pub(super) fn set_live(&self, epoch: u64) -> Result<(), Error> {
        let text = format!("trainyard-log {FORMAT}\n{EPOCH}{epoch}\n").into_bytes();
        self.replace((CURRENT_NEW, Step::WriteCurrent), (CURRENT, Step::RenameCurrent), &[text])
    }

    /// Keeps a state beside the log, durably and at once.
    pub(super) fn cache_state(&self, pieces: &[Vec<u8>]) -> Result<(), Error> {
        self.replace((CACHED_STATE_NEW, Step::WriteKept), (CACHED_STATE, Step::RenameKept), pieces)
    }

    /// Returns the cached state.
    pub(super) fn cached_state(&self) -> Result<Option<Vec<u8>>, Error> {
        self.read(CACHED_STATE)
    }

    /// Returns the bytes of a file; `None` when there is none.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", &path, e)),
        }
    }

    /// Puts a file in place of another, which is there until the new one is there as a whole.
    fn replace(&self, new: (&str, Step), file: (&str, Step), pieces: &[Vec<u8>]) -> Result<(), Error> {
        let (new_epoch, path) = (self.dir.join(new.0), self.dir.join(file.0));
        let write = || {
            let mut file = File::create(&new_epoch)?;
            pieces.iter().try_for_each(|piece| file.write_all(piece))?;
            file.sync_all()
        };
        self.step(new.1, "write", &new_epoch, write)?;
        self.step(file.1, "rename", &new_epoch, || fs::rename(&new_epoch, &path))?;
        self.sync_dir()
    }

    pub(super) fn sync_dir(&self) -> Result<(), Error> {
        self.step(Step::SyncDir, "sync", &self.dir, || File::open(&self.dir)?.sync_all())
    }

    /// Makes the files and names of an epoch durable.
    pub(super) fn sync_epoch(&self, epoch: u64) -> Result<(), Error> {
        let dir = self.epoch_dir(epoch);
        self.step(Step::SyncEpoch, "sync", &dir, || {
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                File::open(entry.path())?.sync_all()?;
            }
            File::open(&dir)?.sync_all()
        })
    }

    /// Returns the epochs that have a directory, live or not.
    pub(super) fn epochs(&self) -> Result<Vec<u64>, Error> {
        let fail = |e| Error::io("list", &self.dir, e);
        let mut epochs = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            epochs.extend(name.to_str().and_then(epoch_number));
        }
        Ok(epochs)
    }

    /// Removes epochs that are not live, each with its evidence.
    pub(super) fn remove_epochs(&self, epochs: &[u64]) -> Result<(), Error> {
        for epoch in epochs {
            self.remove_epoch(*epoch)?;
            self.drop_evidence(*epoch)?;
        }
        Ok(())
    }

    /// Removes every epoch but the live one: leftovers of a compaction that was interrupted.
    pub(super) fn sweep(&self, live: u64) -> Result<(), Error> {
        let leftovers: Vec<u64> = self.epochs()?.into_iter().filter(|epoch| *epoch != live).collect();
        self.remove_epochs(&leftovers)
    }

    pub(super) fn remove_epoch(&self, epoch: u64) -> Result<(), Error> {
        let dir = self.epoch_dir(epoch);
        self.step(Step::RemoveEpoch, "remove", &dir, || match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        })
    }

    /// Refuses a directory that holds no log.
    pub(super) fn check_is_log(&self) -> Result<(), Error> {
        if self.dir.join(CURRENT).exists() {
            return Ok(());
        }
        Err(Error::NotALog { path: self.dir.clone(), reason: "no log is there" })
    }

    /// Refuses a directory that is not a log and not empty, so that a mistyped path is left alone.
    pub(super) fn check_unused(&self) -> Result<(), Error> {
        let fail = |e| Error::io("list", &self.dir, e);
        for entry in fs::read_dir(&self.dir).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            let name = name.to_string_lossy();
            let ours = [HEAD, LOCK, CURRENT_NEW, CACHED_STATE, CACHED_STATE_NEW, EVIDENCE_NEW, "lost+found"]
                .contains(&&*name)
                || epoch_number(&name).is_some();
            if !ours && !name.starts_with('.') {
                return Err(Error::NotALog { path: self.dir.clone(), reason: "it holds other files" });
            }
        }
        Ok(())
    }

    fn step(
        &self,
        step: Step,
        action: &'static str,
        path: &Path,
        mut act: impl FnMut() -> io::Result<()>,
    ) -> Result<(), Error> {
        self.medium.run(step, &mut act).map_err(|e| Error::io(action, path, e))
    }
}

fn epoch_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(EPOCH)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Content of the head file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredHead {
    pub(super) head: Head,
    /// The log was closed in an orderly way after this head.
    pub(super) shut: bool,
}

fn head_text(stored: StoredHead) -> String {
    let state = if stored.shut { "shut" } else { "open" };
    let text = format!("trainyard-head 1 {:020} {} {state}", stored.head.position.0, stored.head.digest);
    format!("{text} {:08x}\n", crc32c::crc32c(text.as_bytes()))
}

fn parse_head(text: &str) -> Option<StoredHead> {
    let (body, crc) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if crc != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
        return None;
    }
    let mut words = body.strip_prefix("trainyard-head 1 ")?.split(' ');
    let (position, digest, state) = (words.next()?, words.next()?, words.next()?);
    let head = Head { position: Position(position.parse().ok()?), digest: digest.parse::<Digest>().ok()? };
    let shut = match state {
        "shut" => true,
        "open" => false,
        _ => return None,
    };
    Some(StoredHead { head, shut })
}

/// Reads the stored head. A power failure leaves nothing, or zeros, of a file that was never synced.
pub(super) fn read_head(dir: &Path) -> Result<Option<StoredHead>, Error> {
    let path = dir.join(HEAD);
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", &path, e)),
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let stored = std::str::from_utf8(&bytes).ok().and_then(parse_head);
    stored.map(Some).ok_or(Error::damaged(Position(0), Damage::HeadFile))
}

/// The head file, open for writing.
pub(super) struct HeadFile {
    file: File,
    path: PathBuf,
    medium: Arc<dyn Medium>,
}

impl HeadFile {
    pub(super) fn open(layout: &Layout) -> Result<Self, Error> {
        let path = layout.dir.join(HEAD);
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(|e| Error::io("open", &path, e))?;
        Ok(Self { file, path, medium: Arc::clone(&layout.medium) })
    }

    pub(super) fn write(&self, stored: StoredHead) -> Result<(), Error> {
        let text = head_text(stored);
        let mut act = || self.file.write_all_at(text.as_bytes(), 0);
        self.medium.run(Step::WriteHead, &mut act).map_err(|e| Error::io("write", &self.path, e))
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(|e| Error::io("sync", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_at_one_length() {
        let mut lengths = Vec::new();
        for (position, shut) in [(0, false), (7, true), (u64::MAX, false)] {
            let stored = StoredHead { head: Head { position: Position(position), digest: Digest([171; 32]) }, shut };
            let text = head_text(stored);
            assert_eq!(parse_head(&text), Some(stored));
            lengths.push(text.len());
        }
        assert!(lengths.windows(2).all(|w| w[0] == w[1]), "overwriting in place leaves nothing of the old text");
    }

    #[test]
    fn every_changed_byte_of_a_head_is_noticed() {
        let stored = StoredHead { head: Head { position: Position(12), digest: Digest([5; 32]) }, shut: false };
        let text = head_text(stored);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(std::str::from_utf8(&bytes).ok().and_then(parse_head), None, "{at}");
            assert_eq!(parse_head(&text[..at]), None, "{at}");
        }
    }

    #[test]
    fn epoch_names_are_exact() {
        assert_eq!(epoch_number("epoch-12"), Some(12));
        for name in ["epoch-", "epoch-01", "epoch-+1", "epoch--1", "epoch-1x", "epoch", "current"] {
            assert_eq!(epoch_number(name), None, "{name}");
        }
    }
}
