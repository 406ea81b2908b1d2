//! The words of this crate: digest, head, frame, checkpoint, and the trait of a log.
//!
//! Owns plain values and the [`EventLog`] contract; holds no encoding and no IO. Tests: at the end of this file, and the
//! contract itself in `tests/conformance.rs`.

use std::fmt;
use std::str::FromStr;

use model::{Position, Term};

use crate::chain::RecordHasher;
use crate::error::Error;

/// A BLAKE3 hash that stands for a record and everything before it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// What an empty log has instead of a digest.
    pub const ZERO: Self = Self([0; 32]);
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Text that is not a digest: 64 hexadecimal digits were expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: 64 hexadecimal digits expected")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NotADigest);
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            let value = pair.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?));
            *byte = value.and_then(|v| u8::try_from(v).ok()).ok_or(NotADigest)?;
        }
        Ok(Self(out))
    }
}

/// The end of a log: its last position and the digest there. Position 0 with the zero digest is the empty log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// Position of the last record.
    pub position: Position,
    /// Digest of the last record.
    pub digest: Digest,
}

/// A record to append. The log gives it its position and digest.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// Term in which it was written; never lower than the last record's.
    pub term: Term,
    /// Its exact bytes, at most [`crate::MAX_BODY_BYTES`].
    pub body: &'a [u8],
}

/// A record as it stands in the log, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its place, contiguous from 1.
    pub position: Position,
    /// Term in which it was written.
    pub term: Term,
    /// Hash of the digest before it, its position, its term and its body.
    pub digest: Digest,
    /// Its exact bytes.
    pub body: Vec<u8>,
}

impl Frame {
    /// Whether this is the record after `head`: the next position, and a digest that hashes the one there.
    pub fn follows(&self, head: &Head) -> bool {
        self.position == head.position.next()
            && RecordHasher::default().digest(&head.digest, self.position, self.term, &self.body) == self.digest
    }

    /// The end of a log that ends with this record.
    pub const fn head(&self) -> Head {
        Head { position: self.position, digest: self.digest }
    }
}

/// State that stands for every record up to a position, so that a log may begin after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last position the state includes.
    pub position: Position,
    /// Term of the record at that position.
    pub term: Term,
    /// Digest of the record at that position.
    pub digest: Digest,
    /// The state's exact bytes.
    pub state: Vec<u8>,
}

/// Numbers about a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Readable records.
    pub records: u64,
    /// First readable position (one past the head when there is none).
    pub first: Position,
    /// The head.
    pub head: Head,
    /// Term of the first readable record; the checkpoint's when there is none but a checkpoint.
    pub first_term: Option<Term>,
    /// Term of the last record, or of the checkpoint.
    pub last_term: Option<Term>,
    /// Bytes of all readable bodies.
    pub body_bytes: u64,
    /// Bytes the back end occupies, old versions of pages included.
    pub disk_bytes: u64,
}

/// A log of records.
///
/// One handle writes; `append` is the only way in. Positions are contiguous, terms never go backwards, and every digest
/// hashes the one before it.
pub trait EventLog: Send {
    /// The end of the log.
    fn head(&self) -> Head;

    /// The first readable position: 1, or one past the checkpoint.
    fn first(&self) -> Position;

    /// The checkpoint the log begins with, verified.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it cannot be read back exactly.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error>;

    /// Appends a group of records: all of them or, after a crash, none. They are durable when this returns. An empty
    /// group does nothing.
    ///
    /// # Errors
    /// Any error poisons the handle: what reached the disk is unknown until the log is opened again. Until then even
    /// reading may be refused.
    fn append(&mut self, records: &[NewRecord<'_>]) -> Result<Head, Error>;

    /// Reads frames from a position on, in order, in constant memory, each verified against the chain. Reading from one
    /// past the head gives nothing.
    ///
    /// # Errors
    /// [`Error::Gap`] for positions the log does not hold; damage found on the way ends the iterator with an error.
    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error>;

    /// Makes the log begin with this checkpoint, durably, and forgets the records it includes. An empty log begins at
    /// the checkpoint, whatever its position. Safe to interrupt at any point.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] when it does not fit the log. An error before the new log took over leaves the old one
    /// in use; one while it takes over poisons the handle.
    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error>;

    /// Keeps a state beside the log, in place of the one kept before, so that whoever opens a long log need not read all of
    /// it. The log itself stays as it is.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] when it does not fit the log; when it cannot be written. The log is none the worse for it.
    fn keep(&mut self, state: Checkpoint) -> Result<(), Error>;

    /// The state that was kept, if it stands for records of this log. One that is missing, torn, older than the log's
    /// beginning, or another log's, counts as none.
    ///
    /// # Errors
    /// When the log itself cannot be read.
    fn kept(&self) -> Result<Option<Checkpoint>, Error>;

    /// Readable records, from the first to the head.
    fn records(&self) -> u64 {
        self.head().position.next().0.saturating_sub(self.first().0)
    }

    /// Numbers about the log. Costs no scan of it, but looks at the disk for what it takes there.
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

    fn keep(&mut self, state: Checkpoint) -> Result<(), Error> {
        (**self).keep(state)
    }

    fn kept(&self) -> Result<Option<Checkpoint>, Error> {
        (**self).kept()
    }

    fn stats(&self) -> Stats {
        (**self).stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_round_trip_through_text() {
        let digest = Digest(std::array::from_fn(|n| u8::try_from(n * 8).unwrap_or(255)));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        for text in ["", "00", &"g".repeat(64), &"0".repeat(65), &"é".repeat(32)] {
            assert_eq!(text.parse::<Digest>(), Err(NotADigest), "{text}");
        }
    }
}
