//! Which nodes take a pod: requests, selectors, affinity, taints, cordons, gates; by hand and by themselves.

use crate::common::*;
use cluster::{Cluster, Error, NodeSpec, Options};
use serde_json::{Value, json};

const D: &str = "default";

fn nodes(nodes: Vec<NodeSpec>) -> Cluster {
    Cluster::new(&Options { nodes, ..Options::default() })
}

fn gpus(name: &str, amount: u32) -> Value {
    let mut pod = pod_manifest(name, &[]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": amount}});
    pod
}

fn node_of(cluster: &Cluster, name: &str) -> String {
    pod(cluster, name)["spec"]["nodeName"].as_str().unwrap_or("-").to_owned()
}

fn why(answer: Result<(), Error>) -> String {
    match answer {
        Err(Error::NoRoom { why, .. }) => why,
        other => format!("{other:?}"),
    }
}

#[test]
fn a_pod_starts_on_the_first_node_with_room_and_on_no_other() {
    let node = |name, amount| NodeSpec::named(name).with("nvidia.com/gpu", amount);
    let mut cluster = nodes(vec![node("a", "2"), node("b", "4")]);
    for (name, amount) in [("p0", 2), ("p1", 3), ("p2", 2), ("p3", 1)] {
        create(&mut cluster, &gpus(name, amount)).unwrap();
    }
    cluster.run(D, "p0").unwrap();
    cluster.run(D, "p1").unwrap();
    assert_eq!((node_of(&cluster, "p0"), node_of(&cluster, "p1")), ("a".to_owned(), "b".to_owned()));
    let full = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";
    assert_eq!(why(cluster.run(D, "p2")), full);
    assert_eq!(why(cluster.schedule(D, "p2", "b")), "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    cluster.run(D, "p3").unwrap();
    assert_eq!(node_of(&cluster, "p3"), "b");
    cluster.exit(D, "p0", 0, None).unwrap();
    cluster.run(D, "p2").unwrap();
    assert_eq!(node_of(&cluster, "p2"), "a", "what ended makes room");
}

#[test]
fn what_no_node_names_is_not_judged_by_hand() {
    let mut cluster = nodes(vec![NodeSpec::named("a")]);
    let mut pod = gpus("p", 8);
    pod["spec"]["nodeSelector"] = json!({"zone": "x"});
    create(&mut cluster, &pod).unwrap();
    cluster.run(D, "p").unwrap();
    assert_eq!(node_of(&cluster, "p"), "a");
}

#[test]
fn cordons_taints_and_gates_keep_pods_away() {
    let mut cluster = nodes(vec![NodeSpec { closed: true, ..NodeSpec::named("a") }, NodeSpec::named("b")]);
    for name in ["p0", "p1", "p2"] {
        create(&mut cluster, &pod_manifest(name, &[])).unwrap();
    }
    assert_eq!(why(cluster.schedule(D, "p0", "a")), "0/1 nodes are available: 1 node(s) were unschedulable.");
    cluster.run(D, "p0").unwrap();
    assert_eq!(node_of(&cluster, "p0"), "b");
    cluster.cordon("a", false).unwrap();
    cluster.run(D, "p1").unwrap();
    assert_eq!(node_of(&cluster, "p1"), "a");
    let taint = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    for name in ["a", "b"] {
        cluster.merge_patch(&resource("Node"), "", name, &taint, false).unwrap();
    }
    let tainted = "0/2 nodes are available: 2 node(s) had untolerated taint {gpu: yes}.";
    assert_eq!(why(cluster.run(D, "p2")), tainted);
    for (name, toleration) in [
        ("t0", json!({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"})),
        ("t1", json!({"key": "gpu", "operator": "Exists"})),
        ("t2", json!({"operator": "Exists"})),
    ] {
        let mut tolerant = pod_manifest(name, &[]);
        tolerant["spec"]["tolerations"] = json!([toleration]);
        create(&mut cluster, &tolerant).unwrap();
        cluster.run(D, name).unwrap();
    }
    let mut gated = pod_manifest("g", &[]);
    gated["spec"]["schedulingGates"] = json!([{"name": "x/y"}]);
    create(&mut cluster, &gated).unwrap();
    assert_eq!(why(cluster.run(D, "g")), "it waits for a scheduling gate");
    assert_eq!(cluster.cordon("none", true), Err(Error::NoSuchNode { name: "none".to_owned() }));
}

#[test]
fn required_affinity_chooses_by_labels_and_by_name() {
    let zone = |name, zone: &str| {
        let mut node = NodeSpec::named(name);
        node.labels = [("zone".to_owned(), zone.to_owned()), ("size".to_owned(), "8".to_owned())].into();
        node
    };
    for (term, want) in [
        (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}), "b"),
        (json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y", "z"]}]}), "b"),
        (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}), "b"),
        (json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), "a"),
        (json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), "c"),
        (json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["7"]}]}), "a"),
        (json!({"matchExpressions": [{"key": "size", "operator": "Lt", "values": ["8"]}]}), "-"),
        (json!({}), "-"),
    ] {
        let mut cluster = nodes(vec![zone("a", "x"), zone("b", "y"), NodeSpec::named("c")]);
        let mut manifest = pod_manifest("p", &[]);
        let required = json!({"nodeSelectorTerms": [term]});
        manifest["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
        create(&mut cluster, &manifest).unwrap();
        let started = cluster.run(D, "p");
        assert_eq!(node_of(&cluster, "p"), want, "{term}");
        if want == "-" {
            let words = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.";
            assert_eq!(why(started), words, "{term}");
        }
    }
}
