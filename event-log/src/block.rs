//! Blocks: the values in a storage engine, and their layout.
//!
//! Owns encoding and decoding of one block; knows nothing of chains or engines. A commit group becomes one or more
//! blocks of at most [`MAX_BLOCK_BYTES`]; a record too large for one block becomes fragments of its own. Every block
//! describes itself (which group it is part of, which digest it follows), so that a log can be read back from raw bytes
//! without the engine that stored them. `docs/log-format.md` is the byte-exact description. Tests: `block/tests.rs`.

use std::borrow::Cow;

use model::{Position, Term};

use crate::digest::{Digest, Head};
use crate::error::{Damage, Error};
use crate::pack::{pack, unpack};

/// The newest format this build writes and reads. Blocks that are not packed are of format 1.
pub const FORMAT: u16 = 2;
/// Largest block before it is packed, header included. Larger values would reach files that the storage engine never syncs.
pub const MAX_BLOCK_BYTES: usize = 6 * 1024;
/// Largest body of a record.
pub const MAX_BODY_BYTES: usize = 16 << 20;
/// Largest sum of the bodies of one commit group.
pub(crate) const MAX_GROUP_BYTES: usize = 64 << 20;
/// Largest checkpoint state.
pub(crate) const MAX_STATE_BYTES: usize = 1 << 30;

/// First bytes of every block. 0xF5 occurs in no UTF-8 text, so no JSON body contains them.
pub(crate) const MAGIC: [u8; 4] = [0xF5, b'T', b'Y', b'B'];
/// Bytes of a block header.
pub(crate) const HEADER_BYTES: usize = 96;
const ENTRY_BYTES: usize = 16;
const PAYLOAD_MAX: usize = MAX_BLOCK_BYTES - HEADER_BYTES;
const FRAGMENT_MAX: usize = PAYLOAD_MAX - ENTRY_BYTES;

/// Key of a stored block: its first position, and the fragment's number. Position 0 holds the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// Position of the block's first record; 0 for the checkpoint.
    pub position: Position,
    /// Index of the fragment; 0 for a block of whole records.
    pub fragment: u32,
}

impl BlockKey {
    /// Returns the key of the first block that may hold this position.
    pub(crate) const fn first(position: Position) -> Self {
        Self { position, fragment: 0 }
    }

    /// Returns a key that sorts after every block starting at this position.
    pub(crate) const fn last(position: Position) -> Self {
        Self { position, fragment: u32::MAX }
    }

    /// Bytes that sort as keys do.
    pub(crate) fn to_bytes(self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..8].copy_from_slice(&self.position.0.to_be_bytes());
        out[8..].copy_from_slice(&self.fragment.to_be_bytes());
        out
    }

    /// Reads a stored key.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (position, fragment) = bytes.split_first_chunk::<8>()?;
        let fragment = <[u8; 4]>::try_from(fragment).ok()?;
        Some(Self { position: Position(u64::from_be_bytes(*position)), fragment: u32::from_be_bytes(fragment) })
    }
}

/// An encoded block and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its place.
    pub key: BlockKey,
    /// Its bytes, header included.
    pub bytes: Vec<u8>,
}

/// Content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// Whole records.
    Records,
    /// One fragment of one record.
    Fragment,
    /// One fragment of the checkpoint.
    Checkpoint,
}

/// A block's description of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its content.
    pub(crate) kind: BlockKind,
    /// Its entries are packed.
    pub(crate) packed: bool,
    /// Bytes after the header.
    pub(crate) payload_bytes: usize,
    /// Position of its first record, or the checkpoint's position.
    pub(crate) first: Position,
    /// First position of its commit group.
    pub(crate) group_first: Position,
    /// Last position of its commit group.
    pub(crate) group_end: Position,
    /// First 8 bytes of the digest at `group_end`: groups that held the same positions differ in it.
    pub(crate) group_tag: u64,
    /// Index of this fragment.
    pub(crate) fragment: u32,
    /// Number of fragments; 1 for whole records.
    pub(crate) fragments: u32,
    /// Bytes of all bodies in this epoch before `first`.
    pub(crate) bytes_before: u64,
    /// Digest of the record before `first`; of the record at the checkpoint for a checkpoint.
    pub(crate) previous: Digest,
}

/// Returns the tag of a digest: its first 8 bytes.
pub(crate) fn tag(digest: &Digest) -> u64 {
    u64_at(&digest.0, 0)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u16::from_le_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}

