//! `trainyard queue`: the jobs that hold places on nodes, and those that wait, by queue.
//!
//! Reads a log and asks `engine::queues` what the scheduler sees. It decides nothing. Tests: `tests/local/queue.rs`.

use std::process::ExitCode;

use clap::Args;
use engine::State;
use engine::queues::forecast::Start;
use engine::queues::report::{self, QueueState};
use local_run::records;
use model::{JobKey, Share, Timestamp};
use serde_json::{Value, json};
use terminal::out::{self, Failure};

use super::story::{LogLocation, Output};

/// Arguments of `trainyard queue`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard queue
  trainyard queue research --server auto")]
pub(crate) struct QueueArgs {
    /// The queue; all of them when it is left out. `root` is the queue of jobs that name none.
    name: Option<String>,
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    location: LogLocation,
}

/// Name under which the queue of jobs that name none is shown.
const ROOT: &str = "root";

/// Prints the queues.
pub(crate) fn run(args: &QueueArgs) -> Result<ExitCode, Failure> {
    let state = records::latest(&args.location.source())?;
    let mut queues = report::states(&state, state.at);
    if let Some(wanted) = &args.name {
        queues.retain(|queue| name(queue) == wanted);
        if queues.is_empty() {
            out::warn(&format!("queue {wanted}: there is no such queue, and no job names it"));
            return Ok(ExitCode::from(out::FOUND));
        }
    }
    if args.output == Output::Json {
        let all: Vec<Value> = queues.iter().map(|queue| value(&state, queue)).collect();
        out::line(&json!({"position": state.stamp.position, "queues": all}).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    if queues.is_empty() {
        out::line("no queue, and no job that waits for GPUs");
    }
    for (n, queue) in queues.iter().enumerate() {
        if n > 0 {
            out::line("");
        }
        print(&state, queue);
    }
    Ok(ExitCode::SUCCESS)
}

fn name(queue: &QueueState) -> &str {
    if queue.name.is_empty() { ROOT } else { &queue.name }
}

fn since(state: &State, job: &JobKey) -> Option<Timestamp> {
    state.job(job).and_then(|job| job.allocation.at)
}

fn print(state: &State, queue: &QueueState) {
    let report = &queue.report;
    let used: Vec<String> = report.usage.iter().map(|(resource, gpus)| format!("{gpus} {resource} in use")).collect();
    let used = if used.is_empty() { "nothing in use".to_owned() } else { used.join(", ") };
    let waiting = usize::try_from(report.pending).unwrap_or(usize::MAX).saturating_add(queue.decided.len());
    out::line(&format!("queue {}: {} running, {waiting} waiting, {used}", name(queue), report.admitted));
    for (job, share) in &queue.admitted {
        let since = since(state, job).map(|at| format!(" since {}", out::clock(at))).unwrap_or_default();
        out::line(&format!("  runs   {}/{} on {}{since}", job.namespace, job.name, places(share)));
    }
    for (job, share) in &queue.decided {
        out::line(&format!("  next   {}/{} on {} once there is room", job.namespace, job.name, places(share)));
    }
    for (place, (job, start)) in (1..).zip(report.waiting.iter().zip(&queue.starts)) {
        let start = match start {
            Start::At(at) => format!("expected start {}", out::clock(*at)),
            Start::Unknown(_) => start.to_string(),
        };
        out::line(&format!("  {place:>4}.  {}: {}; {start}", job.name, job.message));
    }
}

/// Nodes of a share, each with its number of pods where there are several.
fn places(share: &Share) -> String {
    let mut nodes: Vec<(&str, u32)> = Vec::new();
    for (_, node) in share.cells() {
        match nodes.iter_mut().find(|(name, _)| *name == &**node) {
            Some((_, count)) => *count += 1,
            None => nodes.push((node, 1)),
        }
    }
    let one = |(node, count): (&str, u32)| {
        let node = if node.is_empty() { "a node not known yet" } else { node };
        if count > 1 { format!("{node} ({count} pods)") } else { node.to_owned() }
    };
    nodes.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

fn value(state: &State, queue: &QueueState) -> Value {
    let report = &queue.report;
    let placed = |job: &JobKey, share: &Share| {
        let nodes: Vec<&str> = share.cells().map(|(_, node)| &**node).collect();
        json!({"job": format!("{}/{}", job.namespace, job.name), "kind": &*job.kind, "nodes": nodes})
    };
    let running = queue.admitted.iter().map(|(job, share)| {
        let mut value = placed(job, share);
        value["since"] = json!(since(state, job).map(Timestamp::to_rfc3339));
        value
    });
    let running: Vec<Value> = running.collect();
    let next: Vec<Value> = queue.decided.iter().map(|(job, share)| placed(job, share)).collect();
    let waiting: Vec<Value> = (1..)
        .zip(report.waiting.iter().zip(&queue.starts))
        .map(|(position, (job, start)): (u32, _)| {
            let (expected, unknown) = match start {
                Start::At(at) => (Some(at.to_rfc3339()), None),
                Start::Unknown(why) => (None, Some(why.to_string())),
            };
            json!({"job": &*job.name, "position": position, "reason": &*job.reason, "message": &*job.message,
                "expectedStart": expected, "startUnknown": unknown})
        })
        .collect();
    let usage: serde_json::Map<String, Value> =
        report.usage.iter().map(|(resource, gpus)| (resource.to_string(), json!(gpus))).collect();
    json!({"queue": name(queue), "running": running, "next": next, "waiting": waiting, "pending": report.pending, "usage": usage})
}
