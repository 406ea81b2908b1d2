//! FIFO, SRJF, and their elastic forms: Voda's rules (admit in order at the minimum, skipping what does not fit; then
//! hand out the rest in turns).
//!
//! Source: Voda's published algorithms with two faults corrected: a job that was not admitted never gets a share below its
//! minimum, and no job grows past its maximum. Tests: the vectors in `tests/vectors.rs`.

use crate::job::Grant;
use crate::memory::Memory;
use crate::policies::ordered::fill;
use crate::policy::Policy;
use crate::round::{Member, Pool, Round};
use crate::units::Micros;

/// What orders the jobs; ties by (submission, id).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Earliest submission first.
    Submitted,
    /// Least time left at reference speed first; unknown last.
    Remaining,
}

/// FIFO or SRJF: every job at its minimum, or not at all.
#[derive(Debug, Clone, Copy)]
pub struct Simple {
    /// The order.
    pub key: Key,
}

/// Elastic FIFO or SRJF: minimums first, then one GPU at a time in turns, up to the maximum.
#[derive(Debug, Clone, Copy)]
pub struct Elastic {
    /// The order.
    pub key: Key,
}

impl Policy for Simple {
    fn name(&self) -> &'static str {
        match self.key {
            Key::Submitted => "FIFO",
            Key::Remaining => "SRJF",
        }
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| admit(pool, &order(pool, self.key)).0)
    }
}

impl Policy for Elastic {
    fn name(&self) -> &'static str {
        match self.key {
            Key::Submitted => "ElasticFIFO",
            Key::Remaining => "ElasticSRJF",
        }
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let order = order(pool, self.key);
            let (mut given, free) = admit(pool, &order);
            hand_out_in_turns(pool, &order, &mut given, free);
            given
        })
    }
}

/// Places in the pool, best first.
pub(super) fn order(pool: &Pool<'_>, key: Key) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pool.jobs.len()).collect();
    match key {
        Key::Submitted => {}
        Key::Remaining => order.sort_by_key(|&i| pool.jobs.get(i).map(|m| m.job.remaining.unwrap_or(Micros::MAX))),
    }
    order
}

/// Gives each job its minimum if that still fits; later ones may fit where an earlier one did not. Also what is left.
pub(super) fn admit(pool: &Pool<'_>, order: &[usize]) -> (Vec<u32>, u32) {
    let given = fill(pool, order, false, |job| job.min);
    let free = given.iter().fold(pool.gpus, |free, &gpus| free.saturating_sub(gpus));
    (given, free)
}

/// One GPU at a time to each job that has some, in order, round after round, up to the maximum.
fn hand_out_in_turns(pool: &Pool<'_>, order: &[usize], given: &mut [u32], mut free: u32) {
    let can_grow = |given: &[u32], i: usize| {
        given.get(i).zip(pool.jobs.get(i)).is_some_and(|(&g, Member { job, .. })| g > 0 && g < job.max)
    };
    let mut growing: Vec<usize> = order.iter().copied().filter(|&i| can_grow(given, i)).collect();
    while free > 0 && !growing.is_empty() {
        for &i in &growing {
            if let (1.., Some(slot)) = (free, given.get_mut(i)) {
                *slot = slot.saturating_add(1);
                free = free.saturating_sub(1);
            }
        }
        growing.retain(|&i| can_grow(given, i));
    }
}
