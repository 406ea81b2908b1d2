//! Reading a whole chain of raw blocks and saying how far it is good.
//!
//! Owns the judgement that opening, copying and verification share. Tests: `tests/damage.rs`.

use model::Position;

use super::raw::Chosen;
use crate::chain::{Tip, base_of, read_checkpoint, verify_all};
use crate::digest::Head;
use crate::error::{Damage, Error};
use crate::recover::check_stored_head;

/// Result of reading a chosen chain.
pub(super) struct Examined {
    pub(super) base: Tip,
    pub(super) tip: Tip,
    pub(super) first_bad: Option<(Position, Damage)>,
}

/// Reads the whole chain.
pub(super) fn examine(chosen: &Chosen, stored: Option<Head>) -> Result<Examined, Error> {
    let blocks = &chosen.blocks;
    let bad_base = |at, reason| Examined { base: Tip::default(), tip: Tip::default(), first_bad: Some((at, reason)) };
    let base = match base_of(blocks) {
        Ok(base) => base.unwrap_or_default(),
        Err(Error::Damaged { at, reason }) => return Ok(bad_base(at, reason)),
        Err(other) => return Err(other),
    };
    if base.head.position > Position(0) {
        match read_checkpoint(blocks, &base) {
            Ok(_) => {}
            Err(Error::Damaged { at, reason }) => return Ok(bad_base(at, reason)),
            Err(other) => return Err(other),
        }
    }
    let (tip, result) = verify_all(blocks, base)?;
    let next = tip.head.position.next();
    let first_bad = match result {
        Err(Error::Damaged { at, reason }) => Some((at, reason)),
        Err(other) => return Err(other),
        Ok(()) if chosen.beyond_gap => Some((next, Damage::Missing)),
        Ok(()) => match check_stored_head(blocks, base, tip, stored) {
            Ok(()) => None,
            Err(Error::Damaged { at, reason }) => Some((at, reason)),
            Err(other) => return Err(other),
        },
    };
    Ok(Examined { base, tip, first_bad })
}
