//! `trainyard schedule policies`: every policy with a line about it and where it comes from.
//!
//! Owns the lines; the names are `scheduler`'s. Tests: at the end, and `tests/local/help.rs`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use terminal::columns;
use terminal::out;

use crate::commands::story::Output;

/// Arguments of `trainyard schedule policies`.
#[derive(Debug, Args)]
#[command(after_help = "A policy is named as --policy NAME, with settings as NAME:KEY=VALUE,... (docs/scheduling.md).

Examples:
  trainyard schedule policies
  trainyard schedule policies -o json")]
pub(super) struct PoliciesArgs {
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Name, what it does, and its origin: a system, or the publication in whose simulator the rule stands.
const POLICIES: [[&str; 3]; 19] = [
    ["FIFO", "by submission, at the minimum, skipping the big", "Voda"],
    ["ElasticFIFO", "the same, and the rest in turns", "Voda"],
    ["SRJF", "shortest remaining job first, at the minimum", "Voda"],
    ["ElasticSRJF", "the same, and the rest in turns", "Voda"],
    ["Tiresias", "least attained service, in queues", "NSDI'19"],
    ["ElasticTiresias", "the same, shrunk when many wait, else grown", "TPDS'22"],
    ["FfDLOptimizer", "the largest sum of speeds", "MASCOTS'20"],
    ["AFS-L", "elastic, by length and gain, as Voda has it", "NSDI'21"],
    ["fifo-strict", "by submission; what is too big holds up the rest", "NSDI'19"],
    ["fifo-backfill", "by submission; later ones pass where they fit", "NSDI'19"],
    ["srtf", "shortest remaining time, may halt others", "NSDI'19"],
    ["srsf", "shortest remaining time x GPUs, may halt others", "NSDI'19"],
    ["sjf", "fewest GPUs first, may halt others", "NSDI'19"],
    ["max-min", "equal shares, filled up step by step", "NSDI'21"],
    ["optimus", "the largest saving of time for each GPU", "EuroSys'18"],
    ["afs-l-authors", "AFS-L as its authors have it; alias afs-l", "NSDI'21"],
    ["afs-p", "elastic without lengths; GPUs are leased", "NSDI'21"],
    ["sia", "goodput over several GPU types, by prices", "SOSP'23"],
    ["gain", "value gained for each GPU, less costs of change", "Trainyard"],
];

/// Lists the policies.
pub(super) fn run(args: &PoliciesArgs) -> ExitCode {
    if args.output == Output::Json {
        let all: Vec<Value> = POLICIES
            .iter()
            .map(|[name, about, origin]| {
                json!({"policy": name, "elastic": is_elastic(name), "about": about, "origin": origin})
            })
            .collect();
        out::line(&json!({"policies": all}).to_string());
        return ExitCode::SUCCESS;
    }
    let rows: Vec<[String; 3]> = POLICIES.iter().map(|row| row.map(str::to_owned)).collect();
    out::lines(&columns::lines(["POLICY", "WHAT IT DOES", "ORIGIN"], &rows));
    ExitCode::SUCCESS
}

/// Returns true if a policy chooses sizes of jobs between their bounds.
fn is_elastic(name: &str) -> bool {
    scheduler::by_name(name).is_ok_and(|policy| policy.is_elastic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_line_that_fits() {
        assert_eq!(POLICIES.map(|[name, ..]| name), scheduler::NAMES);
        for [name, about, origin] in POLICIES {
            assert!(about.len() <= 49 && origin.len() <= 10 && !origin.is_empty(), "{name}");
        }
    }
}
