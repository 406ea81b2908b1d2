//! `trainyard ps` and `trainyard get`: the jobs of a log, or one of them, as they are now.
//!
//! Owns the forms of their output. Rows are `explain::Row`'s. Tests: `tests/local/verbs.rs`.

use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use cluster::runtime::VirtualPods;
use cluster::{Cluster, Mode};
use engine::State;
use explain::{Deleted, Deletions, Row};
use local_run::jobs;
use local_run::records::{self, Flow, LogSource};
use model::{ContainerState, JobKey, PodPhase, Timestamp};
use serde_json::{Value, json};
use terminal::columns;
use terminal::list::{Shape, yaml};
use terminal::out::{self, Failure};

use super::story::LogLocation;

/// Arguments of `trainyard ps`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard ps                     the jobs of ./trainyard-data
  trainyard ps --all               deleted jobs as well
  trainyard ps --server auto       those of the operator of a cluster
  trainyard ps -o name | xargs -n1 trainyard explain")]
pub(crate) struct PsArgs {
    /// Jobs whose names begin with this; all of them when it is left out.
    name: Option<String>,
    /// Leave out jobs that have ended.
    #[arg(long)]
    live: bool,
    /// Show deleted jobs as well, as far as the log's records reach.
    #[arg(long, short, conflicts_with = "live")]
    all: bool,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Shape::Text)]
    output: Shape,
    #[command(flatten)]
    location: LogLocation,
}

/// Arguments of `trainyard get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard get train              the job and its pods
  trainyard get train -o yaml      its object: spec and status
  trainyard get train -o name")]
pub(crate) struct GetArgs {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Shape::Text)]
    output: Shape,
    #[command(flatten)]
    location: LogLocation,
}

/// Lists the jobs.
pub(crate) fn ps(args: &PsArgs) -> Result<ExitCode, Failure> {
    let source = args.location.source();
    let (state, deleted) = if args.all { with_deleted(&source)? } else { (records::latest(&source)?, Vec::new()) };
    let begins = |row: &Row| args.name.as_deref().is_none_or(|name| jobs::written(&row.key).starts_with(name));
    let present = jobs::all(&state, args.all);
    let rows: Vec<Row> = (present.iter().filter_map(|key| Row::of(&state, key)))
        .chain(deleted.iter().map(|deleted| deleted.row(&state)))
        .filter(begins)
        .filter(|row| !args.live || row.ended.is_none())
        .collect();
    let now = args.location.now(&state);
    match args.output {
        Shape::Json => out::line(&list(&state, &rows).to_string()),
        Shape::Yaml => out::print(&yaml(&list(&state, &rows))?),
        Shape::Name => rows.iter().for_each(|row| out::line(&jobs::written(&row.key))),
        Shape::Text | Shape::Wide if rows.is_empty() => out::error_line("no jobs"),
        Shape::Text | Shape::Wide => print(&rows, now, args.output == Shape::Wide),
    }
    note_idle(&args.location, args.output, &rows);
    Ok(ExitCode::SUCCESS)
}

/// Folds a whole log. Returns its state, and the jobs that were deleted, in the order of their last records.
fn with_deleted(source: &LogSource) -> Result<(State, Vec<Deleted>), Failure> {
    let mut deletions = Deletions::default();
    let state = records::fold(source, &mut |state, record| {
        deletions.take(state, record);
        Ok(Flow::Go)
    })?;
    let deleted = deletions.finish(&state);
    Ok((state, deleted))
}

/// Warns that no run is active, where a listed job is unfinished.
fn note_idle(location: &LogLocation, output: Shape, rows: &[Row]) {
    let is_read = matches!(output, Shape::Text | Shape::Wide) && rows.iter().any(|row| row.ended.is_none());
    if let Some(note) = location.idle_note().filter(|_| is_read) {
        out::warn(note);
    }
}

fn list(state: &State, rows: &[Row]) -> Value {
    json!({"position": state.stamp.position, "jobs": rows.iter().map(Row::to_json).collect::<Vec<_>>()})
}

