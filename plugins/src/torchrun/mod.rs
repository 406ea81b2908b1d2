//! `trainyard torchrun`, called `kubectl torchrun` as a plugin: jobs of the torchrun API on a cluster, from a directory of this
//! machine.
//!
//! Owns the verbs and their arguments. Manifests are `manifest`'s, the upload is `upload`'s into a `sync_pod`. It must not decide what
//! an operator decides: it writes objects and connects to pods. Tests: `cli/tests/process_nodes/plugin.rs`,
//! `cli/tests/local/torchrun.rs`.

mod connect;
mod job;
mod logs;
mod look;
mod manifest;
mod submit;
mod sync_pod;
mod upload;

use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches as _, Subcommand};
use serde_json::json;
use terminal::completion::{self, CompletionArgs};
use terminal::out::{self, Failure};
use tokio::runtime::Builder;

use self::job::{API, JOBS, text};
use crate::cluster::{Cluster, ClusterArgs};

/// The name by which kubectl calls this program.
pub const PLUGIN: &str = "kubectl-torchrun";

/// Arguments of `trainyard torchrun`.
#[derive(Debug, Args)]
#[command(
    about = "Submit torchrun jobs to a cluster from a directory, and look after them.",
    after_help = "As a plugin of kubectl: ln -s $(which trainyard) ~/bin/kubectl-torchrun

Examples:
  kubectl torchrun submit --queue gpus --num-nodes 2 python train.py
  kubectl torchrun logs train -f
  kubectl torchrun sync train          changed files, into a running job"
)]
pub struct TorchrunArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a job, with the files of a directory as its workspace.
    Submit(Box<submit::SubmitArgs>),
    /// Upload the files again: into a running job, or where an upload broke.
    Sync(submit::SyncArgs),
    /// List jobs.
    List(look::ListArgs),
    /// Show a job, its conditions and its workers.
    Status(look::StatusArgs),
    /// Print what the workers of a job write, by rank.
    Logs(logs::LogsArgs),
    /// Have a job wait without workers. Its volumes are kept.
    Suspend(Named),
    /// Resume a suspended job.
    Resume(Named),
    /// Run a program in a worker.
    Exec(connect::ExecArgs),
    /// Connect ports of this machine to ports of a worker.
    PortForward(connect::PortForwardArgs),
    /// Delete a job, with its workspace. Its checkpoints are kept.
    Delete(Named),
    /// Print a script that completes commands and options.
    Completion(CompletionArgs),
}

/// A job.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Name of the job.
    job: String,
}

/// Returns the command of the plugin.
fn plugin_command() -> Command {
    let command = TorchrunArgs::augment_args(Command::new(PLUGIN));
    command.bin_name("kubectl torchrun").version(env!("CARGO_PKG_VERSION")).max_term_width(80)
}

/// Runs this program as a plugin of kubectl.
///
/// # Errors
/// Returns an error if the verb fails.
pub fn plugin() -> Result<ExitCode, Failure> {
    let matches = plugin_command().get_matches();
    run(&TorchrunArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}

/// Does what a verb says.
///
/// # Errors
/// Returns an error if the verb fails.
pub fn run(args: &TorchrunArgs) -> Result<ExitCode, Failure> {
    if let Verb::Completion(args) = &args.verb {
        return Ok(completion::completion(args, plugin_command(), PLUGIN));
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async {
        match &args.verb {
            Verb::Submit(submit) => submit::submit(&args.cluster, submit).await,
            Verb::Sync(sync) => submit::sync(&Cluster::connect(&args.cluster).await?, sync).await,
            Verb::List(list) => look::list(&Cluster::connect(&args.cluster).await?, list).await,
            Verb::Status(status) => look::status(&Cluster::connect(&args.cluster).await?, status).await,
            Verb::Logs(logs) => logs::run(&Cluster::connect(&args.cluster).await?, logs).await,
            Verb::Suspend(named) => suspend(&Cluster::connect(&args.cluster).await?, &named.job, true).await,
            Verb::Resume(named) => suspend(&Cluster::connect(&args.cluster).await?, &named.job, false).await,
            Verb::Exec(exec) => connect::exec(&Cluster::connect(&args.cluster).await?, exec).await,
            Verb::PortForward(ports) => connect::port_forward(&Cluster::connect(&args.cluster).await?, ports).await,
            Verb::Delete(named) => delete(&Cluster::connect(&args.cluster).await?, &named.job).await,
            Verb::Completion(_) => Ok(ExitCode::SUCCESS),
        }
    });
    // What still reads this program's input must not keep it.
    runtime.shutdown_background();
    done
}

async fn suspend(cluster: &Cluster, job: &str, suspend: bool) -> Result<ExitCode, Failure> {
    let path = cluster.path(API, JOBS, job);
    let object = cluster.get(&path).await?;
    if job::has_ended(&object) {
        return Err(Failure::missing(format!("TorchrunJob {job} has ended: it is {}", job::phase(&object))));
    }
    if object["spec"]["suspend"].as_bool().unwrap_or_default() == suspend {
        let state = if suspend { "suspended already" } else { "not suspended" };
        return Err(Failure::missing(format!("TorchrunJob {job} is {state}")));
    }
    cluster.merge(&path, &json!({"spec": {"suspend": suspend}})).await?;
    out::line(&format!("TorchrunJob {job} is {}", if suspend { "suspended" } else { "resumed" }));
    Ok(ExitCode::SUCCESS)
}

async fn delete(cluster: &Cluster, job: &str) -> Result<ExitCode, Failure> {
    let deleted = cluster.delete(&cluster.path(API, JOBS, job)).await?;
    let is_leaving = !text(&deleted, "/metadata/deletionTimestamp").is_empty();
    out::line(&format!("TorchrunJob {job} {}", if is_leaving { "is being deleted" } else { "is deleted" }));
    Ok(ExitCode::SUCCESS)
}
