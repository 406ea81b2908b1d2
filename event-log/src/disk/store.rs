//! The log's directory as a back end: the live epoch, the head file, and the activation of a new epoch.
//!
//! Owns the order of steps that makes creation and compaction safe to interrupt. It judges nothing: that is
//! [`crate::log::Log`]'s part. Tests: `tests/compaction.rs`, `tests/crash.rs`.

use std::fs::File;

use super::engine::Epoch;
use super::layout::{HeadFile, Layout, StoredHead};
use crate::digest::Head;
use crate::error::Error;
use crate::store::Store;

/// A directory that is open for writing.
pub(super) struct DiskStore {
    layout: Layout,
    live: u64,
    epoch: Epoch,
    new_epoch: u64,
    head_file: HeadFile,
    stored: Option<Head>,
    opened: bool,
    failed: bool,
    /// Held until everything else is closed.
    _lock: File,
}

impl DiskStore {
    /// Returns a store over an epoch that is live and open.
    pub(super) fn new(
        layout: Layout,
        live: u64,
        epoch: Epoch,
        stored: Option<Head>,
        lock: File,
    ) -> Result<Self, Error> {
        let head_file = HeadFile::open(&layout)?;
        // From here on a crash leaves a log that was not shut.
        head_file.write(StoredHead { head: stored.unwrap_or_default(), shut: false })?;
        head_file.sync()?;
        Ok(Self { layout, live, epoch, new_epoch: live, head_file, stored, opened: false, failed: false, _lock: lock })
    }

    /// Marks the contents as verified, so that closing may be recorded as orderly.
    pub(super) const fn opened(&mut self) {
        self.opened = true;
    }

    /// Notes that the log was closed in an orderly way, if it was.
    fn shut(&mut self) -> Result<(), Error> {
        let closed = self.epoch.close();
        if let Some(head) = self.stored.filter(|_| closed && self.opened && !self.failed) {
            self.head_file.write(StoredHead { head, shut: true })?;
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

    fn stored_head(&self) -> Option<Head> {
        self.stored
    }

    fn store_head(&mut self, head: Head) -> Result<(), Error> {
        self.failed = true;
        self.head_file.write(StoredHead { head, shut: false })?;
        self.failed = false;
        self.stored = Some(head);
        Ok(())
    }

    fn cache_state(&mut self, pieces: &[Vec<u8>]) -> Result<(), Error> {
        self.layout.cache_state(pieces)
    }

    fn cached_state(&self) -> Result<Option<Vec<u8>>, Error> {
        self.layout.cached_state()
    }

    fn new_epoch(&mut self) -> Result<Epoch, Error> {
        self.layout.sweep(self.live)?;
        self.new_epoch = self.live.saturating_add(1);
        Epoch::create(&self.layout, self.new_epoch)
    }

    fn activate(&mut self, new_epoch: Epoch) -> Result<(), Error> {
        self.failed = true;
        self.layout.sync_epoch(self.new_epoch)?;
        self.layout.set_live(self.new_epoch)?;
        let old = std::mem::replace(&mut self.live, self.new_epoch);
        drop(std::mem::replace(&mut self.epoch, new_epoch));
        self.failed = false;
        if let Err(error) = self.layout.remove_epoch(old) {
            tracing::warn!(%error, "old epoch not removed; the next start will");
        }
        Ok(())
    }
}
