//! Exact fractions and heap entries, for policies that give the next GPU where it is worth most.
//!
//! A binary heap keeps a decision at O(G log J); comparing fractions by cross-multiplication keeps it exact.

use std::cmp::Ordering;

/// A positive gain per GPU: `amount / gpus`, compared exactly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gain {
    amount: u64,
    gpus: u32,
}

impl Gain {
    /// `None` when nothing is gained, or nothing is given.
    pub(super) fn new(amount: u64, gpus: u32) -> Option<Self> {
        (amount > 0 && gpus > 0).then_some(Self { amount, gpus })
    }
}

impl Ord for Gain {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |a: &Self, b: &Self| u128::from(a.amount).saturating_mul(u128::from(b.gpus));
        cross(self, other).cmp(&cross(other, self))
    }
}

impl PartialOrd for Gain {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Gain {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Gain {}

/// Something to give: the largest `worth` first, ties by the smallest `tie`. What is given takes no part in the order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<W, T, X> {
    worth: W,
    tie: T,
    pub(super) what: X,
}

impl<W, T, X> Entry<W, T, X> {
    pub(super) fn new(worth: W, tie: T, what: X) -> Self {
        Self { worth, tie, what }
    }
}

impl<W: Ord, T: Ord, X> Ord for Entry<W, T, X> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.worth.cmp(&other.worth).then_with(|| other.tie.cmp(&self.tie))
    }
}

impl<W: Ord, T: Ord, X> PartialOrd for Entry<W, T, X> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<W: Ord, T: Ord, X> PartialEq for Entry<W, T, X> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<W: Ord, T: Ord, X> Eq for Entry<W, T, X> {}
