//! Slots by node, with what is in them. Jobs and nodes are places in the ordered lists of a placement.

use std::collections::BTreeMap;

use crate::placement::Packing;

/// One node's slots.
#[derive(Debug, Clone, Default)]
pub(super) struct Bin {
    pub(super) free: u32,
    /// Workers by job.
    pub(super) jobs: BTreeMap<usize, u32>,
}

impl Bin {
    pub(super) fn new(slots: u32) -> Self {
        Self { free: slots, jobs: BTreeMap::new() }
    }

    /// Number of workers of `width` slots each that there is room for.
    pub(super) fn room(&self, width: u32) -> u32 {
        self.free.checked_div(width).unwrap_or_default()
    }

    /// Takes up to `workers` of a job in, each of `width` slots; returns how many.
    pub(super) fn take(&mut self, job: usize, workers: u32, width: u32) -> u32 {
        let taken = workers.min(self.room(width));
        if taken > 0 {
            self.free = self.free.saturating_sub(taken.saturating_mul(width));
            let count = self.jobs.entry(job).or_default();
            *count = count.saturating_add(taken);
        }
        taken
    }

    /// Gives up to `workers` of a job back, each of `width` slots.
    pub(super) fn give_back(&mut self, job: usize, workers: u32, width: u32) {
        if let Some(count) = self.jobs.get_mut(&job) {
            let back = workers.min(*count);
            *count = count.saturating_sub(back);
            self.free = self.free.saturating_add(back.saturating_mul(width));
            if *count == 0 {
                self.jobs.remove(&job);
            }
        }
    }
}

/// A job to be placed: its place in the list, and the slots of each worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) job: usize,
    pub(super) width: u32,
}

/// Puts `workers` of a job into the eligible bins: whole if a bin has room, else the emptiest bin is filled and the rest goes
/// on. Ties: the first bin. Returns what is left over.
pub(super) fn best_fit(bins: &mut [Bin], eligible: &[usize], load: Load, mut workers: u32, packing: Packing) -> u32 {
    let Load { job, width } = load;
    while workers > 0 {
        let free = |i: usize| bins.get(i).map_or(0, |bin| bin.free);
        let room = |i: usize| bins.get(i).map_or(0, |bin| bin.room(width));
        let emptiest = || eligible.iter().copied().min_by_key(|&i| std::cmp::Reverse(free(i)));
        let fitting = eligible.iter().copied().filter(|&i| room(i) >= workers);
        let whole = match packing {
            Packing::Pack => fitting.min_by_key(|&i| free(i)),
            Packing::Spread => fitting.min_by_key(|&i| std::cmp::Reverse(free(i))),
        };
        let taken =
            whole.or_else(emptiest).and_then(|i| bins.get_mut(i)).map_or(0, |bin| bin.take(job, workers, width));
        if taken == 0 {
            break;
        }
        workers = workers.saturating_sub(taken);
    }
    workers
}
