//! Two elastic references: max-min fairness, and Optimus's largest saving of time.
//!
//! Sources: max-min (progressive filling) and Optimus (2018) as the AFS authors' simulator has them, extended to
//! jobs with a minimum above 1. Tests: at the end of this file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::job::Grant;
use crate::memory::Memory;
use crate::policies::heap::Entry;
use crate::policies::ordered::{fill, running_first};
use crate::policy::Policy;
use crate::round::{Member, Pool, Round};
use crate::units::Speed;

/// Equal shares: running jobs first at their minimum, then always one GPU to the job that has the fewest.
#[derive(Debug, Clone, Copy)]
pub struct MaxMin;

/// Everyone at the minimum in order of submission, then always one GPU where it saves the most time.
#[derive(Debug, Clone, Copy)]
pub struct Optimus;

impl Policy for MaxMin {
    fn name(&self) -> &'static str {
        "max-min"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let order = running_first(pool);
            let mut turn = vec![0; order.len()];
            for (nth, &i) in order.iter().enumerate() {
                if let Some(slot) = turn.get_mut(i) {
                    *slot = nth;
                }
            }
            let given = fill(pool, &order, false, |job| job.min);
            grow(pool, given, |i, given| Some((Reverse(given), turn.get(i).copied().unwrap_or_default())))
        })
    }
}

impl Policy for Optimus {
    fn name(&self) -> &'static str {
        "optimus"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let order: Vec<usize> = (0..pool.jobs.len()).collect();
            let given = fill(pool, &order, false, |job| job.min);
            grow(pool, given, |i, given| {
                let member = pool.jobs.get(i)?;
                Some((saving(member, given)?, i))
            })
        })
    }
}

/// Time saved by one GPU more, in billionths of a microsecond, cut at the largest number; `None` when nothing is.
fn saving(member: &Member<'_>, given: u32) -> Option<u128> {
    let (slow, fast) = (member.curve.at(given), member.curve.at(given.saturating_add(1)));
    let gain = u128::from(fast.0.checked_sub(slow.0)?);
    if slow == Speed::ZERO {
        return (gain > 0).then_some(u128::MAX); // from a standstill every saving is infinite
    }
    // work / S - work / S' = work (S' - S) / (S S')
    let work = u128::from(member.job.remaining.map_or(u64::MAX, |work| work.0));
    let now = work.saturating_mul(1_000_000_000).checked_div(slow.0.into())?;
    let saved = now.saturating_mul(gain).checked_div(fast.0.into())?;
    (saved > 0).then_some(saved)
}

/// One GPU at a time to the job of the largest worth, ties by the smallest place; a job without worth gets no more.
fn grow<W: Ord>(pool: &Pool<'_>, mut given: Vec<u32>, worth: impl Fn(usize, u32) -> Option<(W, usize)>) -> Vec<u32> {
    let used = given.iter().fold(0_u32, |sum, &g| sum.saturating_add(g));
    let mut free = pool.gpus.saturating_sub(used);
    let entry = |i: usize, given: u32| {
        let max = pool.jobs.get(i)?.job.max;
        let (worth, tie) = if given > 0 && given < max { worth(i, given)? } else { return None };
        Some(Entry::new(worth, tie, i))
    };
    let mut heap: BinaryHeap<_> = given.iter().enumerate().filter_map(|(i, &g)| entry(i, g)).collect();
    while free > 0
        && let Some(best) = heap.pop()
    {
        let Some(slot) = given.get_mut(best.what) else { continue };
        *slot = slot.saturating_add(1);
        free = free.saturating_sub(1);
        heap.extend(entry(best.what, *slot));
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::{elastic, shares};

    const LINEAR: [u64; 8] = [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000];

    #[test]
    fn max_min_levels_shares_up_to_each_maximum() {
        let jobs = [
            elastic("a", 0, (4, 4, 8), 1, &LINEAR),
            elastic("b", 1, (1, 1, 2), 1, &LINEAR),
            elastic("c", 2, (1, 1, 8), 1, &LINEAR),
        ];
        assert_eq!(shares(&MaxMin, 12, &jobs), [5, 2, 5]);
        assert_eq!(shares(&MaxMin, 3, &jobs), [0, 2, 1]); // a does not fit
    }

    #[test]
    fn optimus_gives_where_time_is_saved() {
        let jobs = [elastic("short", 0, (1, 1, 8), 100, &LINEAR), elastic("long", 1, (1, 1, 8), 1000, &LINEAR)];
        // long: 1000 -> 500 -> 333 -> 250 -> 200; short: 100 -> 50
        assert_eq!(shares(&Optimus, 5, &jobs), [1, 4]);
        assert_eq!(shares(&Optimus, 6, &jobs), [2, 4]); // saves 50 = 250 - 200, the tie to the earlier
    }

    #[test]
    fn optimus_stops_where_nothing_is_saved() {
        let flat = [elastic("a", 0, (1, 1, 4), 100, &[1000, 1500, 1500, 3000])];
        assert_eq!(shares(&Optimus, 4, &flat), [2]);
    }
}
