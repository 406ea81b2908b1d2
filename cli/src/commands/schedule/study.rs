//! `trainyard schedule study`: a trace played through one policy.
//!
//! Also owns the options that all studies share: what is played, and how.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use local_run::session::duration;
use scheduler::Micros;
use studies::check::agreement;
use studies::input::{Cluster, OnBadRow, Profile, Trace, Workload};
use studies::lineup::Candidate;
use studies::recorded::Recorded;
use studies::report::{self, Shown};
use studies::rows;
use studies::sim::{self, Knowledge, Settings, SizeKnowledge, SpeedKnowledge};
use studies::summary::Summary;
use studies::tables;
use terminal::out::{self, Failure};

use super::provenance;
use super::recorded::{self, RecordedArgs};

/// Workload and settings of a study.
#[derive(Debug, Args)]
pub(super) struct Setup {
    /// Trace: CSV with the columns `job_id`, `submit_time_s`, `gpus_requested`, `duration_s`, and optionally `min_gpus`,
    /// `max_gpus`, `model`, `batch_size`, `vc`.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Speedup profile: CSV with the columns `model`, `gpus`, a speed, and optionally `batch_size`, `gpu_type`. Without one
    /// every job runs at the size it asks for.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// GPUs of the cluster, all alike.
    #[arg(long, value_name = "N", conflicts_with = "cluster")]
    gpus: Option<u32>,
    /// The cluster as nodes x GPUs (16x4), with types as v100:8x4,k80:16x8 (the first is the one durations were measured on), or a
    /// CSV file with the columns `gpu_type`, `nodes`, `gpus_per_node`.
    #[arg(long, value_name = "SPEC")]
    cluster: Option<String>,
    /// Time without progress after every start and change of size.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration)]
    restart_cost: u64,
    /// Decide only at multiples of this; otherwise at every arrival and end.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    round: Option<u64>,
    /// Ends are noticed at multiples of this; 1s by default, 1ms for a recorded log.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    tick: Option<u64>,
    /// Place workers on nodes, and let a job lose this share of its speed, in percent, per node it spans beyond the fewest.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    spread_loss: Option<u32>,
    /// Knowledge of the decisions: all, sizes with errors, learnt speeds, no sizes. May be combined: noisy,learnt.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "oracle")]
    knowledge: Vec<Known>,
    /// Standard deviation of the logarithm of size errors (knowledge `noisy`).
    #[arg(long, value_name = "SIGMA", default_value = "1.0", value_parser = sigma)]
    sigma: u32,
    /// Random seed of size errors (knowledge `noisy`).
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out rows that cannot be used, and print their number; otherwise the first is an error.
    #[arg(long)]
    skip_bad: bool,
}

/// One thing that decisions know, or do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Known {
    /// True sizes and speeds.
    Oracle,
    /// Sizes estimated at submission, wrong by a log-normal factor.
    Noisy,
    /// Speeds as measured while jobs run.
    Learnt,
    /// No sizes at all.
    Unsized,
}

/// Reason for refusing the value of an option.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    /// It is no standard deviation.
    #[error("{0:?} is not a number from 0 to 10")]
    Sigma(String),
    /// It is no share.
    #[error("{0:?} is not a share from 0 to below 100 percent")]
    Percent(String),
}

fn sigma(text: &str) -> Result<u32, OptionError> {
    thousandths(text).filter(|&milli| milli <= 10_000).ok_or_else(|| OptionError::Sigma(text.to_owned()))
}

fn percent(text: &str) -> Result<u32, OptionError> {
    let number = text.trim_end_matches('%');
    let tenths = thousandths(number).map(|milli| milli / 100);
    tenths.filter(|&tenths| tenths < 1000).ok_or_else(|| OptionError::Percent(text.to_owned()))
}

fn thousandths(text: &str) -> Option<u32> {
    let nano = studies::input::decimal::parse_nano(text).ok()?;
    u32::try_from(nano / 1_000_000).ok()
}

fn open(path: &Path) -> Result<(String, File), Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok((name, file))
}

/// Returns whether a description of a cluster names a file.
fn is_table(spec: &Path) -> bool {
    spec.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"))
}

