//! `trainyard schedule compare`: a trace played through several policies, side by side.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use studies::compare;
use studies::input::Workload;
use studies::lineup::Candidate;
use studies::report::{self, Shown};
use studies::rows::{self, RowHead};
use studies::sim::{self, Settings, StudyOutcome};
use studies::summary::{Summary, ratio, seconds};
use terminal::out::{self, Failure};

use super::provenance;
use super::study::{Setup, write};

/// Arguments of `trainyard schedule compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    setup: Setup,
    /// Policies, separated by commas. Those of another simulator carry its name: tiresias-sim:fifo.
    #[arg(long, value_name = "NAMES", default_value = "fifo-backfill,srtf,Tiresias,max-min,AFS-L,FfDLOptimizer,gain")]
    policies: String,
    /// Output format; `csv` has the columns in which other simulators' results are published.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
    /// Number of policies to play at a time; the number of cores by default. The results do not depend on it.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write a report with plots to this HTML file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Csv,
    Json,
}

/// A policy with its outcome.
struct Played<'a> {
    candidate: &'a Candidate,
    outcome: StudyOutcome,
    summary: Summary,
}

/// Plays the trace through each policy and prints the results in the given order.
pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let candidates = Candidate::list(&args.policies)?;
    if candidates.is_empty() {
        return Err(Failure::new("--policies names none"));
    }
    let settings = args.setup.settings(args.report.is_some())?;
    let workload = args.setup.workload()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress(candidates.len());
    let play = |candidate: &Candidate| sim::run(&workload, candidate.policy.as_ref(), &settings);
    let outcomes = compare::each(&candidates, args.threads.unwrap_or(cores), play, |_| bar.inc(1));
    bar.finish_and_clear();
    let mut played = Vec::with_capacity(candidates.len());
    for (candidate, outcome) in candidates.iter().zip(outcomes) {
        let outcome = outcome?;
        let summary = Summary::of(&workload, &outcome);
        played.push(Played { candidate, outcome, summary });
    }
    if let Some(path) = &args.report {
        let shown: Vec<Shown<'_>> = (played.iter())
            .map(|p| Shown { name: &p.candidate.name, outcome: &p.outcome, summary: &p.summary })
            .collect();
        let provenance = provenance::of(args.setup.files())?;
        write(path, report::html(&workload, &settings.words(), &shown, &provenance)?.as_bytes())?;
    }
    let rows = result_rows(&workload, &settings, &played);
    match args.output {
        Output::Text => out::print(&text(&workload, &settings, &played)),
        Output::Csv => {
            let mut bytes = Vec::new();
            rows::write_results(&mut bytes, &rows)?;
            out::print(&String::from_utf8_lossy(&bytes));
        }
        Output::Json => out::line(&json(&rows, &played)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// A bar on standard error; none when that is no terminal.
fn progress(policies: usize) -> ProgressBar {
    let bar = ProgressBar::new(policies as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} policies, {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

fn result_rows(workload: &Workload, settings: &Settings, played: &[Played<'_>]) -> Vec<Vec<String>> {
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

fn text(workload: &Workload, settings: &Settings, played: &[Played<'_>]) -> String {
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
fn json(rows: &[Vec<String>], played: &[Played<'_>]) -> Result<String, Failure> {
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
    Ok(serde_json::to_string_pretty(&objects)?)
}
