//! `trainyard logs`: prints the output of a job's pods, from the files of a data directory, or from the API server of a cluster.
//!
//! Owns which pods and which file are meant, and following it. The files are `local`'s, the job is the log's; [`cluster`] reads pods
//! of a cluster. Tests: `tests/local/logs.rs`.

mod cluster;
mod ranks;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use apis::Registry;
use clap::Args;
use engine::State;
use explain::failures::Failures;
use local_run::jobs::{self, PodRank};
use local_run::output_files::{ContainerOutput, FollowedOutput, LogFile};
use local_run::records::{self, Flow};
use model::{JobKey, Phase};
use terminal::out::{self, Failure};

use self::ranks::Process;
use super::story::LogLocation;

/// Polling interval for followed files.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Polling interval for the job whose files are followed.
const JOB_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `trainyard logs`.
#[derive(Debug, Args)]
#[command(after_help = "Without --rank and --all: the pod that failed first, or else rank 0.

Where a pod runs several processes by torchrun --tee 3, --rank counts these: the
local rank stands at the beginning of each of their lines.

On a cluster (--server) the operator's log shows the ranks, and the API server
of the kubeconfig what pods wrote. --previous then is the run before of a
container that was restarted in its pod, not of a pod that was replaced.

Examples:
  trainyard logs train -f             follow rank 0 until the job has ended
  trainyard logs train --rank 2 --previous
  trainyard logs train --all --tail 5
  trainyard logs train --server auto --all -f")]
pub(crate) struct LogsArgs {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    /// Continue with what is written until the job has ended.
    #[arg(long, short)]
    follow: bool,
    /// The worker, or the process of `torchrun --tee 3`, of this rank.
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "pod"])]
    rank: Option<u32>,
    /// The pod of this name.
    #[arg(long, value_name = "POD", conflicts_with = "all")]
    pod: Option<String>,
    /// Every worker, each line with its pod.
    #[arg(long, short)]
    all: bool,
    /// The run before the last one: before a restart, or of the attempt before.
    #[arg(long, short, conflicts_with = "follow")]
    previous: bool,
    /// The container. Default: the one whose result counts.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// The last N lines only.
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    #[command(flatten)]
    location: LogLocation,
}

