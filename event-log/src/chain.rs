//! The chain: turning stored blocks back into verified frames.
//!
//! Owns the iterator that checks every block and frame against its place, and the checkpoint's
//! bytes. It writes nothing. Frames that [`Frames`] yields are contiguous, checksummed and follow from the digest before. Tests: `tests/conformance.rs` and `tests/damage.rs`.

use std::borrow::Cow;

use model::{Position, Term};

use crate::block::{
    Block, BlockKey, BlockKind, HEADER_BYTES, Header, MAX_STATE_BYTES, encode_checkpoint, read_entry, tag,
};
use crate::digest::{Head, RecordHasher};
use crate::error::{Damage, Error};
use crate::read_ahead::Reader;
use crate::store::{BlockIter, Blocks};
use crate::types::{Checkpoint, Frame};

/// End of a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    /// Last position and digest.
    pub(crate) head: Head,
    /// Term of the last record; 0 before the first.
    pub(crate) term: Term,
    /// Bytes of all bodies in this epoch up to here.
    pub(crate) body_bytes: u64,
}

impl Tip {
    /// Returns the end of the chain before a block, as the block's own header names it. The header does not name the term.
    pub(crate) const fn before(header: &Header) -> Self {
        Self {
            head: Head { position: Position(header.first.0.saturating_sub(1)), digest: header.previous },
            term: Term(0),
            body_bytes: header.bytes_before,
        }
    }
}

/// Place inside a block at which reading continues.
struct Open<B> {
    header: Header,
    bytes: B,
    /// Its entries, if they were packed.
    unpacked: Option<Vec<u8>>,
    /// Bytes of the entries read so far.
    offset: usize,
}

impl<B: AsRef<[u8]>> Open<B> {
    /// Returns its entries, and how much of them has been read.
    fn entries(&mut self) -> (&[u8], &mut usize) {
        let stored = self.bytes.as_ref().get(HEADER_BYTES..).unwrap_or_default();
        (self.unpacked.as_deref().unwrap_or(stored), &mut self.offset)
    }
}

/// Verified frames in order; ends after the first error.
pub(crate) struct Frames<'a, B> {
    blocks: BlockIter<'a, B>,
    hasher: RecordHasher,
    tip: Tip,
    first_term: Option<Term>,
    from: Position,
    until: Option<Head>,
    open: Option<Open<B>>,
    partial: Vec<u8>,
    next_fragment: u32,
    group_end: Option<Position>,
    is_part: bool,
    done: bool,
}

impl<'a, B: AsRef<[u8]>> Frames<'a, B> {
    /// Frames after `start`, which must be where a block begins. Frames before `from` are verified and left out. With
    /// `until`, the chain must reach exactly that head; without, it may end wherever a group ends.
    pub(crate) fn new(blocks: BlockIter<'a, B>, start: Tip, from: Position, until: Option<Head>) -> Self {
        Self {
            blocks,
            hasher: RecordHasher::default(),
            tip: start,
            first_term: None,
            from,
            until,
            open: None,
            partial: Vec::new(),
            next_fragment: 0,
            group_end: None,
            is_part: false,
            done: false,
        }
    }

    /// Frames of some blocks out of the middle of a chain, inside a group that continues to `group_end`. They may end
    /// anywhere between two records.
    pub(crate) fn part(
        blocks: BlockIter<'a, B>,
        start: Tip,
        from: Position,
        until: Option<Head>,
        group_end: Option<Position>,
    ) -> Self {
        Self { group_end, is_part: true, ..Self::new(blocks, start, from, until) }
    }

    /// Returns the end of the verified chain.
    pub(crate) const fn tip(&self) -> Tip {
        self.tip
    }

    /// Returns the term of the first record that was verified.
    pub(crate) const fn first_term(&self) -> Option<Term> {
        self.first_term
    }

    /// Leaves out frames before this position.
    pub(crate) const fn skip_to(&mut self, from: Position) {
        self.from = from;
    }

    fn damage<T>(&self, reason: Damage) -> Result<T, Error> {
        Err(Error::damaged(self.tip.head.position.next(), reason))
    }

