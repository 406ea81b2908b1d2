//! Pods by themselves: binding to room, the runtime's reports, and deletion that waits for processes.

use model::ResourceVersion;
use std::sync::{Arc, Mutex};

use cluster::runtime::{PodReport, PodRuntime};
use cluster::{Cluster, Mode, NodeSpec, NodeState, Options};
use serde_json::{Value, json};

use crate::common::*;

/// A runtime that records its calls and reports what a test puts in.
#[derive(Clone, Default)]
struct Script {
    calls: Arc<Mutex<Vec<String>>>,
    reports: Arc<Mutex<Vec<PodReport>>>,
}

impl PodRuntime for Script {
    fn start(&mut self, pod: &Value) {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        self.calls.lock().unwrap().push(format!("start {} on {node}", meta(pod, "name")));
    }
    fn stop(&mut self, _namespace: &str, name: &str, _uid: &str, grace_seconds: u32) {
        self.calls.lock().unwrap().push(format!("stop {name} {grace_seconds}"));
    }
    fn poll(&mut self) -> Vec<PodReport> {
        std::mem::take(&mut self.reports.lock().unwrap())
    }
}

impl Script {
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn says(&self, cluster: &Cluster, name: &str, status: Value, ended: bool) {
        let uid = meta(&pod(cluster, name), "uid").to_owned();
        self.says_of(name, &uid, status, ended);
    }

    fn says_of(&self, name: &str, uid: &str, status: Value, ended: bool) {
        let report = PodReport { namespace: "default".into(), name: name.into(), uid: uid.into(), status, ended };
        self.reports.lock().unwrap().push(report);
    }
}

fn automatic(nodes: Vec<NodeSpec>) -> (Cluster, Script) {
    let script = Script::default();
    let options = Options { mode: Mode::Automatic, nodes, ..Options::default() };
    let mut cluster = Cluster::with_runtime(&options, Box::new(script.clone()));
    cluster.register(&crd()).unwrap();
    (cluster, script)
}

fn asking(name: &str, requests: &Value) -> Value {
    let mut manifest = pod_manifest(name, &[]);
    manifest["spec"]["containers"][0]["resources"] = json!({"limits": requests});
    manifest
}

fn node_of(cluster: &Cluster, name: &str) -> String {
    pod(cluster, name)["spec"]["nodeName"].as_str().unwrap_or("-").to_owned()
}

#[test]
fn pods_are_bound_where_there_is_room() {
    let gpu = |n: u32| json!({"nvidia.com/gpu": n});
    let (mut cluster, script) = automatic(vec![
        NodeSpec::named("a").with("nvidia.com/gpu", "2").with("cpu", "4"),
        NodeSpec::named("b").with("nvidia.com/gpu", "1").with("cpu", "500m"),
    ]);
    for (name, requests) in [
        ("p1", gpu(1)),
        ("p2", gpu(2)),
        ("p3", gpu(1)),
        ("p4", gpu(1)),
        ("p5", json!({"cpu": "3500m", "memory": "1Ti"})),
        ("p6", json!({"cpu": 1.0})),
        ("p7", json!({})),
        ("p8", json!({"amd.com/gpu": 1})),
    ] {
        create(&mut cluster, &asking(name, &requests)).unwrap();
    }
    assert!(cluster.tick());
    let bound: Vec<String> = (1..=8).map(|n| node_of(&cluster, &format!("p{n}"))).collect();
    assert_eq!(bound, ["a", "-", "a", "b", "a", "-", "a", "-"]);
    assert_eq!(script.calls(), ["start p1 on a", "start p3 on a", "start p4 on b", "start p5 on a", "start p7 on a"]);
    let refused = pod(&cluster, "p2")["status"]["conditions"][0].clone();
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("False"), &json!("Unschedulable")));
    assert_eq!(refused["message"], "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.");
    assert!(!cluster.tick(), "nothing new, nothing done");

    for name in ["p1", "p3"] {
        script.says(&cluster, name, json!({"phase": "Succeeded"}), true);
    }
    assert!(cluster.tick());
    assert_eq!(node_of(&cluster, "p2"), "a", "what ended makes room");
    assert_eq!(script.calls(), ["start p2 on a"]);
    cluster.add_node(&NodeSpec::named("c").with("amd.com/gpu", "1"));
    cluster.tick();
    assert_eq!((node_of(&cluster, "p6"), node_of(&cluster, "p8")), ("c".to_owned(), "c".to_owned()));
}

