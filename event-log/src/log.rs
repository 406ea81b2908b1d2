//! The log on top of any back end: append, read, recover, compact.
//!
//! Owns positions, the poison rule and what an opened log must prove about itself. It does no IO of its own: bytes go
//! through [`Store`]. Tests: `tests/conformance.rs`.

use model::{Position, Term};

use crate::block::{MAX_BODY_BYTES, MAX_GROUP_BYTES, Placed, encode_group};
use crate::chain::{Tip, base_of, frames_from, read_checkpoint};
use crate::copying::{copy_frames, put_checkpoint};
use crate::digest::{Head, RecordHasher};
use crate::error::{Damage, Error};
use crate::jsonl::{checkpoint_line, read_checkpoint_line};
use crate::recover::{check_stored_head, finish_tail, full_chain};
use crate::store::{Blocks as _, Store};
use crate::types::{Checkpoint, EventLog, Frame, NewRecord, Stats};

/// Extent of the verification when a log is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    /// Every record, from the beginning or the checkpoint.
    #[default]
    Full,
    /// The last commit group; the rest when it is read.
    Tail,
}

/// A log over a back end.
pub struct Log<S> {
    store: S,
    /// The checkpoint's place, or the empty log.
    base: Tip,
    tip: Tip,
    first_term: Option<Term>,
    hasher: RecordHasher,
    poisoned: bool,
}

impl<S: Store> Log<S> {
    /// Opens what the store holds.
    ///
    /// A commit group that is incomplete, last, and not covered by the stored head was never acknowledged: it is removed.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first position that cannot be trusted.
    pub fn open(mut store: S, verify: Verify) -> Result<Self, Error> {
        let stored = store.stored_head();
        let base = base_of(store.blocks())?.unwrap_or_default();
        let tip = match finish_tail(&mut store, base, stored) {
            // Report the first bad position, not the last group's.
            Err(Error::Damaged { at, reason }) => {
                full_chain(store.blocks(), base)?;
                return Err(Error::Damaged { at, reason });
            }
            other => other?,
        };
        if verify == Verify::Full {
            if base.head.position > Position(0) {
                read_checkpoint(store.blocks(), &base)?;
            }
            let verified = full_chain(store.blocks(), base)?;
            if verified.head != tip.head {
                return Err(Error::damaged(verified.head.position.next(), Damage::Chain));
            }
        }
        check_stored_head(store.blocks(), base, tip, stored)?;
        if stored != Some(tip.head) {
            store.store_head(tip.head)?;
        }
        Self::assume(store, base, tip)
    }

    /// Returns a log over blocks that are known to be good from `base` to `tip`.
    pub(crate) fn assume(store: S, base: Tip, tip: Tip) -> Result<Self, Error> {
        let mut log = Self::empty(store);
        (log.base, log.tip) = (base, tip);
        log.first_term = log.find_first_term()?;
        Ok(log)
    }

    /// Returns a log over a store that holds nothing.
    pub(crate) fn empty(store: S) -> Self {
        let (base, tip) = (Tip::default(), Tip::default());
        Self { store, base, tip, first_term: None, hasher: RecordHasher::default(), poisoned: false }
    }

    /// Returns the store below.
    pub(crate) const fn store(&self) -> &S {
        &self.store
    }

    /// Returns the store below, for writing.
    pub(crate) const fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the same log over another store that holds the same blocks.
    pub(crate) fn with_store(&self, store: S) -> Self {
        let (base, tip, first_term, poisoned) = (self.base, self.tip, self.first_term, self.poisoned);
        Self { store, base, tip, first_term, hasher: RecordHasher::default(), poisoned }
    }

    fn find_first_term(&self) -> Result<Option<Term>, Error> {
        if self.tip.head.position > self.base.head.position {
            let mut frames = frames_from(self.store.blocks(), self.base, self.first(), None, 1)?;
            return frames.next().transpose().map(|frame| frame.map(|f| f.term));
        }
        Ok((self.base.head.position > Position(0)).then_some(self.base.term))
    }

