//! Commands that change jobs of a local run: `stop`, `delete`, `scale`, `suspend`, `resume`, `rerun`, `retry`, `attach`.
//!
//! Owns their arguments; `local_run::client` does what they ask for. Jobs of a cluster are changed with kubectl. Tests:
//! `tests/local/control.rs`, `tests/local/detached.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local_run::{JobRef, Request, Rerun, ShowLogs, client};
use terminal::out::{self, Failure};

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

impl JobOf {
    /// Has a change of the job made.
    fn change(&self, request: &Request) -> Result<ExitCode, Failure> {
        out::line(&client::change(&self.directory.data_dir, request)?);
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the job that a user means.
    fn named(&self) -> Result<JobRef, Failure> {
        client::job(&self.directory.data_dir, self.job.as_deref())
    }
}

/// Stops a run or a job of it.
pub(crate) fn stop(args: &StopArgs) -> Result<ExitCode, Failure> {
    let dir = &args.directory.data_dir;
    let done = match &args.job {
        Some(job) => client::stop_job(dir, &client::job(dir, Some(job))?, &mut out::error_line)?,
        None => client::stop(dir, &mut out::error_line)?,
    };
    out::line(&done);
    Ok(ExitCode::SUCCESS)
}

/// Deletes a job.
pub(crate) fn delete(args: &JobOf) -> Result<ExitCode, Failure> {
    args.change(&Request::Delete { job: args.named()? })
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
    let dir = &args.directory.data_dir;
    let request = Request::Scale { job: client::job(dir, job)?, group: group.map(str::to_owned), replicas };
    out::line(&client::change(dir, &request)?);
    Ok(ExitCode::SUCCESS)
}

/// Suspends a job, or resumes it.
pub(crate) fn suspend(args: &JobOf, suspend: bool) -> Result<ExitCode, Failure> {
    args.change(&Request::Suspend { job: args.named()?, suspend })
}

/// Runs a job again that has ended; with `failed` only if it did not succeed.
pub(crate) fn rerun(args: &RerunArgs, failed: bool) -> Result<ExitCode, Failure> {
    let data_dir = &args.job.directory.data_dir;
    let job = args.job.named()?;
    if let Some(answer) = client::ask(data_dir, &Request::Rerun { job: job.clone(), failed })? {
        out::line(&answer.message);
        return Ok(ExitCode::SUCCESS);
    }
    local_run::rerun(&Rerun { data_dir, job: &job, failed, detach: args.detach, logs: args.logs })
}

/// Follows the output of a run that has no terminal, to its end. Returns its exit code.
pub(crate) fn attach(args: &Directory) -> Result<ExitCode, Failure> {
    let code = client::attach(&args.data_dir, &mut out::print)?;
    Ok(code.map_or_else(|| ExitCode::from(out::FOUND), ExitCode::from))
}
