//! AFS-L: elastic sharing that looks at how long jobs are and what they gain.
//!
//! Source: AFS (NSDI'21). Two variants, which differ where jobs outnumber GPUs and in which job wins at equal standing:
//! [`AfsL`] is Voda's, corrected (each job's own length, first grant = minimum); [`AfsAuthors`] is that of the paper's own
//! simulator (everyone starts at the minimum; when that is not possible, shortest jobs first).
//! Fractions are compared by cross-multiplication. Tests: vectors in `tests/vectors.rs`; the small cases below.

use crate::job::Grant;
use crate::memory::Memory;
use crate::policies::tournament::{Candidate, run};
use crate::policy::Policy;
use crate::round::{Member, Pool, Round};
use crate::units::Micros;

/// Voda's AFS-L with the corrected rules.
#[derive(Debug, Clone, Copy)]
pub struct AfsL;

/// AFS-L as the authors' simulator has it.
#[derive(Debug, Clone, Copy)]
pub struct AfsAuthors;

impl Policy for AfsL {
    fn name(&self) -> &'static str {
        "AFS-L"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let mut field = field(pool, |_| 0);
            run(&mut field, |i| pool.jobs.get(i).map(|m| m.curve), pool.gpus, voda_later_wins);
            field.iter().map(|c| c.given).collect()
        })
    }
}

impl Policy for AfsAuthors {
    fn name(&self) -> &'static str {
        "afs-l-authors"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let needed = pool.jobs.iter().fold(0_u32, |sum, m| sum.saturating_add(m.job.min));
            let Some(free) = pool.gpus.checked_sub(needed) else { return shortest_first(pool) };
            let mut field = field(pool, |i| pool.jobs.get(i).map_or(0, |m| m.job.min));
            run(&mut field, |i| pool.jobs.get(i).map(|m| m.curve), free, authors_later_wins);
            field.iter().map(|c| c.given).collect()
        })
    }
}

fn field(pool: &Pool<'_>, given: impl Fn(usize) -> u32) -> Vec<Candidate> {
    let candidate = |(i, m): (usize, &Member<'_>)| {
        Candidate::new(m.job.remaining.map_or(u64::MAX, |r| r.0), (m.job.min, m.job.max), m.curve, given(i))
    };
    pool.jobs.iter().enumerate().map(candidate).collect()
}

/// Not everyone fits at the minimum: the least time left at the minimum goes first.
fn shortest_first(pool: &Pool<'_>) -> Vec<u32> {
    let mut order: Vec<usize> = (0..pool.jobs.len()).collect();
    order.sort_by_cached_key(|&i| {
        let left = |m: &Member<'_>| m.job.remaining.map_or(Micros::MAX, |work| m.curve.at(m.job.min).time_for(work));
        pool.jobs.get(i).map(left)
    });
    super::ordered::fill(pool, &order, false, |job| job.min)
}

const fn wide(value: u64) -> u128 {
    value as u128 // lossless; `From` is not const
}

/// Whether `a` takes at least as long as `b` at their present speeds; standing still takes for ever.
fn takes_as_long(a: &Candidate, b: &Candidate) -> bool {
    match (a.speed, b.speed) {
        (0, _) => true,
        (_, 0) => false,
        (sa, sb) => wide(a.rem).saturating_mul(wide(sb)) >= wide(b.rem).saturating_mul(wide(sa)),
    }
}

/// Voda's rule: of the two, the longer wins if what it gains of its new speed is more than what the shorter gains of its
/// present one. Of two that have nothing the shorter wins, at equal length the later.
fn voda_later_wins(earlier: &Candidate, later: &Candidate) -> bool {
    if earlier.given == 0 && later.given == 0 {
        return earlier.rem >= later.rem;
    }
    let swapped = takes_as_long(earlier, later);
    let (short, long) = if swapped { (later, earlier) } else { (earlier, later) };
    // (faster - speed) / faster of the long one > (faster - speed) / speed of the short one
    let gain = |c: &Candidate| i128::from(c.faster).saturating_sub(i128::from(c.speed));
    let left = gain(long).saturating_mul(i128::from(short.speed));
    let right = gain(short).saturating_mul(i128::from(long.faster));
    let long_wins = long.faster > 0 && short.speed > 0 && left > right;
    long_wins != swapped
}

/// The authors' rule, with `l` the one with less time left (the later only if strictly less) and `h` the other:
/// `l` wins if `S_l(g+1)/S_l(g) + S_h(g)/S_h(g+1) > 2`.
fn authors_later_wins(earlier: &Candidate, later: &Candidate) -> bool {
    let later_is_shorter = !takes_as_long(later, earlier);
    let (l, h) = if later_is_shorter { (later, earlier) } else { (earlier, later) };
    let (l0, l1, h0, h1) = (wide(l.speed), wide(l.faster), wide(h.speed), wide(h.faster));
    let sum = l1.saturating_mul(h1).saturating_add(h0.saturating_mul(l0));
    let shorter_wins = sum > l0.saturating_mul(h1).saturating_mul(2);
    shorter_wins == later_is_shorter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::{elastic, shares};

    const LINEAR: [u64; 4] = [1000, 2000, 3000, 4000];

    #[test]
    fn two_linear_jobs_share_as_the_rule_says() {
        let jobs = [elastic("a", 0, (1, 1, 4), 100, &LINEAR), elastic("b", 1, (1, 1, 4), 200, &LINEAR)];
        let by_gpus: Vec<_> = (1..=6).map(|g| shares(&AfsL, g, &jobs)).collect();
        assert_eq!(by_gpus, [[1, 0], [2, 0], [2, 1], [3, 1], [3, 2], [4, 2]]);
    }

    #[test]
    fn the_authors_start_everyone_first() {
        let jobs = [elastic("a", 0, (1, 1, 4), 100, &LINEAR), elastic("b", 1, (1, 1, 4), 200, &LINEAR)];
        assert_eq!(shares(&AfsAuthors, 1, &jobs), [1, 0]);
        assert_eq!(shares(&AfsAuthors, 2, &jobs), [1, 1]);
        assert_eq!(shares(&AfsAuthors, 3, &jobs), [2, 1]); // 2/1 + 1/2 > 2: the shorter
        assert_eq!(shares(&AfsAuthors, 8, &jobs), [4, 4]);
    }

    #[test]
    fn work_that_is_not_known_is_long() {
        let mut unknown = elastic("a", 0, (1, 1, 4), 0, &LINEAR);
        unknown.remaining = None;
        let jobs = [unknown, elastic("b", 1, (1, 1, 4), 200, &LINEAR)];
        assert_eq!(shares(&AfsL, 2, &jobs), [0, 2]);
        assert_eq!(shares(&AfsAuthors, 1, &jobs), [0, 1]);
    }
}
