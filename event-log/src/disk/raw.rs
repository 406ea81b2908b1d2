//! Blocks read back from raw bytes, without the storage engine.
//!
//! Owns the raw scan: every block found in a data file, live or superseded, copied to a file of our own, and the reading of
//! those that [`super::links`] chooses. It never writes to what it reads. This is how damaged logs are judged before the engine
//! gets to "repair" them, how logs are read while a writer has them, and how records are saved. Blocks describe
//! themselves (group, tag, previous digest), so links between groups need no hashing; contents are verified afterwards by
//! [`crate::chain`]. Tests: `tests/damage.rs`, `tests/copy.rs`, and at the end of this file.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use memchr::memmem;
use model::Position;

use super::links::{Node, RawBlock, nodes, pick};
use crate::block::{Block, BlockKey, HEADER_BYTES, Header, HeaderFault, MAGIC, MAX_BLOCK_BYTES, tag};
use crate::digest::Head;
use crate::error::Error;
use crate::store::{BlockIter, Blocks, Store};

const WINDOW_BYTES: usize = 1 << 20;

/// Every block found so far. Blocks never change, so passes over a growing file may be combined.
pub(super) struct RawScan {
    copy: File,
    copied: u64,
    found: Vec<RawBlock>,
    newer: Option<u16>,
}

/// Blocks chosen from a scan.
pub(super) struct Chosen {
    pub(super) blocks: RawBlocks,
    /// Something is missing or does not match its checksum: the chain must be read to say where it breaks.
    pub(super) suspect: bool,
    /// Complete groups exist beyond a gap.
    pub(super) beyond_gap: bool,
    /// Last position of the linked groups.
    pub(super) end: Position,
}

impl RawScan {
    /// Makes an empty scan that copies to an unnamed file in `dir`, or in the system's directory where that is not
    /// writable.
    pub(super) fn new(dir: &Path) -> Result<Self, Error> {
        let copy = tempfile::tempfile_in(dir).or_else(|_| tempfile::tempfile());
        copy.map(Self::into_file).map_err(|e| Error::io("make a temporary file in", dir, e))
    }

    /// Makes an empty scan that copies to this empty file.
    pub(super) const fn into_file(copy: File) -> Self {
        Self { copy, copied: 0, found: Vec::new(), newer: None }
    }

