//! Pod objects: object -> [`PodFact`].
//!
//! Keeps the fields that decisions read and leaves out those that change by themselves (probe times, readiness, image ids), so
//! that most updates of a pod change nothing. It must not judge. Tests: at the end of this file.

mod ended;

use model::{ContainerEnd, ContainerFact, ContainerState, FieldError, PodFact, PodPhase, Text, printable};
use serde_json::Value;

use crate::api::JobApi;
use crate::demand;
use crate::node::true_conditions;
use crate::objects::{
    SHAPE, SIZE, annotation, deleting_at, incarnation, list_at, name, resource_version, text_at, time_at, uid,
};

/// Conditions that every healthy pod goes through.
const USUAL_CONDITIONS: [&str; 6] =
    ["ContainersReady", "Initialized", "PodHasNetwork", "PodReadyToStartContainers", "PodScheduled", "Ready"];

/// Terms that name a device failure, in lower case.
const DEVICE_WORDS: [&str; 8] = ["xid", "gpu", "nvml", "cuda", "ecc", "nvlink", "rocm", "npu"];

/// Waiting reasons that every healthy container goes through, or whose message changes with each try.
const USUAL_WAITS: [&str; 3] = ["ContainerCreating", "CrashLoopBackOff", "PodInitializing"];

/// Maximum number of characters kept of a termination message that names a device failure.
const LAST_WORDS_MAX: usize = 200;

/// Longest part of a container's message that is kept, in characters.
const CONTAINER_MESSAGE_MAX: usize = 256;

/// Longest part of a pod's message that is kept, in characters.
const MESSAGE_MAX: usize = 512;

/// Reads the fact about a pod that belongs to a job of `api`.
///
/// # Errors
/// Returns an error if the object has no uid.
pub fn fact(api: &dyn JobApi, object: &Value) -> Result<PodFact, FieldError> {
    let node = text_at(object, &["spec", "nodeName"]).filter(|node| !node.is_empty());
    let message = text_at(object, &["status", "message"])
        .filter(|message| !message.is_empty())
        .or_else(|| if node.is_none() { unscheduled(object) } else { None });
    let (phase, lingers) = ended::phase(api, object);
    Ok(PodFact {
        uid: uid(object)?,
        name: name(object),
        slot: api.slot_of(object),
        rv: resource_version(object),
        incarnation: incarnation(object),
        phase,
        node: node.map(Text::from),
        started: time_at(object, &["status", "startTime"]),
        deleting: deleting_at(object),
        containers: containers(api, object),
        init: init_containers(object),
        reason: text_at(object, &["status", "reason"]).filter(|reason| !reason.is_empty()).map(Text::from),
        message: message.map(|message| message.chars().take(MESSAGE_MAX).collect::<String>().into()),
        conditions: true_conditions(object)
            .into_iter()
            .filter(|condition| !USUAL_CONDITIONS.contains(&&**condition))
            .collect(),
        restarts: restarts(object),
        shape: annotation(object, SHAPE).map(Text::from),
        size: annotation(object, SIZE).map(Text::from),
        protected: api.descriptor().pod_finalizer.and_then(|own| protected(own, object)),
        lingers,
        holds: demand::holding(object).map(Box::new),
    })
}

/// Returns the other finalizers of a pod that has this one.
fn protected(own: &str, object: &Value) -> Option<Vec<Text>> {
    let all = || list_at(object, &["metadata", "finalizers"]).iter().filter_map(Value::as_str);
    all().any(|name| name == own).then(|| all().filter(|name| *name != own).map(Text::from).collect())
}

/// Returns the number of restarts of the pod's containers, init containers included. Those of sidecars are no matter of the
/// training: native ones, and those that a mesh adds.
fn restarts(object: &Value) -> u32 {
    let natives =
        || list_at(object, &["spec", "initContainers"]).iter().filter(|each| kube_model::resources::is_sidecar(each));
    let is_sidecar = |status: &&Value| {
        let name = text_at(status, &["name"]).unwrap_or_default();
        ended::SIDECARS.contains(&name) || natives().any(|each| text_at(each, &["name"]) == Some(name))
    };
    let lists = ["containerStatuses", "initContainerStatuses"].map(|key| list_at(object, &["status", key]));
    let counted = lists.into_iter().flatten().filter(|status| !is_sidecar(status));
    let counts = counted.filter_map(|status| status.get("restartCount").and_then(Value::as_u64));
    counts.fold(0, |sum: u32, count| sum.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)))
}

pub(crate) fn phase(object: &Value) -> PodPhase {
    match text_at(object, &["status", "phase"]) {
        None | Some("" | "Pending") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) => PodPhase::Unknown,
    }
}

