//! The traits of a back end: storage for blocks, and the head stored beside them.
//!
//! Owns two traits and no code. A back end stores opaque values under ordered keys; it need not verify anything, because
//! [`crate::log::Log`] verifies every value it returns. Tests: `tests/conformance.rs` runs against every implementation.

use crate::block::{Block, BlockKey};
use crate::digest::Head;
use crate::error::Error;

/// Stored blocks in key order.
pub type BlockIter<'a, B> = Box<dyn Iterator<Item = Result<(BlockKey, B), Error>> + 'a>;

/// Blocks of one epoch of a log.
pub trait Blocks: Send {
    /// A stored value.
    type Bytes: AsRef<[u8]> + Send + 'static;

    /// Stores blocks, all or none.
    ///
    /// # Errors
    /// Returns an error if it is not known to have worked.
    fn put(&mut self, blocks: &[Block]) -> Result<(), Error>;

    /// Makes everything that was put or removed durable.
    ///
    /// # Errors
    /// Returns an error if it is not known to have worked.
    fn sync(&mut self) -> Result<(), Error>;

    /// Removes blocks.
    ///
    /// # Errors
    /// Returns an error if it is not known to have worked.
    fn remove(&mut self, keys: &[BlockKey]) -> Result<(), Error>;

    /// Blocks from a key on, in key order.
    fn scan(&self, from: BlockKey) -> BlockIter<'_, Self::Bytes>;

    /// Returns the last block whose key is not beyond `upto`.
    ///
    /// # Errors
    /// Returns an error if the engine cannot show.
    fn last_at(&self, upto: BlockKey) -> Result<Option<(BlockKey, Self::Bytes)>, Error>;

    /// Bytes the blocks occupy.
    fn disk_bytes(&self) -> u64;
}

/// Storage of one log: the blocks of its live epoch, and the stored head.
pub trait Store: Send {
    /// Type of its epochs.
    type Blocks: Blocks;

    /// Returns the live epoch.
    fn blocks(&self) -> &Self::Blocks;

    /// Returns the live epoch, for writing.
    fn blocks_mut(&mut self) -> &mut Self::Blocks;

    /// Returns the head stored after the last commit. It may be older than the log after a crash, never newer.
    fn stored_head(&self) -> Option<Head>;

    /// Notes the head.
    ///
    /// # Errors
    /// Returns an error if it could not be written.
    fn store_head(&mut self, head: Head) -> Result<(), Error>;

    /// Keeps bytes, in pieces, beside the log, durably: when this is interrupted, they or the ones before are there.
    ///
    /// # Errors
    /// Returns an error if they could not be written. The log is not touched.
    fn cache_state(&mut self, pieces: &[Vec<u8>]) -> Result<(), Error>;

    /// Returns the cached bytes.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    fn cached_state(&self) -> Result<Option<Vec<u8>>, Error>;

    /// Makes an empty epoch that is not live yet. The rest of an earlier, unfinished attempt is removed.
    ///
    /// # Errors
    /// Returns an error if it cannot be made.
    fn new_epoch(&mut self) -> Result<Self::Blocks, Error>;

    /// Makes a new epoch the live one, durably, and removes the old one.
    ///
    /// # Errors
    /// Returns an error if it is not known which of the two is live.
    fn activate(&mut self, new_epoch: Self::Blocks) -> Result<(), Error>;
}
