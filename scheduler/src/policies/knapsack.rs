//! One choice per job so that the sum of values is largest: the multiple-choice knapsack.
//!
//! Two ways. [`best_split`] is exact, for GPUs of one type, by dynamic programming. [`Market::clear`] is for several types,
//! where an exact answer is out of reach: prices per GPU are moved until demand fits (the Lagrangian dual of the linear
//! relaxation), then jobs choose in turn within what is left. Source: Kellerer, Pferschy, Pisinger, "Knapsack Problems",
//! chapter 11. Tests: at the end of this file.

use std::collections::BTreeMap;

use crate::units::GpuType;

/// So many units for so much value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) units: u32,
    pub(super) value: u64,
}

/// Shares `free` units among rows, taking one choice of each, so that the sum of values is largest; the place of the choice
/// for each row. At equal sums the last row takes its earliest choice that does, then the last but one, and so on. Each
/// row's choices ascend in units, and the first takes none.
pub(super) fn best_split<'v>(rows: impl Iterator<Item = &'v [Choice]>, free: u32) -> Vec<usize> {
    let rows: Vec<&[Choice]> = rows.collect();
    let most = |row: &[Choice]| row.last().map_or(0, |choice| size(choice.units));
    // More units than all rows can take are of no use: the table is flat beyond.
    let total = rows.iter().fold(0_usize, |sum, row| sum.saturating_add(most(row)));
    let free = size(free).min(total);
    let mut best = vec![0_u64; free.saturating_add(1)]; // of the rows so far, by units at most
    let mut choices: Vec<(usize, Vec<u32>)> = Vec::with_capacity(rows.len());
    let mut later = total;
    for row in &rows {
        later = later.saturating_sub(most(row));
        // Rows to come take at most `later`, so less than this is never asked of the rows so far.
        let low = free.saturating_sub(later);
        let (next, choice) = add_row(&best, row, low);
        best = next;
        choices.push((low, choice));
    }
    read_back(&rows, &choices, free)
}

fn size(units: u32) -> usize {
    usize::try_from(units).unwrap_or(usize::MAX)
}

/// The table with one row more, from `low` units on, and which choice the row takes at each.
fn add_row(best: &[u64], row: &[Choice], low: usize) -> (Vec<u64>, Vec<u32>) {
    let mut next = vec![0_u64; best.len()];
    let mut taken = vec![0_u32; best.len().saturating_sub(low)];
    for (choice, label) in row.iter().zip(0_u32..) {
        // Sums at `units` and more; a strictly larger sum is needed to replace an earlier choice.
        let units = size(choice.units);
        let from = units.max(low);
        let sums = best.get(from.saturating_sub(units)..).unwrap_or_default();
        let places = next.get_mut(from..).unwrap_or_default();
        let labels = taken.get_mut(from.saturating_sub(low)..).unwrap_or_default();
        for ((place, chosen), &sum) in places.iter_mut().zip(labels).zip(sums) {
            let sum = sum.saturating_add(choice.value);
            if label == 0 || sum > *place {
                (*place, *chosen) = (sum, label);
            }
        }
    }
    (next, taken)
}

fn read_back(rows: &[&[Choice]], choices: &[(usize, Vec<u32>)], free: usize) -> Vec<usize> {
    let mut left = free;
    let mut split: Vec<usize> = Vec::with_capacity(choices.len());
    for (row, (low, taken)) in rows.iter().zip(choices).rev() {
        let place = taken.get(left.saturating_sub(*low)).map_or(0, |&place| size(place));
        left = left.saturating_sub(row.get(place).map_or(0, |choice| size(choice.units)));
        split.push(place);
    }
    split.reverse();
    split
}

/// GPUs of a type for so much value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) gpu_type: GpuType,
    pub(super) gpus: u32,
    pub(super) value: u64,
}

/// What is for sale.
#[derive(Debug, Clone)]
pub(super) struct Market {
    free: BTreeMap<GpuType, u32>,
    price: BTreeMap<GpuType, u64>,
}

impl Market {
    /// So many GPUs of each type.
    pub(super) fn new(pools: &[(GpuType, u32)]) -> Self {
        let free: BTreeMap<GpuType, u32> = pools.iter().copied().collect();
        Self { price: free.keys().map(|&gpu_type| (gpu_type, 0)).collect(), free }
    }