#[test]
fn nodes_that_take_nothing_are_passed_over() {
    let mut labelled = NodeSpec::named("c");
    labelled.labels.insert("zone".into(), "z".into());
    let (mut cluster, _script) = automatic(vec![NodeSpec::named("a"), NodeSpec::named("b"), labelled]);
    cluster.node("a", NodeState::NotReady).unwrap();
    cluster.merge_patch(&resource("Node"), "", "b", &json!({"spec": {"unschedulable": true}}), false).unwrap();
    let mut picky = pod_manifest("picky", &[]);
    picky["spec"]["nodeSelector"] = json!({"zone": "y"});
    create(&mut cluster, &picky).unwrap();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.tick();
    assert_eq!((node_of(&cluster, "p"), node_of(&cluster, "picky")), ("c".to_owned(), "-".to_owned()));
    let why = pod(&cluster, "picky")["status"]["conditions"][0]["message"].clone();
    assert_eq!(why, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.");
}

#[test]
fn reports_are_merged_and_those_of_others_ignored() {
    let (mut cluster, script) = automatic(vec![NodeSpec::named("a")]);
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.tick();
    script.says_of("p", "someone-else", json!({"phase": "Failed"}), true);
    script.says_of("absent", "x", json!({"phase": "Failed"}), true);
    assert!(!cluster.tick());
    let running = json!({"phase": "Running", "podIP": "127.1.2.3", "containerStatuses": [{"name": "main"}]});
    script.says(&cluster, "p", running.clone(), false);
    assert!(cluster.tick());
    let status = pod(&cluster, "p")["status"].clone();
    assert_eq!((&status["phase"], &status["podIP"]), (&json!("Running"), &json!("127.1.2.3")));
    assert!(status["conditions"].is_array(), "what a report does not name stays");
    script.says(&cluster, "p", running, false);
    assert!(!cluster.tick(), "the same again is no change");
    cluster.evict("default", "p").unwrap();
    script.says(&cluster, "p", json!({"phase": "Failed", "reason": null, "containerStatuses": []}), true);
    cluster.tick();
    assert_eq!(pod(&cluster, "p")["status"]["reason"], "Evicted", "a report about an ended pod comes too late");
}

#[test]
fn deletion_waits_for_the_processes() {
    let (mut cluster, script) = automatic(vec![NodeSpec::named("a")]);
    for name in ["graceful", "forced", "ended", "unbound"] {
        create(&mut cluster, &pod_manifest(name, &[])).unwrap();
        if name == "ended" {
            cluster.tick();
        }
    }
    script.calls();
    delete(&mut cluster, "Pod", "unbound", None).unwrap();
    delete(&mut cluster, "Pod", "graceful", None).unwrap();
    delete(&mut cluster, "Pod", "graceful", Some(7)).unwrap();
    delete(&mut cluster, "Pod", "graceful", None).unwrap();
    delete(&mut cluster, "Pod", "forced", Some(0)).unwrap();
    assert_eq!(script.calls(), ["stop graceful 30", "stop graceful 7", "stop forced 0"]);
    let left =
        |cluster: &Cluster| cluster.objects_of(&pods()).iter().map(|p| meta(p, "name").to_owned()).collect::<Vec<_>>();
    assert_eq!(left(&cluster), ["ended", "graceful"]);
    script.says(&cluster, "graceful", json!({"phase": "Failed"}), true);
    script.says(&cluster, "ended", json!({}), true);
    cluster.tick();
    assert_eq!(left(&cluster), ["ended"], "its processes have ended");
    delete(&mut cluster, "Pod", "ended", None).unwrap();
    assert!(left(&cluster).is_empty(), "nothing of it runs any more, so nothing is waited for");
}

#[test]
fn pods_on_a_node_that_is_no_more_do_not_wait_for_it() {
    let (mut cluster, _script) = automatic(vec![NodeSpec::named("a")]);
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    create(&mut cluster, &pod_manifest("q", &[])).unwrap();
    cluster.tick();
    cluster.node("a", NodeState::Removed).unwrap();
    delete(&mut cluster, "Pod", "p", None).unwrap();
    cluster.tick();
    assert!(get(&cluster, "Pod", "p").is_none());
    assert!(get(&cluster, "Pod", "q").is_some(), "it was not deleted");
}

#[test]
fn a_pod_created_on_a_node_is_started_there() {
    let (mut cluster, script) = automatic(vec![NodeSpec::named("a")]);
    let mut manifest = pod_manifest("p", &[]);
    manifest["spec"]["nodeName"] = json!("a");
    create(&mut cluster, &manifest).unwrap();
    cluster.tick();
    assert_eq!(script.calls(), ["start p on a"]);
}

#[test]
fn a_pod_that_waited_is_forgotten_when_it_goes() {
    let (mut cluster, script) = automatic(Vec::new());
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.tick();
    let why = pod(&cluster, "p")["status"]["conditions"][0]["message"].clone();
    assert_eq!(why, "no nodes available to schedule pods");
    delete(&mut cluster, "Pod", "p", None).unwrap();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.add_node(&NodeSpec::named("a"));
    cluster.tick();
    assert_eq!(script.calls(), ["start p on a"]);
}

#[test]
fn events_are_kept_for_an_hour_after_they_were_written_last() {
    let (mut cluster, _) = automatic(Vec::new());
    let event = |name: &str| json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}});
    let names = |cluster: &Cluster| -> Vec<String> {
        cluster.kubernetes_events_since(ResourceVersion(0)).iter().map(|event| meta(event, "name").to_owned()).collect()
    };
    let minutes = |cluster: &mut Cluster, n: u64| {
        cluster.set_now(cluster.now().plus_ms(n * 60_000));
        cluster.tick();
    };
    create(&mut cluster, &event("old")).unwrap();
    create(&mut cluster, &event("repeated")).unwrap();
    minutes(&mut cluster, 30);
    let at = cluster.now().to_rfc3339();
    patch(&mut cluster, "Event", "repeated", json!({"lastTimestamp": at, "count": 2})).unwrap();
    create(&mut cluster, &event("young")).unwrap();
    minutes(&mut cluster, 30);
    assert_eq!(names(&cluster), ["old", "repeated", "young"]);
    minutes(&mut cluster, 1);
    assert_eq!(names(&cluster), ["repeated", "young"]);
    minutes(&mut cluster, 30);
    assert!(names(&cluster).is_empty());
}

#[test]
fn claims_are_bound_where_pods_run_by_themselves_and_wait_elsewhere() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Lost"}});
    let (mut by_itself, _script) = automatic(vec![NodeSpec::named("a")]);
    let mut by_hand = cluster();
    for (cluster, want) in [
        (&mut by_itself, json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}})),
        (&mut by_hand, json!({"phase": "Pending"})),
    ] {
        create(cluster, &claim).unwrap();
        assert_eq!(get(cluster, "PersistentVolumeClaim", "c").unwrap()["status"], want);
    }
}