    fn write(&mut self, records: &[NewRecord<'_>]) -> Result<Tip, Error> {
        let mut tip = self.tip;
        let mut placed = Vec::with_capacity(records.len());
        let mut group_bytes = 0;
        for record in records {
            group_bytes += record.body.len();
            check_size("a record's body", record.body.len(), MAX_BODY_BYTES)?;
            check_size("a commit group", group_bytes, MAX_GROUP_BYTES)?;
            if record.term < tip.term {
                return Err(Error::TermBackwards { last: tip.term, offered: record.term });
            }
            placed.push(Placed { previous: tip.head.digest, term: record.term, body: record.body });
            let position = tip.head.position.next();
            let digest = self.hasher.digest(&tip.head.digest, position, record.term, record.body);
            let body_bytes = tip.body_bytes.saturating_add(record.body.len() as u64);
            tip = Tip { head: Head { position, digest }, term: record.term, body_bytes };
        }
        let blocks = encode_group(self.tip.head.position.next(), tip.head, self.tip.body_bytes, &placed);
        self.store.blocks_mut().put(&blocks)?;
        self.store.blocks_mut().sync()?;
        self.store.store_head(tip.head)?;
        Ok(tip)
    }

    /// Checks that a checkpoint is one of this log's.
    fn check_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let at = checkpoint.position;
        let refuse = |reason| Err(Error::BadCheckpoint { at, reason });
        let offered = Head { position: at, digest: checkpoint.digest };
        if at == Position(0) {
            return refuse("position 0 is before the first record");
        }
        if self.tip.head.position == Position(0) {
            return Ok(()); // an empty log takes a checkpoint at any position
        }
        if at > self.tip.head.position {
            return refuse("beyond the head");
        }
        if at < self.base.head.position {
            return refuse("before the checkpoint the log begins with");
        }
        let (head, term) = if at == self.base.head.position {
            (self.base.head, self.base.term)
        } else {
            match frames_from(self.store.blocks(), self.base, at, None, 1)?.next().transpose()? {
                Some(frame) => (Head { position: frame.position, digest: frame.digest }, frame.term),
                None => return Err(Error::damaged(at, Damage::Missing)),
            }
        };
        if head != offered {
            return refuse("another digest");
        }
        if term != checkpoint.term {
            return refuse("another term");
        }
        Ok(())
    }

    /// Writes the checkpoint and the frames after it into `new_epoch`; returns its beginning and end.
    fn write_draft(&self, new_epoch: &mut S::Blocks, checkpoint: &Checkpoint) -> Result<(Tip, Tip), Error> {
        put_checkpoint(checkpoint, new_epoch)?;
        let head = Head { position: checkpoint.position, digest: checkpoint.digest };
        let base = Tip { head, term: checkpoint.term, body_bytes: 0 };
        let tip = if self.tip.head.position > checkpoint.position {
            copy_frames(self.read(checkpoint.position.next())?, base, new_epoch)?
        } else {
            base
        };
        new_epoch.sync()?;
        Ok((base, tip))
    }
}

fn check_size(what: &'static str, bytes: usize, limit: usize) -> Result<(), Error> {
    if bytes > limit {
        return Err(Error::TooBig { what, bytes: bytes as u64, limit_bytes: limit as u64 });
    }
    Ok(())
}

impl<S: Store> EventLog for Log<S> {
    fn head(&self) -> Head {
        self.tip.head
    }

    fn first(&self) -> Position {
        self.base.head.position.next()
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        if self.base.head.position == Position(0) {
            return Ok(None);
        }
        read_checkpoint(self.store.blocks(), &self.base).map(Some)
    }

