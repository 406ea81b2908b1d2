//! The status of a pod as a kubelet writes it, from its [`Lifecycle`]. Pure. Tests: `lifecycle/tests.rs`.

use model::Timestamp;
use serde_json::{Map, Value, json};

use crate::lifecycle::{Lifecycle, State, Terminated, Track};

/// The members of `status` this machine owns.
pub(crate) fn of_pod(pod: &Lifecycle) -> Value {
    let (init, main): (Vec<&Track>, Vec<&Track>) = pod.tracks.iter().partition(|track| track.init);
    let initialized = init.iter().all(|track| is_passed(track));
    let all_ready = pod.tracks.iter().filter(|track| !track.init || track.spec.sidecar).all(is_running);
    let phase = phase(pod, &main, initialized);
    let containers = |tracks: &[&Track], blocked: bool| -> Vec<Value> {
        tracks.iter().map(|track| container(pod, track, blocked)).collect()
    };
    let mut status = json!({
        "phase": phase,
        "conditions": conditions(pod, initialized, all_ready, phase == "Succeeded"),
        "startTime": pod.started_at.to_rfc3339(),
        "hostIP": pod.plan.host_ip,
        "podIP": pod.plan.pod_ip,
        "podIPs": [{"ip": pod.plan.pod_ip}],
        "containerStatuses": containers(&main, !initialized),
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = Value::Array(containers(&init, false));
    }
    if pod.past_deadline {
        status["reason"] = json!("DeadlineExceeded");
        status["message"] = json!("Pod was active on the node longer than the specified deadline");
    }
    status
}

/// The status of a pod no container of which can be made: it waits, for the reason given of `culprit` (empty: of all).
pub(crate) fn of_refused(names_and_images: &[(String, String)], culprit: &str, message: &str) -> Value {
    let state = |name: &str| {
        if culprit.is_empty() || culprit == name {
            json!({"waiting": {"reason": "CreateContainerConfigError", "message": message}})
        } else {
            json!({"waiting": {"reason": "ContainerCreating"}})
        }
    };
    let containers = names_and_images.iter().map(|(name, image)| {
        json!({
            "name": name, "image": image, "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": state(name), "lastState": {},
        })
    });
    json!({"phase": "Pending", "containerStatuses": containers.collect::<Vec<_>>()})
}

/// The status of a pod this machine did not take in, or lost.
pub(crate) fn of_failed(reason: &str, message: &str) -> Value {
    json!({"phase": "Failed", "reason": reason, "message": message})
}

/// A last status made final: what it says runs or is to run was ended from outside.
pub(crate) fn lost(status: &Value, message: &str, now: Timestamp) -> Value {
    let mut status = status.clone();
    for list in ["containerStatuses", "initContainerStatuses"] {
        for container in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if container["state"].get("running").is_some() {
                container["state"] = json!({"terminated": {
                    "exitCode": 137,
                    "reason": "Error",
                    "message": message,
                    "startedAt": container["state"]["running"]["startedAt"],
                    "finishedAt": now.to_rfc3339_ms(),
                }});
                container["ready"] = json!(false);
                container["started"] = json!(false);
            }
        }
    }
    status["phase"] = json!("Failed");
    status["message"] = json!(message);
    status
}

fn phase(pod: &Lifecycle, main: &[&Track], initialized: bool) -> &'static str {
    if pod.has_ended() {
        let succeeded = !pod.past_deadline && main.iter().all(|track| track.code() == Some(0));
        return if succeeded { "Succeeded" } else { "Failed" };
    }
    let started = |track: &&Track| !matches!(track.state, State::Waiting | State::Starting) || track.restarts > 0;
    if initialized && main.iter().all(started) { "Running" } else { "Pending" }
}

fn is_running(track: &Track) -> bool {
    matches!(track.state, State::Running { .. })
}