    /// Reads a data file from end to end.
    pub(super) fn read(&mut self, path: &Path) -> Result<(), Error> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        self.read_from(file).map_err(|e| Error::io("copy", path, e))
    }

    /// Reads a part of a data file: up to `length` bytes from `offset` on.
    pub(super) fn read_part(&mut self, mut file: &File, offset: u64, length: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(offset))?;
        self.read_from(file.take(length))
    }

    fn read_from(&mut self, mut file: impl io::Read) -> io::Result<()> {
        let finder = memmem::Finder::new(&MAGIC);
        let mut out = BufWriter::with_capacity(WINDOW_BYTES, self.copy.try_clone()?);
        let mut window = Vec::with_capacity(WINDOW_BYTES + MAX_BLOCK_BYTES);
        loop {
            let more = (&mut file).take(WINDOW_BYTES as u64).read_to_end(&mut window)?;
            let mut at = 0;
            while let Some(found) = window.get(at..).and_then(|rest| finder.find(rest)) {
                at += found;
                let rest = window.get(at..).unwrap_or_default();
                if more > 0 && rest.len() < MAX_BLOCK_BYTES {
                    break; // the block may continue in the next window
                }
                at += self.take(rest, &mut out)?;
            }
            if more == 0 {
                break;
            }
            // Keep what may be the beginning of a block.
            let undecided = at.max(window.len().saturating_sub(MAX_BLOCK_BYTES));
            window.drain(..undecided);
        }
        out.flush()
    }

    /// Takes the block at the start of `bytes`, if it is one; gives how far to continue.
    fn take(&mut self, bytes: &[u8], out: &mut impl io::Write) -> io::Result<usize> {
        match Header::read(bytes) {
            Ok(header) => {
                let block = bytes.get(..HEADER_BYTES + header.payload_bytes).unwrap_or_default();
                let found = RawBlock::read(block, &header, self.copied);
                out.write_all(block)?;
                self.copied += block.len() as u64;
                self.found.push(found);
                // After a damaged payload the next block may begin anywhere.
                Ok(if found.sound { block.len() } else { HEADER_BYTES })
            }
            Err(HeaderFault::TooNew(format)) => {
                self.newer = self.newer.max(Some(format));
                Ok(MAGIC.len())
            }
            Err(HeaderFault::Damage(_)) => Ok(MAGIC.len()),
        }
    }

    /// Chooses the chain: from the checkpoint or the beginning, group by group, through the stored head if that can be
    /// reached, as far as possible.
    pub(super) fn choose(self, stored: Option<Head>) -> Result<(Chosen, Self), Error> {
        self.choose_from(None, stored)
    }

    /// Chooses the chain after a head in the same way; what comes before that is left out.
    pub(super) fn choose_after(self, head: Head, stored: Head) -> Result<(Chosen, Self), Error> {
        self.choose_from(Some(head), Some(stored))
    }

    fn choose_from(mut self, after: Option<Head>, stored: Option<Head>) -> Result<(Chosen, Self), Error> {
        if let Some(needed) = self.newer {
            return Err(Error::TooNew { needed, have: crate::block::FORMAT });
        }
        // Copies of one block sort together, sound ones first.
        self.found.sort_unstable_by_key(|f| (f.group(), f.key, !f.sound));
        self.found.dedup_by_key(|f| (f.group(), f.key));
        let nodes = nodes(&self.found);
        let (records, checkpoints): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| !node.checkpoint);
        let base = checkpoints.last().copied().filter(|_| after.is_none());
        let begin = after.map(|head| (head.position.0, tag(&head.digest)));
        let start = begin.or_else(|| base.map(|node| (node.end, node.tag))).unwrap_or_default();
        let picked = pick(&records, start, stored);

        let mut index = Vec::new();
        let mut suspect = false;
        let mut add = |node: &Node| {
            for found in self.found.get(node.range.clone()).unwrap_or_default() {
                suspect |= !found.sound;
                index.push((found.key, found.offset, found.length));
            }
        };
        base.into_iter().for_each(&mut add);
        picked.chain.iter().for_each(|node| add(node));
        // Part of a group that was acknowledged: what can be read of it counts.
        let torn = records.iter().filter(|node| {
            !node.complete && (node.first, node.previous) == (picked.end.0.saturating_add(1), picked.end.1)
        });
        let torn = torn.max_by_key(|node| node.range.len());
        let covered = stored.map_or(0, |head| head.position.0);
        if let Some(node) = torn.filter(|node| node.first <= covered) {
            add(node);
            suspect = true;
        }
        let beyond_gap = records.iter().any(|node| node.complete && node.first > picked.end.0.saturating_add(1));
        suspect |= beyond_gap || picked.end.0 < covered || base.is_some_and(|node| !node.complete);
        index.sort_unstable_by_key(|(key, ..)| *key);
        let file = self.copy.try_clone().map_err(|e| Error::io("share", Path::new("(copy)"), e))?;
        let blocks = RawBlocks { file, index };
        Ok((Chosen { blocks, suspect, beyond_gap, end: Position(picked.end.0) }, self))
    }
}

/// The chosen blocks, in a file of their own. Read-only.
pub(super) struct RawBlocks {
    file: File,
    index: Vec<(BlockKey, u64, u32)>,
}

impl RawBlocks {
    fn load(&self, entry: &(BlockKey, u64, u32)) -> Result<(BlockKey, Vec<u8>), Error> {
        let (key, offset, length) = *entry;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, offset).map_err(|e| Error::io("read", Path::new("(copy)"), e))?;
        Ok((key, bytes))
    }
}

impl Blocks for RawBlocks {
    type Bytes = Vec<u8>;

    fn put(&mut self, _blocks: &[Block]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn sync(&mut self) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn remove(&mut self, _keys: &[BlockKey]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn scan(&self, from: BlockKey) -> BlockIter<'_, Vec<u8>> {
        let start = self.index.partition_point(|(key, ..)| *key < from);
        Box::new(self.index.iter().skip(start).map(|entry| self.load(entry)))
    }

    fn last_at(&self, upto: BlockKey) -> Result<Option<(BlockKey, Vec<u8>)>, Error> {
        let end = self.index.partition_point(|(key, ..)| *key <= upto);
        end.checked_sub(1).and_then(|n| self.index.get(n)).map(|entry| self.load(entry)).transpose()
    }

    fn disk_bytes(&self) -> u64 {
        self.index.iter().map(|(.., length)| u64::from(*length)).sum()
    }
}

/// A read-only store over chosen blocks.
pub(super) struct CopyStore {
    pub(super) blocks: RawBlocks,
}

impl Store for CopyStore {
    type Blocks = RawBlocks;

    fn blocks(&self) -> &RawBlocks {
        &self.blocks
    }

    fn blocks_mut(&mut self) -> &mut RawBlocks {
        &mut self.blocks
    }

    fn stored_head(&self) -> Option<Head> {
        None
    }

    fn store_head(&mut self, _head: Head) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn cache_state(&mut self, _pieces: &[Vec<u8>]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn cached_state(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }

    fn new_epoch(&mut self) -> Result<RawBlocks, Error> {
        Err(Error::ReadOnly)
    }

    fn activate(&mut self, _draft: RawBlocks) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Placed, encode_group};
    use crate::digest::{Digest, RecordHasher};
    use model::Term;

