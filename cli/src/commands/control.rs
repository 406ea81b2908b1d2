//! Commands that change jobs of a local run: `stop`, `delete`, `scale`, `suspend`, `resume`, `rerun`, `retry`, `attach`.
//!
//! Owns their arguments. A run that has the data directory open is asked (`requests`); without one the change is recorded for the next
//! (`run::offline`). Jobs of a cluster are changed with kubectl. Tests: `tests/local/control.rs`, `tests/local/detached.rs`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::run::again::{Again, again};
use super::run::args::ShowLogs;
use super::run::data_dir::holder;
use super::run::{self, detached};
use crate::growing::GrowingFile;
use crate::jobs;
use crate::out::{self, Failure};
use crate::records::{self, LogSource};
use crate::requests::{self, Answer, Request, Target};
use crate::view::Place;

/// Polling interval for a run that is waited for or followed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The data directory of the run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard run -d job.yaml; trainyard attach
  trainyard attach --data-dir other-data")]
pub(crate) struct Directory {
    /// The data directory of `trainyard run`.
    #[arg(long, alias = "data-directory", default_value = "./trainyard-data", value_name = "DIR")]
    data_dir: PathBuf,
}

/// A job of a local run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard suspend train
  trainyard resume train
  trainyard delete train

On a cluster: kubectl")]
pub(crate) struct JobOf {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    #[command(flatten)]
    directory: Directory,
}

/// Arguments of `trainyard stop`.
#[derive(Debug, Args)]
#[command(after_help = "Without a job the whole run ends, as with Ctrl-C. With one, that job ends,
and the others continue. Jobs that were stopped are kept: `trainyard rerun
JOB`, or `trainyard run` with their manifests, runs them again; `trainyard
delete JOB` deletes them.

Examples:
  trainyard stop
  trainyard stop train")]
pub(crate) struct StopArgs {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. Without it the run ends.
    job: Option<String>,
    #[command(flatten)]
    directory: Directory,
}

/// Arguments of `trainyard scale`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard scale train 4             workers, or pods of the only group
  trainyard scale demo trainer=4      pods of a group

On a cluster: kubectl scale elasticjob NAME --replicas=N")]
pub(crate) struct ScaleArgs {
    /// The job, and the number of pods: of the group that its API scales, or GROUP=N. The job may be left out where there is one.
    #[arg(required = true, num_args = 1..=2, value_names = ["JOB", "N|GROUP=N"])]
    words: Vec<String>,
    #[command(flatten)]
    directory: Directory,
}

/// Arguments of `trainyard rerun` and `trainyard retry`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard rerun train --no-logs
  trainyard retry train -d")]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    job: JobOf,
    /// If no run is active, start one in the background.
    #[arg(long, short)]
    detach: bool,
    #[command(flatten)]
    logs: ShowLogs,
}

impl Directory {
    fn option(&self) -> String {
        Place { data_dir: &self.data_dir }.option()
    }

    /// Returns the job that a user means.
    fn job(&self, wanted: Option<&str>) -> Result<Target, Failure> {
        let log = LogSource::Path(self.data_dir.join("log"));
        let state = records::latest(&log)?;
        Ok(Target::from(&jobs::find(&state, wanted)?))
    }

    /// Has a change made, by the run that has the directory open or here.
    fn make(&self, request: &Request) -> Result<ExitCode, Failure> {
        if let Some(answer) = self.ask(request)? {
            out::line(&answer.message);
            return Ok(ExitCode::SUCCESS);
        }
        let done = run::offline::change(&self.data_dir, request)?;
        let later =
            if matches!(request, Request::Delete { .. }) { "" } else { "; no run is active: the next one applies it" };
        out::line(&format!("{done}{later}"));
        Ok(ExitCode::SUCCESS)
    }

