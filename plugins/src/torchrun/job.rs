//! A job of the cluster, its workers and what they say of themselves.
//!
//! Owns which objects belong to a job, and rows for people. It must not change anything. Tests: at the end, and
//! `cli/tests/process_nodes/plugin.rs`.

use apis::jobqueue;
use apis::torchrunjob::{NAME_LABEL, ROLE_LABEL, SYNC, WORKER};
use model::Timestamp;
use serde_json::Value;
use terminal::columns;
use terminal::out::Failure;

use crate::cluster::Cluster;

/// Path of group and version of the jobs.
pub(super) const API: &str = "/apis/torchrun.ai/v1alpha1";
/// Plural of the jobs.
pub(super) const JOBS: &str = "torchrunjobs";
/// Plural of the queues.
pub(super) const QUEUES: &str = "torchrunqueues";
/// Label of workers: their rank.
const INDEX_LABEL: &str = "torchrun.ai/index";
/// Phases in which a job has ended.
const ENDED: [&str; 3] = ["Succeeded", "Failed", "TimedOut"];

/// Returns the text at a JSON pointer; empty where there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the phase of a job; Pending before it has one.
pub(super) fn phase(job: &Value) -> &str {
    Some(text(job, "/status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("Pending")
}

/// Returns the queue of a job; `None` where there is none of either kind.
pub(super) async fn find_queue(cluster: &Cluster, job: &Value) -> Result<Option<Value>, Failure> {
    for plural in [QUEUES, jobqueue::PLURAL] {
        let found = cluster.find(&cluster.path(API, plural, queue(job))).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns whether a job has ended.
pub(super) fn has_ended(job: &Value) -> bool {
    ENDED.contains(&phase(job))
}

/// Returns the queue that a job names.
pub(super) fn queue(job: &Value) -> &str {
    let of = |pointer| Some(text(job, pointer)).filter(|name| !name.is_empty());
    of("/spec/queue").or_else(|| of("/spec/jobQueue")).unwrap_or_default()
}

/// Returns the name of a job's run, by which its pods are found.
fn run_name(job: &Value) -> &str {
    Some(text(job, "/spec/jobName")).filter(|name| !name.is_empty()).unwrap_or_else(|| text(job, "/metadata/name"))
}

/// Returns the condition of a type.
pub(super) fn condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    job.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Returns why a job is where it is, as far as its conditions say.
pub(super) fn reason(job: &Value) -> String {
    let kinds = ["Failed", "Invalid", "QueueNotFound", "Provisioned", "WorkspaceSync", "Queued"];
    let shows = |condition: &&Value| !text(condition, "/message").is_empty();
    let found = kinds.iter().find_map(|kind| condition(job, kind).filter(shows));
    found.map(|condition| text(condition, "/message").to_owned()).unwrap_or_default()
}

/// Returns pods of a job that belong to it, of one role.
async fn pods(cluster: &Cluster, job: &Value, role: &str) -> Result<Vec<Value>, Failure> {
    let mut pods = cluster.pods(&format!("{NAME_LABEL}={},{ROLE_LABEL}={role}", run_name(job))).await?;
    let owns = |pod: &Value| {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.into_iter().flatten().any(|owner| owner["uid"] == job["metadata"]["uid"])
    };
    pods.retain(owns);
    Ok(pods)
}

/// Returns the workers of a job, by rank.
pub(super) async fn workers(cluster: &Cluster, job: &Value) -> Result<Vec<Value>, Failure> {
    let mut workers = pods(cluster, job, WORKER).await?;
    workers.sort_by_key(rank);
    Ok(workers)
}

/// Returns the pods that fill the workspace of a job.
pub(super) async fn sync_pods(cluster: &Cluster, job: &Value) -> Result<Vec<Value>, Failure> {
    pods(cluster, job, SYNC).await
}

/// Returns the rank of a worker.
pub(super) fn rank(pod: &Value) -> u32 {
    pod["metadata"]["labels"][INDEX_LABEL].as_str().and_then(|index| index.parse().ok()).unwrap_or(u32::MAX)
}

/// Returns the worker of a rank that runs.
pub(super) async fn running_worker(cluster: &Cluster, job: &Value, wanted: u32) -> Result<String, Failure> {
    let name = text(job, "/metadata/name");
    let workers = workers(cluster, job).await?;
    let Some(pod) = workers.iter().find(|pod| rank(pod) == wanted) else {
        return Err(Failure::missing(format!(
            "{name}: no worker of rank {wanted}; it has {}",
            columns::counted(workers.len(), "worker")
        )));
    };
    let phase = text(pod, "/status/phase");
    if phase != "Running" {
        return Err(Failure::missing(format!("{name}: the worker of rank {wanted} is {phase}, not Running")));
    }
    Ok(text(pod, "/metadata/name").to_owned())
}

/// Returns a row for a job in a list.
pub(super) fn row(job: &Value, now: Timestamp, with_namespace: bool) -> [String; 6] {
    let name = text(job, "/metadata/name");
    let shown = if with_namespace { format!("{}/{name}", text(job, "/metadata/namespace")) } else { name.to_owned() };
    let nodes = job.pointer("/status/numNodes").and_then(Value::as_u64);
    let since = Timestamp::parse_rfc3339(text(job, "/metadata/creationTimestamp"));
    [
        shown,
        queue(job).to_owned(),
        nodes.map(|nodes| nodes.to_string()).unwrap_or_default(),
        phase(job).to_owned(),
        text(job, "/status/workersStatus").to_owned(),
        since.map(|since| columns::span(now.since_ms(since))).unwrap_or_default(),
    ]
}

/// Returns a row for a pod: rank, name, phase, restarts, node, containers.
pub(super) fn pod_row(pod: &Value) -> [String; 6] {
    let containers = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let containers: Vec<&Value> = containers.into_iter().flatten().collect();
    let restarts: u64 = containers.iter().filter_map(|container| container["restartCount"].as_u64()).sum();
    let is_leaving = pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    let states: Vec<String> = containers.iter().map(|container| state(container)).collect();
    [
        rank(pod).to_string(),
        text(pod, "/metadata/name").to_owned(),
        if is_leaving { "Terminating" } else { text(pod, "/status/phase") }.to_owned(),
        restarts.to_string(),
        text(pod, "/spec/nodeName").to_owned(),
        states.join(", "),
    ]
}

fn state(container: &Value) -> String {
    let name = text(container, "/name");
    if let Some(waiting) = container.pointer("/state/waiting") {
        return format!("{name} waits: {}", text(waiting, "/reason"));
    }
    match container.pointer("/state/terminated") {
        Some(end) => {
            let code = end["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or_default();
            format!("{name} {}", model::exit::words(code, text(end, "/reason")))
        }
        None => format!("{name} runs"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_say_what_objects_hold() {
        let job = json!({"metadata": {"name": "vit", "namespace": "ml", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"jobQueue": "gpus"},
            "status": {"phase": "Syncing", "numNodes": 2, "workersStatus": "0/2 ready", "conditions": [
                {"type": "WorkspaceSync", "status": "True", "message": "generation 1 is being filled"}]}});
        let now = Timestamp::parse_rfc3339("2026-01-01T00:05:00Z").unwrap();
        assert_eq!(row(&job, now, true), ["ml/vit", "gpus", "2", "Syncing", "0/2 ready", "5m"]);
        assert_eq!(reason(&job), "generation 1 is being filled");
        assert_eq!(
            (phase(&json!({})), has_ended(&job), has_ended(&json!({"status": {"phase": "TimedOut"}}))),
            ("Pending", false, true)
        );
        let pod = json!({"metadata": {"name": "vit-1", "labels": {"torchrun.ai/index": "1"}}, "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "trainer", "restartCount": 2, "state": {"running": {}}},
                {"name": "side", "restartCount": 1, "state": {"waiting": {"reason": "ErrImagePull"}}}]}});
        assert_eq!(pod_row(&pod), ["1", "vit-1", "Running", "3", "n", "trainer runs, side waits: ErrImagePull"]);
    }
}
