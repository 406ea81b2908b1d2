//! Every scenario file: what it expects, its snapshot, its messages, and that running it again gives the same.

use std::fmt::Write as _;

use simulator::{Scenario, check};

use crate::messages::Messages;
use crate::per_api::{self, APIS, Api};
use crate::summary;

fn of(api: &Api) -> Vec<(String, Scenario)> {
    let files = api.scenarios().into_iter();
    files.map(|file| (file.name, file.scenario.unwrap_or_else(|error| panic!("{error}")))).collect()
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
fn every_scenario_and_message_reads_as_reviewed() {
    let mut wrong = Vec::new();
    for api in APIS {
        let mut messages = Messages::default();
        let mut compare = |folder: &str, name: &str, text: String| {
            let compared = || std::panic::catch_unwind(|| insta::assert_snapshot!(name, text));
            if per_api::settings(folder).bind(compared).is_err() {
                wrong.push(format!("{folder}/{name}"));
            }
        };
        for (name, scenario) in of(api) {
            let text = match simulator::run(&scenario) {
                Ok(outcome) => {
                    messages.add(&outcome);
                    summary::of(&scenario, &outcome)
                }
                Err(error) => format!("{}\nfails: {error}\n", scenario.description),
            };
            compare(&format!("scenarios/{}", api.name), &name, text);
        }
        compare("messages", api.name, messages.table());
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
            // A hundred times where order once decided; elsewhere once more is enough.
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

/// The long form is what `trainyard scenario` prints: the summary, and every message where it stands.
#[test]
fn a_run_is_printed_with_its_messages() {
    let printed = [("aitrainingjob", "node-unreachable"), ("trainingqueue", "reclaimed-by-the-lender")];
    for (api, wanted) in printed {
        let mut files = fixtures::scenarios(api).expect("the scenario folder can be read").into_iter();
        let file = files.find(|file| file.name == wanted).expect("the scenario is there");
        let scenario = file.scenario.expect("it can be read");
        let outcome = simulator::run(&scenario).expect("it runs");
        let text = simulator::text::render(&scenario, &outcome);
        per_api::settings("printed").bind(|| insta::assert_snapshot!(wanted, text));
    }
}