    /// Ends a job as stopped, and waits for its end.
    fn stop_job(&self, job: &Target) -> Result<ExitCode, Failure> {
        let name = format!("{} {}", job.kind, job.written());
        let request = Request::StopJob { job: job.clone(), why: String::new() };
        match self.ask(&request)? {
            Some(answer) => out::error_line(&answer.message),
            None => drop(run::offline::change(&self.data_dir, &request)?),
        }
        let log = LogSource::Path(self.data_dir.join("log"));
        loop {
            let is_live = holder(&self.data_dir).is_some();
            let state = records::latest(&log)?;
            let is_over = jobs::find(&state, Some(&format!("{}/{}/{}", job.kind, job.namespace, job.name)))
                .map_or(true, |key| state.job(&key).is_none_or(|job| job.gone || job.phase.is_terminal()));
            if is_over || !is_live {
                out::line(&format!("{name} is stopped"));
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks the run that has the directory open; `None` where none has, or it ended first.
    fn ask(&self, request: &Request) -> Result<Option<Answer>, Failure> {
        match holder(&self.data_dir) {
            Some(_) => requests::ask(&self.data_dir, request),
            None => Ok(None),
        }
    }
}

/// Stops a run or a job of it.
pub(crate) fn stop(args: &StopArgs) -> Result<ExitCode, Failure> {
    let dir = &args.directory.data_dir;
    if let Some(job) = &args.job {
        return args.directory.stop_job(&args.directory.job(Some(job))?);
    }
    let Some(holder) = holder(dir) else {
        return Err(Failure::missing(format!("{}: no run is active there", dir.display())));
    };
    if let Some(answer) = requests::ask(dir, &Request::Stop)? {
        out::error_line(&answer.message);
    }
    while run::data_dir::holder(dir).is_some_and(|now| now.pid == holder.pid) {
        std::thread::sleep(POLL_INTERVAL);
    }
    out::line(&format!("the run of process {} has ended", holder.pid));
    Ok(ExitCode::SUCCESS)
}

/// Deletes a job.
pub(crate) fn delete(args: &JobOf) -> Result<ExitCode, Failure> {
    args.directory.make(&Request::Delete { job: args.directory.job(args.job.as_deref())? })
}

/// Changes the number of a job's pods.
pub(crate) fn scale(args: &ScaleArgs) -> Result<ExitCode, Failure> {
    let (job, number) = match &args.words[..] {
        [number] => (None, number),
        [job, number, ..] => (Some(job.as_str()), number),
        [] => return Err(Failure::new("scale JOB N")),
    };
    let (group, count) = number.split_once('=').map_or((None, number.as_str()), |(group, count)| (Some(group), count));
    let replicas = count.parse().map_err(|_| Failure::new(format!("{number}: a number of pods, or GROUP=N")))?;
    let request = Request::Scale { job: args.directory.job(job)?, group: group.map(str::to_owned), replicas };
    args.directory.make(&request)
}

/// Suspends a job, or resumes it.
pub(crate) fn suspend(args: &JobOf, suspend: bool) -> Result<ExitCode, Failure> {
    args.directory.make(&Request::Suspend { job: args.directory.job(args.job.as_deref())?, suspend })
}

/// Runs a job again that has ended; with `failed` only if it did not succeed.
pub(crate) fn rerun(args: &RerunArgs, failed: bool) -> Result<ExitCode, Failure> {
    let directory = &args.job.directory;
    let job = directory.job(args.job.job.as_deref())?;
    if let Some(answer) = directory.ask(&Request::Rerun { job: job.clone(), failed })? {
        out::line(&answer.message);
        return Ok(ExitCode::SUCCESS);
    }
    again(&Again { data_dir: &directory.data_dir, job: &job, failed, detach: args.detach, logs: args.logs })
}

/// Follows the output of a run that has no terminal, to its end. Returns its exit code.
pub(crate) fn attach(args: &Directory) -> Result<ExitCode, Failure> {
    let dir = &args.data_dir;
    let is_live = || holder(dir).is_some();
    let (code, output) = detached::noted(dir);
    let Some(output) = output else {
        return Err(Failure::missing(match holder(dir) {
            Some(holder) => format!(
                "the run of process {} has a terminal of its own; its jobs: trainyard ps{}, their output: trainyard logs -f{}",
                holder.pid,
                args.option(),
                args.option()
            ),
            None if code.is_some() => format!("{}: no run is active there", dir.display()),
            None => format!("{}: no run was started there in the background: trainyard run -d", dir.display()),
        }));
    };
    follow(output, &is_live)?;
    Ok(detached::noted(dir).0.map_or_else(|| ExitCode::from(out::FOUND), ExitCode::from))
}

/// Prints a file until its writer ends.
fn follow(path: PathBuf, goes_on: &dyn Fn() -> bool) -> Result<(), Failure> {
    let mut file = GrowingFile::from(path, 0);
    loop {
        let was_on = goes_on();
        file.read(!was_on, &mut |text| out::print(text))?;
        if !was_on {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
