//! The log's directory as a back end: the live epoch, the head file, and the switch from one epoch to the next.
//!
//! Owns the order of steps that makes creation and compaction safe to interrupt. It judges nothing: that is
//! [`crate::log::Log`]'s part. Tests: `tests/compaction.rs`, `tests/crash.rs`.

use std::fs::File;

use super::engine::Epoch;
use super::layout::{HeadFile, Layout, Noted};
use crate::error::Error;
use crate::store::Store;
use crate::types::Head;

/// A directory that is open for writing.
pub(super) struct DiskStore {
    layout: Layout,
    live: u64,
    epoch: Epoch,
    drafted: u64,
    head_file: HeadFile,
    noted: Option<Head>,
    opened: bool,
    failed: bool,
    /// Held until everything else is closed.
    _lock: File,
}

impl DiskStore {
    /// A store over an epoch that is live and open.
    pub(super) fn new(layout: Layout, live: u64, epoch: Epoch, noted: Option<Head>, lock: File) -> Result<Self, Error> {
        let head_file = HeadFile::open(&layout)?;
        // From here on a crash leaves a log that was not shut.
        head_file.write(Noted { head: noted.unwrap_or_default(), shut: false })?;
        head_file.sync()?;
        Ok(Self { layout, live, epoch, drafted: live, head_file, noted, opened: false, failed: false, _lock: lock })
    }

    /// What the store holds has been proven; closing it may be noted as orderly.
    pub(super) const fn opened(&mut self) {
        self.opened = true;
    }

    /// Notes that the log was closed in an orderly way, if it was.
    fn shut(&mut self) -> Result<(), Error> {
        let closed = self.epoch.close();
        if let Some(head) = self.noted.filter(|_| closed && self.opened && !self.failed) {
            self.head_file.write(Noted { head, shut: true })?;
            self.head_file.sync()?;
        }
        Ok(())
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::warn!(%error, "log not closed in order; the next start reads all of it");
        }
    }
}

impl Store for DiskStore {
    type Blocks = Epoch;

    fn blocks(&self) -> &Epoch {
        &self.epoch
    }

    fn blocks_mut(&mut self) -> &mut Epoch {
        &mut self.epoch
    }

    fn noted_head(&self) -> Option<Head> {
        self.noted
    }

    fn note_head(&mut self, head: Head) -> Result<(), Error> {
        self.failed = true;
        self.head_file.write(Noted { head, shut: false })?;
        self.failed = false;
        self.noted = Some(head);
        Ok(())
    }

    fn keep(&mut self, pieces: &[Vec<u8>]) -> Result<(), Error> {
        self.layout.keep(pieces)
    }

    fn kept(&self) -> Result<Option<Vec<u8>>, Error> {
        self.layout.kept()
    }

    fn draft(&mut self) -> Result<Epoch, Error> {
        self.layout.sweep(self.live)?;
        self.drafted = self.live.saturating_add(1);
        Epoch::create(&self.layout, self.drafted)
    }

    fn switch(&mut self, draft: Epoch) -> Result<(), Error> {
        self.failed = true;
        self.layout.sync_epoch(self.drafted)?;
        self.layout.set_live(self.drafted)?;
        let old = std::mem::replace(&mut self.live, self.drafted);
        drop(std::mem::replace(&mut self.epoch, draft));
        self.failed = false;
        if let Err(error) = self.layout.remove_epoch(old) {
            tracing::warn!(%error, "old epoch not removed; the next start will");
        }
        Ok(())
    }
}