impl Header {
    /// Reads the header of a block; the block may be longer than what the header says.
    pub(crate) fn read(block: &[u8]) -> Result<Self, HeaderFault> {
        let Some((bytes, rest)) = block.split_first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderFault::Damage(Damage::Header("too short")));
        };
        if bytes[..4] != MAGIC {
            return Err(HeaderFault::Damage(Damage::Header("no magic")));
        }
        if header_crc(bytes) != u32_at(bytes, 8) {
            return Err(HeaderFault::Damage(Damage::Header("checksum mismatch")));
        }
        let format = u16_at(bytes, 4);
        if format > FORMAT {
            return Err(HeaderFault::TooNew(format));
        }
        let kind = match bytes[6] {
            1 => BlockKind::Records,
            2 => BlockKind::Fragment,
            3 => BlockKind::Checkpoint,
            _ => return Err(HeaderFault::Damage(Damage::Header("unknown kind"))),
        };
        let packed = match bytes[7] {
            0 => false,
            1 if format > 1 => true,
            _ => return Err(HeaderFault::Damage(Damage::Header("unknown packing"))),
        };
        let header = Self {
            kind,
            packed,
            payload_bytes: usize::try_from(u32_at(bytes, 12)).unwrap_or(usize::MAX),
            first: Position(u64_at(bytes, 16)),
            group_first: Position(u64_at(bytes, 24)),
            group_end: Position(u64_at(bytes, 32)),
            group_tag: u64_at(bytes, 40),
            fragment: u32_at(bytes, 48),
            fragments: u32_at(bytes, 52),
            bytes_before: u64_at(bytes, 56),
            previous: Digest(bytes.last_chunk().copied().unwrap_or_default()),
        };
        if header.payload_bytes > rest.len() || header.payload_bytes > PAYLOAD_MAX {
            return Err(HeaderFault::Damage(Damage::Header("cut short")));
        }
        Ok(header)
    }

    /// Writes the header into the first bytes of its block.
    fn write(&self, block: &mut [u8]) {
        let Some(bytes) = block.first_chunk_mut::<HEADER_BYTES>() else { return };
        bytes[..4].copy_from_slice(&MAGIC);
        let format: u16 = if self.packed { 2 } else { 1 };
        bytes[4..6].copy_from_slice(&format.to_le_bytes());
        bytes[6] = match self.kind {
            BlockKind::Records => 1,
            BlockKind::Fragment => 2,
            BlockKind::Checkpoint => 3,
        };
        bytes[7] = self.packed.into();
        bytes[12..16].copy_from_slice(&u32::try_from(self.payload_bytes).unwrap_or(u32::MAX).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.group_first.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.group_end.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.group_tag.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.fragment.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.fragments.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.bytes_before.to_le_bytes());
        bytes[64..].copy_from_slice(&self.previous.0);
        let crc = header_crc(bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the entries of its block, one after the other.
    pub(crate) fn entries<'a>(&self, block: &'a [u8]) -> Result<Cow<'a, [u8]>, Damage> {
        let stored = block.get(HEADER_BYTES..HEADER_BYTES + self.payload_bytes).ok_or(Damage::Header("cut short"))?;
        if self.packed { unpack(stored, PAYLOAD_MAX).map(Cow::Owned) } else { Ok(Cow::Borrowed(stored)) }
    }

    /// Returns the key such a block is stored under.
    pub(crate) const fn key(&self) -> BlockKey {
        match self.kind {
            BlockKind::Records | BlockKind::Fragment => BlockKey { position: self.first, fragment: self.fragment },
            BlockKind::Checkpoint => BlockKey { position: Position(0), fragment: self.fragment },
        }
    }
}

/// Returns the checksum of a header: everything but the checksum itself.
fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

/// Reason for rejecting a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Not as written.
    Damage(Damage),
    /// Intact, and of a newer format.
    TooNew(u16),
}

impl HeaderFault {
    /// Returns the error for a log that should have this block at `at`.
    pub(crate) fn at(self, at: Position) -> Error {
        match self {
            Self::Damage(reason) => Error::damaged(at, reason),
            Self::TooNew(needed) => Error::TooNew { needed, have: FORMAT },
        }
    }
}

/// One record, or one fragment of one, inside a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// Term of the record.
    pub(crate) term: Term,
    /// Its body, or a part of it.
    pub(crate) bytes: &'a [u8],
}

/// Reads the entry at the start of `payload`; gives it and the number of bytes it takes.
pub(crate) fn read_entry(payload: &[u8]) -> Result<(Entry<'_>, usize), Damage> {
    let Some((head, rest)) = payload.split_first_chunk::<ENTRY_BYTES>() else {
        return Err(Damage::Misplaced("a frame is cut short"));
    };
    let length = usize::try_from(u32_at(head, 4)).unwrap_or(usize::MAX);
    // The length itself may be what is damaged, which reads as a frame that is cut short: a checksum fault all the same.
    let bytes = rest.get(..length).ok_or(Damage::Checksum)?;
    if crc32c::crc32c_append(crc32c::crc32c(&head[4..]), bytes) != u32_at(head, 0) {
        return Err(Damage::Checksum);
    }
    Ok((Entry { term: Term(u64_at(head, 8)), bytes }, ENTRY_BYTES + length))
}

