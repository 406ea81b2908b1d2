//! Copying verified frames into a new epoch, in groups of a size that suits reading.
//!
//! Owns the regrouping; positions, terms and digests stay as they are. Tests: `tests/compaction.rs`, `tests/damage.rs`.

use model::Position;

use crate::block::{Placed, encode_group};
use crate::chain::{Tip, checkpoint_blocks, frames_from, read_checkpoint};
use crate::digest::Head;
use crate::error::Error;
use crate::store::Blocks;
use crate::types::{Checkpoint, Frame};

/// Maximum number of bytes of bodies in one append, and of records.
const GROUP_BYTES: usize = 256 << 10;
const GROUP_RECORDS: usize = 1024;
const CHECKPOINT_BLOCKS: usize = 256;

/// Puts a checkpoint into an empty epoch.
pub(crate) fn put_checkpoint<B: Blocks>(checkpoint: &Checkpoint, to: &mut B) -> Result<(), Error> {
    checkpoint_blocks(checkpoint)?.chunks(CHECKPOINT_BLOCKS).try_for_each(|part| to.put(part))
}

/// Puts frames that already have their digests as one group.
fn put_frames<B: Blocks>(blocks: &mut B, tip: Tip, frames: &[Frame]) -> Result<Tip, Error> {
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return Ok(tip) };
    let mut previous = tip.head.digest;
    let mut placed = Vec::with_capacity(frames.len());
    let mut body_bytes = tip.body_bytes;
    for frame in frames {
        placed.push(Placed { previous, term: frame.term, body: &frame.body });
        previous = frame.digest;
        body_bytes = body_bytes.saturating_add(frame.body.len() as u64);
    }
    let head = Head { position: last.position, digest: last.digest };
    blocks.put(&encode_group(first.position, head, tip.body_bytes, &placed))?;
    Ok(Tip { head, term: last.term, body_bytes })
}

/// Copies a verified chain, with its checkpoint, into an empty epoch, durably.
pub(crate) fn copy_chain<A: Blocks, B: Blocks>(from: &A, base: Tip, tip: Tip, to: &mut B) -> Result<(), Error> {
    if base.head.position > Position(0) {
        put_checkpoint(&read_checkpoint(from, &base)?, to)?;
    }
    let records = tip.head.position.0.saturating_sub(base.head.position.0);
    let frames = frames_from(from, base, base.head.position.next(), Some(tip.head), records)?;
    copy_frames(frames, base, to)?;
    to.sync()
}

/// Puts frames that follow `tip` in groups of some size.
pub(crate) fn copy_frames<B: Blocks>(
    frames: impl Iterator<Item = Result<Frame, Error>>,
    mut tip: Tip,
    to: &mut B,
) -> Result<Tip, Error> {
    let (mut group, mut bytes) = (Vec::new(), 0);
    for frame in frames {
        let frame = frame?;
        bytes += frame.body.len();
        group.push(frame);
        if bytes >= GROUP_BYTES || group.len() >= GROUP_RECORDS {
            tip = put_frames(to, tip, &group)?;
            group.clear();
            bytes = 0;
        }
    }
    put_frames(to, tip, &group)
}
