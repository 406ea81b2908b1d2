//! Plays every published result that can be played, prints ours beside theirs, and times the largest trace.
//!
//! `cargo run --release -p studies --example study_bench -- --traces DIR [--threads N] [--philly GPUS]`
//!
//! `DIR` holds the traces and `reference_results.csv`. Exits with 1 when a row is outside its tolerance.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use studies::compare;
use studies::input::{Cluster, OnBadRow, Profile, Trace, Workload};
use studies::lineup::Candidate;
use studies::published::{Plan, Play, Published, TIMES, times};
use studies::sim::{Settings, run};
use studies::summary::Summary;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The policies the largest trace is timed with.
const LARGE: &[&str] = &[
    "fifo-strict",
    "fifo-backfill",
    "srtf",
    "srsf",
    "FIFO",
    "SRJF",
    "ElasticFIFO",
    "ElasticSRJF",
    "Tiresias",
    "ElasticTiresias",
    "FfDLOptimizer",
    "AFS-L",
    "max-min",
    "optimus",
    "gain",
];

struct Options {
    traces: PathBuf,
    threads: usize,
    philly: Option<u32>,
}

fn options() -> Result<Options, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options { traces: PathBuf::new(), threads, philly: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--traces" => options.traces = value.into(),
            "--threads" => options.threads = value.parse()?,
            "--philly" => options.philly = Some(value.parse()?),
            _ => return Err(format!("unknown option {name}; known are --traces, --threads, --philly").into()),
        }
    }
    if options.traces.as_os_str().is_empty() {
        return Err("--traces DIR is needed: the directory that holds reference_results.csv".into());
    }
    Ok(options)
}

