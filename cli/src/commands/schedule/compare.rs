//! `trainyard schedule compare`: a trace played through several policies, side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use studies::compare;
use studies::lineup::Candidate;
use studies::report::{self, Shown};
use studies::rows;
use studies::sim;
use studies::summary::Summary;
use studies::tables::{self, Played};
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
    let rows = tables::result_rows(&workload, &settings, &played);
    match args.output {
        Output::Text => out::print(&tables::comparison(&workload, &settings, &played)),
        Output::Csv => {
            let mut bytes = Vec::new();
            rows::write_results(&mut bytes, &rows)?;
            out::print(&String::from_utf8_lossy(&bytes));
        }
        Output::Json => out::line(&tables::to_json(&rows, &played)),
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