/// Returns the scheduler's message on why the pod cannot be placed.
fn unscheduled(object: &Value) -> Option<&str> {
    list_at(object, &["status", "conditions"])
        .iter()
        .find(|condition| {
            text_at(condition, &["type"]) == Some("PodScheduled") && text_at(condition, &["status"]) == Some("False")
        })
        .and_then(|condition| text_at(condition, &["message"]))
        .filter(|message| !message.is_empty())
}

fn containers(api: &dyn JobApi, object: &Value) -> Vec<ContainerFact> {
    let main = api.pods().map_or_else(Vec::new, |pods| pods.main_containers(object));
    let mut containers: Vec<ContainerFact> = list_at(object, &["status", "containerStatuses"])
        .iter()
        .filter_map(|status| {
            let name = text_at(status, &["name"])?;
            Some(container(name, main.contains(&name), status))
        })
        .collect();
    // Kubelets do not promise an order; the same states in another order are no news.
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    containers
}

/// Returns the init containers that failed, or that wait for something else than their turn. Those that go the usual way are no news.
fn init_containers(object: &Value) -> Vec<ContainerFact> {
    let is_news = |container: &ContainerFact| {
        let is_held = matches!(&container.state, ContainerState::Waiting { reason, .. }
            if !reason.is_empty() && !USUAL_WAITS.contains(&&**reason));
        is_held || container.failure().is_some()
    };
    let statuses = list_at(object, &["status", "initContainerStatuses"]).iter();
    let all = statuses.filter_map(|status| Some(container(text_at(status, &["name"])?, false, status)));
    // They run one after the other: their order is that of the pod.
    all.filter(is_news).collect()
}

fn container(name: &str, main: bool, status: &Value) -> ContainerFact {
    let last = status.get("lastState").and_then(terminated).map(Box::new);
    ContainerFact { name: Text::from(name), main, state: state(status), last }
}

fn state(status: &Value) -> ContainerState {
    let state = status.get("state").unwrap_or(&Value::Null);
    if let Some(end) = terminated(state) {
        return ContainerState::Terminated(end);
    }
    if state.get("running").is_some_and(Value::is_object) {
        return ContainerState::Running;
    }
    // No state at all means waiting, as for Kubernetes itself.
    let waiting = state.get("waiting").unwrap_or(&Value::Null);
    let reason = reason(waiting);
    let message = text_at(waiting, &["message"]).filter(|_| !reason.is_empty() && !USUAL_WAITS.contains(&&*reason));
    let message = message.and_then(|message| model::last_words::condensed(message, CONTAINER_MESSAGE_MAX));
    ContainerState::Waiting { message: message.map(Text::from), reason }
}

fn reason(of: &Value) -> Text {
    Text::from(text_at(of, &["reason"]).unwrap_or_default())
}

/// Parses the `terminated` member of a container's `state` or `lastState`; `None` if it has none.
fn terminated(state: &Value) -> Option<ContainerEnd> {
    let terminated = state.get("terminated").filter(|value| value.is_object())?;
    let code = terminated.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let message = text_at(terminated, &["message"]).map(printable::output);
    let message = message.as_deref();
    Some(ContainerEnd {
        // A code beyond 32 bits is no code a process can exit with: it must not read as success.
        code: i32::try_from(code).unwrap_or(-1),
        reason: reason(terminated),
        message: message.and_then(|message| if code == 0 { device_words(message) } else { last_words(message) }),
        finished: time_at(terminated, &["finishedAt"]).filter(|_| code != 0),
        lost_peer: code != 0 && message.is_some_and(model::last_words::blames_peer),
    })
}

/// Returns what is kept of a termination message of a failure. A line that may name a device failure stays, wherever it is.
fn last_words(message: &str) -> Option<Text> {
    let words = model::last_words::condensed(message, CONTAINER_MESSAGE_MAX);
    let device = device_words(message);
    Some(match (words, device) {
        (Some(words), Some(device)) if !words.contains(&*device) => Text::from(format!("{words}\n{device}")),
        (words, device) => words.map(Text::from).or(device)?,
    })
}

/// Returns the line of a termination message that may name a device failure, from the name on where the line is long.
fn device_words(message: &str) -> Option<Text> {
    let lower = message.to_ascii_lowercase();
    let first = DEVICE_WORDS.iter().filter_map(|word| find_word(&lower, word)).min()?;
    let line = message.get(..first).and_then(|before| before.rfind('\n')).map_or(0, |at| at.saturating_add(1));
    let start = if first.saturating_sub(line) < LAST_WORDS_MAX { line } else { first };
    let named = message.get(start..)?.lines().next()?.trim();
    Some(named.chars().take(LAST_WORDS_MAX).collect::<String>().into())
}

