//! The cached state of a log and the records after it, read without the records before.
//!
//! Owns the order in which the parts of a data file are read: those with the newest records first, until they link the cached state to
//! the stored head. It writes nothing in the log's directory and never asks the storage engine. What does not link up is no error here:
//! reading the whole log shows what is wrong with it. Tests: `tests/recent.rs`, and at the end of this file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;

use super::engine::data_file;
use super::layout::{Layout, read_head};
use super::medium::Direct;
use super::raw::{Chosen, RawBlocks, RawScan};
use crate::block::{BlockKey, Header, MAGIC};
use crate::chain::{Frames, Tip};
use crate::digest::Head;
use crate::error::Error;
use crate::jsonl::read_checkpoint_line;
use crate::store::Blocks as _;
use crate::types::{Checkpoint, Frame};

/// Size of the parts that a data file is read in, in bytes. It is that of sled's segments, which no block crosses; with another one blocks
/// would be missed, and the whole log would be read.
const PART_BYTES: u64 = 512 << 10;
/// Number of bytes at the beginning of a part that show which records are in it.
const PROBE_BYTES: usize = 16 << 10;

/// A cached state, and the records after it.
pub struct Recent {
    state: Checkpoint,
    blocks: RawBlocks,
    start: Tip,
    until: Option<Head>,
}

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recent").field("position", &self.state.position).finish_non_exhaustive()
    }
}

impl Recent {
    /// Returns the state.
    pub const fn state(&self) -> &Checkpoint {
        &self.state
    }

    /// Returns the records after it, verified, in order: all that were acknowledged before [`open`] was called.
    pub fn frames(&self) -> impl Iterator<Item = Result<Frame, Error>> + '_ {
        let from = self.start.head.position.next();
        Frames::new(self.blocks.scan(BlockKey::first(from)), self.start, from, self.until)
    }
}

/// Reads the end of the log in `dir`, even while a writer has it open. `None` if no state is cached that the records link up with.
pub(super) fn open(dir: &Path) -> Option<Recent> {
    read(dir).ok().flatten().map(|(recent, _)| recent)
}

/// Returns the end of a log, and the number of parts of its data file that were read.
fn read(dir: &Path) -> Result<Option<(Recent, usize)>, Error> {
    let layout = Layout::new(dir, Arc::new(Direct));
    let has_writer = layout.has_writer();
    // The head before the records, which are stored first.
    let stored = read_head(dir)?.map(|stored| stored.head);
    let state = layout.cached_state()?.and_then(|bytes| read_checkpoint_line(&bytes));
    let (Some(live), Some(stored), Some(state)) = (layout.live()?, stored, state) else { return Ok(None) };
    if stored.position < state.position {
        return Ok(None);
    }
    let path = data_file(&layout.epoch_dir(live));
    let cached = Head { position: state.position, digest: state.digest };
    let Some((chosen, parts)) = link(&path, cached, stored)? else { return Ok(None) };
    // Without a writer, a head that is behind the records is one that a power failure left behind.
    let until = has_writer.then_some(stored);
    let start = match chosen.blocks.last_at(BlockKey::last(cached.position.next()))? {
        _ if chosen.end == cached.position => Tip { head: cached, term: state.term, body_bytes: 0 },
        Some((key, bytes)) => {
            let header = Header::read(&bytes).map_err(|fault| fault.at(key.position))?;
            Tip { head: cached, term: state.term, ..Tip::before(&header) }
        }
        None => return Ok(None),
    };
    Ok(Some((Recent { state, blocks: chosen.blocks, start, until }, parts)))
}

/// Reads the newest parts of a data file until there are blocks that lead from one head to another. Returns them with all that follow, and
/// the number of parts.
fn link(path: &Path, from: Head, to: Head) -> Result<Option<(Chosen, usize)>, Error> {
    let failed = |error| Error::io("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let parts = newest_first(&file).map_err(failed)?;
    let mut scan = RawScan::new(&std::env::temp_dir())?;
    let (mut count, mut next) = (0, 1);
    for part in &parts {
        scan.read_part(&file, *part, PART_BYTES).map_err(failed)?;
        count += 1;
        // Looking for a chain takes time in proportion to the blocks read so far.
        if count < next && count < parts.len() {
            continue;
        }
        next = count.saturating_mul(2);
        let (chosen, read) = scan.choose_after(from, to)?;
        if !chosen.suspect && chosen.end >= to.position {
            let is_linked = chosen.end > from.position || from == to;
            return Ok(is_linked.then_some((chosen, count)));
        }
        scan = read;
    }
    Ok(None)
}

/// Returns the offsets of the parts of a data file, those that begin with the newest records first.
fn newest_first(file: &File) -> io::Result<Vec<u64>> {
    let length = file.metadata()?.len();
    let step = usize::try_from(PART_BYTES).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    for offset in (0..length).step_by(step) {
        parts.push((newest_in(file, offset)?, offset));
    }
    parts.sort_unstable_by(|one, other| other.cmp(one));
    Ok(parts.into_iter().map(|(_, offset)| offset).collect())
}

/// Returns the last position among the blocks at the beginning of a part; 0 if there are none.
fn newest_in(file: &File, offset: u64) -> io::Result<u64> {
    let mut bytes = vec![0; PROBE_BYTES];
    let count = file.read_at(&mut bytes, offset)?;
    bytes.truncate(count);
    let positions = memmem::find_iter(&bytes, &MAGIC).filter_map(|at| {
        let header = Header::read(bytes.get(at..)?).ok()?;
        Some(header.first.0)
    });
    Ok(positions.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use model::Term;

    use super::*;
    use crate::{EventLog as _, NewRecord, Options, SledLog};

    #[test]
    fn of_a_long_log_few_parts_are_read() {
        let place = tempfile::tempdir().unwrap();
        let mut log = SledLog::open(place.path(), Options::default()).unwrap();
        let append = |log: &mut SledLog, records: u64| {
            for n in 0..records {
                // Bodies that cannot be packed.
                let digest = blake3::hash(&n.to_le_bytes()).to_hex();
                let body = format!("{{\"n\":\"{digest}{digest}{digest}\"}}").into_bytes();
                let group: Vec<NewRecord<'_>> = (0..8).map(|_| NewRecord { term: Term(1), body: &body }).collect();
                log.append(&group).unwrap();
            }
        };
        append(&mut log, 12_000);
        let head = log.head();
        let state = Checkpoint { position: head.position, term: Term(1), digest: head.digest, state: b"{}".to_vec() };
        log.cache_state(state).unwrap();
        append(&mut log, 50);
        drop(log);
        let (recent, read) = read(place.path()).unwrap().unwrap();
        assert_eq!(recent.frames().map(Result::unwrap).count(), 400);
        let layout = Layout::new(place.path(), Arc::new(Direct));
        let path = data_file(&layout.epoch_dir(layout.live().unwrap().unwrap()));
        let parts = std::fs::metadata(path).unwrap().len().div_ceil(PART_BYTES);
        assert!(parts >= 10 && read <= 2, "{read} of {parts}");
    }
}
