//! What a kubelet would write into a pod's status, as merge patches computed from the pod alone.
//!
//! Pure: owns container states, phase and conditions; `kubelet` writes what is computed here. Tests: `tests/cluster/kubelet.rs`.

use model::Timestamp;
use serde_json::{Map, Value, json};

use crate::merge::{at, items, text};
use crate::store::is_deleting;

/// End of containers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending<'a> {
    /// Every container that has not ended.
    All,
    /// The one of this name.
    One(&'a str),
}

/// Why a container cannot end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    Ended,
}

fn names<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    items(pod, &["spec", field]).iter()
}

fn status_of<'a>(pod: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    items(pod, &["status", list]).iter().find(|status| text(status, &["name"]) == name)
}

fn is_terminated(status: &Value) -> bool {
    at(status, &["state", "terminated"]).is_some()
}

fn exit_code(status: &Value) -> i64 {
    at(status, &["state", "terminated", "exitCode"]).and_then(Value::as_i64).unwrap_or_default()
}

/// A container status; what happened before is carried over from `before`.
fn container_status(container: &Value, before: Option<&Value>, state: &Value) -> Value {
    let running = state.get("running").is_some();
    let restarts = before.and_then(|b| b.get("restartCount")).and_then(Value::as_u64).unwrap_or_default();
    let last = before.and_then(|b| b.get("lastState")).cloned().unwrap_or_else(|| json!({}));
    json!({
        "name": text(container, &["name"]),
        "image": text(container, &["image"]),
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": restarts,
        "state": state,
        "lastState": last,
    })
}

/// The status of a container that ended and runs again.
fn started_again(container: &Value, before: &Value, now: Timestamp) -> Value {
    let mut again = container_status(container, Some(before), &json!({"running": {"startedAt": now.to_rfc3339()}}));
    let count = before.get("restartCount").and_then(Value::as_u64).unwrap_or_default();
    again["restartCount"] = count.saturating_add(1).into();
    again["lastState"] = before.get("state").cloned().unwrap_or_default();
    again
}

/// The pod's conditions with these (type, status, reason) set; a time changes only with its status.
fn conditions(pod: &Value, now: Timestamp, set: &[(&str, bool, &str)]) -> Value {
    let mut list = items(pod, &["status", "conditions"]).to_vec();
    for (kind, holds, reason) in set {
        let status = if *holds { "True" } else { "False" };
        let mut condition = Map::new();
        condition.insert("type".into(), (*kind).into());
        condition.insert("status".into(), status.into());
        if !reason.is_empty() {
            condition.insert("reason".into(), (*reason).into());
        }
        let place = list.iter().position(|c| text(c, &["type"]) == *kind);
        let since = place.and_then(|n| list.get(n)).filter(|c| text(c, &["status"]) == status);
        let since = since.and_then(|c| c.get("lastTransitionTime")).cloned();
        condition.insert("lastTransitionTime".into(), since.unwrap_or_else(|| now.to_rfc3339().into()));
        match place.and_then(|n| list.get_mut(n)) {
            Some(old) => *old = condition.into(),
            None => list.push(condition.into()),
        }
    }
    list.into()
}

fn start_time(pod: &Value, now: Timestamp) -> Value {
    at(pod, &["status", "startTime"]).cloned().unwrap_or_else(|| now.to_rfc3339().into())
}

/// The pod has a node.
pub(crate) fn scheduled(pod: &Value, now: Timestamp) -> Value {
    json!({"conditions": conditions(pod, now, &[("PodScheduled", true, "")])})
}

/// No node has room for the pod.
pub(crate) fn unschedulable(pod: &Value, now: Timestamp, message: &str) -> Value {
    let mut list = conditions(pod, now, &[("PodScheduled", false, "Unschedulable")]);
    let scheduled = list.as_array_mut().into_iter().flatten().find(|c| text(c, &["type"]) == "PodScheduled");
    if let Some(Value::Object(condition)) = scheduled {
        condition.insert("message".into(), message.into());
    }
    json!({"conditions": list})
}