/// Returns whether the pod can continue after this init container.
fn is_passed(track: &Track) -> bool {
    if track.spec.sidecar { is_running(track) || track.restarts > 0 } else { track.code() == Some(0) }
}

fn conditions(pod: &Lifecycle, initialized: bool, all_ready: bool, completed: bool) -> Value {
    // Each is at home either at the start of the pod or now; both are shown as the latest change of any container.
    let latest = pod.tracks.iter().map(|track| match &track.state {
        State::Running { started_at, .. } => *started_at,
        State::Terminated(run) => run.finished_at,
        State::BackOff { .. } => track.last.as_ref().map_or(pod.started_at, |run| run.finished_at),
        State::Waiting | State::Starting => pod.started_at,
    });
    let changed = latest.max().unwrap_or(pod.started_at).to_rfc3339();
    let condition = |kind: &str, holds: bool, at: &str| {
        let mut condition =
            json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": at});
        if completed && matches!(kind, "Ready" | "ContainersReady") {
            condition["reason"] = json!("PodCompleted");
        } else if !holds {
            condition["reason"] =
                json!(if kind == "Initialized" { "ContainersNotInitialized" } else { "ContainersNotReady" });
        }
        condition
    };
    let started = pod.started_at.to_rfc3339();
    let ours = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let foreign = pod
        .plan
        .conditions
        .iter()
        .filter(|known| known["type"].as_str().is_none_or(|kind| !ours.contains(&kind) || kind == "PodScheduled"));
    let mut all: Vec<Value> = foreign.cloned().collect();
    if !all.iter().any(|known| known["type"] == "PodScheduled") {
        all.push(condition("PodScheduled", true, &started));
    }
    all.push(condition("Initialized", initialized, &changed));
    all.push(condition("ContainersReady", all_ready, &changed));
    all.push(condition("Ready", all_ready, &changed));
    Value::Array(all)
}

fn container(pod: &Lifecycle, track: &Track, blocked: bool) -> Value {
    let name = &track.spec.name;
    let id = |restart: u32| format!("process://{}/{name}/{restart}", pod.plan.uid);
    let state = match &track.state {
        State::Waiting => {
            json!({"waiting": {"reason": if blocked || track.init { "PodInitializing" } else { "ContainerCreating" }}})
        }
        State::Starting => json!({"waiting": {"reason": "ContainerCreating"}}),
        State::Running { started_at, .. } => json!({"running": {"startedAt": started_at.to_rfc3339_ms()}}),
        State::Terminated(run) => terminated(run, &id(track.restarts)),
        State::BackOff { wait_ms, .. } => json!({"waiting": {
            "reason": "CrashLoopBackOff",
            "message": format!(
                "back-off {}s restarting failed container={name} pod={}_{}",
                wait_ms.div_ceil(1000), pod.plan.name, pod.plan.namespace
            ),
        }}),
    };
    let last = match &track.last {
        Some(run) => terminated(run, &id(track.restarts.saturating_sub(1))),
        None => Value::Object(Map::new()),
    };
    let running = is_running(track);
    let succeeded_init = track.init && !track.spec.sidecar && track.code() == Some(0);
    let mut status = json!({
        "name": name,
        "image": track.spec.image,
        "imageID": "",
        "ready": running && (!track.init || track.spec.sidecar) || succeeded_init,
        "started": running,
        "restartCount": track.restarts,
        "state": state,
        "lastState": last,
    });
    if !matches!(track.state, State::Waiting) {
        status["containerID"] = json!(id(track.restarts));
    }
    status
}

fn terminated(run: &Terminated, id: &str) -> Value {
    let mut state = json!({
        "exitCode": run.code,
        "reason": run.reason,
        "startedAt": run.started_at.to_rfc3339_ms(),
        "finishedAt": run.finished_at.to_rfc3339_ms(),
        "containerID": id,
    });
    if !run.message.is_empty() {
        state["message"] = json!(run.message);
    }
    json!({"terminated": state})
}
