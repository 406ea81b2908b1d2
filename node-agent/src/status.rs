//! Pod statuses: which members this agent owns, pods that were lost with an earlier agent, and what is carried over from one
//! run of a pod to the next. Pure. Tests: at the end.

use std::collections::BTreeMap;

use model::Timestamp;
use serde_json::{Map, Value, json};

/// Conditions that a kubelet writes; the others are the scheduler's and the controllers'.
const OWN_CONDITIONS: [&str; 3] = ["Initialized", "ContainersReady", "Ready"];
/// Lists of container statuses, with the list of the spec that each is about.
const LISTS: [(&str, &str); 2] = [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")];

fn list<'a>(status: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    status[name].as_array().into_iter().flatten()
}

/// Whether the phase is final.
pub(crate) fn has_ended(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether anything of the pod has ever been started.
pub(crate) fn has_run(status: &Value) -> bool {
    let ran = |container: &Value| {
        ["running", "terminated"].iter().any(|state| !container["state"][state].is_null())
            || container["restartCount"].as_u64().unwrap_or_default() > 0
    };
    LISTS.iter().any(|(name, _)| list(status, name).any(ran))
}

/// Whether a container cannot be made for something that is missing.
pub(crate) fn is_refused(status: &Value) -> bool {
    list(status, "containerStatuses").any(|c| c["state"]["waiting"]["reason"] == "CreateContainerConfigError")
}

/// The members of a status that are this agent's to write.
pub(crate) fn ours(mut status: Value) -> Value {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition["type"].as_str().is_some_and(|kind| OWN_CONDITIONS.contains(&kind)));
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            for member in ["reason", "message"] {
                // A merge keeps what it does not name: what was so before is no reason any more.
                condition.entry(member).or_insert(Value::Null);
            }
        }
    }
    status
}

/// A pod that ended because its node is being shut down.
pub(crate) fn mark_shutdown(status: &mut Value) {
    if status["phase"] == "Failed" && status["reason"].is_null() {
        status["reason"] = json!("Terminated");
        status["message"] = json!("the pod was ended because its node agent is shutting down");
    }
}

/// The status of a pod whose processes ended with an earlier agent and that may not be started again: Failed, every container
/// that had not ended with code 137 and the reason a kubelet gives for containers it cannot find.
pub(crate) fn lost(pod: &Value, now: Timestamp) -> Value {
    let before = &pod["status"];
    let not = |kind: &str| json!({"type": kind, "status": "False", "reason": "PodFailed", "lastTransitionTime": now.to_rfc3339()});
    let mut status = json!({
        "phase": "Failed",
        "reason": "NodeAgentRestarted",
        "message": "the pod's processes ended with the node agent that ran them",
        "conditions": [not("ContainersReady"), not("Ready")],
    });
    for (name, of_spec) in LISTS {
        let containers: Vec<Value> =
            list(&pod["spec"], of_spec).map(|container| lost_container(container, before, name, now)).collect();
        if !containers.is_empty() {
            status[name] = Value::Array(containers);
        }
    }
    status
}