/// Returns the place of a word in a text. Letters before it make it another word, as `input` is no NPU.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let begins = |at: usize| text.get(..at).is_none_or(|before| !before.ends_with(|c: char| c.is_ascii_alphabetic()));
    text.match_indices(word).map(|(at, _)| at).find(|at| begins(*at))
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::aitrainingjob::AiTrainingJob;

    fn pod(status: &Value) -> Value {
        json!({"metadata": {"name": "j-trainer-1", "uid": "p1", "resourceVersion": "5",
            "annotations": {"trainyard.dev/incarnation": "2"},
            "labels": {"TrainingJobReplicaName": "trainer", "TrainingJobReplicaIndex": "1"}},
            "spec": {"nodeName": "n1"}, "status": status})
    }

    fn fact_of(status: &Value) -> PodFact {
        fact(&AiTrainingJob, &pod(status)).unwrap()
    }

    #[test]
    fn a_running_pod_is_read_in_full() {
        let fact = fact_of(&json!({"phase": "Running", "startTime": "2024-02-29T00:00:00Z", "containerStatuses": [
            {"name": "side", "state": {"running": {"startedAt": "2024-02-29T00:00:00Z"}}},
            {"name": "aitj-main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "long"}}}],
            "initContainerStatuses": [{"name": "aitj-init", "state": {"terminated": {"exitCode": 3}}}]}));
        assert_eq!(fact.slot.as_ref().unwrap().to_string(), "trainer-1");
        assert_eq!((fact.incarnation.0, fact.rv.0, fact.phase), (2, 5, PodPhase::Running));
        assert_eq!(fact.node.as_deref(), Some("n1"));
        assert_eq!(fact.started, Some(Timestamp(1_709_164_800_000)));
        assert_eq!(
            fact.containers,
            [
                ContainerFact {
                    name: "aitj-main".into(),
                    main: true,
                    state: ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: Some("long".into()) },
                    last: None,
                },
                ContainerFact { name: "side".into(), main: false, state: ContainerState::Running, last: None },
            ]
        );
    }

    #[test]
    fn the_end_before_a_restart_and_init_containers_that_fail_are_read() {
        let end = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "killed", "finishedAt": "2024-02-29T00:00:00Z"}});
        let fact = fact_of(&json!({"phase": "Running",
            "containerStatuses": [
                {"name": "aitj-main", "restartCount": 1, "state": {"running": {}}, "lastState": end},
                {"name": "side", "state": {"running": {}}, "lastState": {}}],
            "initContainerStatuses": [
                {"name": "done", "state": {"terminated": {"exitCode": 0}}},
                {"name": "fails", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": end},
                {"name": "held", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}},
                {"name": "later", "state": {"waiting": {"reason": "PodInitializing"}}}]}));
        let killed = ContainerEnd {
            code: 137,
            reason: "OOMKilled".into(),
            message: Some("killed".into()),
            finished: Some(Timestamp(1_709_164_800_000)),
            lost_peer: false,
        };
        assert_eq!(fact.containers[0].last.as_deref(), Some(&killed));
        assert_eq!(fact.containers[1].last, None);
        assert_eq!(fact.init.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["fails", "held"]);
        let failures: Vec<(&str, i32)> = fact.failures().iter().map(|(one, end)| (&*one.name, end.code)).collect();
        assert_eq!(failures, [("fails", 137), ("aitj-main", 137)]);
    }

    #[test]
    fn phases_and_states_have_one_reading_each() {
        for (phase, want) in [
            (json!(null), PodPhase::Pending),
            (json!(""), PodPhase::Pending),
            (json!("Succeeded"), PodPhase::Succeeded),
            (json!("Failed"), PodPhase::Failed),
            (json!("Unknown"), PodPhase::Unknown),
            (json!("Novel"), PodPhase::Unknown),
        ] {
            assert_eq!(fact_of(&json!({"phase": phase})).phase, want, "{phase}");
        }
        let terminated = |code: i32, reason: &str| {
            ContainerState::Terminated(ContainerEnd {
                code,
                reason: reason.into(),
                message: None,
                finished: None,
                lost_peer: false,
            })
        };
        let waiting = |reason: &str, message: Option<&str>| ContainerState::Waiting {
            reason: reason.into(),
            message: message.map(Text::from),
        };
        for (state, want) in [
            (json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), terminated(137, "OOMKilled")),
            (json!({"terminated": {"exitCode": 0}}), terminated(0, "")),
            (json!({"terminated": {"exitCode": 5_000_000_000_i64}}), terminated(-1, "")),
            (json!({"running": {}}), ContainerState::Running),
            (json!({"running": null, "waiting": {}}), waiting("", None)),
            (json!({}), waiting("", None)),
            (json!(null), waiting("", None)),
            (json!({"waiting": {"reason": "ContainerCreating", "message": "x"}}), waiting("ContainerCreating", None)),
            (
                json!({"waiting": {"reason": "CreateContainerConfigError", "message": "secret \"s\" not found"}}),
                waiting("CreateContainerConfigError", Some("secret \"s\" not found")),
            ),
        ] {
            let fact = fact_of(&json!({"containerStatuses": [{"name": "m", "state": state}]}));
            assert_eq!(fact.containers[0].state, want, "{state}");
        }
    }

    #[test]
    fn of_last_words_the_line_of_a_device_is_kept_and_of_a_failure_the_end() {
        let early = format!("NVRM: Xid 79 {}", "x".repeat(900));
        let nested =
            format!("{}exec: \"pyhton3\": executable file not found in $PATH", "failed to create task: ".repeat(20));
        let lines = format!("{}\nModuleNotFoundError: No module named 'torch'\n", "x".repeat(400));
        let late = format!("{}\nloss 0.1\nCUDA error: uncorrectable ECC", "é".repeat(2000));
        for (message, want) in [
            ("Traceback: KeyError", Some("Traceback: KeyError".to_owned())),
            (&*nested, Some(format!("... {}", nested.chars().skip(nested.len() - 256).collect::<String>()))),
            (&*lines, Some("... ModuleNotFoundError: No module named 'torch'".to_owned())),
            ("", None),
            (" \n", None),
            ("nvml failed", Some("nvml failed".to_owned())),
            (&*early, Some(format!("... {}\n{}", "x".repeat(256), early.chars().take(200).collect::<String>()))),
            (&*late, Some("... loss 0.1\nCUDA error: uncorrectable ECC".to_owned())),
            (&*format!("{}\ngpu lost", "y".repeat(800)), Some("... gpu lost".to_owned())),
            // An exception leads, and the line that names the device follows.
            (
                "gpu 3 is slow\nTraceback (most recent call last):\n  File \"t.py\", line 1, in f\n    g()\n    ^^^\nKeyError: 1\n",
                Some("KeyError: 1\nFile \"t.py\", line 1, in f\ng()\ngpu 3 is slow".to_owned()),
            ),
            ("wrong input\nout of space", Some("wrong input\nout of space".to_owned())),
        ] {
            let status = json!({"containerStatuses": [
                {"name": "m", "state": {"terminated": {"exitCode": 1, "message": message}}}]});
            let ContainerState::Terminated(ContainerEnd { message: kept, .. }) =
                fact_of(&status).containers[0].state.clone()
            else {
                panic!("terminated")
            };
            assert_eq!(kept.as_deref(), want.as_deref(), "{message}");
        }
        let status = json!({"containerStatuses": [
            {"name": "m", "state": {"terminated": {"exitCode": 0, "message": "all is well"}}}]});
        let ContainerState::Terminated(ContainerEnd { message, .. }) = fact_of(&status).containers[0].state.clone()
        else {
            panic!("terminated")
        };
        assert_eq!(message, None, "of a success nothing is kept");
    }

    #[test]
    fn messages_come_from_the_pod_or_while_unscheduled_from_the_scheduler() {
        let scheduling =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]);
        let mut object = pod(&json!({"phase": "Pending", "conditions": scheduling}));
        assert_eq!(fact(&AiTrainingJob, &object).unwrap().message, None, "it has a node");
        object["spec"]["nodeName"] = json!("");
        let unplaced = fact(&AiTrainingJob, &object).unwrap();
        assert_eq!((unplaced.node.as_deref(), unplaced.message.as_deref()), (None, Some("0/3 nodes")));
        let evicted = fact_of(&json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}));
        assert_eq!((evicted.reason.as_deref(), evicted.message.as_deref()), (Some("Evicted"), Some("low on memory")));
    }

    #[test]
    fn readiness_and_probe_times_are_no_news() {
        let status = |time: &str, ready: &str| {
            json!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": ready, "lastProbeTime": time},
                {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": time},
                {"type": "PodScheduled", "status": "True"}]})
        };
        let fact = fact_of(&status("2024-01-01T00:00:00Z", "True"));
        assert_eq!(fact, fact_of(&status("2025-01-01T00:00:00Z", "False")));
        assert_eq!(fact.conditions.iter().map(|c| &**c).collect::<Vec<_>>(), ["DisruptionTarget"]);
    }

    #[test]
    fn odd_objects_are_errors_or_empty_never_a_crash() {
        assert_eq!(fact(&AiTrainingJob, &json!({"metadata": {}})).unwrap_err().path, "metadata.uid");
        let fact = fact(&AiTrainingJob, &json!({"metadata": {"uid": "u"}, "spec": 1, "status": []})).unwrap();
        assert_eq!((fact.slot, fact.node, fact.containers.len()), (None, None, 0));
    }
}
