//! `list` and `status`: jobs of a cluster, as they say of themselves.
//!
//! It must not change anything. Tests: `cli/tests/process_nodes/plugin.rs`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use terminal::columns;
use terminal::list::{Shape, yaml};
use terminal::out::{self, Failure};

use super::job::{self, API, JOBS, text};
use crate::cluster::Cluster;

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The jobs of all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Shape::Text)]
    output: Shape,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Name of the job.
    job: String,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Shape::Text)]
    output: Shape,
}

const HEADER: [&str; 6] = ["JOB", "QUEUE", "NODES", "PHASE", "WORKERS", "AGE"];

/// Lists jobs.
pub(super) async fn list(cluster: &Cluster, args: &ListArgs) -> Result<ExitCode, Failure> {
    let place = if args.all_namespaces { String::new() } else { format!("/namespaces/{}", cluster.namespace) };
    let listed = cluster.get(&format!("{API}{place}/{JOBS}")).await?;
    let jobs = listed["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    match args.output {
        Shape::Json => out::line(&json!({"jobs": jobs}).to_string()),
        Shape::Yaml => out::print(&yaml(&json!({"jobs": jobs}))?),
        Shape::Name => jobs.iter().for_each(|job| out::line(text(job, "/metadata/name"))),
        Shape::Text | Shape::Wide if jobs.is_empty() => out::error_line("no jobs"),
        Shape::Text | Shape::Wide => {
            let now = local::now();
            let rows: Vec<_> = jobs.iter().map(|job| job::row(job, now, args.all_namespaces)).collect();
            out::lines(&columns::lines(HEADER, &rows));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a job.
pub(super) async fn status(cluster: &Cluster, args: &StatusArgs) -> Result<ExitCode, Failure> {
    let object = cluster.get(&cluster.path(API, JOBS, &args.job)).await?;
    match args.output {
        Shape::Json => out::line(&object.to_string()),
        Shape::Yaml => out::print(&yaml(&object)?),
        Shape::Name => out::line(text(&object, "/metadata/name")),
        Shape::Text | Shape::Wide => {
            out::lines(&columns::lines(HEADER, &[job::row(&object, local::now(), false)]));
            let conditions = conditions(&object);
            if !conditions.is_empty() {
                out::line("");
                out::lines(&columns::lines(["CONDITION", "STATUS", "REASON", "MESSAGE"], &conditions));
            }
            let pods: Vec<_> = job::workers(cluster, &object).await?.iter().map(job::pod_row).collect();
            if !pods.is_empty() {
                out::line("");
                out::lines(&columns::lines(["RANK", "POD", "PHASE", "RESTARTS", "NODE", "CONTAINERS"], &pods));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn conditions(job: &Value) -> Vec<[String; 4]> {
    let list = job.pointer("/status/conditions").and_then(Value::as_array);
    let row = |condition: &Value| ["/type", "/status", "/reason", "/message"].map(|at| text(condition, at).to_owned());
    list.into_iter().flatten().map(row).collect()
}
