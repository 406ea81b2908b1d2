//! The nearest known word to a misspelt one, for "did you mean".
//!
//! Owns what counts as near: case, hyphens and underscores never matter; otherwise the number of letters inserted, left out,
//! replaced or swapped, up to a third of the word. Pure. Tests: at the end of this file.

use strsim::osa_distance;

/// Least length of a word that is taken as the beginning of a longer one.
const MIN_PREFIX: usize = 3;

/// Returns the candidate that `word` was most likely meant to be: a misspelt one, or the only one that begins so.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    misspelt(word, candidates.clone()).or_else(|| begun(word, candidates))
}

/// Returns the candidate that `word` is a misspelling of. The first one wins between equally near ones.
pub fn misspelt<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let limit = folded.chars().count().div_euclid(3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = fold(candidate);
        let distance = osa_distance(&folded, &other);
        if distance <= limit && distance < other.chars().count() && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Returns the candidate that begins with `word`, if there is only one.
pub fn begun<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let mut longer =
        candidates.filter(|candidate| folded.chars().count() >= MIN_PREFIX && fold(candidate).starts_with(&folded));
    let first = longer.next()?;
    longer.next().is_none().then_some(first)
}

fn fold(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
