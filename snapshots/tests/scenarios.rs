//! Every scenario file: what it expects, its snapshot, and that running it again gives the same.

use std::fmt::Write as _;

use simulator::{Scenario, ScenarioOutcome, check, runner, text};

use crate::per_api::{self, APIS, Api};

fn of(api: &Api) -> Vec<(String, Scenario)> {
    let files = api.scenarios().into_iter();
    files.map(|file| (file.name, file.scenario.unwrap_or_else(|error| panic!("{error}")))).collect()
}

fn differences(scenario: &Scenario, run: &Result<ScenarioOutcome, runner::Error>) -> String {
    match run {
        Ok(outcome) => text::render(scenario, outcome),
        Err(error) => format!("{}\nfails: {error}\n", scenario.description),
    }
}

#[test]
fn every_scenario_does_what_it_expects() {
    let mut wrong = String::new();
    for api in APIS {
        for (name, scenario) in of(api) {
            assert!(!scenario.description.is_empty(), "{}/{name} says nothing about itself", api.name);
            for failure in check::failures(&scenario, &simulator::run(&scenario)) {
                let _ = writeln!(wrong, "{}/{name}: {failure}", api.name);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_scenario_reads_as_reviewed() {
    let mut wrong = Vec::new();
    for api in APIS {
        let settings = per_api::settings(&format!("scenarios/{}", api.name));
        for (name, scenario) in of(api) {
            let differences = differences(&scenario, &simulator::run(&scenario));
            let same =
                settings.bind(|| std::panic::catch_unwind(|| insta::assert_snapshot!(name.clone(), differences)));
            if same.is_err() {
                wrong.push(format!("{}/{name}", api.name));
            }
        }
    }
    assert!(wrong.is_empty(), "snapshots differ: {wrong:?}");
}

#[test]
fn every_snapshot_is_of_a_scenario() {
    for api in APIS {
        let folder = format!("{}/tests/scenarios/{}", env!("CARGO_MANIFEST_DIR"), api.name);
        let names: Vec<String> = api.scenarios().into_iter().map(|file| file.name).collect();
        for entry in std::fs::read_dir(&folder).expect("the folder of snapshots can be read") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            // One that differs lies beside it for a moment, under another ending.
            let Some(stem) = name.strip_suffix(".snap") else { continue };
            assert!(names.iter().any(|name| name == stem), "{folder}/{name} belongs to no scenario");
        }
    }
}

#[test]
fn every_run_of_a_scenario_is_the_same() {
    for api in APIS {
        for (name, scenario) in of(api) {
            let document =
                || simulator::run(&scenario).map(|outcome| outcome.to_json()).map_err(|error| error.to_string());
            let first = document();
            // A hundred times where order once decided; elsewhere once more is enough to tell.
            let times = if api.repeated.contains(&name.as_str()) { 100 } else { 1 };
            for _ in 0..times {
                assert_eq!(first, document(), "{}/{name}", api.name);
            }
        }
    }
}

/// A name says its rule in words. A number in front of them would be that of a document.
#[test]
fn every_scenario_is_named_after_its_rule() {
    for api in APIS {
        for file in api.scenarios() {
            let mut words = file.name.split('-');
            let begins_with_word = words.next().is_some_and(|word| word.chars().all(|c| c.is_ascii_lowercase()));
            let is_word = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            let is_kebab_case = words.all(|word| is_word(word) && !word.is_empty());
            assert!(begins_with_word && is_kebab_case, "{}/{} is no rule in words", api.name, file.name);
        }
    }
}