    fn append(&mut self, records: &[NewRecord<'_>]) -> Result<Head, Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        let Some(first) = records.first() else { return Ok(self.tip.head) };
        self.poisoned = true;
        if self.tip.head == self.base.head {
            self.first_term = Some(first.term);
        }
        let written = self.write(records);
        // Trying to write to a copy leaves it as it was.
        self.poisoned = !matches!(written, Ok(_) | Err(Error::ReadOnly));
        self.tip = written?;
        Ok(self.tip.head)
    }

    fn read<'a>(&'a self, from: Position) -> Result<Box<dyn Iterator<Item = Result<Frame, Error>> + 'a>, Error> {
        let (first, head) = (self.first(), self.tip.head);
        if from < first || from > head.position.next() {
            return Err(Error::Gap { asked: from, first, head: head.position });
        }
        if from > head.position {
            return Ok(Box::new(std::iter::empty()));
        }
        let records = head.position.0.saturating_sub(from.0).saturating_add(1);
        Ok(Box::new(frames_from(self.store.blocks(), self.base, from, Some(head), records)?))
    }

    fn compact(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.check_checkpoint(checkpoint)?;
        let mut new_epoch = self.store.new_epoch()?;
        let (base, tip) = self.write_draft(&mut new_epoch, checkpoint)?;
        // It is about to become the only copy: read back what was written before anything is given up for it.
        read_checkpoint(&new_epoch, &base)?;
        let copied = full_chain(&new_epoch, base)?;
        if copied.head != tip.head || (self.tip.head.position > Position(0) && tip.head != self.tip.head) {
            return Err(Error::damaged(copied.head.position.next(), Damage::Chain));
        }
        self.poisoned = true;
        self.store.activate(new_epoch)?;
        self.store.store_head(tip.head)?;
        (self.base, self.tip) = (base, tip);
        self.first_term = self.find_first_term()?;
        self.poisoned = false;
        Ok(())
    }

    fn cache_state(&mut self, state: Checkpoint) -> Result<(), Error> {
        self.check_checkpoint(&state)?;
        self.store.cache_state(&checkpoint_line(state))
    }

    fn cached_state(&self) -> Result<Option<Checkpoint>, Error> {
        let stored = self.store.cached_state().map(|bytes| bytes.and_then(|bytes| read_checkpoint_line(&bytes)));
        let stored = stored.unwrap_or_else(|error| {
            tracing::warn!(%error, "the state beside the log cannot be read; the log is");
            None
        });
        let Some(state) = stored.filter(|state| (self.first()..=self.tip.head.position).contains(&state.position))
        else {
            return Ok(None);
        };
        match self.check_checkpoint(&state) {
            Ok(()) => Ok(Some(state)),
            Err(Error::BadCheckpoint { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn stats(&self) -> Stats {
        let last_term = (self.tip.head.position > Position(0)).then_some(self.tip.term);
        Stats {
            records: self.records(),
            first: self.first(),
            head: self.tip.head,
            first_term: self.first_term,
            last_term,
            body_bytes: self.tip.body_bytes,
            disk_bytes: self.store.blocks().disk_bytes(),
        }
    }
}

/// Implements [`EventLog`] for a wrapper around a [`Log`].
macro_rules! delegate_log {
    ($name:ident) => {
        impl $crate::EventLog for $name {
            fn head(&self) -> $crate::Head {
                self.0.head()
            }

            fn first(&self) -> ::model::Position {
                self.0.first()
            }

            fn checkpoint(&self) -> Result<Option<$crate::Checkpoint>, $crate::Error> {
                self.0.checkpoint()
            }

            fn append(&mut self, records: &[$crate::NewRecord<'_>]) -> Result<$crate::Head, $crate::Error> {
                self.0.append(records)
            }

            fn read<'a>(
                &'a self,
                from: ::model::Position,
            ) -> Result<Box<dyn Iterator<Item = Result<$crate::Frame, $crate::Error>> + 'a>, $crate::Error> {
                self.0.read(from)
            }

            fn compact(&mut self, checkpoint: &$crate::Checkpoint) -> Result<(), $crate::Error> {
                self.0.compact(checkpoint)
            }

            fn cache_state(&mut self, state: $crate::Checkpoint) -> Result<(), $crate::Error> {
                self.0.cache_state(state)
            }

            fn cached_state(&self) -> Result<Option<$crate::Checkpoint>, $crate::Error> {
                self.0.cached_state()
            }

            fn stats(&self) -> $crate::Stats {
                self.0.stats()
            }
        }
    };
}

pub(crate) use delegate_log;
