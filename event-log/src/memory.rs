//! A log in memory: the reference back end, and the "disk" that simulations crash and copy.
//!
//! Owns [`MemoryDisk`], which outlives the handles opened on it, and [`MemoryLog`], the handle. Blocks are encoded and
//! verified exactly as on disk. Tests: `tests/conformance.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::Position;

use crate::block::{Block, BlockKey};
use crate::digest::Head;
use crate::error::Error;
use crate::log::{Log, Verify, delegate_log};
use crate::store::{BlockIter, Blocks, Store};
use crate::types::{EventLog, NewRecord};

type Map = BTreeMap<BlockKey, Arc<[u8]>>;

/// Locks a mutex. Each update under a lock is a single assignment or map operation, so a panic elsewhere leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Contents {
    live: Arc<Mutex<Map>>,
    head: Option<Head>,
    cached_state: Option<Arc<[u8]>>,
    open: bool,
}

/// Storage of a log in memory. Clones are the same disk; [`MemoryDisk::copy`] makes another one.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    contents: Arc<Mutex<Contents>>,
}

impl MemoryDisk {
    /// Opens the log on this disk, verifying all of it.
    ///
    /// # Errors
    /// [`Error::Locked`] while another handle is open, [`Error::Damaged`] when a block does not verify.
    pub fn open(&self) -> Result<MemoryLog, Error> {
        self.open_with(Verify::Full)
    }

    /// Opens the log on this disk.
    ///
    /// # Errors
    /// As for [`MemoryDisk::open`].
    pub fn open_with(&self, verify: Verify) -> Result<MemoryLog, Error> {
        Ok(MemoryLog(Log::open(self.store()?, verify)?))
    }

    fn store(&self) -> Result<MemoryStore, Error> {
        let mut contents = lock(&self.contents);
        if contents.open {
            return Err(Error::Locked { path: Path::new("(memory)").to_owned() });
        }
        contents.open = true;
        Ok(MemoryStore { disk: self.clone(), blocks: MemoryBlocks { map: Arc::clone(&contents.live) } })
    }

    /// Copies the disk, as a backup would.
    #[must_use]
    pub fn copy(&self) -> Self {
        let contents = lock(&self.contents);
        let live = Arc::new(Mutex::new(lock(&contents.live).clone()));
        let contents = Contents { live, head: contents.head, cached_state: contents.cached_state.clone(), open: false };
        Self { contents: Arc::new(Mutex::new(contents)) }
    }
}

/// A log in memory. `clone` copies its contents to a disk of its own; [`MemoryLog::disk`] shares them.
pub struct MemoryLog(Log<MemoryStore>);

delegate_log!(MemoryLog);

impl MemoryLog {
    /// Makes an empty log on a disk of its own.
    #[must_use]
    pub fn new() -> Self {
        let disk = MemoryDisk::default();
        lock(&disk.contents).open = true;
        let blocks = MemoryBlocks { map: Arc::clone(&lock(&disk.contents).live) };
        Self(Log::empty(MemoryStore { disk, blocks }))
    }

    /// Returns the disk below, which outlives this handle: for a restart, drop the handle and open the disk again.
    #[must_use]
    pub fn disk(&self) -> MemoryDisk {
        self.0.store().disk.clone()
    }

    /// Copies the records up to `position` into another log, as an older copy of this log would hold them.
    ///
    /// # Errors
    /// [`Error::Gap`] when the log does not reach back to, or on to, that position.
    pub fn truncated(&self, position: Position) -> Result<Self, Error> {
        let (first, head) = (self.first(), self.head().position);
        if position > head || position.next() < first {
            return Err(Error::Gap { asked: position, first, head });
        }
        let mut copy = Self::new();
        if let Some(checkpoint) = self.checkpoint()? {
            copy.compact(&checkpoint)?;
        }
        for frame in self.read(first)? {
            let frame = frame?;
            if frame.position > position {
                break;
            }
            copy.append(&[NewRecord { term: frame.term, body: &frame.body }])?;
        }
        Ok(copy)
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryLog {
    fn clone(&self) -> Self {
        let disk = self.disk().copy();
        lock(&disk.contents).open = true;
        let blocks = MemoryBlocks { map: Arc::clone(&lock(&disk.contents).live) };
        Self(self.0.with_store(MemoryStore { disk, blocks }))
    }
}

impl std::fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryLog").field("head", &self.head()).finish_non_exhaustive()
    }
}

/// The store of a [`MemoryLog`].
struct MemoryStore {
    disk: MemoryDisk,
    blocks: MemoryBlocks,
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        lock(&self.disk.contents).open = false;
    }
}

impl Store for MemoryStore {
    type Blocks = MemoryBlocks;

    fn blocks(&self) -> &MemoryBlocks {
        &self.blocks
    }

    fn blocks_mut(&mut self) -> &mut MemoryBlocks {
        &mut self.blocks
    }

    fn stored_head(&self) -> Option<Head> {
        lock(&self.disk.contents).head
    }

    fn store_head(&mut self, head: Head) -> Result<(), Error> {
        lock(&self.disk.contents).head = Some(head);
        Ok(())
    }

    fn cache_state(&mut self, pieces: &[Vec<u8>]) -> Result<(), Error> {
        lock(&self.disk.contents).cached_state = Some(pieces.concat().into());
        Ok(())
    }

    fn cached_state(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(lock(&self.disk.contents).cached_state.as_deref().map(<[u8]>::to_vec))
    }

    fn new_epoch(&mut self) -> Result<MemoryBlocks, Error> {
        Ok(MemoryBlocks { map: Arc::default() })
    }

    fn activate(&mut self, new_epoch: MemoryBlocks) -> Result<(), Error> {
        lock(&self.disk.contents).live = Arc::clone(&new_epoch.map);
        self.blocks = new_epoch;
        Ok(())
    }
}

/// Blocks in a map.
struct MemoryBlocks {
    map: Arc<Mutex<Map>>,
}

impl Blocks for MemoryBlocks {
    type Bytes = Arc<[u8]>;

    fn put(&mut self, blocks: &[Block]) -> Result<(), Error> {
        lock(&self.map).extend(blocks.iter().map(|block| (block.key, Arc::from(&block.bytes[..]))));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn remove(&mut self, keys: &[BlockKey]) -> Result<(), Error> {
        let mut map = lock(&self.map);
        for key in keys {
            map.remove(key);
        }
        Ok(())
    }

    fn scan(&self, from: BlockKey) -> BlockIter<'_, Arc<[u8]>> {
        let mut range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        Box::new(std::iter::from_fn(move || {
            let (key, bytes) = lock(&self.map).range(range).next().map(|(key, bytes)| (*key, Arc::clone(bytes)))?;
            range.0 = std::ops::Bound::Excluded(key);
            Some(Ok((key, bytes)))
        }))
    }

    fn last_at(&self, upto: BlockKey) -> Result<Option<(BlockKey, Arc<[u8]>)>, Error> {
        Ok(lock(&self.map).range(..=upto).next_back().map(|(key, bytes)| (*key, Arc::clone(bytes))))
    }

    fn disk_bytes(&self) -> u64 {
        lock(&self.map).values().map(|bytes| bytes.len() as u64).sum()
    }
}