    /// At most one offer per job: the place of the one it takes. Jobs listed first have the advantage where it is tight.
    pub(super) fn clear(mut self, jobs: &[Vec<Offer>]) -> Vec<Option<usize>> {
        self.find_prices(jobs);
        let mut chosen = self.buy(jobs);
        self.improve(jobs, &mut chosen);
        chosen
    }

    fn cost(&self, offer: &Offer) -> u64 {
        self.price.get(&offer.gpu_type).copied().unwrap_or_default().saturating_mul(offer.gpus.into())
    }

    /// What is gained beyond the price; `None` when nothing is.
    fn surplus(&self, offer: &Offer) -> Option<u64> {
        offer.value.checked_sub(self.cost(offer)).filter(|&surplus| surplus > 0)
    }

    fn best(&self, offers: &[Offer], fits: impl Fn(&Offer) -> bool) -> Option<(u64, usize)> {
        let surplus = |(place, offer): (usize, &Offer)| Some((self.surplus(offer).filter(|_| fits(offer))?, place));
        // Of equals the first: fewer GPUs, and the home type before others.
        offers.iter().enumerate().filter_map(surplus).reduce(|best, next| if next.0 > best.0 { next } else { best })
    }

    /// Prices at which about as much is wanted as there is, by steps that halve again and again.
    fn find_prices(&mut self, jobs: &[Vec<Offer>]) {
        const ROUNDS: u32 = 48;
        let gpus = self.free.values().fold(0_u64, |sum, &gpus| sum.saturating_add(gpus.into()));
        let most = |offers: &Vec<Offer>| offers.iter().map(|offer| offer.value).max().unwrap_or_default();
        let value = jobs.iter().map(most).fold(0_u64, u64::saturating_add);
        let start = value.checked_div(gpus).unwrap_or_default().max(1);
        for price in self.price.values_mut() {
            *price = start;
        }
        for round in 0..ROUNDS {
            let mut wanted: BTreeMap<GpuType, u64> = BTreeMap::new();
            for offer in jobs.iter().filter_map(|offers| offers.get(self.best(offers, |_| true)?.1)) {
                let sum = wanted.entry(offer.gpu_type).or_default();
                *sum = sum.saturating_add(offer.gpus.into());
            }
            // Steps of a half, then a quarter, ... of the price, six rounds each.
            let shift = round.checked_div(6).unwrap_or_default().saturating_add(1);
            for (gpu_type, price) in &mut self.price {
                let step = (*price >> shift).max(1);
                let free = self.free.get(gpu_type).copied().unwrap_or_default();
                let short = wanted.get(gpu_type).copied().unwrap_or_default() > free.into();
                *price = if short { price.saturating_add(step) } else { price.saturating_sub(step).max(1) };
            }
        }
    }

    /// At these prices, the job that gains most per cost goes first; one whose choice is sold out takes its next best.
    fn buy(&mut self, jobs: &[Vec<Offer>]) -> Vec<Option<usize>> {
        let mut order: Vec<(u64, usize)> = (jobs.iter().enumerate())
            .map(|(job, offers)| (self.best(offers, |_| true).map_or(0, |(surplus, _)| surplus), job))
            .collect();
        order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chosen = vec![None; jobs.len()];
        for (_, job) in order {
            let offers = jobs.get(job).map_or(&[][..], Vec::as_slice);
            let fits = |offer: &Offer| self.free.get(&offer.gpu_type).is_some_and(|&free| free >= offer.gpus);
            if let Some((_, place)) = self.best(offers, fits)
                && let (Some(slot), Some(offer)) = (chosen.get_mut(job), offers.get(place))
            {
                *slot = Some(place);
                self.take(offer.gpu_type, offer.gpus);
            }
        }
        chosen
    }

    fn take(&mut self, gpu_type: GpuType, gpus: u32) {
        if let Some(free) = self.free.get_mut(&gpu_type) {
            *free = free.saturating_sub(gpus);
        }
    }

    fn give_back(&mut self, gpu_type: GpuType, gpus: u32) {
        if let Some(free) = self.free.get_mut(&gpu_type) {
            *free = free.saturating_add(gpus);
        }
    }