    /// Makes the blocks of a group of bodies after `head`, and the group's own head.
    fn group(head: Head, bodies: &[&[u8]]) -> (Vec<Block>, Head) {
        let (mut placed, mut end) = (Vec::new(), head);
        for body in bodies {
            placed.push(Placed { previous: end.digest, term: Term(1), body });
            let position = end.position.next();
            let digest = RecordHasher::default().digest(&end.digest, position, Term(1), body);
            end = Head { position, digest };
        }
        (encode_group(head.position.next(), end, 0, &placed), end)
    }

    fn scan(parts: &[&[Block]], noise: &[u8]) -> RawScan {
        let mut bytes = noise.to_vec();
        for block in parts.iter().copied().flatten() {
            bytes.extend_from_slice(&block.bytes);
            bytes.extend_from_slice(noise);
        }
        let mut scan = RawScan::new(&std::env::temp_dir()).unwrap();
        scan.read_from(&bytes[..]).unwrap();
        scan
    }

    fn keys(chosen: &Chosen) -> Vec<(u64, u32)> {
        chosen.blocks.index.iter().map(|(key, ..)| (key.position.0, key.fragment)).collect()
    }

    #[test]
    fn blocks_are_found_in_any_order_and_across_windows() {
        let (big, small) = (vec![1; 20_000], vec![2; 3_000]);
        let (a, head) = group(Head::default(), &[b"one", b"two"]);
        let (b, head) = group(head, &[&big, &small]);
        let (c, _) = group(head, &[b"end"]);
        let noise = vec![0xF5; WINDOW_BYTES - 1234];
        let (chosen, _) = scan(&[&c, &b, &a, &b], &noise).choose(None).unwrap();
        assert!(!chosen.suspect);
        assert_eq!(chosen.end, Position(5));
        assert_eq!(keys(&chosen), [(1, 0), (3, 0), (3, 1), (3, 2), (3, 3), (4, 0), (5, 0)]);
    }

    #[test]
    fn of_two_groups_at_one_place_the_noted_one_is_taken() {
        let (a, at) = group(Head::default(), &[b"one"]);
        let (lost, _) = group(at, &[b"lost"]);
        let (intact, intact_end) = group(at, &[b"kept"]);
        let (next, next_end) = group(intact_end, &[b"next"]);
        for stored in [None, Some(intact_end), Some(next_end)] {
            let (chosen, _) = scan(&[&a, &lost, &intact, &next], b"").choose(stored).unwrap();
            assert_eq!((chosen.end, chosen.suspect), (Position(3), false), "{stored:?}");
        }
        let (chosen, _) = scan(&[&a, &lost, &intact], b"").choose(Some(intact_end)).unwrap();
        assert_eq!(chosen.blocks.load(&chosen.blocks.index[1]).unwrap().1, intact[0].bytes);
    }

    #[test]
    fn a_torn_group_counts_only_when_it_was_acknowledged() {
        let big = vec![1; 20_000];
        let (a, at) = group(Head::default(), &[b"one"]);
        let (b, end) = group(at, &[b"whole", &big]);
        let torn = [b[0].clone(), b[1].clone(), b[3].clone()];
        let (chosen, _) = scan(&[&a, &torn], b"").choose(Some(at)).unwrap();
        assert_eq!((keys(&chosen), chosen.suspect), (vec![(1, 0)], false));
        let (chosen, _) = scan(&[&a, &torn], b"").choose(Some(end)).unwrap();
        assert!(chosen.suspect && keys(&chosen).contains(&(2, 0)), "the whole record before the torn one is kept");
    }

    #[test]
    fn a_gap_is_noticed_without_a_noted_head() {
        let (a, at) = group(Head::default(), &[b"one"]);
        let (_, mid) = group(at, &[b"two"]);
        let (c, _) = group(mid, &[b"three"]);
        let (chosen, _) = scan(&[&a, &c], b"").choose(None).unwrap();
        assert!(chosen.suspect && chosen.beyond_gap);
        assert_eq!(chosen.end, Position(1));
    }

    #[test]
    fn a_damaged_copy_yields_to_a_sound_one() {
        let (a, end) = group(Head::default(), &[b"one"]);
        let mut bad = a.clone();
        let last = bad[0].bytes.len() - 1;
        bad[0].bytes[last] ^= 1;
        let (chosen, _) = scan(&[&bad, &a], b"").choose(Some(end)).unwrap();
        assert!(!chosen.suspect);
        let (chosen, _) = scan(&[&bad], b"").choose(Some(end)).unwrap();
        assert!(chosen.suspect);
        assert_eq!(chosen.end, Position(1));
        let (chosen, _) = scan(&[], b"").choose(Some(Head { position: Position(1), digest: Digest::ZERO })).unwrap();
        assert!(chosen.suspect);
    }
}
