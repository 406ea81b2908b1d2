//! Every phase against every kind of fact: what comes of it, and which scenario shows it. A pair that no scenario happens to
//! show is tried here directly, so that none is uncovered.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::Phase;
use simulator::runner::Transition;

use crate::direct;

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

#[test]
fn every_phase_and_kind_of_fact() {
    let mut seen: BTreeMap<(Phase, &'static str), BTreeMap<Option<Phase>, String>> = BTreeMap::new();
    let files = fixtures::scenarios("aitrainingjob").expect("the scenario folder can be read");
    let files = files.into_iter().map(|file| (file.name, file.scenario.unwrap_or_else(|error| panic!("{error}"))));
    let cells = fixtures::phases::phases_and_happenings().into_iter();
    let cells = cells.map(|cell| (format!("{}: {}", cell.row, cell.column), cell.scenario));
    for (name, scenario) in files.chain(cells) {
        let Ok(outcome) = simulator::run(&scenario) else { continue };
        for Transition { before, facts, after, events } in outcome.transitions {
            let facts = if facts.is_empty() { vec!["(none)"] } else { facts };
            // `None`: nothing was decided.
            let to = if events.is_empty() { None } else { Some(after) };
            for fact in facts {
                assert!(FACTS.contains(&fact), "{fact} is no fact of a job");
                seen.entry((before, fact)).or_default().entry(to).or_insert_with(|| name.clone());
            }
        }
    }
    let mut out = String::new();
    for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Suspended) {
        let _ = writeln!(out, "{phase:?}");
        for fact in FACTS {
            let Some(outcomes) = seen.get(&(phase, fact)) else {
                let _ = writeln!(out, "  {fact}: {} (tried directly)", direct::tried(phase, fact));
                continue;
            };
            for (to, name) in outcomes {
                let to = match to {
                    None => "nothing".to_owned(),
                    Some(same) if *same == phase => "same phase, something decided".to_owned(),
                    Some(other) => format!("{other:?}"),
                };
                let _ = writeln!(out, "  {fact}: {to} ({name})");
            }
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("tables");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("matrix", out));
    // What a job lives on must be shown by a scenario in every phase it lives in.
    for phase in [Phase::Pending, Phase::Creating, Phase::Running, Phase::Restarting, Phase::Terminating] {
        for fact in ["Job", "Spec", "JobGone", "Pod", "PodGone", "ServiceGone", "NodeChanged"] {
            // Without a pod that is placed no node concerns a job.
            let moot = (phase, fact) == (Phase::Pending, "NodeChanged");
            assert!(moot || seen.contains_key(&(phase, fact)), "no scenario shows {fact} in phase {phase:?}");
        }
    }
}