/// Every container runs; those that ended run again where the pod's restart policy has them do so.
pub(crate) fn running(pod: &Value, now: Timestamp) -> Value {
    let start = json!({"running": {"startedAt": now.to_rfc3339()}});
    let mut all_ready = true;
    let mut statuses = Vec::new();
    for container in names(pod, "containers") {
        let before = status_of(pod, "containerStatuses", text(container, &["name"]));
        statuses.push(match before {
            Some(before) if is_terminated(before) && !restarts(pod, exit_code(before)) => {
                all_ready = false;
                before.clone()
            }
            Some(before) if is_terminated(before) => started_again(container, before, now),
            Some(before) if at(before, &["state", "running"]).is_some() => before.clone(),
            before => container_status(container, before, &start),
        });
    }
    let mut init = Vec::new();
    for container in names(pod, "initContainers") {
        let before = status_of(pod, "initContainerStatuses", text(container, &["name"]));
        init.push(match before {
            Some(before) if is_terminated(before) => before.clone(),
            before => container_status(container, before, &terminated(0, now, now)),
        });
    }
    let set = [
        ("PodScheduled", true, ""),
        ("Initialized", true, ""),
        ("ContainersReady", all_ready, if all_ready { "" } else { "ContainersNotReady" }),
        ("Ready", all_ready, if all_ready { "" } else { "ContainersNotReady" }),
    ];
    let mut status = json!({
        "phase": "Running",
        "startTime": start_time(pod, now),
        "conditions": conditions(pod, now, &set),
        "containerStatuses": statuses,
        "reason": null,
        "message": null,
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = init.into();
    }
    status
}

/// Every container waits for that reason; the pod was accepted by its node `since_ms` ago, or when it was before.
pub(crate) fn waiting(pod: &Value, now: Timestamp, reason: &str, since_ms: Option<u64>) -> Value {
    let state = json!({"waiting": {"reason": reason}});
    let statuses: Vec<Value> = names(pod, "containers")
        .map(|c| container_status(c, status_of(pod, "containerStatuses", text(c, &["name"])), &state))
        .collect();
    let started = since_ms.map(|ms| Timestamp(now.0.saturating_sub(ms)).to_rfc3339().into());
    let set = [
        ("PodScheduled", true, ""),
        ("ContainersReady", false, "ContainersNotReady"),
        ("Ready", false, "ContainersNotReady"),
    ];
    json!({
        "phase": "Pending",
        "startTime": started.unwrap_or_else(|| start_time(pod, now)),
        "conditions": conditions(pod, now, &set),
        "containerStatuses": statuses,
    })
}

fn terminated(code: i32, started: Timestamp, now: Timestamp) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": code,
        "reason": reason,
        "startedAt": started.to_rfc3339(),
        "finishedAt": now.to_rfc3339(),
    }})
}

