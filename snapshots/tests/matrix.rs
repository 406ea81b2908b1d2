//! Every phase against every kind of fact: what comes of it, and which scenario shows it. A pair that no scenario happens to
//! show is tried here directly, so that none is uncovered.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::Phase;
use simulator::runner::Transition;

use crate::direct;
use crate::per_api::{self, APIS, Api};

/// Kinds of facts, those first that concern one job; the rest is refused in a job's record.
const FACTS: [&str; 18] = [
    "Job",
    "Spec",
    "JobGone",
    "Pod",
    "PodGone",
    "Service",
    "ServiceGone",
    "NodeChanged",
    "Answered",
    "Published",
    "Due",
    "Adopted",
    "(none)",
    "TermBegan",
    "Configured",
    "Node",
    "NodeGone",
    "Relisted",
];

/// Kinds of facts about objects besides pods and services of slots. Jobs of some APIs own none.
const OWNED: [&str; 2] = ["Owned", "OwnedGone"];

/// Kinds of facts that only jobs with GPUs, with an autoscaler, with a model in local storage, or queues have.
const RARE: [&str; 6] = ["ShareChanged", "QueueReported", "WaitReported", "Dequeued", "Measured", "NodeFound"];

#[test]
fn every_phase_and_kind_of_fact() {
    for api in APIS {
        let seen = outcomes(api);
        per_api::settings(&format!("tables/{}", api.name)).bind(|| insta::assert_snapshot!("matrix", text(api, &seen)));
        // What a job lives on must be shown by a scenario in every phase it lives in.
        for (phase, facts) in api.lived_in {
            for fact in *facts {
                let name = api.name;
                assert!(seen.contains_key(&(*phase, fact)), "{name}: no scenario shows {fact} in phase {phase:?}");
            }
        }
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
            let facts = if facts.is_empty() { vec!["(none)"] } else { facts };
            let to = if events.is_empty() { None } else { Some(after) };
            assert!(api.phases.contains(&before), "{}/{name}: {before:?} is no phase of this API", api.name);
            for fact in facts {
                let is_known = FACTS.contains(&fact) || OWNED.contains(&fact) || RARE.contains(&fact);
                assert!(is_known, "{fact} is no fact of a job");
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
        let owns = seen.keys().any(|(_, fact)| OWNED.contains(fact));
        for fact in FACTS.into_iter().chain(OWNED.into_iter().filter(|_| owns)) {
            let Some(outcomes) = seen.get(&(*phase, fact)) else {
                let _ = writeln!(out, "  {fact}: {} (tried directly)", direct::tried(api, *phase, fact));
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