fn write_entry(block: &mut Vec<u8>, term: Term, bytes: &[u8]) {
    let mut head = [0; ENTRY_BYTES];
    head[4..8].copy_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    head[8..].copy_from_slice(&term.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[4..]), bytes);
    head[..4].copy_from_slice(&crc.to_le_bytes());
    block.extend_from_slice(&head);
    block.extend_from_slice(bytes);
}

/// A record whose place in the chain is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    /// Digest of the record before it.
    pub(crate) previous: Digest,
    /// Its term.
    pub(crate) term: Term,
    /// Its body.
    pub(crate) body: &'a [u8],
}

/// Lays one commit group out in blocks. `first` is its first position, `end` its head, `bytes_before` the bytes of all
/// bodies before it.
pub(crate) fn encode_group(first: Position, end: Head, bytes_before: u64, records: &[Placed<'_>]) -> Vec<Block> {
    let mut layout = Layout { group_first: first, end, blocks: Vec::new(), open: None };
    let (mut position, mut before) = (first, bytes_before);
    for record in records {
        if record.body.len() > FRAGMENT_MAX {
            layout.close();
            let header = layout.header(BlockKind::Fragment, position, before, record.previous);
            write_fragments(&header, record.term, record.body, &mut layout.blocks);
        } else {
            layout.put(position, before, record);
        }
        before = before.saturating_add(record.body.len() as u64);
        position = position.next();
    }
    layout.close();
    layout.blocks
}

struct Layout {
    group_first: Position,
    end: Head,
    blocks: Vec<Block>,
    open: Option<(Header, Vec<u8>)>,
}

impl Layout {
    fn header(&self, kind: BlockKind, first: Position, bytes_before: u64, previous: Digest) -> Header {
        Header {
            kind,
            packed: false,
            payload_bytes: 0,
            first,
            group_first: self.group_first,
            group_end: self.end.position,
            group_tag: tag(&self.end.digest),
            fragment: 0,
            fragments: 1,
            bytes_before,
            previous,
        }
    }

    fn put(&mut self, position: Position, bytes_before: u64, record: &Placed<'_>) {
        let size = ENTRY_BYTES + record.body.len();
        if self.open.as_ref().is_some_and(|(_, bytes)| bytes.len() + size > MAX_BLOCK_BYTES) {
            self.close();
        }
        let header = self.header(BlockKind::Records, position, bytes_before, record.previous);
        let (_, bytes) = self.open.get_or_insert_with(|| {
            let mut bytes = Vec::with_capacity(HEADER_BYTES + size);
            bytes.resize(HEADER_BYTES, 0);
            (header, bytes)
        });
        write_entry(bytes, record.term, record.body);
    }

    fn close(&mut self) {
        if let Some((header, bytes)) = self.open.take() {
            self.blocks.push(seal(header, bytes));
        }
    }
}

fn seal(mut header: Header, mut bytes: Vec<u8>) -> Block {
    if let Some(packed) = bytes.get(HEADER_BYTES..).and_then(pack) {
        bytes.truncate(HEADER_BYTES);
        bytes.extend_from_slice(&packed);
        bytes.shrink_to_fit();
        header.packed = true;
    }
    header.payload_bytes = bytes.len().saturating_sub(HEADER_BYTES);
    header.write(&mut bytes);
    Block { key: header.key(), bytes }
}

fn write_fragments(like: &Header, term: Term, body: &[u8], blocks: &mut Vec<Block>) {
    let fragments = u32::try_from(body.len().div_ceil(FRAGMENT_MAX)).unwrap_or(u32::MAX);
    for (fragment, part) in (0..fragments).zip(body.chunks(FRAGMENT_MAX)) {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES + part.len());
        bytes.resize(HEADER_BYTES, 0);
        write_entry(&mut bytes, term, part);
        blocks.push(seal(Header { fragment, fragments, ..*like }, bytes));
    }
}

/// Lays a checkpoint's bytes out in blocks.
pub(crate) fn encode_checkpoint(at: Head, term: Term, bytes: &[u8]) -> Vec<Block> {
    let like = Header {
        kind: BlockKind::Checkpoint,
        packed: false,
        payload_bytes: 0,
        first: at.position,
        group_first: at.position,
        group_end: at.position,
        group_tag: tag(&at.digest),
        fragment: 0,
        fragments: 1,
        bytes_before: 0,
        previous: at.digest,
    };
    let mut blocks = Vec::new();
    write_fragments(&like, term, bytes, &mut blocks);
    blocks
}

#[cfg(test)]
mod tests;