/// Returns whether the kubelet starts a container again that ended with this code. A policy that is not said counts as `Never`: this
/// server fills in no defaults, and an ending is what the one who says nothing expects.
fn restarts(pod: &Value, code: i64) -> bool {
    match text(pod, &["spec", "restartPolicy"]) {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// Containers end with an exit code; the phase follows when none is left that runs or will run again.
pub(crate) fn exited(pod: &Value, now: Timestamp, code: i32, which: Ending<'_>) -> Result<Value, Refused> {
    if let Ending::One(name) = which
        && !names(pod, "containers").any(|c| text(c, &["name"]) == name)
    {
        return init_exited(pod, now, code, name);
    }
    let mut statuses = Vec::new();
    for container in names(pod, "containers") {
        let name = text(container, &["name"]);
        let before = status_of(pod, "containerStatuses", name);
        let ended = before.is_some_and(is_terminated);
        let meant = match which {
            Ending::All => !ended,
            Ending::One(one) if one == name && ended => return Err(Refused::Ended),
            Ending::One(one) => one == name,
        };
        statuses.push(match before {
            Some(before) if !meant => before.clone(),
            None if !meant => container_status(container, None, &json!({"waiting": {"reason": "ContainerCreating"}})),
            before => {
                let started = before.map(|b| text(b, &["state", "running", "startedAt"])).unwrap_or_default();
                let started = Timestamp::parse_rfc3339(started).unwrap_or(now);
                container_status(container, before, &terminated(code, started, now))
            }
        });
    }
    let over = statuses.iter().all(is_terminated)
        && (is_deleting(pod) || !statuses.iter().any(|status| restarts(pod, exit_code(status))));
    let failed = statuses.iter().any(|status| exit_code(status) != 0);
    let (phase, reason) = match (over, failed) {
        (false, _) => ("Running", "ContainersNotReady"),
        (true, true) => ("Failed", "PodFailed"),
        (true, false) => ("Succeeded", "PodCompleted"),
    };
    let set = [("PodScheduled", true, ""), ("ContainersReady", false, reason), ("Ready", false, reason)];
    Ok(json!({
        "phase": phase,
        "startTime": start_time(pod, now),
        "conditions": conditions(pod, now, &set),
        "containerStatuses": statuses,
    }))
}

/// Containers that ended and that the pod's restart policy restarts run again; `None` when there is none, or the pod is being deleted.
pub(crate) fn restarted(pod: &Value, now: Timestamp) -> Option<Value> {
    let due = |status: &Value, init: bool| {
        let code = exit_code(status);
        // An init container that succeeded is done, under every policy.
        is_terminated(status) && !(init && code == 0) && restarts(pod, code)
    };
    if is_deleting(pod) {
        return None;
    }
    let mut status = Map::new();
    for (containers, list, init) in
        [("containers", "containerStatuses", false), ("initContainers", "initContainerStatuses", true)]
    {
        if !items(pod, &["status", list]).iter().any(|status| due(status, init)) {
            continue;
        }
        let statuses = names(pod, containers).filter_map(|container| {
            let before = status_of(pod, list, text(container, &["name"]))?;
            Some(if due(before, init) { started_again(container, before, now) } else { before.clone() })
        });
        status.insert(list.to_owned(), statuses.collect());
    }
    let all_run =
        |list: &Value| list.as_array().into_iter().flatten().all(|status| at(status, &["state", "running"]).is_some());
    if status.get("containerStatuses").is_some_and(all_run) {
        let set = [("ContainersReady", true, ""), ("Ready", true, "")];
        status.insert("conditions".to_owned(), conditions(pod, now, &set));
    }
    if status.is_empty() { None } else { Some(Value::Object(status)) }
}

/// An init container ends: a failure is the pod's unless its policy tries again.
fn init_exited(pod: &Value, now: Timestamp, code: i32, name: &str) -> Result<Value, Refused> {
    if !names(pod, "initContainers").any(|c| text(c, &["name"]) == name) {
        return Err(Refused::Unknown);
    }
    let waiting = json!({"waiting": {"reason": "PodInitializing"}});
    let mut statuses = Vec::new();
    for container in names(pod, "initContainers") {
        let before = status_of(pod, "initContainerStatuses", text(container, &["name"]));
        let meant = text(container, &["name"]) == name;
        statuses.push(match before {
            Some(before) if meant && is_terminated(before) => return Err(Refused::Ended),
            Some(before) if !meant => before.clone(),
            before if meant => container_status(container, before, &terminated(code, now, now)),
            before => container_status(container, before, &waiting),
        });
    }
    let failed = code != 0 && !restarts(pod, i64::from(code));
    let mains: Vec<Value> = names(pod, "containers").map(|c| container_status(c, None, &waiting)).collect();
    let set = [("PodScheduled", true, ""), ("Ready", false, "ContainersNotReady")];
    Ok(json!({
        "phase": if failed { "Failed" } else { "Pending" },
        "startTime": start_time(pod, now),
        "conditions": conditions(pod, now, &set),
        "initContainerStatuses": statuses,
        "containerStatuses": mains,
    }))
}

/// The node threw the pod out.
pub(crate) fn evicted(pod: &Value, now: Timestamp) -> Value {
    let set = [("ContainersReady", false, "PodFailed"), ("Ready", false, "PodFailed")];
    json!({
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "startTime": start_time(pod, now),
        "conditions": conditions(pod, now, &set),
        "containerStatuses": null,
        "initContainerStatuses": null,
    })
}
