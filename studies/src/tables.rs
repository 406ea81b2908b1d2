//! Results of studies as text for people, and as JSON.
//!
//! Owns the columns beside the published ones, and their words. It must not measure: the figures are `summary`'s. Tests:
//! `cli/tests/local/`, by command.

use std::fmt::Write as _;

use crate::input::Workload;
use crate::lineup::Candidate;
use crate::rows::{self, RowHead};
use crate::sim::{Settings, StudyOutcome};
use crate::summary::{Summary, ratio, seconds};

/// A policy with its outcome.
#[derive(Debug)]
pub struct Played<'a> {
    /// The policy.
    pub candidate: &'a Candidate,
    /// Its outcome.
    pub outcome: StudyOutcome,
    /// Its figures.
    pub summary: Summary,
}

/// Returns a row of the published columns for each policy.
pub fn result_rows(workload: &Workload, settings: &Settings, played: &[Played<'_>]) -> Vec<Vec<String>> {
    let config = settings.words();
    let row = |p: &Played<'_>| {
        let head = RowHead {
            trace: &workload.name,
            gpus: workload.cluster.gpus(),
            policy: &p.candidate.name,
            config: &config,
            counting: p.candidate.counting,
        };
        rows::row(head, &p.summary)
    };
    played.iter().map(row).collect()
}

/// Returns the policies side by side, for people.
pub fn comparison(workload: &Workload, settings: &Settings, played: &[Played<'_>]) -> String {
    let width = played.iter().map(|p| p.candidate.name.len()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{}: {} jobs, {} GPUs ({}); {}\n\n{:width$} {:>11} {:>9} {:>10} {:>10} {:>10} {:>7} {:>7} {:>9} {:>8}\n",
        workload.name,
        workload.jobs.len(),
        workload.cluster.gpus(),
        workload.cluster.label(),
        settings.words(),
        "policy",
        "mean JCT s",
        "median",
        "p90",
        "p99",
        "makespan",
        "GPUs %",
        "useful",
        "restarts",
        "fairness",
    );
    for p in played {
        let (s, c) = (&p.summary, &p.summary.completion);
        let _ = writeln!(
            text,
            "{:width$} {:>11.1} {:>9.1} {:>10.1} {:>10.1} {:>10.1} {:>7.1} {:>7.3} {:>9.2} {:>8.2}",
            p.candidate.name,
            s.average_completion(),
            seconds(c.median),
            seconds(c.p90),
            seconds(c.p99),
            seconds(s.makespan),
            s.utilisation() * 100.0,
            s.efficiency(),
            ratio(u128::from(s.restarts), s.jobs as u128),
            s.worst_fairness,
        );
    }
    text.push_str("\nuseful: work done per GPU time held. restarts: per job. fairness: worst finish-time fairness.\n");
    text
}

/// Returns the rows as objects, with values that have no published column.
pub fn to_json(rows: &[Vec<String>], played: &[Played<'_>]) -> String {
    let object = |(row, p): (&Vec<String>, &Played<'_>)| {
        let mut object = serde_json::Map::new();
        for (column, value) in rows::COLUMNS.iter().zip(row) {
            let number = serde_json::from_str::<serde_json::Number>(value).ok();
            let is_text = matches!(*column, "simulator" | "trace" | "policy" | "config" | "source");
            let value = number.filter(|_| !is_text).map_or_else(|| value.clone().into(), serde_json::Value::Number);
            object.insert((*column).to_owned(), value);
        }
        object.insert("useful_gpu_s".to_owned(), ratio(p.summary.useful, 1_000_000).into());
        object.insert("held_gpu_s".to_owned(), ratio(p.summary.held, 1_000_000).into());
        object.insert("efficiency".to_owned(), p.summary.efficiency().into());
        object.insert("restarts".to_owned(), p.summary.restarts.into());
        object.insert("worst_finish_time_fairness".to_owned(), p.summary.worst_fairness.into());
        object.insert("decisions".to_owned(), p.summary.decisions.into());
        serde_json::Value::Object(object)
    };
    let objects: Vec<_> = rows.iter().zip(played).map(object).collect();
    format!("{:#}", serde_json::Value::Array(objects))
}

/// Returns the figures of one policy, for people.
pub fn study(workload: &Workload, policy: &str, settings: &Settings, summary: &Summary) -> String {
    let p = &summary.completion;
    let (name, gpus) = (&workload.name, workload.cluster.gpus());
    let hours = |area: u128| area / 3_600_000_000;
    format!(
        "{policy} on {name}: {} jobs, {gpus} GPUs ({}); {}\n\n\
         completion time  mean {:.1} s, median {:.1}, p90 {:.1}, p95 {:.1}, p99 {:.1}, max {:.1}\n\
         makespan         {:.1} s\n\
         waiting          {:.1} s until the first start, {:.1} s in all, on average\n\
         GPUs             {:.1} % held; {} of {} GPU-hours held, {} GPU-hours of work done with them (efficiency {:.3})\n\
         changes          {} of size, {} of them to nothing; {} restarts\n\
         fairness         worst finish-time fairness {:.2}\n\
         decisions        {}\n",
        summary.jobs,
        workload.cluster.label(),
        settings.words(),
        summary.average_completion(),
        seconds(p.median),
        seconds(p.p90),
        seconds(p.p95),
        seconds(p.p99),
        seconds(p.max),
        seconds(summary.makespan),
        summary.average_first_wait(),
        summary.average_queued(),
        summary.utilisation() * 100.0,
        hours(summary.held),
        hours(summary.offered),
        hours(summary.useful),
        summary.efficiency(),
        summary.changes,
        summary.halts,
        summary.restarts,
        summary.worst_fairness,
        summary.decisions,
    )
}