    /// Moves to the next block. `false` at the end of the chain.
    fn next_block(&mut self) -> Result<bool, Error> {
        let at = self.tip.head.position.next();
        if let Some(until) = self.until
            && self.tip.head.position >= until.position
        {
            return if self.tip.head == until { Ok(false) } else { Err(Error::damaged(at, Damage::Chain)) };
        }
        let (key, bytes) = match self.blocks.next() {
            Some(Ok(block)) => block,
            Some(Err(Error::Engine { message, .. })) => return self.damage(Damage::Engine(message)),
            Some(Err(other)) => return Err(other),
            None => {
                let group_is_cut = self.group_end.is_some_and(|end| end != self.tip.head.position);
                let ends_early = self.next_fragment != 0 || (!self.is_part && (self.until.is_some() || group_is_cut));
                return if ends_early { self.damage(Damage::Missing) } else { Ok(false) };
            }
        };
        let expected = BlockKey { position: at, fragment: self.next_fragment };
        if key > expected {
            return self.damage(Damage::Missing);
        }
        let header = Header::read(bytes.as_ref()).map_err(|fault| fault.at(at))?;
        let end = HEADER_BYTES + header.payload_bytes;
        if key < expected || header.key() != key || end != bytes.as_ref().len() {
            return self.damage(Damage::Misplaced("block"));
        }
        if header.previous != self.tip.head.digest {
            return self.damage(Damage::Chain);
        }
        let group_goes_on = self.group_end.is_some_and(|end| end > self.tip.head.position);
        let group_fits = if group_goes_on {
            self.group_end == Some(header.group_end)
        } else {
            header.group_first == at || self.group_end.is_none()
        };
        if !group_fits || header.group_first > at || header.group_end < at || header.bytes_before != self.tip.body_bytes
        {
            return self.damage(Damage::Misplaced("group"));
        }
        let fragment_fits = match header.kind {
            BlockKind::Records => header.fragment == 0 && header.fragments == 1,
            BlockKind::Fragment => header.fragment < header.fragments,
            BlockKind::Checkpoint => false,
        };
        if !fragment_fits || (self.next_fragment > 0 && header.kind != BlockKind::Fragment) {
            return self.damage(Damage::Misplaced("fragment"));
        }
        self.group_end = Some(header.group_end);
        let unpacked = match header.entries(bytes.as_ref()) {
            Ok(Cow::Owned(entries)) => Some(entries),
            Ok(Cow::Borrowed(_)) => None,
            Err(reason) => return self.damage(reason),
        };
        self.open = Some(Open { header, bytes, unpacked, offset: 0 });
        Ok(true)
    }

    /// Returns the next frame at or after `from`.
    fn step(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            let Some(open) = self.open.as_mut() else {
                if self.next_block()? {
                    continue;
                }
                return Ok(None);
            };
            let header = open.header;
            let (entries, offset) = open.entries();
            let rest = entries.get(*offset..).unwrap_or_default();
            if rest.is_empty() {
                self.open = None;
                continue;
            }
            // The caller's head may lie inside a block when only a good prefix is wanted.
            if self.until.is_some_and(|until| self.tip.head.position >= until.position) {
                self.open = None;
                continue;
            }
            let position = self.tip.head.position.next();
            let (entry, used) = read_entry(rest).map_err(|reason| Error::damaged(position, reason))?;
            *offset += used;
            if position > header.group_end {
                return self.damage(Damage::Misplaced("group"));
            }
            if entry.term < self.tip.term {
                return self.damage(Damage::Misplaced("term goes backwards"));
            }
            let is_fragment = header.kind == BlockKind::Fragment;
            if is_fragment {
                self.partial.extend_from_slice(entry.bytes);
                self.next_fragment = header.fragment + 1;
                if self.next_fragment < header.fragments {
                    continue;
                }
                self.next_fragment = 0;
            }
            let body = if is_fragment { &self.partial[..] } else { entry.bytes };
            let term = entry.term;
            let digest = self.hasher.digest(&self.tip.head.digest, position, term, body);
            let body_bytes = self.tip.body_bytes.saturating_add(body.len() as u64);
            if position == header.group_end && tag(&digest) != header.group_tag {
                return self.damage(Damage::Chain);
            }
            self.first_term = self.first_term.or(Some(term));
            let frame = (position >= self.from).then(|| Frame { position, term, digest, body: body.to_vec() });
            self.tip = Tip { head: Head { position, digest }, term, body_bytes };
            self.partial.clear();
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}

impl<B: AsRef<[u8]>> Iterator for Frames<'_, B> {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.step().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Frames from `from` on, starting at the block that holds it; about `records` of them will be read.
pub(crate) fn frames_from<B: Blocks>(
    blocks: &B,
    base: Tip,
    from: Position,
    until: Option<Head>,
    records: u64,
) -> Result<Reader<'_, B::Bytes>, Error> {
    let mut start = base;
    if from > base.head.position.next() {
        match blocks.last_at(BlockKey::last(from))? {
            Some((key, bytes)) if key.position > base.head.position => {
                let header = Header::read(bytes.as_ref()).map_err(|fault| fault.at(key.position))?;
                if header.key() != key {
                    return Err(Error::damaged(key.position, Damage::Misplaced("block")));
                }
                start = Tip::before(&header);
            }
            _ => return Err(Error::damaged(base.head.position.next(), Damage::Missing)),
        }
    }
    let first = BlockKey::first(start.head.position.next());
    Ok(Reader::new(blocks.scan(first), start, from, until, records))
}