impl Setup {
    /// Returns the files that are read.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let cluster = self.cluster.as_deref().map(Path::new).filter(|spec| is_table(spec));
        [self.trace.as_deref(), self.profile.as_deref(), cluster].into_iter().flatten()
    }

    /// Reads the files and joins them. Rows left out are reported on standard error.
    pub(super) fn workload(&self) -> Result<Workload, Failure> {
        let on_bad = if self.skip_bad { OnBadRow::Skip } else { OnBadRow::Refuse };
        let cluster = match (&self.cluster, self.gpus) {
            (Some(spec), _) if is_table(Path::new(spec)) => {
                let (name, file) = open(Path::new(spec))?;
                Cluster::read(&name, file)?
            }
            (Some(spec), _) => Cluster::parse(spec)?,
            (None, Some(gpus)) => Cluster::parse(&gpus.to_string())?,
            (None, None) => {
                return Err(Failure::new("--gpus or --cluster is needed: the GPUs on which the trace is played"));
            }
        };
        let profile = match &self.profile {
            Some(path) => {
                let (name, file) = open(path)?;
                Some(Profile::read(&name, file, on_bad)?)
            }
            None => None,
        };
        let Some(trace) = &self.trace else { return Err(Failure::new("--trace is needed: the jobs to be played")) };
        let (name, file) = open(trace)?;
        let trace = Trace::read(&name, file, on_bad)?;
        let workload = Workload::join(trace, profile.as_ref(), cluster, on_bad)?;
        let of_profile = profile.iter().flat_map(|p| &p.skipped);
        let skipped: Vec<_> = of_profile.chain(&workload.skipped).collect();
        if let Some(first) = skipped.first() {
            eprintln!("trainyard: {} rows left out; the first: {first}", skipped.len());
        }
        Ok(workload)
    }

    /// Settings of the run.
    pub(super) fn settings(&self, keep_changes: bool) -> Result<Settings, Failure> {
        if self.tick == Some(0) || self.round == Some(0) {
            return Err(Failure::new("--tick and --round must be longer than 0"));
        }
        let known = |what| self.knowledge.contains(&what);
        if known(Known::Oracle) && self.knowledge.len() > 1 {
            return Err(Failure::new("--knowledge oracle cannot be combined with another"));
        }
        if known(Known::Noisy) && known(Known::Unsized) {
            return Err(Failure::new("--knowledge: noisy and unsized exclude each other"));
        }
        let sizes = match (known(Known::Noisy), known(Known::Unsized)) {
            (true, _) => SizeKnowledge::Noisy { sigma_milli: self.sigma, seed: self.seed },
            (false, true) => SizeKnowledge::Unknown,
            (false, false) => SizeKnowledge::Exact,
        };
        let speeds = if known(Known::Learnt) { SpeedKnowledge::Learnt } else { SpeedKnowledge::Exact };
        Ok(Settings {
            tick: self.tick.map_or_else(|| Settings::default().tick, Micros::from_millis),
            round: self.round.map(Micros::from_millis),
            restart_cost: Micros::from_millis(self.restart_cost),
            spread_loss_milli: self.spread_loss,
            setup: None,
            knowledge: Knowledge { sizes, speeds },
            keep_changes,
        })
    }
}

/// Arguments of `trainyard schedule study`.
#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    recorded: RecordedArgs,
    /// The policy, with settings as in gain:a=0.3,b=4. Of a recorded log that of its queue by default.
    #[arg(long, value_name = "NAME", required_unless_present = "log")]
    policy: Option<String>,
    /// Write one row per job to this CSV file; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    jobs: Option<PathBuf>,
    /// Write a report with plots to this HTML file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What is played, and how.
struct Play {
    workload: Workload,
    candidate: Candidate,
    settings: Settings,
}

/// The trace with its policy.
fn of_trace(args: &StudyArgs) -> Result<Play, Failure> {
    let candidate = Candidate::find(args.policy.as_deref().unwrap_or_default())?;
    let settings = args.setup.settings(args.report.is_some())?;
    Ok(Play { workload: args.setup.workload()?, candidate, settings })
}

/// The workload of a log, with the policy asked for or that of its queue.
fn of_log(args: &StudyArgs, recorded: Recorded) -> Result<Play, Failure> {
    for remark in &recorded.remarks {
        out::warn(remark);
    }
    let Recorded { workload, mut setup, policies, .. } = recorded;
    let mut candidate =
        Candidate::find(args.policy.as_deref().or_else(|| policies.first().map(|name| &**name)).unwrap_or_default())?;
    if let Some(name) = &args.policy {
        for settings in setup.queues.iter_mut().filter_map(|queue| queue.settings.as_mut()) {
            // A policy with the settings that the queue has: rights, protection, and the order by priority.
            settings.policy = Arc::from(Candidate::find(name)?.policy);
        }
    } else {
        candidate.name = policies.join(", ");
    }
    let mut settings = args.setup.settings(args.report.is_some())?;
    settings.tick = args.setup.tick.map_or(Micros::from_millis(1), Micros::from_millis);
    if args.recorded.check {
        // The operator knows nothing of how long a job will take.
        settings.knowledge.sizes = SizeKnowledge::Unknown;
    }
    settings.setup = (!args.recorded.alone).then(|| Box::new(setup));
    Ok(Play { workload, candidate, settings })
}

/// Plays the trace and prints what was measured.
pub(crate) fn run(args: &StudyArgs) -> Result<ExitCode, Failure> {
    let mut runs = BTreeMap::new();
    let play = match &args.recorded.log {
        None => of_trace(args)?,
        Some(path) => {
            let recorded = recorded::read(path, args.recorded.queue.as_deref())?;
            runs.clone_from(&recorded.runs);
            of_log(args, recorded)?
        }
    };
    let Play { workload, candidate, settings } = play;
    let outcome = sim::run(&workload, candidate.policy.as_ref(), &settings)?;
    if args.recorded.check {
        let found = agreement(&candidate.name, &runs, &outcome);
        out::lines(&found.lines);
        return Ok(if found.is_complete { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) });
    }
    let summary = Summary::of(&workload, &outcome);
    if let Some(path) = &args.report {
        let shown = Shown { name: &candidate.name, outcome: &outcome, summary: &summary };
        let provenance = provenance::of(args.setup.files().chain(args.recorded.log.as_deref()))?;
        let page = report::html(&workload, &settings.words(), &[shown], &provenance)?;
        write(path, page.as_bytes())?;
    }
    let mut jobs = Vec::new();
    if args.jobs.is_some() {
        rows::write_jobs(&mut jobs, &workload, &outcome)?;
    }
    match &args.jobs {
        Some(path) if path.as_os_str() == "-" => out::print(&String::from_utf8_lossy(&jobs)),
        Some(path) => {
            write(path, &jobs)?;
            out::print(&tables::study(&workload, &candidate.name, &settings, &summary));
        }
        None => out::print(&tables::study(&workload, &candidate.name, &settings, &summary)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a file; the error names it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
