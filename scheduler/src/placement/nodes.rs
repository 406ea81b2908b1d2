//! Sets of nodes, as places in their order by name.
//!
//! A decision asks many times whether sets of nodes meet and what is left of them. With names that costs a comparison of texts for each
//! node; with places 64 nodes are looked at in one step. Decides nothing. Tests: at the end of this file.

/// A set of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSet {
    /// One bit for each node; no word of zeros at the end, so that equal sets are equal values.
    words: Vec<u64>,
}

/// Returns the word of a place and its bit there.
const fn bit(place: usize) -> (usize, u64) {
    (place / 64, 1 << (place % 64))
}

impl NodeSet {
    /// Adds the node at a place.
    pub fn insert(&mut self, place: usize) {
        let (word, bit) = bit(place);
        if self.words.len() <= word {
            self.words.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    /// Adds the nodes of another set.
    pub fn extend(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Returns the nodes of this set that are not in another.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        let mut words: Vec<u64> = self.words.iter().zip(others).map(|(word, other)| word & !other).collect();
        words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last.saturating_add(1)));
        Self { words }
    }

    /// Returns true if the node at a place is in the set.
    pub fn contains(&self, place: usize) -> bool {
        let (word, bit) = bit(place);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns true if there is no node in the set.
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns true if no node is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & other == 0)
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        let ones = self.words.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or_default());
        ones.fold(0, usize::saturating_add)
    }

    /// Returns the places of the nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let first = (0_usize..).step_by(64);
        self.words.iter().zip(first).flat_map(|(&word, first)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let place = usize::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
                left &= left.wrapping_sub(1);
                Some(first.saturating_add(place))
            })
        })
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let mut set = Self::default();
        places.into_iter().for_each(|place| set.insert(place));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(places: &[usize]) -> NodeSet {
        places.iter().copied().collect()
    }

    #[test]
    fn a_set_has_what_was_put_in() {
        let places = [0, 1, 63, 64, 130];
        let one = set(&places);
        assert!(one.iter().eq(places));
        assert_eq!((one.len(), one.contains(64), one.contains(65), one.contains(1000)), (5, true, false, false));
        assert!(set(&[]).is_empty() && !one.is_empty());
    }

    #[test]
    fn sets_meet_and_are_taken_off_each_other() {
        let (one, other) = (set(&[1, 70]), set(&[1, 2, 200]));
        assert!(!one.is_disjoint(&other) && one.is_disjoint(&set(&[2, 300])) && one.is_disjoint(&set(&[])));
        assert_eq!((one.without(&other), other.without(&one)), (set(&[70]), set(&[2, 200])));
        assert_eq!(other.without(&set(&[200])), set(&[1, 2]), "equal however it was made");
        assert!(one.without(&one).is_empty());
        let mut both = one;
        both.extend(&other);
        assert_eq!(both, set(&[1, 2, 70, 200]));
    }
}