fn print(rows: &[Row], now: Timestamp, wide: bool) {
    let age = |row: &Row| row.age_ms(now).map(columns::span).unwrap_or_default();
    let ready = |row: &Row| format!("{}/{}", row.ready, row.replicas);
    let lines = if wide {
        let header = ["JOB", "KIND", "PHASE", "READY", "RESTARTS", "GPUS", "AGE", "TOOK", "QUEUE", "NODES", "REASON"];
        let cells = |row: &Row| {
            let took = row.since.zip(row.ended).map(|(since, end)| columns::span(end.since_ms(since)));
            [
                jobs::written(&row.key),
                row.key.kind.to_string(),
                row.phase.clone(),
                ready(row),
                row.restarts_text(),
                row.gpus.to_string(),
                age(row),
                took.unwrap_or_default(),
                row.queue.clone(),
                row.nodes.join(","),
                row.reason.clone(),
            ]
        };
        columns::lines(header, &rows.iter().map(cells).collect::<Vec<_>>())
    } else {
        let cells = |row: &Row| {
            [
                jobs::written(&row.key),
                row.phase.clone(),
                ready(row),
                row.restarts_text(),
                row.gpus.to_string(),
                age(row),
                row.reason.clone(),
            ]
        };
        let header = ["JOB", "PHASE", "READY", "RESTARTS", "GPUS", "AGE", "REASON"];
        columns::lines(header, &rows.iter().map(cells).collect::<Vec<_>>())
    };
    out::lines(&lines);
}

/// Prints one job.
pub(crate) fn get(args: &GetArgs) -> Result<ExitCode, Failure> {
    let state = records::latest(&args.location.source())?;
    let key = jobs::find(&state, args.job.as_deref())?;
    let Some(row) = Row::of(&state, &key) else { return Ok(ExitCode::from(out::FOUND)) };
    match args.output {
        Shape::Json => out::line(&object(args, &state, &key).to_string()),
        Shape::Yaml => out::print(&yaml(&object(args, &state, &key))?),
        Shape::Name => out::line(&jobs::written(&key)),
        Shape::Text | Shape::Wide => {
            let rows = [row];
            print(&rows, args.location.now(&state), args.output == Shape::Wide);
            let pods = pods(&state, &key);
            if !pods.is_empty() {
                out::line("");
                let header = ["RANK", "POD", "PHASE", "RESTARTS", "NODE", "CONTAINERS"];
                out::lines(&columns::lines(header, &pods));
            }
            note_idle(&args.location, args.output, &rows);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the job's object: that of the run, or as much as a log holds of it.
fn object(args: &GetArgs, state: &State, key: &JobKey) -> Value {
    let stored = args.location.data_dir().and_then(|dir| {
        let cluster = Cluster::load(&dir.join("cluster.json"), Mode::Automatic, Box::new(VirtualPods)).ok()?;
        let resource = Registry::all().api_of(key)?.resource();
        cluster.get(&resource, &key.namespace, &key.name)
    });
    stored.map_or_else(|| recorded(state, key), |object| (*object).clone())
}

/// Returns the job's object, as far as a log holds it.
fn recorded(state: &State, key: &JobKey) -> Value {
    let registry = Registry::all();
    let (Some(api), Some(job)) = (registry.api_of(key), state.job(key)) else { return Value::Null };
    let manifest = job.spec.as_ref().map(|fact| serde_json::from_str::<Value>(&fact.manifest).unwrap_or_default());
    let resource = api.resource();
    let mut object = json!({
        "apiVersion": &*resource.api_version, "kind": &*resource.kind,
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "uid": key.uid},
        "status": api.status(key, &job),
    });
    // What rendering needs holds the spec, for most APIs as it was written.
    if let Some(manifest) = manifest {
        object["spec"] = manifest.get("spec").unwrap_or(&manifest).clone();
    }
    object
}

/// Returns a row for each pod: rank, name, phase, restarts, node, containers.
pub(super) fn pods(state: &State, key: &JobKey) -> Vec<[String; 6]> {
    let Some(job) = state.job(key) else { return Vec::new() };
    let places = jobs::ranks(key, &job);
    let mut rows = Vec::new();
    for place in &places {
        let pod = job.pods.values().find(|pod| pod.fact.slot.as_ref() == Some(&place.slot));
        let Some(pod) = pod else {
            let words = if job.phase.is_terminal() { "gone" } else { "not created" };
            rows.push([
                place.rank.to_string(),
                place.name.clone(),
                words.to_owned(),
                String::new(),
                String::new(),
                String::new(),
            ]);
            continue;
        };
        let phase = match pod.fact.phase {
            _ if pod.fact.deleting.is_some() => "Terminating".to_owned(),
            PodPhase::Pending => "Pending".to_owned(),
            phase => format!("{phase:?}"),
        };
        let containers: Vec<String> = pod
            .fact
            .containers
            .iter()
            .map(|container| match &container.state {
                ContainerState::Waiting { reason, .. } => format!("{} waits: {reason}", container.name),
                ContainerState::Running => format!("{} runs", container.name),
                ContainerState::Terminated(end) => {
                    format!("{} {}", container.name, model::exit::words(end.code, &end.reason))
                }
            })
            .collect();
        rows.push([
            place.rank.to_string(),
            place.name.clone(),
            phase,
            pod.fact.restarts.to_string(),
            pod.fact.node.as_deref().unwrap_or_default().to_owned(),
            containers.join(", "),
        ]);
    }
    rows
}