fn lost_container(container: &Value, before: &Value, name: &str, now: Timestamp) -> Value {
    let known = list(before, name).find(|status| status["name"] == container["name"]);
    let mut status = known.cloned().unwrap_or_else(|| {
        json!({"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0, "lastState": {}})
    });
    if status["state"]["terminated"].is_null() {
        status["state"] = json!({"terminated": terminated(&status["state"], now)});
    }
    // An init container that succeeded stays ready, as it was.
    if name == "containerStatuses" || status["ready"].is_null() {
        status["ready"] = json!(false);
    }
    status["started"] = json!(false);
    status
}

fn terminated(state: &Value, now: Timestamp) -> Value {
    let mut end = json!({
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "the container ended with the node agent that ran it",
        "finishedAt": now.to_rfc3339(),
    });
    let started = &state["running"]["startedAt"];
    end["startedAt"] = if started.is_null() { json!(now.to_rfc3339()) } else { started.clone() };
    end
}

/// What a pod that is started again, by another agent than before, keeps.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Carried {
    start_time: Value,
    /// By list and container: restarts up to and with this start, and the state before it.
    containers: BTreeMap<(&'static str, String), (u64, Value)>,
}

impl Carried {
    /// What is kept of a status that an earlier agent left.
    pub(crate) fn of(status: &Value, now: Timestamp) -> Self {
        let mut containers = BTreeMap::new();
        for (name, _) in LISTS {
            for container in list(status, name) {
                let Some(container_name) = container["name"].as_str() else { continue };
                let restarts = container["restartCount"].as_u64().unwrap_or_default();
                let state = &container["state"];
                let (restarts, last) = if !state["terminated"].is_null() {
                    (restarts + 1, state.clone())
                } else if !state["running"].is_null() {
                    (restarts + 1, json!({"terminated": terminated(state, now)}))
                } else {
                    (restarts, container["lastState"].clone())
                };
                containers.insert((name, container_name.to_owned()), (restarts, last));
            }
        }
        Self { start_time: status["startTime"].clone(), containers }
    }

    /// Adds it to a status of the run that continues.
    pub(crate) fn put_into(&self, status: &mut Value) {
        if !self.start_time.is_null() && !status["startTime"].is_null() {
            status["startTime"] = self.start_time.clone();
        }
        for (name, _) in LISTS {
            for container in status.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
                let key = (name, container["name"].as_str().unwrap_or_default().to_owned());
                let Some((restarts, last)) = self.containers.get(&key) else { continue };
                let more = container["restartCount"].as_u64().unwrap_or_default();
                container["restartCount"] = json!(restarts + more);
                if container["lastState"].as_object().is_none_or(Map::is_empty) && !last.is_null() {
                    container["lastState"] = last.clone();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);
    const NOW_TEXT: &str = "1970-01-01T00:00:01Z";

    fn running(name: &str) -> Value {
        json!({"name": name, "image": "i", "imageID": "", "ready": true, "started": true, "restartCount": 2,
            "lastState": {}, "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}}})
    }

    #[test]
    fn what_counts_as_having_run() {
        for (containers, want) in [
            (json!(null), false),
            (json!([]), false),
            (json!([{"name": "a", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]), false),
            (json!([{"name": "a", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]), true),
            (json!([{"name": "a", "state": {"terminated": {"exitCode": 0}}}]), true),
            (json!([running("a")]), true),
        ] {
            assert_eq!(has_run(&json!({"phase": "Pending", "containerStatuses": containers})), want, "{containers}");
            assert_eq!(has_run(&json!({"initContainerStatuses": containers})), want, "{containers}");
        }
    }

    #[test]
    fn conditions_of_others_are_left_to_them() {
        let status = ours(json!({"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
            {"type": "DisruptionTarget", "status": "True"}]}));
        let ready = json!({"type": "Ready", "status": "True", "reason": null, "message": null});
        assert_eq!(status["conditions"], json!([ready]));
        assert_eq!(ours(json!({"phase": "Failed"})), json!({"phase": "Failed"}));
    }

    #[test]
    fn a_lost_pod_failed_and_says_what_is_known() {
        let done = json!({"name": "b", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "lastState": {},
            "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let pod = json!({
            "spec": {
                "initContainers": [{"name": "init", "image": "i"}],
                "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}, {"name": "c", "image": "i"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{"name": "init", "ready": true, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0}}}],
                "containerStatuses": [running("a"), done],
            },
        });
        let status = lost(&pod, NOW);
        assert_eq!((status["phase"].as_str(), status["reason"].as_str()), (Some("Failed"), Some("NodeAgentRestarted")));
        let containers = &status["containerStatuses"];
        let end = &containers[0]["state"]["terminated"];
        assert_eq!((&end["exitCode"], &end["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
        assert_eq!((&end["startedAt"], &end["finishedAt"]), (&json!("1970-01-01T00:00:00Z"), &json!(NOW_TEXT)));
        assert_eq!((&containers[0]["ready"], &containers[0]["restartCount"]), (&json!(false), &json!(2)));
        assert_eq!(containers[1]["state"]["terminated"], json!({"exitCode": 0, "reason": "Completed"}));
        // One that had no status yet has one now: readers that count results find one of every container.
        assert_eq!(containers[2]["state"]["terminated"]["exitCode"], 137);
        assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
        assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    }

    #[test]
    fn restart_counts_go_on() {
        let before = json!({"startTime": "1970-01-01T00:00:00Z", "containerStatuses": [
            running("a"),
            {"name": "b", "restartCount": 3, "lastState": {"terminated": {"exitCode": 9}},
                "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ]});
        let carried = Carried::of(&before, NOW);
        let mut status = json!({"startTime": NOW_TEXT, "containerStatuses": [
            {"name": "a", "restartCount": 0, "lastState": {}, "state": {"running": {}}},
            {"name": "b", "restartCount": 1, "lastState": {"terminated": {"exitCode": 1}}, "state": {"running": {}}},
            {"name": "new", "restartCount": 0, "lastState": {}},
        ]});
        carried.put_into(&mut status);
        let containers = &status["containerStatuses"];
        assert_eq!(status["startTime"], "1970-01-01T00:00:00Z");
        assert_eq!((&containers[0]["restartCount"], &containers[1]["restartCount"]), (&json!(3), &json!(4)));
        assert_eq!(containers[0]["lastState"]["terminated"]["exitCode"], 137);
        assert_eq!(containers[1]["lastState"]["terminated"]["exitCode"], 1);
        assert_eq!(containers[2]["restartCount"], 0);
    }

    #[test]
    fn only_failures_are_blamed_on_a_shutdown() {
        for (before, want) in [
            (json!({"phase": "Failed"}), json!("Terminated")),
            (json!({"phase": "Failed", "reason": "DeadlineExceeded"}), json!("DeadlineExceeded")),
            (json!({"phase": "Succeeded"}), json!(null)),
            (json!({"phase": "Running"}), json!(null)),
        ] {
            let mut status = before;
            mark_shutdown(&mut status);
            assert_eq!(status["reason"], want);
        }
    }
}
