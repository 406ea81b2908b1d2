//! The nearest known word to a misspelt one, for "did you mean".
//!
//! Owns what counts as near: case, hyphens and underscores never matter; otherwise the number of letters inserted, left out,
//! replaced or swapped, up to a third of the word. Pure. Tests: at the end of this file.

/// Least length of a word that is taken as the beginning of a longer one.
const MIN_PREFIX: usize = 3;

/// Returns the candidate that `word` was most likely meant to be: a misspelt one, or the only one that begins so.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    misspelt(word, candidates.clone()).or_else(|| begun(word, candidates))
}

/// Returns the candidate that `word` is a misspelling of. The first one wins between equally near ones.
pub fn misspelt<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let limit = folded.len().div_euclid(3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = fold(candidate);
        let distance = distance(&folded, &other);
        if distance <= limit && distance < other.len() && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Returns the candidate that begins with `word`, if there is only one.
pub fn begun<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let mut longer = candidates.filter(|candidate| folded.len() >= MIN_PREFIX && fold(candidate).starts_with(&folded));
    let first = longer.next()?;
    longer.next().is_none().then_some(first)
}

fn fold(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Returns the optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    // Rows of the table for the letters of `a` before the last two, before the last one, and with it.
    let mut older: Vec<usize> = Vec::new();
    let mut old: Vec<usize> = (0..=b.len()).collect();
    let mut before: Option<char> = None;
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i.saturating_add(1)];
        let mut left = i.saturating_add(1);
        let mut previous: Option<char> = None;
        for (j, &y) in b.iter().enumerate() {
            let at = |row: &[usize], n: usize| row.get(n).copied().unwrap_or(usize::MAX);
            let replaced = at(&old, j).saturating_add(usize::from(x != y));
            let deleted = at(&old, j.saturating_add(1)).saturating_add(1);
            let mut least = replaced.min(deleted).min(left.saturating_add(1));
            if before == Some(y) && previous == Some(x) {
                least = least.min(at(&older, j.saturating_sub(1)).saturating_add(1));
            }
            row.push(least);
            left = least;
            previous = Some(y);
        }
        older = std::mem::replace(&mut old, row);
        before = Some(x);
    }
    old.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_optimal_string_alignment() {
        for (a, b, want) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "", 2),
            ("same", "same", 0),
            ("replica", "replicas", 1),
            ("replicsa", "replicas", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
            ("ab", "ba", 1),
        ] {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(distance(&letters(a), &letters(b)), want, "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_word_is_found_or_none() {
        let fields = ["command", "env", "envFrom", "image", "imagePullPolicy", "replicas", "resources"];
        for (word, want) in [
            ("replica", Some("replicas")),
            ("Replicas", Some("replicas")),
            ("resorces", Some("resources")),
            ("image-pull-policy", Some("imagePullPolicy")),
            ("env_from", Some("envFrom")),
            ("comand", Some("command")),
            ("imagePull", Some("imagePullPolicy")),
            ("evn", Some("env")),
            ("x", None),
            ("", None),
            ("-", None),
            ("gpus", None),
            ("Bild", None),
        ] {
            assert_eq!(nearest(word, fields.into_iter()), want, "{word}");
        }
        assert_eq!(nearest("onfailure", ["Always", "OnFailure", "OnNodeFail"].into_iter()), Some("OnFailure"));
        assert_eq!(nearest("onf", ["onFast", "onFull"].into_iter()), None, "two words begin so");
    }
}
