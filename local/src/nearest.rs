//! Near names of programs, for one that is not on `PATH`. Tests: at the end.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Returns whether a program is in the directories of `path`.
#[must_use]
pub fn has_program(name: &str, path: &str) -> bool {
    let is_program = |dir: &str| {
        Path::new(dir)
            .join(name)
            .metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    path.split(':').filter(|dir| !dir.is_empty()).any(is_program)
}

/// Returns the program in the directories of `path` whose name is nearest to a name that was probably mistyped.
#[must_use]
pub fn nearest_program(name: &str, path: &str) -> Option<String> {
    if name.len() < 3 || name.contains('/') {
        return None;
    }
    let most = if name.len() < 6 { 1 } else { 2 };
    let near =
        path.split(':').filter(|dir| !dir.is_empty()).flat_map(|dir| Path::new(dir).read_dir().into_iter().flatten());
    near.flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|known| (strsim::damerau_levenshtein(name, &known), known))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_changed_places() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["python3", "python", "pip", "torchrun"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let path = format!("/no/such/directory::{}", dir.path().display());
        for (name, want) in [
            ("pyhton3", Some("python3")),
            ("pyton", Some("python")),
            ("torch-run", Some("torchrun")),
            ("pi", None),
            ("sh", None),
            ("java", None),
            ("./pyhton3", None),
        ] {
            assert_eq!(nearest_program(name, &path).as_deref(), want, "{name}");
        }
        assert_eq!(nearest_program("pyhton3", ""), None);
    }
}
