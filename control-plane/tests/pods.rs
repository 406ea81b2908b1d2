//! Simulated nodes and pods: what kwok, scheduler and controller manager do together.

mod support;

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use control_plane::{ControlPlane, Options, until_within};
use serde_json::{Value, json};
use support::{get, pod, wait_for_phase};

/// One for all tests of this file. It is never dropped: its owner is this process, and it ends with it.
fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| ControlPlane::start(Options { nodes: 4, gpus: 8, ..Options::default() }).unwrap())
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    // A node that nothing simulates has none at first.
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

#[test]
fn nodes_are_as_real_ones() {
    let node = get(plane(), "node", "node-3").unwrap();
    assert_eq!(condition(&node, "Ready")["status"], "True");
    assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-3");
    assert_eq!(node["metadata"]["labels"]["node.kubernetes.io/instance-type"], "simulated.gpu-8");
    assert_eq!(node["spec"]["taints"], Value::Null);
    until_within(Duration::from_secs(30), "a heartbeat", || {
        let lease = plane().run_kubectl(["get", "lease", "node-3", "-n", "kube-node-lease", "-o", "json"]);
        let lease: Value = serde_json::from_str(&lease.map_err(|error| error.to_string())?).unwrap();
        if lease["spec"]["renewTime"].is_string() { Ok(()) } else { Err(lease.to_string()) }
    });
}

#[test]
fn a_pod_runs_for_its_time_and_ends_with_its_code() {
    let annotations = json!({"trainyard.dev/kwok-run-for": "3s", "trainyard.dev/kwok-exit-code": "3"});
    plane().apply(&pod("fails", &annotations)).unwrap();
    let running = wait_for_phase(plane(), "fails", "Running");
    let since = Instant::now();
    assert!(running["spec"]["nodeName"].as_str().unwrap().starts_with("node-"));
    assert!(running["status"]["podIP"].as_str().unwrap().starts_with("10."));
    assert!(running["status"]["hostIP"].as_str().unwrap().starts_with("172."));
    assert!(running["status"]["startTime"].is_string());
    for kind in ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&running, kind)["status"], "True", "{kind}");
    }
    let statuses = running["status"]["containerStatuses"].as_array().unwrap();
    assert_eq!(statuses.len(), 2);
    for (status, name) in statuses.iter().zip(["main", "side"]) {
        assert_eq!(status["name"], name);
        assert_eq!(status["ready"], true);
        assert!(status["state"]["running"]["startedAt"].is_string());
    }
    assert_eq!(running["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");

    let ended = wait_for_phase(plane(), "fails", "Failed");
    assert!(since.elapsed() > Duration::from_secs(2), "it ran only {:?}", since.elapsed());
    for status in ended["status"]["containerStatuses"].as_array().unwrap() {
        assert_eq!(status["state"].as_object().unwrap().len(), 1, "{status}");
        assert_eq!(status["state"]["terminated"]["exitCode"], 3);
        assert_eq!(status["state"]["terminated"]["reason"], "Error");
    }
    assert_eq!(condition(&ended, "Ready")["status"], "False");
    assert_eq!(condition(&ended, "PodScheduled")["status"], "True");
}

#[test]
fn a_pod_without_a_code_succeeds() {
    plane().apply(&pod("succeeds", &json!({"trainyard.dev/kwok-run-for": "500ms"}))).unwrap();
    let ended = wait_for_phase(plane(), "succeeds", "Succeeded");
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert_eq!(condition(&ended, "Ready")["reason"], "PodCompleted");
}

#[test]
fn a_pod_without_annotations_runs_on_and_goes_when_deleted() {
    plane().apply(&pod("stays", &json!({}))).unwrap();
    let uid = wait_for_phase(plane(), "stays", "Running")["metadata"]["uid"].clone();
    sleep(Duration::from_secs(2));
    let still = get(plane(), "pod", "stays").unwrap();
    assert_eq!((&still["status"]["phase"], &still["metadata"]["uid"]), (&json!("Running"), &uid));
    let start = Instant::now();
    plane().run_kubectl(["delete", "pod", "stays", "--timeout=20s"]).unwrap();
    assert!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
    assert_eq!(get(plane(), "pod", "stays"), None);
}

