//! Slots by node, with what is in them. Jobs and nodes are places in the ordered lists of a placement.

use std::collections::BTreeMap;

use crate::placement::{Packing, workers_in};

/// One node's slots, and its room in other resources.
#[derive(Debug, Clone, Default)]
pub(super) struct Bin {
    pub(super) free: u32,
    /// Room in other resources, in the order of [`crate::placement::Node::others`]; `u64::MAX`: without end.
    others: Vec<u64>,
    /// Workers by job.
    pub(super) jobs: BTreeMap<usize, u32>,
}

/// A job to be placed: its place in the list, and what each worker takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) job: usize,
    /// Slots of each worker.
    pub(super) width: u32,
    /// Other resources of each worker.
    pub(super) needs: &'a [u64],
}

impl Bin {
    pub(super) fn new(slots: u32, others: &[u64]) -> Self {
        Self { free: slots, others: others.to_vec(), jobs: BTreeMap::new() }
    }

    /// Number of workers that there is room for.
    pub(super) fn room(&self, load: Load<'_>) -> u32 {
        workers_in(self.free, &self.others, load.width, load.needs)
    }

    /// Takes up to `workers` of a job in; returns how many.
    pub(super) fn take(&mut self, load: Load<'_>, workers: u32) -> u32 {
        self.hold(load, workers.min(self.room(load)))
    }

    /// Takes up to `workers` of a job in that run here already: they stay where other resources have become scarce.
    pub(super) fn keep(&mut self, load: Load<'_>, workers: u32) {
        self.hold(load, workers.min(self.free.checked_div(load.width).unwrap_or_default()));
    }

    fn hold(&mut self, load: Load<'_>, taken: u32) -> u32 {
        if taken > 0 {
            self.free = self.free.saturating_sub(taken.saturating_mul(load.width));
            self.change_others(load, taken, u64::saturating_sub);
            let count = self.jobs.entry(load.job).or_default();
            *count = count.saturating_add(taken);
        }
        taken
    }

    /// Gives up to `workers` of a job back.
    pub(super) fn give_back(&mut self, load: Load<'_>, workers: u32) {
        if let Some(count) = self.jobs.get_mut(&load.job) {
            let back = workers.min(*count);
            *count = count.saturating_sub(back);
            let is_empty = *count == 0;
            self.free = self.free.saturating_add(back.saturating_mul(load.width));
            self.change_others(load, back, u64::saturating_add);
            if is_empty {
                self.jobs.remove(&load.job);
            }
        }
    }

    fn change_others(&mut self, load: Load<'_>, workers: u32, change: fn(u64, u64) -> u64) {
        for (left, need) in self.others.iter_mut().zip(load.needs).filter(|(left, _)| **left < u64::MAX) {
            *left = change(*left, need.saturating_mul(workers.into()));
        }
    }
}

/// Puts `workers` of a job into the eligible bins: whole if a bin has room, else the emptiest bin is filled and the rest goes
/// on. Ties: the first bin. Returns what is left over.
pub(super) fn best_fit(
    bins: &mut [Bin],
    eligible: &[usize],
    load: Load<'_>,
    mut workers: u32,
    packing: Packing,
) -> u32 {
    while workers > 0 {
        let free = |i: usize| bins.get(i).map_or(0, |bin| bin.free);
        let room = |i: usize| bins.get(i).map_or(0, |bin| bin.room(load));
        let emptiest = || eligible.iter().copied().filter(|&i| room(i) > 0).min_by_key(|&i| std::cmp::Reverse(free(i)));
        let fitting = eligible.iter().copied().filter(|&i| room(i) >= workers);
        let whole = match packing {
            Packing::Pack => fitting.min_by_key(|&i| free(i)),
            Packing::Spread => fitting.min_by_key(|&i| std::cmp::Reverse(free(i))),
        };
        let taken = whole.or_else(emptiest).and_then(|i| bins.get_mut(i)).map_or(0, |bin| bin.take(load, workers));
        if taken == 0 {
            break;
        }
        workers = workers.saturating_sub(taken);
    }
    workers
}
