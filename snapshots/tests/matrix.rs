//! Every phase against every kind of fact: what comes of it, and which scenario shows it. A pair that no scenario happens to
//! show is tried here directly, so that none is uncovered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use model::{JobFact, Phase};
use simulator::runner::Transition;

use crate::direct::{self, WITHOUT_FACTS};
use crate::per_api::{self, APIS, Api};

/// Returns the names of all kinds of facts about a job, and that of a record without any.
fn kinds() -> impl Iterator<Item = &'static str> {
    JobFact::NAMES.iter().copied().chain([WITHOUT_FACTS])
}

#[test]
fn every_phase_and_kind_of_fact() {
    let mut shown = BTreeSet::new();
    for api in APIS {
        let seen = outcomes(api);
        shown.extend(seen.keys().map(|(_, kind)| *kind));
        per_api::settings(&format!("tables/{}", api.name)).bind(|| insta::assert_snapshot!("matrix", text(api, &seen)));
        // What a job lives on must be shown by a scenario in every phase it lives in.
        for (phase, facts) in api.lived_in {
            for fact in *facts {
                let name = api.name;
                assert!(seen.contains_key(&(*phase, fact)), "{name}: no scenario shows {fact} in phase {phase:?}");
            }
        }
    }
    for kind in kinds() {
        assert!(shown.contains(kind), "no scenario of any API shows the fact {kind}");
    }
}

/// Outcomes of a kind of fact in a phase, each with the first scenario that shows it. `None`: nothing was decided.
type Outcomes = BTreeMap<(Phase, &'static str), BTreeMap<Option<Phase>, String>>;

fn outcomes(api: &Api) -> Outcomes {
    let mut seen = Outcomes::new();
    let files = api.scenarios().into_iter();
    let files = files.map(|file| (file.name, file.scenario.unwrap_or_else(|error| panic!("{error}"))));
    let cells = (api.happenings)().into_iter();
    let cells = cells.map(|cell| (format!("{}: {}", cell.row, cell.column), cell.scenario));
    let files = files.map(|(name, scenario)| (name, scenario, false));
    let cells = cells.map(|(name, scenario)| (name, scenario, true));
    for (name, scenario, is_cell) in files.chain(cells) {
        let outcome = match simulator::run(&scenario) {
            Ok(outcome) => outcome,
            // One that is meant to stop shows nothing, nor does a cell whose object is not there in that phase.
            Err(_) if scenario.expect.error.is_some() => continue,
            Err(error) if is_cell && is_about_nothing(&error.to_string()) => continue,
            Err(error) => panic!("{}/{name}: {error}", api.name),
        };
        for Transition { before, facts, after, events } in outcome.transitions {
            let facts = if facts.is_empty() { vec![WITHOUT_FACTS] } else { facts };
            let to = if events.is_empty() { None } else { Some(after) };
            assert!(api.phases.contains(&before), "{}/{name}: {before:?} is no phase of this API", api.name);
            for fact in facts {
                assert!(kinds().any(|kind| kind == fact), "{fact} is no fact of a job");
                seen.entry((before, fact)).or_default().entry(to).or_insert_with(|| name.clone());
            }
        }
    }
    seen
}

/// Returns true for the error of a step about an object that is not there, or a pod that has ended.
fn is_about_nothing(error: &str) -> bool {
    error.ends_with(" not found") || error.ends_with(" does not exist") || error.contains(" has ended (")
}

fn text(api: &Api, seen: &Outcomes) -> String {
    let mut out = String::new();
    for phase in api.phases {
        let _ = writeln!(out, "{phase:?}");
        for fact in kinds() {
            let Some(outcomes) = seen.get(&(*phase, fact)) else {
                if let Some(tried) = direct::tried(api, *phase, fact) {
                    let _ = writeln!(out, "  {fact}: {tried} (tried directly)");
                }
                continue;
            };
            for (to, name) in outcomes {
                let to = match to {
                    None => "nothing".to_owned(),
                    Some(same) if same == phase => "same phase, something decided".to_owned(),
                    Some(other) => format!("{other:?}"),
                };
                let _ = writeln!(out, "  {fact}: {to} ({name})");
            }
        }
    }
    out
}
