//! Every cell of the rule tables, run, compared with the table, and printed as one snapshot per table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fixtures::tables::{self, Cell};
use simulator::check;

use crate::per_api::{self, APIS};

/// Runs every cell; the grid shows what happened, not what was wanted.
fn grid(cells: &[Cell]) -> String {
    let (mut rows, mut columns): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut found = BTreeMap::new();
    let mut wrong = String::new();
    for cell in cells {
        let (row, column) = (cell.row.as_str(), cell.column.as_str());
        if !rows.contains(&row) {
            rows.push(row);
        }
        if !columns.contains(&column) {
            columns.push(column);
        }
        let run = simulator::run(&cell.scenario);
        for failure in check::failures(&cell.scenario, &run) {
            let _ = writeln!(wrong, "{row} | {column}: wanted {}: {failure}", cell.wanted);
        }
        let phases = run.map(|outcome| outcome.phases.into_values().next().unwrap_or_default()).unwrap_or_default();
        found.insert((row, column), phases.last().cloned().unwrap_or_default());
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let width = |texts: &[&str]| texts.iter().map(|t| t.len()).max().unwrap_or_default();
    let (first, rest) = (width(&rows), width(&columns).max("Terminating".len()));
    let mut out = format!("{:first$}", "");
    for column in &columns {
        let _ = write!(out, "  {column:rest$}");
    }
    for row in rows {
        let _ = write!(out, "\n{row:first$}");
        for column in &columns {
            let _ = write!(out, "  {:rest$}", found[&(row, *column)]);
        }
    }
    out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn check(api: &str, name: &str, cells: &[Cell], count: usize) {
    assert_eq!(cells.len(), count);
    per_api::settings(&format!("tables/{api}")).bind(|| insta::assert_snapshot!(name, grid(cells)));
}

#[test]
fn replica_policies() {
    check("aitrainingjob", "replica-policies", &tables::replica_policies(), 16 * 8);
}

#[test]
fn job_policies() {
    check("aitrainingjob", "job-policies", &tables::job_policies(), 16 * 5);
}

#[test]
fn zero_replicas() {
    check("aitrainingjob", "zero-replicas", &tables::zero_replicas(), 4 * 4);
}

#[test]
fn restart_policies_outcomes_and_scopes() {
    check("aitrainingjob", "restarts", &tables::restarts(), 7 * 7 * 3);
}

#[test]
fn restart_policies_of_elastic_jobs() {
    check("elasticjob", "restarts", &fixtures::elastic::restarts(), 8 * 7);
}

#[test]
fn every_phase_against_everything_that_may_happen() {
    for api in APIS {
        let text = outcomes(&(api.happenings)());
        let settings = per_api::settings(&format!("tables/{}", api.name));
        settings.bind(|| insta::assert_snapshot!("phases-and-happenings", text));
    }
}

/// Outcomes, each with what leads to it, in the order of the first.
type Happenings<'c> = Vec<(String, Vec<&'c str>)>;

/// Runs every cell, and prints the happenings of each row under the phases and pods that they lead to.
fn outcomes(cells: &[Cell]) -> String {
    let mut found: Vec<(&str, Happenings<'_>)> = Vec::new();
    let rows: BTreeSet<&str> = cells.iter().map(|cell| &*cell.row).collect();
    let columns: BTreeSet<&str> = cells.iter().map(|cell| &*cell.column).collect();
    assert_eq!(cells.len(), rows.len() * columns.len());
    for cell in cells {
        if found.last().is_none_or(|(row, _)| *row != cell.row) {
            found.push((&cell.row, Vec::new()));
        }
        let outcome = match simulator::run(&cell.scenario) {
            Ok(outcome) => {
                let phases = outcome.phases.into_values().next().unwrap_or_default();
                let pods = outcome.objects.iter().filter(|object| object["kind"] == "Pod");
                let pods: Vec<&str> = pods.filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
                format!("{} [{}]", phases.join(", "), pods.join(" "))
            }
            // A pod that is not there cannot be made to fail: no case of its own.
            Err(error @ simulator::runner::Error::Step { .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains("does not exist") || text.contains("has ended") || text.contains("404"),
                    "{text}"
                );
                "cannot be".to_owned()
            }
            Err(error) => panic!("{}, {}: {error}", cell.row, cell.column),
        };
        let Some((_, outcomes)) = found.last_mut() else { continue };
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, happenings)) => happenings.push(&cell.column),
            None => outcomes.push((outcome, vec![&cell.column])),
        }
    }
    let mut out = String::new();
    for (row, outcomes) in found {
        let _ = writeln!(out, "{row}");
        for (outcome, happenings) in outcomes {
            let _ = writeln!(out, "  {outcome}: {}", happenings.join(", "));
        }
    }
    out
}
