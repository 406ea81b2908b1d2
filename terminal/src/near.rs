//! Suggestions for mistyped names.
//!
//! Owns how near a name must be to be suggested. It must not know what is named. Tests: `cli/tests/local/help.rs`.

/// Returns words that suggest the known name nearest to a mistyped one; empty if none is near.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let most = name.len() / 3;
    let near = known.map(|known| (strsim::damerau_levenshtein(name, known), known)).filter(|(far, _)| *far <= most);
    near.min().map(|(_, known)| format!(": did you mean {known}?")).unwrap_or_default()
}