#[test]
fn deletion_can_take_the_whole_grace_period() {
    plane().apply(&pod("slow", &json!({"trainyard.dev/kwok-stop-for": "grace"}))).unwrap();
    wait_for_phase(plane(), "slow", "Running");
    let start = Instant::now();
    plane().run_kubectl(["delete", "pod", "slow", "--wait=false"]).unwrap();
    sleep(Duration::from_millis(1500));
    let terminating = get(plane(), "pod", "slow").expect("it is there until its grace period is over");
    assert!(terminating["metadata"]["deletionTimestamp"].is_string());
    until_within(Duration::from_secs(15), "the pod to go", || get(plane(), "pod", "slow").map_or(Ok(()), Err));
    // Times of the API are whole seconds, so that up to one of the four is lost.
    assert!(start.elapsed() > Duration::from_millis(2900), "it took {:?}", start.elapsed());
}

#[test]
fn a_pod_takes_its_time_to_start() {
    plane().apply(&pod("sleepy", &json!({"trainyard.dev/kwok-start-after": "3s"}))).unwrap();
    until_within(Duration::from_secs(15), "the pod to be placed", || {
        let pod = get(plane(), "pod", "sleepy").unwrap();
        pod["spec"]["nodeName"].as_str().map(|_| ()).ok_or_else(|| pod["status"].to_string())
    });
    sleep(Duration::from_secs(1));
    assert_eq!(get(plane(), "pod", "sleepy").unwrap()["status"]["phase"], "Pending");
    wait_for_phase(plane(), "sleepy", "Running");
}

/// A pod that the API server marked with grace 0 and did not remove: here, because a finalizer still holds it.
#[test]
fn a_pod_left_half_deleted_is_removed() {
    let text = pod("half", &json!({"trainyard.dev/kwok-run-for": "500ms"}));
    let mut held: Value = serde_json::from_str(&text).unwrap();
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    plane().apply(&held.to_string()).unwrap();
    wait_for_phase(plane(), "half", "Succeeded");
    plane().run_kubectl(["delete", "pod", "half", "--wait=false"]).unwrap();
    assert_eq!(get(plane(), "pod", "half").unwrap()["metadata"]["deletionGracePeriodSeconds"], 0);
    until_within(Duration::from_secs(20), "kwok to write to it, which removes what no finalizer holds", || {
        let status = get(plane(), "pod", "half").unwrap()["status"].clone();
        let tried = status["message"].as_str().is_some_and(|message| message.starts_with("removed by kwok"));
        if tried { Ok(()) } else { Err(status.to_string()) }
    });
    let release = r#"{"metadata":{"finalizers":null}}"#;
    plane().run_kubectl(["patch", "pod", "half", "--type=merge", "-p", release]).unwrap();
    until_within(Duration::from_secs(15), "the pod to go", || get(plane(), "pod", "half").map_or(Ok(()), Err));
}

