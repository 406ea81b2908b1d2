//! One choice per job so that the sum of values is largest: the multiple-choice knapsack, for GPUs of one type.
//!
//! Exact, by dynamic programming; see `market` for several types or too many cells. Source: Kellerer, Pferschy, Pisinger,
//! "Knapsack Problems", chapter 11. Tests: at the end of this file.

/// So many units for so much value. The largest values of all rows must add up to less than 2^64.
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
    let first = row.first().map_or(0, |choice| choice.value); // takes nothing
    let mut next: Vec<u64> = best.iter().map(|&sum| sum.saturating_add(first)).collect();
    let mut taken = vec![0_u32; best.len().saturating_sub(low)];
    for (choice, label) in row.iter().zip(0_u32..).skip(1) {
        let units = size(choice.units);
        let from = units.max(low);
        let sums = best.get(from.saturating_sub(units)..).unwrap_or_default();
        let places = next.get_mut(from..).unwrap_or_default();
        let labels = taken.get_mut(from.saturating_sub(low)..).unwrap_or_default();
        for ((place, chosen), &sum) in places.iter_mut().zip(labels).zip(sums) {
            // A strictly larger sum is needed to replace an earlier choice. Without a branch: this is the inner loop.
            let sum = sum.wrapping_add(choice.value); // values of all rows add up to less than 2^64, see `Choice`
            let better = sum > *place;
            *place = if better { sum } else { *place };
            *chosen = if better { label } else { *chosen };
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
}
