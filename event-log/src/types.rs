//! Frames, checkpoints and the trait of a log.
//!
//! Owns plain values and the [`EventLog`] contract; holds no encoding and no IO. Tests: `tests/conformance.rs`.

use model::{Position, Term};

use crate::digest::{Digest, Head, RecordHasher};
use crate::error::Error;

/// A record to append. The log assigns position and digest.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// Term of the writer; at least that of the last record.
    pub term: Term,
    /// Exact bytes, at most [`crate::MAX_BODY_BYTES`].
    pub body: &'a [u8],
}

/// A verified record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Position, contiguous from 1.
    pub position: Position,
    /// Term of the writer.
    pub term: Term,
    /// Hash of the previous digest, the position, the term and the body.
    pub digest: Digest,
    /// Exact bytes.
    pub body: Vec<u8>,
}

impl Frame {
    /// Returns true if this is the record after `head`: at the next position, with a digest over the one there.
    pub fn follows(&self, head: &Head) -> bool {
        self.position == head.position.next()
            && RecordHasher::default().digest(&head.digest, self.position, self.term, &self.body) == self.digest
    }

    /// Returns the head of a log that ends with this record.
    pub const fn head(&self) -> Head {
        Head { position: self.position, digest: self.digest }
    }
}

/// State after all records up to a position. A log may begin with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Last position included in the state.
    pub position: Position,
    /// Term of the record at that position.
    pub term: Term,
    /// Digest of the record at that position.
    pub digest: Digest,
    /// Exact bytes of the state.
    pub state: Vec<u8>,
}

/// Numbers about a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of readable records.
    pub records: u64,
    /// First readable position; one past the head when there is none.
    pub first: Position,
    /// The head.
    pub head: Head,
    /// Term of the first readable record, or of the checkpoint.
    pub first_term: Option<Term>,
    /// Term of the last record, or of the checkpoint.
    pub last_term: Option<Term>,
    /// Size of all readable bodies, in bytes.
    pub body_bytes: u64,
    /// Disk space of the back end, in bytes, old versions of pages included.
    pub disk_bytes: u64,
}

/// A log of records.
///
/// One handle writes, by `append` only. Positions are contiguous, terms never decrease, and each digest covers the
/// previous one.
pub trait EventLog: Send {
    /// Returns the head.
    fn head(&self) -> Head;

    /// Returns the first readable position: 1, or one past the checkpoint.
    fn first(&self) -> Position;

    /// Returns the verified checkpoint the log begins with.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it cannot be read back exactly.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error>;

    /// Appends a group of records. They are durable when this returns; after a crash either all of them are there or none.
    /// An empty group does nothing.
    ///
    /// # Errors
    /// Any error poisons the handle, since the bytes on the disk are unknown. Open the log again; until then reads may fail
    /// too.
    fn append(&mut self, records: &[NewRecord<'_>]) -> Result<Head, Error>;

    /// Reads frames from a position on, in order and in constant memory. Each is verified against the chain. From one past
    /// the head there are none.
    ///
    /// # Errors
    /// [`Error::Gap`] for positions the log does not hold; damage found on the way ends the iterator with an error.
    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error>;

    /// Makes the log begin with this checkpoint, durably, and drops the records it includes. An empty log takes a checkpoint
    /// at any position. A crash at any point leaves the old log or the new one.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] when it does not fit the log. An error before the new epoch is active leaves the old one in
    /// use; an error during activation poisons the handle.
    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error>;

    /// Caches a state beside the log, in place of the previous one, so that opening a long log need not read all of it. The
    /// log itself is unchanged.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] when it does not fit the log; an IO error when it cannot be written. The log stays usable.
    fn cache_state(&mut self, state: Checkpoint) -> Result<(), Error>;

    /// Returns the cached state if it belongs to this log. A missing or torn one, one from before the log's beginning, and
    /// one of another log count as none.
    ///
    /// # Errors
    /// An error when the log itself cannot be read.
    fn cached_state(&self) -> Result<Option<Checkpoint>, Error>;

    /// Returns the number of readable records.
    fn records(&self) -> u64 {
        self.head().position.next().0.saturating_sub(self.first().0)
    }

    /// Returns numbers about the log. Reads file sizes, not records.
    fn stats(&self) -> Stats;
}

impl<L: EventLog + ?Sized> EventLog for Box<L> {
    fn head(&self) -> Head {
        (**self).head()
    }

    fn first(&self) -> Position {
        (**self).first()
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        (**self).checkpoint()
    }

    fn append(&mut self, records: &[NewRecord<'_>]) -> Result<Head, Error> {
        (**self).append(records)
    }

    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error> {
        (**self).read(from)
    }

    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        (**self).compact(checkpoint)
    }

    fn cache_state(&mut self, state: Checkpoint) -> Result<(), Error> {
        (**self).cache_state(state)
    }

    fn cached_state(&self) -> Result<Option<Checkpoint>, Error> {
        (**self).cached_state()
    }

    fn stats(&self) -> Stats {
        (**self).stats()
    }
}