/// Verifies everything after `base`; gives how far it is good.
pub(crate) fn verify_all<B: Blocks>(blocks: &B, base: Tip) -> Result<(Tip, Result<(), Error>), Error> {
    let last = blocks.last_at(BlockKey::last(Position(u64::MAX)))?;
    let records = last.map_or(0, |(key, _)| key.position.0.saturating_sub(base.head.position.0));
    Ok(frames_from(blocks, base, base.head.position.next(), None, records)?.finish())
}

/// Returns the head and term of the checkpoint an epoch begins with, without reading its state.
pub(crate) fn base_of<B: Blocks>(blocks: &B) -> Result<Option<Tip>, Error> {
    let Some((key, bytes)) = blocks.last_at(BlockKey::last(Position(0)))? else { return Ok(None) };
    let header = Header::read(bytes.as_ref()).map_err(|fault| fault.at(Position(0)))?;
    if header.kind != BlockKind::Checkpoint || header.key() != key {
        return Err(Error::damaged(Position(0), Damage::Misplaced("checkpoint")));
    }
    let damaged = |reason| Error::damaged(header.first, reason);
    let entries = header.entries(bytes.as_ref()).map_err(damaged)?;
    let (entry, _) = read_entry(&entries).map_err(damaged)?;
    let head = Head { position: header.first, digest: header.previous };
    Ok(Some(Tip { head, term: entry.term, body_bytes: 0 }))
}

/// Returns a hash of a whole checkpoint, against which it is checked.
pub(crate) fn checkpoint_digest(checkpoint: &Checkpoint) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&checkpoint.position.0.to_le_bytes());
    hasher.update(&checkpoint.term.0.to_le_bytes());
    hasher.update(&checkpoint.digest.0);
    hasher.update(&checkpoint.state);
    *hasher.finalize().as_bytes()
}

/// Returns the blocks of a checkpoint: its own digest, then its state.
pub(crate) fn checkpoint_blocks(checkpoint: &Checkpoint) -> Result<Vec<Block>, Error> {
    if checkpoint.state.len() > MAX_STATE_BYTES {
        let (bytes, limit_bytes) = (checkpoint.state.len() as u64, MAX_STATE_BYTES as u64);
        return Err(Error::TooBig { what: "the checkpoint's state", bytes, limit_bytes });
    }
    let mut stream = Vec::with_capacity(32 + checkpoint.state.len());
    stream.extend_from_slice(&checkpoint_digest(checkpoint));
    stream.extend_from_slice(&checkpoint.state);
    let at = Head { position: checkpoint.position, digest: checkpoint.digest };
    Ok(encode_checkpoint(at, checkpoint.term, &stream))
}

/// Reads the checkpoint back and verifies it against its own digest and against `base`.
pub(crate) fn read_checkpoint<B: Blocks>(blocks: &B, base: &Tip) -> Result<Checkpoint, Error> {
    let at = base.head.position;
    let mut stream = Vec::new();
    let (mut next, mut count) = (0, 1);
    for item in blocks.scan(BlockKey::first(Position(0))) {
        let (key, bytes) = item?;
        if key.position != Position(0) {
            break;
        }
        let header = Header::read(bytes.as_ref()).map_err(|fault| fault.at(at))?;
        if header.kind != BlockKind::Checkpoint || header.key() != key || header.fragment != next {
            return Err(Error::damaged(at, Damage::Misplaced("checkpoint")));
        }
        let damaged = |reason| Error::damaged(at, reason);
        let entries = header.entries(bytes.as_ref()).map_err(damaged)?;
        let (entry, _) = read_entry(&entries).map_err(damaged)?;
        stream.extend_from_slice(entry.bytes);
        next += 1;
        count = header.fragments;
    }
    if next != count || stream.len() < 32 {
        return Err(Error::damaged(at, Damage::Missing));
    }
    let state = stream.split_off(32);
    let checkpoint = Checkpoint { position: at, term: base.term, digest: base.head.digest, state };
    if stream != checkpoint_digest(&checkpoint) {
        return Err(Error::damaged(at, Damage::Checkpoint));
    }
    Ok(checkpoint)
}
