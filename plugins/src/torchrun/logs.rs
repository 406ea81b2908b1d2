//! `logs`: what the workers of a job write, each line with its pod.
//!
//! Owns which pods are read, and following those that come later. Tests: `cli/tests/process_nodes/plugin.rs`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use apis::{api::PodApi as _, torchrunjob::TorchrunJob};
use clap::Args;
use kube::api::LogParams;
use serde_json::Value;
use terminal::out::{self, Failure};
use tokio::task::JoinSet;

use super::job::{self, API, JOBS, text};
use crate::cluster::Cluster;

/// Interval between two looks at a job that is followed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl torchrun logs train
  kubectl torchrun logs train -f --rank 0 --rank 1")]
pub(crate) struct LogsArgs {
    /// Name of the job.
    job: String,
    /// Continue with what is written until the job has ended.
    #[arg(long, short)]
    follow: bool,
    /// Workers of these ranks only. May be repeated.
    #[arg(long, value_name = "N")]
    rank: Vec<u32>,
    /// The last N lines of each only.
    #[arg(long, value_name = "N")]
    tail: Option<i64>,
    /// What the pod that fills the workspace wrote.
    #[arg(long, conflicts_with = "rank")]
    sync: bool,
}

/// Prints the logs.
pub(super) async fn run(cluster: &Cluster, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let path = cluster.path(API, JOBS, &args.job);
    let (mut read, mut readers) = (BTreeSet::new(), JoinSet::new());
    let mut found = 0;
    loop {
        let object = cluster.find(&path).await?;
        if object.is_none() && !args.follow || object.is_none() && read.is_empty() {
            return Err(Failure::missing(format!(
                "there is no TorchrunJob {} in namespace {}",
                args.job, cluster.namespace
            )));
        }
        let is_over = object.as_ref().is_none_or(job::has_ended);
        if let Some(object) = &object {
            for pod in pods(cluster, object, args).await? {
                found += 1;
                // One that has not started has written nothing.
                if !has_started(&pod) || !read.insert(text(&pod, "/metadata/uid").to_owned()) {
                    continue;
                }
                let reader = print_pod(cluster.clone(), pod, args.follow, args.tail);
                if args.follow {
                    readers.spawn(reader);
                } else {
                    // Rank by rank.
                    reader.await?;
                }
            }
        }
        if is_over || !args.follow {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    while let Some(done) = readers.join_next().await {
        done??;
    }
    if found == 0 {
        out::error_line(&format!("TorchrunJob {} has no pods", args.job));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what all workers write until the job has ended. Its exit code says how it ended.
pub(super) async fn follow(cluster: &Cluster, job: &str) -> Result<ExitCode, Failure> {
    let args = LogsArgs { job: job.to_owned(), follow: true, rank: Vec::new(), tail: None, sync: false };
    run(cluster, &args).await?;
    let Some(object) = cluster.find(&cluster.path(API, JOBS, job)).await? else {
        return Err(Failure::missing(format!("TorchrunJob {job} was deleted")));
    };
    out::line(&format!("TorchrunJob {job} is {}", job::phase(&object)));
    Ok(if job::phase(&object) == "Succeeded" { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

async fn pods(cluster: &Cluster, object: &Value, args: &LogsArgs) -> Result<Vec<Value>, Failure> {
    if args.sync {
        return job::sync_pods(cluster, object).await;
    }
    let mut workers = job::workers(cluster, object).await?;
    workers.retain(|pod| args.rank.is_empty() || args.rank.contains(&job::rank(pod)));
    Ok(workers)
}

fn main_container(pod: &Value) -> &str {
    TorchrunJob.main_containers(pod).into_iter().next().unwrap_or_default()
}

fn has_started(pod: &Value) -> bool {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let name = main_container(pod);
    let main = statuses.into_iter().flatten().find(|status| status["name"] == name);
    main.is_some_and(|status| status["restartCount"].as_u64() > Some(0) || status["state"].get("waiting").is_none())
}

async fn print_pod(cluster: Cluster, pod: Value, follow: bool, tail: Option<i64>) -> Result<(), Failure> {
    let params = LogParams {
        container: Some(main_container(&pod).to_owned()),
        follow,
        tail_lines: tail,
        ..LogParams::default()
    };
    // One that is gone takes what it wrote with it.
    cluster.print_log(text(&pod, "/metadata/name"), &params, |pod, line| Some(format!("{pod} | {line}"))).await?;
    Ok(())
}
