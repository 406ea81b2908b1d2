//! Selects the blocks that make the log: groups, and the links between them.
//!
//! Owns the choice of one chain among groups of which some are torn, some superseded and some from appends that failed.
//! It sees block headers only; contents are verified afterwards by [`crate::chain`]. Tests: in `raw.rs`.

use std::collections::HashMap;
use std::ops::Range;

use model::Position;

use crate::block::{BlockKey, BlockKind, Header, read_entry, tag};
use crate::digest::Head;

/// A block of the raw scan, and the offset of its copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawBlock {
    pub(super) key: BlockKey,
    pub(super) checkpoint: bool,
    /// Last position it holds, as far as its frames could be read.
    pub(super) last: u64,
    pub(super) group_first: u64,
    pub(super) group_end: u64,
    pub(super) group_tag: u64,
    pub(super) previous_tag: u64,
    pub(super) last_fragment: bool,
    /// All frames match their checksums.
    pub(super) sound: bool,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl RawBlock {
    pub(super) fn read(block: &[u8], header: &Header, offset: u64) -> Self {
        let entries = header.entries(block);
        let (mut rest, mut count, mut sound) = (entries.as_deref().unwrap_or_default(), 0, entries.is_ok());
        while !rest.is_empty() && sound {
            if let Ok((_, used)) = read_entry(rest) {
                rest = rest.get(used..).unwrap_or_default();
                count += 1;
            } else {
                sound = false;
            }
        }
        Self {
            key: header.key(),
            checkpoint: header.kind == BlockKind::Checkpoint,
            last: header.first.0.saturating_add(count).saturating_sub(1),
            group_first: header.group_first.0,
            group_end: header.group_end.0,
            group_tag: header.group_tag,
            previous_tag: tag(&header.previous),
            last_fragment: header.fragment.saturating_add(1) == header.fragments,
            sound,
            offset,
            length: u32::try_from(block.len()).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn group(&self) -> (bool, u64, u64, u64) {
        (!self.checkpoint, self.group_first, self.group_end, self.group_tag)
    }
}

/// A commit group, or the checkpoint.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) checkpoint: bool,
    pub(super) range: Range<usize>,
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) tag: u64,
    pub(super) previous: u64,
    pub(super) complete: bool,
}

/// Groups in order of their first position.
pub(super) fn nodes(found: &[RawBlock]) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut start = 0;
    for group in found.chunk_by(|a, b| a.group() == b.group()) {
        let range = start..start + group.len();
        start = range.end;
        let Some(head) = group.first() else { continue };
        nodes.push(Node {
            checkpoint: head.checkpoint,
            range,
            first: head.group_first,
            end: head.group_end,
            tag: head.group_tag,
            previous: head.previous_tag,
            complete: is_complete(group),
        });
    }
    nodes
}

/// Returns true if the blocks of a group, in key order, cover all of its positions.
fn is_complete(group: &[RawBlock]) -> bool {
    let Some(first) = group.first() else { return false };
    let (mut position, mut fragment) = if first.checkpoint { (0, 0) } else { (first.group_first, 0) };
    for (n, found) in group.iter().enumerate() {
        if found.key != (BlockKey { position: Position(position), fragment }) {
            return false;
        }
        if found.key.fragment > 0 || !found.last_fragment {
            fragment += 1;
            if found.last_fragment {
                (position, fragment) = (position.saturating_add(1), 0);
            }
        } else if found.sound {
            position = found.last.saturating_add(1);
        } else {
            // Its frames cannot be counted; reading the chain will show. Continue where the next block begins.
            position = group.get(n + 1).map_or_else(|| found.group_end.saturating_add(1), |next| next.key.position.0);
        }
    }
    if first.checkpoint { position == 1 } else { position == first.group_end.saturating_add(1) && fragment == 0 }
}

pub(super) struct Picked<'a> {
    pub(super) chain: Vec<&'a Node>,
    /// Last position, and the tag of the digest there.
    pub(super) end: (u64, u64),
}

/// Follows links from `start`. Where a failed append left two groups at one place, it takes the one that leads to the
/// stored head. If none does, it takes the one that leads furthest.
pub(super) fn pick<'a>(nodes: &[&'a Node], start: (u64, u64), stored: Option<Head>) -> Picked<'a> {
    let stored = stored.map(|head| (head.position.0, tag(&head.digest)));
    let mut reached: HashMap<(u64, u64), (Option<usize>, bool)> = HashMap::new();
    reached.insert(start, (None, stored == Some(start)));
    let mut best = (stored == Some(start), start);
    // A group's predecessor ends before it begins, so one pass in order of `first` meets every predecessor in time.
    for (n, node) in nodes.iter().enumerate() {
        let before = (node.first.saturating_sub(1), node.previous);
        let end = (node.end, node.tag);
        let Some((_, through)) = reached.get(&before).copied().filter(|_| node.complete) else { continue };
        let through = through || stored == Some(end);
        if reached.get(&end).is_none_or(|(_, other)| through && !other) {
            reached.insert(end, (Some(n), through));
        }
        if (through, end.0) > (best.0, best.1.0) {
            best = (through, end);
        }
    }
    let mut chain = Vec::new();
    let mut at = best.1;
    while let Some(node) = reached.get(&at).and_then(|(n, _)| *n).and_then(|n| nodes.get(n)) {
        chain.push(*node);
        at = (node.first.saturating_sub(1), node.previous);
    }
    chain.reverse();
    Picked { chain, end: best.1 }
}
