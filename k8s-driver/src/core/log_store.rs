//! Stores an operator's log, and archives one that cannot be continued.
//!
//! Owns the names in the data directory. What a log holds is `event-log`'s. Tests: at the end of this file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use event_log::{Error, EventLog, Head, MemoryDisk, NewRecord, Options, SledLog, Verify, WriteHook};

use crate::metrics::Metrics;

/// Name of the log in the data directory.
const LOG: &str = "log";

/// A store of one log at a time.
pub(crate) trait LogStore: Send {
    /// Opens the log, creating an empty one if there is none.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&mut self) -> Result<Box<dyn EventLog>, Error>;

    /// Moves the log away, whole, so that the next [`LogStore::open`] creates an empty one. The log must not be open. Returns where
    /// the old one is kept.
    ///
    /// # Errors
    /// If it cannot be moved.
    fn archive(&mut self, why: &str) -> io::Result<String>;
}

/// A log in a directory.
#[derive(Debug)]
pub(crate) struct DirectoryStore {
    data: PathBuf,
    verify: Verify,
}

impl DirectoryStore {
    /// Opens the data directory, creating it if it is missing.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn new(data: &Path, verify: Verify) -> io::Result<Self> {
        fs::create_dir_all(data)?;
        Ok(Self { data: data.to_owned(), verify })
    }
}

impl LogStore for DirectoryStore {
    fn open(&mut self) -> Result<Box<dyn EventLog>, Error> {
        let options = Options { verify: self.verify, ..Options::default() };
        Ok(Box::new(SledLog::open(self.data.join(LOG), options)?))
    }

    fn archive(&mut self, why: &str) -> io::Result<String> {
        let word: String = why.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
        let free = (1..=u32::MAX).map(|n| self.data.join(format!("{LOG}.{n}.{word}"))).find(|path| !path.exists());
        let target = free.ok_or(io::ErrorKind::AlreadyExists)?;
        fs::rename(self.data.join(LOG), &target)?;
        fs::File::open(&self.data)?.sync_all()?;
        Ok(target.display().to_string())
    }
}

/// A log in memory, which lasts as long as the process.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    disk: MemoryDisk,
}

impl LogStore for MemoryStore {
    fn open(&mut self) -> Result<Box<dyn EventLog>, Error> {
        Ok(Box::new(self.disk.open()?))
    }

    fn archive(&mut self, _why: &str) -> io::Result<String> {
        self.disk = MemoryDisk::default();
        Ok("nowhere: it was in memory".to_owned())
    }
}

/// Times the appends of a log.
impl WriteHook for Metrics {
    fn append(&mut self, log: &mut dyn EventLog, records: &[NewRecord<'_>]) -> Result<Head, Error> {
        let started = Instant::now();
        let head = log.append(records)?;
        self.appended(started.elapsed());
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use model::{Position, Term};

    use super::*;

    fn append(log: &mut dyn EventLog) {
        log.append(&[NewRecord { term: Term(1), body: b"{}" }]).unwrap();
    }

    #[test]
    fn a_log_that_is_set_aside_is_kept_and_an_empty_one_begins() {
        let data = tempfile::tempdir().unwrap();
        let places: [Box<dyn LogStore>; 2] = [
            Box::new(DirectoryStore::new(&data.path().join("a/b"), Verify::Full).unwrap()),
            Box::new(MemoryStore::default()),
        ];
        for mut place in places {
            append(&mut *place.open().unwrap());
            assert_eq!(place.open().unwrap().head().position, Position(1));
            let first = place.archive("diverged: at 7").unwrap();
            append(&mut *place.open().unwrap());
            let second = place.archive("diverged: at 7").unwrap();
            assert_eq!(place.open().unwrap().head().position, Position(0));
            if first.starts_with('/') {
                assert!(
                    first.ends_with("log.1.diverged--at-7") && second.ends_with("log.2.diverged--at-7"),
                    "{second}"
                );
                let mut kept = SledLog::open(&first, Options::default()).unwrap();
                assert_eq!(kept.head().position, Position(1));
                append(&mut kept);
            }
        }
    }
}
