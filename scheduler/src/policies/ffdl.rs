//! The `FfDL` optimizer: the split of the GPUs with the largest sum of speeds, by dynamic programming.
//!
//! Source: MASCOTS'20 ("Effective elastic scaling of deep learning workloads"), the rule of its allocator, as Voda has it,
//! corrected: the jobs that take part are those FIFO admits at their minimum, and no job gets less than that.
//! With equal sums the job submitted last has the smallest share. Cost: jobs x free GPUs x size range; only the band of
//! sums that the answer can come from is computed. Tests: vectors in `tests/vectors.rs`; the table beside it.

use crate::job::Grant;
use crate::memory::Memory;
use crate::policies::knapsack::{Choice, best_split};
use crate::policies::simple::{Key, admit, order};
use crate::policy::Policy;
use crate::round::{Member, Pool, Round};

/// The policy; it has no settings.
#[derive(Debug, Clone, Copy)]
pub struct FfdlOptimizer;

impl Policy for FfdlOptimizer {
    fn name(&self) -> &'static str {
        "FfDLOptimizer"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(optimise)
    }
}

fn optimise(pool: &Pool<'_>) -> Vec<u32> {
    let (mut given, free) = admit(pool, &order(pool, Key::Submitted));
    let rows: Vec<Row> = (pool.jobs.iter().zip(&given).enumerate())
        .filter(|(_, (member, given))| **given > 0 && member.job.max > member.job.min)
        .map(|(place, (member, _))| Row::new(place, member, free))
        .collect();
    let split = best_split(rows.iter().map(|row| row.values.as_slice()), free);
    for (row, chosen) in rows.iter().zip(split) {
        if let (Some(slot), Some(chosen)) = (given.get_mut(row.place), row.values.get(chosen)) {
            *slot = slot.saturating_add(chosen.units);
        }
    }
    given
}

/// One job: its speed with 0, 1, 2, ... GPUs more than its minimum.
struct Row {
    place: usize,
    values: Vec<Choice>,
}

impl Row {
    fn new(place: usize, member: &Member<'_>, free: u32) -> Self {
        let most = member.job.max.min(member.job.min.saturating_add(free));
        let choice = |gpus: u32| Choice { units: gpus.saturating_sub(member.job.min), value: member.curve.at(gpus).0 };
        Self { place, values: (member.job.min..=most).map(choice).collect() }
    }
}