#[test]
fn a_manual_pod_is_scheduled_and_left_alone() {
    plane().apply(&pod("manual", &json!({"trainyard.dev/kwok": "manual"}))).unwrap();
    until_within(Duration::from_secs(20), "a node", || {
        let pod = get(plane(), "pod", "manual").unwrap();
        if pod["spec"]["nodeName"].is_string() { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    sleep(Duration::from_secs(2));
    assert_eq!(get(plane(), "pod", "manual").unwrap()["status"]["phase"], "Pending");
    let patch = r#"{"status":{"phase":"Failed","reason":"Evicted"}}"#;
    plane().run_kubectl(["patch", "pod", "manual", "--subresource=status", "--type=merge", "-p", patch]).unwrap();
    sleep(Duration::from_secs(1));
    assert_eq!(get(plane(), "pod", "manual").unwrap()["status"]["reason"], "Evicted");
}

#[test]
fn more_gpus_than_there_are_stay_pending() {
    let text = pod("greedy", &json!({})).replace(r#""nvidia.com/gpu":"1""#, r#""nvidia.com/gpu":"9""#);
    plane().apply(&text).unwrap();
    until_within(Duration::from_secs(20), "the scheduler's verdict", || {
        let pod = get(plane(), "pod", "greedy").unwrap();
        let verdict = condition(&pod, "PodScheduled").clone();
        if verdict["reason"] == "Unschedulable" { Ok(()) } else { Err(verdict.to_string()) }
    });
}

/// A node created manually: without any status.
fn node(name: &str, annotations: &Value) -> String {
    let metadata = json!({"name": name, "annotations": annotations, "labels": {"kubernetes.io/hostname": name}});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}).to_string()
}

#[test]
fn only_nodes_annotated_for_it_are_simulated() {
    plane().apply(&node("by-hand", &json!({"kwok.x-k8s.io/node": "fake"}))).unwrap();
    plane().apply(&node("an-agents", &json!({}))).unwrap();
    until_within(Duration::from_secs(20), "the node to be ready", || {
        let node = get(plane(), "node", "by-hand").unwrap();
        if condition(&node, "Ready")["status"] == "True" { Ok(()) } else { Err(node["status"].to_string()) }
    });
    let agents = get(plane(), "node", "an-agents").unwrap();
    assert_ne!(agents["status"]["conditions"][0]["reason"], "KubeletReady", "{}", agents["status"]);
    let bound = pod("an-agents", &json!({})).replace(r#""spec":{"#, r#""spec":{"nodeName":"an-agents","#);
    plane().apply(&bound).unwrap();
    sleep(Duration::from_secs(2));
    let bound = get(plane(), "pod", "an-agents").unwrap();
    assert_eq!(bound["spec"]["nodeName"], "an-agents");
    assert_eq!(bound["status"]["phase"], "Pending");
    plane().run_kubectl(["delete", "pod", "an-agents", "--force", "--grace-period=0"]).unwrap();
    plane().run_kubectl(["delete", "node", "an-agents", "by-hand"]).unwrap();
}

#[test]
fn a_manual_node_keeps_the_condition_a_test_gives_it() {
    let annotations = json!({"kwok.x-k8s.io/node": "fake", "trainyard.dev/kwok": "manual"});
    plane().apply(&node("manual", &annotations)).unwrap();
    let patch = r#"{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Test"}]}}"#;
    plane().run_kubectl(["patch", "node", "manual", "--subresource=status", "-p", patch]).unwrap();
    sleep(Duration::from_secs(3));
    let node = get(plane(), "node", "manual").unwrap();
    assert_eq!(condition(&node, "Ready")["reason"], "Test", "{}", node["status"]);
    plane().run_kubectl(["delete", "node", "manual"]).unwrap();
}

#[test]
fn a_time_that_is_none_lets_the_pod_run() {
    plane().apply(&pod("soon", &json!({"trainyard.dev/kwok-run-for": "soon"}))).unwrap();
    wait_for_phase(plane(), "soon", "Running");
    sleep(Duration::from_secs(2));
    assert_eq!(get(plane(), "pod", "soon").unwrap()["status"]["phase"], "Running");
}

#[test]
fn a_name_used_again_belongs_to_the_new_pod() {
    for round in 0..5 {
        plane().apply(&pod("again", &json!({}))).unwrap();
        let uid = wait_for_phase(plane(), "again", "Running")["metadata"]["uid"].clone();
        plane().run_kubectl(["delete", "pod", "again", "--timeout=20s"]).unwrap();
        plane().apply(&pod("again", &json!({}))).unwrap();
        let next = wait_for_phase(plane(), "again", "Running");
        assert_ne!(next["metadata"]["uid"], uid, "round {round}");
        sleep(Duration::from_millis(300));
        assert_eq!(get(plane(), "pod", "again").unwrap()["metadata"]["uid"], next["metadata"]["uid"]);
        plane().run_kubectl(["delete", "pod", "again", "--timeout=20s"]).unwrap();
    }
}
