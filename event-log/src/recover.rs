//! Checks of an opened log: a whole last group, a sound chain, and the stored head.
//!
//! Owns those three checks and the removal of a torn group that was never acknowledged. Tests: `tests/conformance.rs`,
//! `tests/damage.rs`.

use model::Position;

use crate::block::{BlockKey, Header};
use crate::chain::{Tip, frames_from, verify_all};
use crate::digest::Head;
use crate::error::{Damage, Error};
use crate::store::{Blocks, Store};

/// Verifies everything after `base`; gives the tip.
pub(crate) fn full_chain<B: Blocks>(blocks: &B, base: Tip) -> Result<Tip, Error> {
    let (tip, result) = verify_all(blocks, base)?;
    result.map(|()| tip)
}

/// Verifies the last commit group and gives the tip; removes the group when it is torn and was never acknowledged.
pub(crate) fn finish_tail<S: Store>(store: &mut S, base: Tip, stored: Option<Head>) -> Result<Tip, Error> {
    loop {
        let Some((key, bytes)) = store.blocks().last_at(BlockKey::last(Position(u64::MAX)))? else { return Ok(base) };
        if key.position == Position(0) {
            return Ok(base);
        }
        if key.position <= base.head.position {
            return Err(Error::damaged(key.position, Damage::Misplaced("a record the checkpoint includes")));
        }
        let header = Header::read(bytes.as_ref()).map_err(|fault| fault.at(key.position))?;
        let (starts_there, tip, result) = match frames_from(store.blocks(), base, header.group_first, None, 1) {
            Ok(group) => {
                let starts_there = group.tip().head.position.next() == header.group_first;
                let (tip, result) = group.finish();
                (starts_there, tip, result)
            }
            Err(other) => (false, base, Err(other)),
        };
        match result {
            Ok(()) if starts_there => return Ok(tip),
            Ok(()) | Err(Error::Damaged { reason: Damage::Missing, .. }) => {}
            Err(other) => return Err(other),
        }
        if stored.is_some_and(|head| head.position >= header.group_first) {
            return Err(Error::damaged(tip.head.position.next(), Damage::Missing));
        }
        let keys: Result<Vec<BlockKey>, Error> =
            store.blocks().scan(BlockKey::first(header.group_first)).map(|item| item.map(|(key, _)| key)).collect();
        let keys = keys?;
        if keys.is_empty() {
            return Err(Error::damaged(header.group_first, Damage::Engine("a key is found and then not".to_owned())));
        }
        tracing::warn!(first = %header.group_first, blocks = keys.len(), "torn commit group removed; it was never acknowledged");
        store.blocks_mut().remove(&keys)?;
        store.blocks_mut().sync()?;
    }
}

/// Fails unless the stored head is on the chain. A log behind it, or on another chain, has lost acknowledged records.
pub(crate) fn check_stored_head<B: Blocks>(blocks: &B, base: Tip, tip: Tip, stored: Option<Head>) -> Result<(), Error> {
    let Some(stored) = stored else { return Ok(()) };
    if stored.position > tip.head.position {
        return Err(Error::damaged(tip.head.position.next(), Damage::Behind(stored)));
    }
    if stored.position < base.head.position {
        return Ok(()); // stored before the checkpoint was made
    }
    let there = if stored.position == tip.head.position {
        tip.head
    } else if stored.position == base.head.position {
        base.head
    } else {
        let mut frames = frames_from(blocks, base, stored.position, None, 1)?;
        match frames.next().transpose()? {
            Some(frame) => Head { position: frame.position, digest: frame.digest },
            None => return Err(Error::damaged(stored.position, Damage::Missing)),
        }
    };
    if there != stored {
        return Err(Error::damaged(stored.position, Damage::OtherHead(stored)));
    }
    Ok(())
}
