//! Damaged manifests: for every content of a file, reading it ends with findings that have a place in it, and never in a panic.

use std::fs;
use std::path::Path;

use apis::Registry;
use proptest::prelude::*;

use super::Manifests;

/// Right and wrong manifests of every sort.
fn samples() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in ["fixtures/manifests", "fixtures/manifests/wrong", "deploy/samples"] {
        let mut paths: Vec<_> = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        found.extend(paths.iter().filter(|path| path.is_file()).map(|path| fs::read(path).unwrap()));
    }
    assert!(found.len() > 10);
    found
}

/// One change: what is put where, instead of how many bytes.
fn change() -> impl Strategy<Value = (prop::sample::Index, usize, Vec<u8>)> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "\t",
            "\n",
            ": ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            "*a",
            "&a ",
            "<<: ",
            "null",
            "~",
            "---\n",
            "\"",
            "'",
            "|\n",
            "!!int ",
            "!!binary ",
            "1e999",
            "-1",
            ".nan",
            "0x",
            "yes",
            "\u{feff}",
            "\u{0}",
            "%YAML 9\n",
            "? ",
            "a.b[0]",
            "items",
            "List",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    (any::<prop::sample::Index>(), 0..30_usize, piece)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_manifests_have_findings_and_no_panic(
        sample in prop::sample::select(samples()),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let mut bytes = sample;
        for (at, removed, piece) in changes {
            let start = at.index(bytes.len() + 1);
            let end = (start + removed).min(bytes.len());
            bytes.splice(start..end, piece);
        }
        let mut manifests = Manifests::default();
        manifests.file(&Registry::all(), "f.yaml", &bytes);
        let lines = bytes.iter().filter(|b| **b == b'\n' || **b == b'\r').count() as u64 + 1;
        for problem in &manifests.problems {
            prop_assert!((1..=lines).contains(&problem.place.line), "{} of {lines}", problem.line(false));
            prop_assert!(!problem.line(false).contains(char::is_control));
            prop_assert!(problem.to_json().is_object());
        }
        prop_assert!(!manifests.unusable || manifests.problems.iter().any(super::Problem::is_error));
    }
}

#[test]
fn deep_nesting_is_an_error_or_a_finding() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), format!("a:\n{}", "- ".repeat(50_000)), "- ".repeat(1500)]
    {
        let mut manifests = Manifests::default();
        manifests.file(&Registry::all(), "f.yaml", text.as_bytes());
        assert!(manifests.unusable && !manifests.problems.is_empty());
    }
}
