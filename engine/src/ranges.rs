//! Sets of indices as text: `1,3-5`. Short where neighbours stand together, as the failed pods of a lost node do.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Maximum number of indices that one range may stand for when it is read.
const MAX_RANGE: u32 = 1 << 20;

/// Writes a set as ranges.
pub(crate) fn text(set: &BTreeSet<u32>) -> String {
    let mut out = String::new();
    let mut range: Option<(u32, u32)> = None;
    let mut put = |(first, last): (u32, u32)| {
        let comma = if out.is_empty() { "" } else { "," };
        let dash = if first == last { String::new() } else { format!("-{last}") };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}{first}{dash}");
    };
    for index in set {
        range = match range {
            Some((first, last)) if last.checked_add(1) == Some(*index) => Some((first, *index)),
            Some(done) => {
                put(done);
                Some((*index, *index))
            }
            None => Some((*index, *index)),
        };
    }
    range.into_iter().for_each(put);
    out
}

/// Reads ranges. A part that is none is left out.
pub(crate) fn parse(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        (last.checked_sub(first)? < MAX_RANGE).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_as_they_were_written() {
        for (indices, want) in [
            (vec![], ""),
            (vec![7], "7"),
            (vec![0, 1, 2], "0-2"),
            (vec![1, 3, 4, 5, 9], "1,3-5,9"),
            (vec![u32::MAX - 1, u32::MAX], "4294967294-4294967295"),
        ] {
            let set: BTreeSet<u32> = indices.into_iter().collect();
            assert_eq!(text(&set), want);
            assert_eq!(parse(want), set);
        }
        assert_eq!(parse("x,2,5-3,0-4294967295,-1"), BTreeSet::from([2]));
    }
}
