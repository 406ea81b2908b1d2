//! Help, completion and manuals; errors in the words of users.

use crate::place::{Place, output_of};

fn shown(words: &[&str]) -> String {
    let place = Place::new();
    let (code, out, err) = output_of(&place.run(words));
    assert_eq!((code, &*err), (Some(0), ""), "{words:?}");
    assert!(out.lines().all(|line| console::measure_text_width(line) <= 80), "{words:?}: {out}");
    out
}

#[test]
fn the_first_page_of_help_shows_commands_in_groups() {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("help", shown(&["--help"]));
        insta::assert_snapshot!("help_of_logs", shown(&["logs", "--help"]));
    });
    assert_eq!(shown(&["-h"]), shown(&["--help"]));
    assert_eq!(shown(&["help"]), shown(&["--help"]));
}

#[test]
fn every_help_fits_80_columns() {
    for command in ["run", "ps", "get", "wait", "scale", "rerun", "test", "queue", "explain", "completion", "man"] {
        let help = shown(&[command, "--help"]);
        assert!(help.contains("Examples:\n  "), "{command}: {help}");
        assert!(help.contains(&format!("\n  trainyard {command}")), "{command}: {help}");
    }
    assert!(shown(&["run", "--help"]).contains("124 --timeout has passed, 130 Ctrl-C"));
}

#[test]
fn shells_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let place = Place::new();
        let (code, out, _) = output_of(&place.run(&["completion", shell]));
        assert_eq!(code, Some(0));
        for word in ["attach", "max-restarts", "previous"] {
            assert!(out.contains(word), "{shell}: {word}");
        }
    }
    let place = Place::new();
    let (_, page, _) = output_of(&place.run(&["man"]));
    assert!(page.contains(".TH trainyard 1") && page.contains("124"), "{page}");
    assert_eq!(output_of(&place.run(&["man", "--to", "pages"])).0, Some(0));
    let pages = crate::place::names(&place.path("pages"));
    for page in ["trainyard.1", "trainyard-run.1", "trainyard-logs.1"] {
        assert!(pages.iter().any(|name| name == page), "{pages:?}");
    }
    assert!(place.read("pages/trainyard-run.1").contains("max\\-restarts"));
}

#[test]
fn errors_say_what_happened_without_words_of_libraries() {
    let place = Place::new();
    place.write("broken.json", "{");
    for words in [
        &["run", "none.yaml"][..],
        &["validate", "none.yaml"],
        &["replay", "none.jsonl"],
        &["test", "none"],
        &["ps", "--log", "none.jsonl"],
        &["log", "verify", "none"],
        &["log", "import", "none.jsonl", "--to", "x"],
        &["operator", "--config", "none.yaml"],
        &["replay", "broken.json"],
    ] {
        let (code, out, err) = output_of(&place.run(words));
        assert_eq!(code, Some(2), "{words:?}: {out}{err}");
        let said = format!("{out}{err}");
        assert!(said.contains("none") || said.contains("broken"), "{words:?}: {said}");
        for word in ["os error", "expected struct", "Os {", "called `"] {
            assert!(!said.contains(word), "{words:?}: {said}");
        }
    }
    let (code, _, err) = output_of(&place.run(&["lgos"]));
    assert!(code == Some(2) && err.contains("'logs'"), "{err}");
}

#[test]
fn policies_are_listed_with_their_origin() {
    let out = shown(&["schedule", "policies"]);
    assert!(out.contains("gain              value gained for each GPU, less costs of change"), "{out}");
    let value: serde_json::Value = serde_json::from_str(&{
        let place = Place::new();
        output_of(&place.run(&["schedule", "policies", "-o", "json"])).1
    })
    .unwrap();
    assert_eq!(value["policies"].as_array().map(Vec::len), Some(19), "{value}");
}