    /// What is left goes, whatever the price, where it adds value: job after job, until nobody improves.
    fn improve(&mut self, jobs: &[Vec<Offer>], chosen: &mut [Option<usize>]) {
        const ROUNDS: u32 = 4;
        for _ in 0..ROUNDS {
            let mut improved = false;
            for (offers, slot) in jobs.iter().zip(chosen.iter_mut()) {
                let now = slot.and_then(|place| offers.get(place)).copied();
                if let Some(now) = now {
                    self.give_back(now.gpu_type, now.gpus);
                }
                let fits = |offer: &&Offer| self.free.get(&offer.gpu_type).is_some_and(|&free| free >= offer.gpus);
                let better = |a: (usize, &Offer), b: (usize, &Offer)| b.1.value > a.1.value;
                let best = offers.iter().enumerate().filter(|(_, offer)| fits(offer));
                let best =
                    best.fold(slot.and_then(|place| Some((place, offers.get(place)?))), |best, next| match best {
                        Some(best) if !better(best, next) => Some(best),
                        Some(_) => Some(next),
                        None if next.1.value > 0 => Some(next),
                        None => None,
                    });
                if let Some((place, offer)) = best {
                    improved |= *slot != Some(place);
                    *slot = Some(place);
                    self.take(offer.gpu_type, offer.gpus);
                }
            }
            if !improved {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Best sum by trying everything, and among equals the split whose last share is smallest, then the one before.
    fn exhaustive(rows: &[Vec<u64>], free: usize) -> Vec<usize> {
        fn walk(
            rows: &[Vec<u64>],
            free: usize,
            split: &mut Vec<usize>,
            best: &mut Option<(u64, Vec<usize>)>,
            sum: u64,
        ) {
            let Some((row, rest)) = rows.split_first() else {
                let smaller = |b: &Vec<usize>| split.iter().rev().lt(b.iter().rev());
                if best.as_ref().is_none_or(|(s, b)| sum > *s || (sum == *s && smaller(b))) {
                    *best = Some((sum, split.clone()));
                }
                return;
            };
            for (units, value) in row.iter().enumerate().take(free + 1) {
                split.push(units);
                walk(rest, free - units, split, best, sum + value);
                split.pop();
            }
        }
        let mut best = None;
        walk(rows, free, &mut Vec::new(), &mut best, 0);
        best.map(|(_, split)| split).unwrap_or_default()
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_trying_everything(
            rows in prop::collection::vec(prop::collection::vec(0_u64..6, 1..5), 0..5),
            free in 0_u32..12,
        ) {
            let row = |row: &Vec<u64>| (0..).zip(row).map(|(units, &value)| Choice { units, value }).collect::<Vec<_>>();
            let choices: Vec<Vec<Choice>> = rows.iter().map(row).collect();
            let got = best_split(choices.iter().map(Vec::as_slice), free);
            prop_assert_eq!(got, exhaustive(&rows, free as usize));
        }
    }

    /// The largest sum of values that fits, by trying everything.
    fn largest(jobs: &[Vec<Offer>], free: [u32; 2]) -> u64 {
        let Some((offers, rest)) = jobs.split_first() else { return 0 };
        let mut best = largest(rest, free);
        for offer in offers {
            let mut left = free;
            let at = usize::from(offer.gpu_type.0);
            if left[at] >= offer.gpus {
                left[at] -= offer.gpus;
                best = best.max(offer.value + largest(rest, left));
            }
        }
        best
    }

    proptest! {
        #[test]
        fn the_market_sells_what_there_is_and_comes_close(
            jobs in prop::collection::vec(
                prop::collection::vec((0_u16..2, 1_u32..5, 1_u64..100), 0..4)
                    .prop_map(|o| o.into_iter().map(|(t, gpus, value)| Offer { gpu_type: GpuType(t), gpus, value }).collect()),
                0..6,
            ),
            free in (0_u32..8, 0_u32..8),
        ) {
            let jobs: Vec<Vec<Offer>> = jobs;
            let chosen = Market::new(&[(GpuType(0), free.0), (GpuType(1), free.1)]).clear(&jobs);
            let taken: Vec<&Offer> = jobs.iter().zip(&chosen).filter_map(|(o, c)| c.map(|c| &o[c])).collect();
            let sold = |t| taken.iter().filter(|o| o.gpu_type == GpuType(t)).map(|o| o.gpus).sum::<u32>();
            prop_assert!(sold(0) <= free.0 && sold(1) <= free.1);
            let value: u64 = taken.iter().map(|o| o.value).sum();
            // Small cases are the hard ones: one large offer may be all there is room for.
            prop_assert!(value * 2 >= largest(&jobs, [free.0, free.1]), "{value}");
        }
    }
}