/// Prints output of pods.
pub(crate) fn run(args: &LogsArgs) -> Result<ExitCode, Failure> {
    let data_dir = args.location.data_dir();
    if data_dir.is_none() && !args.location.is_remote() {
        return Err(Failure::new(
            "this log holds what was decided, not what pods wrote. Of a cluster: --server auto, or kubectl logs POD. Of a run: \
             --data-dir DIR",
        ));
    }
    let (state, failures) = read(args)?;
    let key = jobs::find(&state, args.job.as_deref())?;
    let Some(job) = state.job(&key) else { return Ok(ExitCode::from(out::FOUND)) };
    let places = jobs::ranks(&key, &job);
    let failed = failures.iter().rev().find(|(job, _)| *job == key).and_then(|(_, failures)| {
        let pod = failures.last()?.pod.as_ref()?;
        places.iter().find(|place| *place.name == *pod.name)
    });
    let has_failed = job.phase.is_terminal() && job.phase != Phase::Succeeded;
    let registry = Registry::all();
    let Some(api) = registry.api_of(&key) else { return Ok(ExitCode::from(out::FOUND)) };
    let output_of =
        |data_dir: &Path, pod: &PodRank| ContainerOutput::of(args.container.as_deref(), data_dir, &key, &job, pod);
    let first = places.iter().find(|place| place.rank == 0);
    let process = match args.rank.zip(first) {
        Some((rank, first)) => {
            let begin = match data_dir {
                Some(data_dir) => begin(&output_of(data_dir, first), args.previous)?,
                None => cluster::begin(args, &key, api, first)?,
            };
            let trains = places.iter().filter(|place| !place.once).count();
            Process::of(rank, &begin, &jobs::written(&key), trains)?
        }
        None => None,
    };
    let chosen = match process {
        Some(process) => places.iter().filter(|place| place.rank == process.pod).collect(),
        None => choose(args, &key, &places, failed.filter(|_| has_failed))?,
    };
    let Some(data_dir) = data_dir else {
        return cluster::print(args, &key, api, &chosen, process);
    };
    let shown: Vec<ContainerOutput> = chosen.iter().map(|place| output_of(data_dir, place)).collect();
    if args.follow {
        return follow(args, &key, shown, process);
    }
    let mut any = false;
    for one in &shown {
        let file = one.file(args.previous);
        any |= file.is_some();
        if let Some(file) = file {
            print(&file.path, args.all.then_some(&*one.name), args.tail, process)?;
        }
    }
    if any {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(nothing(args, &key))
}

/// Returns what a pod wrote first; empty where it wrote nothing yet.
fn begin(output: &ContainerOutput, previous: bool) -> Result<String, Failure> {
    let Some(LogFile { path, .. }) = output.file(previous) else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(ranks::BEGIN_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Says that there is no output, and returns the exit code for that.
fn nothing(args: &LogsArgs, key: &JobKey) -> ExitCode {
    let name = jobs::written(key);
    let what = if args.previous { "no run before the last one" } else { "no output yet" };
    out::warn(&format!("{name}: {what}; where the job is: trainyard get {name}{}", args.location.option()));
    ExitCode::from(out::FOUND)
}

/// Reads the log: the state, and what failed of each job.
fn read(args: &LogsArgs) -> Result<(State, Vec<(JobKey, Failures)>), Failure> {
    let mut failures: Vec<(JobKey, Failures)> = Vec::new();
    let state = records::fold(&args.location.source(), &mut |_, record| {
        if let Some(key) = record.job() {
            if !failures.iter().any(|(known, _)| known == key) {
                failures.push((key.clone(), Failures::default()));
            }
            for (_, known) in failures.iter_mut().filter(|(known, _)| known == key) {
                known.take(record);
            }
        }
        Ok(Flow::Go)
    })?;
    Ok((state, failures))
}

fn choose<'a>(
    args: &LogsArgs,
    key: &JobKey,
    places: &'a [PodRank],
    failed: Option<&'a PodRank>,
) -> Result<Vec<&'a PodRank>, Failure> {
    let name = jobs::written(key);
    let last = places.len().saturating_sub(1);
    if let Some(rank) = args.rank {
        let place = places.iter().find(|place| place.rank == rank);
        return place.map(|place| vec![place]).ok_or_else(|| {
            let tee = "to select a process that torchrun starts in a pod, run torchrun --tee 3";
            Failure::new(format!("--rank {rank}: {name} has the ranks 0 to {last}, one for each pod; {tee}"))
        });
    }
    if let Some(pod) = &args.pod {
        let near = || terminal::near::did_you_mean(pod, places.iter().map(|place| &*place.name));
        let place = places.iter().find(|place| place.name == *pod);
        return place
            .map(|place| vec![place])
            .ok_or_else(|| Failure::new(format!("--pod {pod}: {name} has no such pod{}", near())));
    }
    if args.all {
        return Ok(places.iter().collect());
    }
    let place = failed.or_else(|| places.first());
    if let (Some(place), true) = (place, last > 0) {
        let why = if failed.is_some() { ", which failed first" } else { "" };
        out::warn(&format!("rank {}{why}, of 0 to {last}; --rank N shows another, --all shows all", place.rank));
    }
    Ok(place.into_iter().collect())
}

/// Prints a file, or its last lines; of a process, what that wrote.
fn print(path: &Path, pod: Option<&str>, tail: Option<usize>, process: Option<Process>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", path.display()));
    if pod.is_none() && tail.is_none() && process.is_none() {
        io::copy(&mut File::open(path).map_err(failed)?, &mut out::Stdout).map_err(failed)?;
        return Ok(());
    }
    let bytes = fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = lines_of(&text, process);
    let first = lines.len().saturating_sub(tail.unwrap_or(usize::MAX));
    out::print(&labelled(lines.get(first..).unwrap_or_default(), pod));
    Ok(())
}

/// Returns the lines of a text; of a process, those that it wrote.
fn lines_of(text: &str, process: Option<Process>) -> Vec<&str> {
    text.lines().filter_map(|line| process.map_or(Some(line), |process| process.text_of(line))).collect()
}

fn labelled(lines: &[&str], pod: Option<&str>) -> String {
    let label = pod.map(|pod| format!("{pod} | ")).unwrap_or_default();
    lines.iter().fold(String::new(), |text, line| text + &label + line + "\n")
}

/// Prints what is written until the job has ended, or its run has.
fn follow(
    args: &LogsArgs,
    key: &JobKey,
    shown: Vec<ContainerOutput>,
    process: Option<Process>,
) -> Result<ExitCode, Failure> {
    let mut followed: Vec<FollowedOutput> = shown.into_iter().map(FollowedOutput::new).collect();
    let counts = |line: &str| process.is_none_or(|process| process.text_of(line).is_some());
    let mut looked: Option<Instant> = None;
    let (mut is_over, mut is_left) = (false, false);
    loop {
        if looked.is_none_or(|at| at.elapsed() >= JOB_POLL_INTERVAL) {
            let is_alone = args.location.is_over();
            let state = records::latest(&args.location.source())?;
            let has_ended = state.job(key).is_none_or(|job| job.object.is_gone() || job.phase.is_terminal());
            (is_over, is_left) = (is_alone || has_ended, !has_ended);
            looked = Some(Instant::now());
        }
        // Read after the job was seen to have ended: nothing comes after that.
        for one in &mut followed {
            one.step(args.tail, &counts, is_over, &mut |pod, text| {
                out::print(&labelled(&lines_of(text, process), args.all.then_some(pod)));
            })?;
        }
        if is_over {
            if let Some(note) = args.location.idle_note().filter(|_| is_left) {
                out::warn(note);
            }
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