fn workload(root: &Path, trace: &str, profile: Option<&str>, gpus: u32) -> Result<Workload, Failure> {
    let open = |path: &str| File::open(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let profile = profile.map(|p| Ok::<_, Failure>(Profile::read(p, open(p)?, OnBadRow::Refuse)?)).transpose()?;
    let trace = Trace::read(trace, open(trace)?, OnBadRow::Refuse)?;
    Ok(Workload::join(trace, profile.as_ref(), Cluster::parse(&gpus.to_string())?, OnBadRow::Refuse)?)
}

fn study(root: &Path, row: &Published, play: &Play) -> Result<([u64; TIMES.len()], Duration), Failure> {
    let workload = workload(root, &row.trace, play.profile, row.gpus)?;
    let candidate = Candidate::find(&play.policy)?;
    let started = Instant::now();
    let outcome = run(&workload, candidate.policy.as_ref(), &play.settings)?;
    Ok((times(&Summary::of(&workload, &outcome)), started.elapsed()))
}

/// A time in seconds with one decimal.
fn secs(nano: u64) -> String {
    let tenths = (nano + 50_000_000) / 100_000_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Ours over theirs, minus 1, in percent.
fn percent(ours: u64, theirs: u64) -> String {
    let change = (i128::from(ours) - i128::from(theirs)) * 100_000 / i128::from(theirs.max(1));
    let sign = if change < 0 { '-' } else { '+' };
    format!("{sign}{}.{:03}", change.abs() / 1000, change.abs() % 1000)
}

fn compare_all(options: &Options) -> Result<bool, Failure> {
    let path = options.traces.join("reference_results.csv");
    let rows = Published::read("reference_results.csv", File::open(path)?)?;
    let (mut played, mut skipped) = (Vec::new(), BTreeMap::<(String, &str), usize>::new());
    for row in rows {
        match row.plan() {
            Plan::Play(play) => played.push((row, play)),
            Plan::Skip(why) => *skipped.entry((row.simulator, why)).or_default() += 1,
        }
    }
    let results = compare::each(&played, options.threads, |(row, play)| study(&options.traces, row, play), |_| {});
    println!(
        "| simulator | trace | GPUs | policy | mean JCT, ours / theirs | % | median | p99 | max | makespan | within | time |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let (mut wrong, mut pollux) = (0, Vec::new());
    for ((row, play), result) in played.iter().zip(results) {
        let (ours, took) = result?;
        let pair = |i: usize| {
            let theirs = row.times[i].map_or_else(|| "-".to_owned(), secs);
            format!("{} / {theirs}", secs(ours[i]))
        };
        let change = row.times[0].map_or_else(String::new, |theirs| percent(ours[0], theirs));
        let holds = play.tolerance.holds(&ours, &row.times);
        wrong += usize::from(!holds);
        let verdict = format!("{}{}", if holds { "" } else { "**no**: " }, play.tolerance.words());
        println!(
            "| {} | {} | {} | {} | {} | {change} | {} | {} | {} | {} | {verdict} | {took:.1?} |",
            row.simulator,
            row.trace,
            row.gpus,
            row.policy,
            pair(0),
            pair(1),
            pair(4),
            pair(5),
            pair(6)
        );
        if row.simulator == "pollux-sim" {
            pollux.push(ours[0]);
        }
    }
    println!("\n{} rows played, {wrong} outside their tolerance", played.len());
    for ((simulator, why), count) in skipped {
        println!("{count} rows of {simulator} not played: {why}");
    }
    Ok(wrong == 0)
}

/// The mean of the Pollux artifact's Tiresias over its eight workloads, of which only some have a row of their own.
fn pollux_mean(options: &Options) -> Result<bool, Failure> {
    const THEIRS: u64 = 4_038_000_000_000;
    let settings = Settings {
        round: Some(scheduler::Micros::from_secs(60)),
        restart_cost: scheduler::Micros::from_secs(30),
        ..Settings::default()
    };
    let mut sum = 0;
    for w in 1..=8 {
        let trace = format!("pollux/pollux_w{w}.csv");
        let workload = workload(&options.traces, &trace, Some("profiles/pollux_t4_fixed_batch.csv"), 64)?;
        let outcome = run(&workload, Candidate::find("tiresias")?.policy.as_ref(), &settings)?;
        sum += times(&Summary::of(&workload, &outcome))[0];
    }
    let mean = sum / 8;
    println!(
        "\npollux-sim tiresias, mean of w1..8: {} / {} ({} %, within 5 %)",
        secs(mean),
        secs(THEIRS),
        percent(mean, THEIRS)
    );
    Ok(mean.abs_diff(THEIRS) <= THEIRS / 20)
}

fn time_philly(options: &Options, gpus: u32) -> Result<(), Failure> {
    let started = Instant::now();
    let workload = workload(&options.traces, "philly_full.csv", None, gpus)?;
    println!("\nphilly_full.csv: {} jobs on {gpus} GPUs, read in {:.1?}", workload.jobs.len(), started.elapsed());
    println!("| policy | mean JCT | median | p99 | makespan | utilisation | decisions | time |");
    println!("|---|---|---|---|---|---|---|---|");
    for name in LARGE {
        let candidate = Candidate::find(name)?;
        let started = Instant::now();
        let outcome = run(&workload, candidate.policy.as_ref(), &Settings::default())?;
        let took = started.elapsed();
        let summary = Summary::of(&workload, &outcome);
        let [mean, median, _, _, p99, _, makespan] = times(&summary).map(secs);
        let (use_, decisions) = (summary.utilisation(), summary.decisions);
        println!("| {name} | {mean} | {median} | {p99} | {makespan} | {use_:.3} | {decisions} | {took:.1?} |");
    }
    Ok(())
}

fn all() -> Result<bool, Failure> {
    let options = options()?;
    let rows = compare_all(&options)?;
    let pollux = pollux_mean(&options)?;
    if let Some(gpus) = options.philly {
        time_philly(&options, gpus)?;
    }
    Ok(rows && pollux)
}

fn main() -> ExitCode {
    match all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("study_bench: {error}");
            ExitCode::from(2)
        }
    }
}
