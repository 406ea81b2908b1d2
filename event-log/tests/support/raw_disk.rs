//! A disk in memory that tests cut, exchange and damage: a store of their own below the log.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use event_log::log::Log;
use event_log::{Block, BlockIter, BlockKey, Blocks, Error, Head, Store, Verify};

/// The disk. Clones are the same one; [`RawDisk::copy`] makes another.
#[derive(Clone, Default)]
pub struct RawDisk(Arc<Mutex<Contents>>);

#[derive(Clone, Default)]
struct Contents {
    blocks: BTreeMap<BlockKey, Vec<u8>>,
    head: Option<Head>,
    cached_state: Option<Vec<u8>>,
}

impl RawDisk {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    /// Opens the log on this disk, verifying all of it.
    pub fn open(&self) -> Result<Log<RawStore>, Error> {
        Log::open(RawStore(self.clone()), Verify::Full)
    }

    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.contents().clone())))
    }

    /// Loses the stored head, as a power failure may.
    pub fn forget_head(&self) {
        self.contents().head = None;
    }

    /// Keys of the stored blocks, in order.
    pub fn keys(&self) -> Vec<BlockKey> {
        self.contents().blocks.keys().copied().collect()
    }

    /// Loses one block; the stored head stays. Returns false if there was none.
    pub fn cut(&self, key: BlockKey) -> bool {
        self.contents().blocks.remove(&key).is_some()
    }

    /// Flips the bits of `mask` in one byte of a block. Returns false if there is no such byte.
    pub fn damage(&self, key: BlockKey, offset: usize, mask: u8) -> bool {
        let mut contents = self.contents();
        let byte = contents.blocks.get_mut(&key).and_then(|block| block.get_mut(offset));
        byte.map(|byte| *byte ^= mask).is_some()
    }

    /// Exchanges the bytes of two blocks. Returns false if one of them is missing.
    pub fn swap(&self, one: BlockKey, other: BlockKey) -> bool {
        let blocks = &mut self.contents().blocks;
        let (Some(a), Some(b)) = (blocks.get(&one).cloned(), blocks.get(&other).cloned()) else { return false };
        blocks.extend([(one, b), (other, a)]);
        true
    }
}

/// The store over it.
pub struct RawStore(RawDisk);

impl Store for RawStore {
    type Blocks = RawDisk;

    fn blocks(&self) -> &RawDisk {
        &self.0
    }

    fn blocks_mut(&mut self) -> &mut RawDisk {
        &mut self.0
    }

    fn stored_head(&self) -> Option<Head> {
        self.0.contents().head
    }

    fn store_head(&mut self, head: Head) -> Result<(), Error> {
        self.0.contents().head = Some(head);
        Ok(())
    }

    fn cache_state(&mut self, pieces: &[Vec<u8>]) -> Result<(), Error> {
        self.0.contents().cached_state = Some(pieces.concat());
        Ok(())
    }

    fn cached_state(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.contents().cached_state.clone())
    }

    fn new_epoch(&mut self) -> Result<RawDisk, Error> {
        Ok(RawDisk::default())
    }

    fn activate(&mut self, new_epoch: RawDisk) -> Result<(), Error> {
        self.0.contents().blocks = new_epoch.contents().blocks.clone();
        Ok(())
    }
}

impl Blocks for RawDisk {
    type Bytes = Vec<u8>;

    fn put(&mut self, blocks: &[Block]) -> Result<(), Error> {
        self.contents().blocks.extend(blocks.iter().map(|block| (block.key, block.bytes.clone())));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn remove(&mut self, keys: &[BlockKey]) -> Result<(), Error> {
        self.contents().blocks.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    fn scan(&self, from: BlockKey) -> BlockIter<'_, Vec<u8>> {
        let mut range = (Bound::Included(from), Bound::Unbounded);
        Box::new(std::iter::from_fn(move || {
            let (key, bytes) = self.contents().blocks.range(range).next().map(|(key, bytes)| (*key, bytes.clone()))?;
            range.0 = Bound::Excluded(key);
            Some(Ok((key, bytes)))
        }))
    }

    fn last_at(&self, upto: BlockKey) -> Result<Option<(BlockKey, Vec<u8>)>, Error> {
        Ok(self.contents().blocks.range(..=upto).next_back().map(|(key, bytes)| (*key, bytes.clone())))
    }

    fn disk_bytes(&self) -> u64 {
        self.contents().blocks.values().map(|bytes| bytes.len() as u64).sum()
    }
}
