//! `trainyard logs`: prints the output of a job's pods, from the files of a data directory, or from the API server of a cluster.
//!
//! Owns which pods and which file are meant, and following it. The files are `local`'s, the job is the log's; [`cluster`] reads pods
//! of a cluster. Tests: `tests/local/logs.rs`.

mod cluster;
mod ranks;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use apis::Registry;
use clap::Args;
use engine::failures::Failures;
use engine::{Job, Scope, State};
use model::{JobKey, Phase};

use self::ranks::Process;
use super::story::LogLocation;
use crate::growing::GrowingFile;
use crate::jobs::{self, Place};
use crate::out::{self, Failure};
use crate::records::{self, Flow};

/// Polling interval for followed files.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Polling interval for the job whose files are followed.
const JOB_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `trainyard logs`.
#[derive(Debug, Args)]
#[command(after_help = "Without --rank and --all: the pod that failed first, or else rank 0.

Where a pod runs several processes by torchrun --tee 3, --rank counts these: the
local rank stands at the beginning of each of their lines.

On a cluster (--server) the operator's log tells the ranks, and the API server
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
    /// Go on with what is written until the job has ended.
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

/// A pod whose output is shown.
struct Shown {
    name: String,
    directory: PathBuf,
    container: Option<String>,
}

/// One file of a container's output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Output {
    written: SystemTime,
    incarnation: u32,
    restart: u32,
    path: PathBuf,
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
    let places = jobs::places(&key, &job);
    let failed = failures.iter().rev().find(|(job, _)| *job == key).and_then(|(_, failures)| {
        let pod = failures.last()?.pod.as_ref()?;
        places.iter().find(|place| *place.name == *pod.name)
    });
    let has_failed = job.phase.is_terminal() && job.phase != Phase::Succeeded;
    let registry = Registry::all();
    let Some(api) = registry.api_of(&key) else { return Ok(ExitCode::from(out::FOUND)) };
    let shown_of = |data_dir: &Path, place: &Place| shown(args.container.as_deref(), data_dir, &key, &job, place);
    let first = places.iter().find(|place| place.rank == 0);
    let process = match args.rank.zip(first) {
        Some((rank, first)) => {
            let begin = match data_dir {
                Some(data_dir) => begin(&shown_of(data_dir, first), args.previous)?,
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
    let shown: Vec<Shown> = chosen.iter().map(|place| shown_of(data_dir, place)).collect();
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
fn begin(shown: &Shown, previous: bool) -> Result<String, Failure> {
    let Some(Output { path, .. }) = shown.file(previous) else { return Ok(String::new()) };
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
        if let Scope::Job(key) = &record.scope {
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
    places: &'a [Place],
    failed: Option<&'a Place>,
) -> Result<Vec<&'a Place>, Failure> {
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
        let near = || crate::faults::did_you_mean(pod, places.iter().map(|place| &*place.name));
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

fn shown(container: Option<&str>, data_dir: &Path, key: &JobKey, job: &Job, place: &Place) -> Shown {
    let pod = job.pods.values().find(|pod| *pod.fact.name == *place.name);
    let main = pod.and_then(|pod| pod.fact.containers.iter().find(|container| container.main));
    Shown {
        name: place.name.clone(),
        directory: data_dir.join("logs").join(&*key.namespace).join(&place.name),
        container: container.or_else(|| main.map(|container| &*container.name)).map(str::to_owned),
    }
}

impl Shown {
    /// Returns the file of the last run, or of the one before.
    fn file(&self, previous: bool) -> Option<Output> {
        let mut present = outputs(&self.directory, self.container.as_deref());
        let last = present.pop();
        if previous { present.pop() } else { last }
    }
}

/// Returns the file that a pod's container wrote last.
#[cfg(feature = "top")]
pub(super) fn newest(data_dir: &Path, key: &JobKey, pod: &str) -> Option<PathBuf> {
    outputs(&data_dir.join("logs").join(&*key.namespace).join(pod), None).pop().map(|output| output.path)
}

/// Returns the files of a container, those of earlier attempts included, oldest first; of the container that wrote last where none is
/// named. Each attempt numbers its files from 0, so they are ordered by time.
fn outputs(directory: &Path, container: Option<&str>) -> Vec<Output> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let earlier = entries(directory).filter(|entry| entry.file_name().to_string_lossy().starts_with("previous-"));
    let files = entries(directory).chain(earlier.flat_map(|entry| entries(&entry.path())));
    let mut found: Vec<(String, Output)> = files
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (container, (incarnation, restart)) = local::log_run(&name)?;
            let output =
                Output { written: entry.metadata().ok()?.modified().ok()?, incarnation, restart, path: entry.path() };
            Some((container.to_owned(), output))
        })
        .collect();
    let newest = found.iter().max_by_key(|(_, output)| output.written).map(|(container, _)| container.clone());
    let wanted = container.map(str::to_owned).or(newest);
    found.retain(|(container, _)| Some(container) == wanted.as_ref());
    let mut outputs: Vec<Output> = found.into_iter().map(|(_, output)| output).collect();
    outputs.sort();
    outputs
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

/// A pod whose output is followed.
struct Followed {
    shown: Shown,
    file: Option<GrowingFile>,
    /// The process whose lines are shown.
    process: Option<Process>,
}

/// Prints what is written until the job has ended, or its run has.
fn follow(args: &LogsArgs, key: &JobKey, shown: Vec<Shown>, process: Option<Process>) -> Result<ExitCode, Failure> {
    let mut followed: Vec<Followed> = shown.into_iter().map(|shown| Followed { shown, file: None, process }).collect();
    let mut looked: Option<Instant> = None;
    let (mut is_over, mut is_left) = (false, false);
    loop {
        if looked.is_none_or(|at| at.elapsed() >= JOB_POLL_INTERVAL) {
            let is_alone = args.location.is_over();
            let state = records::latest(&args.location.source())?;
            let has_ended = state.job(key).is_none_or(|job| job.gone || job.phase.is_terminal());
            (is_over, is_left) = (is_alone || has_ended, !has_ended);
            looked = Some(Instant::now());
        }
        // Read after the job was seen to have ended: nothing comes after that.
        for one in &mut followed {
            one.step(args.tail, is_over, &mut |pod, text| {
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

impl Followed {
    /// Hands on what was written since the last step, with the pod's name; with `last` also a line without an end.
    fn step(&mut self, tail: Option<usize>, last: bool, each: &mut dyn FnMut(&str, &str)) -> Result<(), Failure> {
        let newest = self.shown.file(false);
        if self.file.as_ref().map(GrowingFile::path) != newest.as_ref().map(|output| &*output.path) {
            // The rest of the file of the run before.
            self.drain(true, each)?;
            let start = match (&newest, tail) {
                (Some(output), Some(lines)) if self.file.is_none() => start_of_last(&output.path, lines, self.process)?,
                _ => 0,
            };
            self.file = newest.map(|output| GrowingFile::from(output.path, start));
        }
        self.drain(last, each)
    }

    fn drain(&mut self, last: bool, each: &mut dyn FnMut(&str, &str)) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.read(last, &mut |text| each(&self.shown.name, text))
    }
}

/// Output of jobs that another process runs, as it is written.
pub(super) struct JobOutput {
    data_dir: PathBuf,
    /// Files that were written before are of earlier attempts.
    since: SystemTime,
    pods: BTreeMap<String, Followed>,
}

impl JobOutput {
    /// Output of a data directory's pods from now on.
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), since: SystemTime::now(), pods: BTreeMap::new() }
    }

    /// Hands on what a job's pods have written since the last step, with the pods' names; with `last` also a line without an end.
    pub(super) fn step(
        &mut self,
        key: &JobKey,
        job: &Job,
        last: bool,
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), Failure> {
        for place in jobs::places(key, job) {
            let shown = shown(None, &self.data_dir, key, job, &place);
            let id = format!("{}/{}", key.namespace, place.name);
            if !self.pods.contains_key(&id) && shown.file(false).is_none_or(|file| file.written < self.since) {
                continue;
            }
            self.pods.entry(id).or_insert(Followed { shown, file: None, process: None }).step(None, last, each)?;
        }
        Ok(())
    }
}

/// Returns the byte at which the last lines of a file begin; of a process, those that it wrote.
fn start_of_last(path: &Path, lines: usize, process: Option<Process>) -> Result<u64, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let is_shown = |line: &[u8]| process.is_none_or(|one| one.text_of(&String::from_utf8_lossy(line)).is_some());
    let (mut start, mut left) = (bytes.len(), lines);
    for line in bytes.split_inclusive(|byte| *byte == b'\n').rev() {
        if left == 0 {
            break;
        }
        start = start.saturating_sub(line.len());
        left = left.saturating_sub(usize::from(is_shown(line)));
    }
    Ok(u64::try_from(start).unwrap_or_default())
}
