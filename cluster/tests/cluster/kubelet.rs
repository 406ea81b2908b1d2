//! Manual pods and nodes: every verb, its writes, and its rejections.

use apis::Observation;
use cluster::{Cluster, Error, NodeSpec, NodeState, Options};
use model::Timestamp;
use serde_json::{Value, json};

use crate::common::*;

const D: &str = "default";

fn with_pod(manifest: &Value) -> Cluster {
    let mut cluster = cluster();
    create(&mut cluster, manifest).unwrap();
    cluster
}

fn two_containers() -> Value {
    let mut manifest = pod_manifest("p", &[]);
    manifest["spec"]["containers"] = json!([{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]);
    manifest["spec"]["initContainers"] = json!([{"name": "init", "image": "i"}]);
    manifest
}

fn phase(cluster: &Cluster) -> String {
    pod(cluster, "p")["status"]["phase"].as_str().unwrap().to_owned()
}

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default()
}

#[test]
fn schedule_binds_once() {
    let mut cluster = with_pod(&pod_manifest("p", &[]));
    assert_eq!(cluster.schedule(D, "p", "n9"), Err(Error::NoSuchNode { name: "n9".into() }));
    cluster.schedule(D, "p", "n2").unwrap();
    let bound = pod(&cluster, "p");
    assert_eq!(bound["spec"]["nodeName"], "n2");
    assert_eq!(bound["status"]["phase"], "Pending");
    assert_eq!(condition(&bound, "PodScheduled")["status"], "True");
    assert_eq!(bound["metadata"]["generation"], 1, "binding is no edit");
    let before = cluster.revision();
    cluster.schedule(D, "p", "n2").unwrap();
    assert_eq!(cluster.revision(), before);
    let other = cluster.schedule(D, "p", "n1").unwrap_err();
    assert_eq!(other.to_string(), "pod default/p is already on node n2");
}

#[test]
fn run_starts_every_container() {
    let mut cluster = with_pod(&two_containers());
    let created = cluster.now();
    cluster.set_now(created.plus_ms(5_000));
    let watcher = cluster.subscribe();
    cluster.watch(watcher);
    cluster.run(D, "p").unwrap();
    assert_eq!(cluster.watch(watcher).len(), 1, "placing and starting are one change");
    let started = created.plus_ms(5_000).to_rfc3339();
    let running = pod(&cluster, "p");
    assert_eq!(running["spec"]["nodeName"], "n1");
    let status = &running["status"];
    assert_eq!((&status["phase"], &status["startTime"]), (&json!("Running"), &json!(started)));
    for (n, name) in ["main", "side"].iter().enumerate() {
        let container = &status["containerStatuses"][n];
        assert_eq!(container["name"], *name);
        assert_eq!(container["state"], json!({"running": {"startedAt": started}}));
        assert_eq!((&container["ready"], &container["restartCount"]), (&json!(true), &json!(0)));
    }
    assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&running, kind)["status"], "True", "{kind}");
    }
    let before = cluster.revision();
    cluster.set_now(created.plus_ms(9_000));
    cluster.run(D, "p").unwrap();
    assert_eq!(cluster.revision(), before, "it runs already");
}

#[test]
fn a_condition_keeps_its_time_while_it_holds() {
    let mut cluster = with_pod(&pod_manifest("p", &[]));
    let times = [0, 1, 2].map(|minutes| cluster.now().plus_ms(minutes * 60_000));
    cluster.schedule(D, "p", "n1").unwrap();
    cluster.set_now(times[1]);
    cluster.run(D, "p").unwrap();
    cluster.set_now(times[2]);
    cluster.exit(D, "p", 0, None).unwrap();
    let ended = pod(&cluster, "p");
    for (kind, since) in [("PodScheduled", times[0]), ("Initialized", times[1]), ("Ready", times[2])] {
        assert_eq!(condition(&ended, kind)["lastTransitionTime"], since.to_rfc3339(), "{kind}");
    }
}

#[test]
fn run_prefers_a_ready_node_and_needs_one() {
    let mut cluster = with_pod(&pod_manifest("p", &[]));
    create(&mut cluster, &pod_manifest("q", &[])).unwrap();
    cluster.node("n1", NodeState::Unknown).unwrap();
    cluster.run(D, "p").unwrap();
    assert_eq!(pod(&cluster, "p")["spec"]["nodeName"], "n2");
    for node in ["n2", "n3"] {
        cluster.node(node, NodeState::NotReady).unwrap();
    }
    cluster.run(D, "q").unwrap();
    assert_eq!(pod(&cluster, "q")["spec"]["nodeName"], "n1", "better a node than none");
    let mut bare = Cluster::new(&Options { nodes: Vec::new(), ..Options::default() });
    bare.apply(&pod_manifest("p", &[])).unwrap();
    assert_eq!(bare.run(D, "p"), Err(Error::NoNodes));
}

#[test]
fn run_all_skips_what_ended_or_is_going() {
    let mut cluster = cluster();
    for name in ["done", "going", "new"] {
        create(&mut cluster, &pod_manifest(name, &[])).unwrap();
    }
    cluster.exit(D, "done", 0, None).unwrap();
    cluster.schedule(D, "going", "n1").unwrap();
    delete(&mut cluster, "Pod", "going", None).unwrap();
    cluster.run_all().unwrap();
    let phases = ["done", "going", "new"].map(|name| pod(&cluster, name)["status"]["phase"].clone());
    assert_eq!(phases, ["Succeeded", "Pending", "Running"]);
}

#[test]
fn wait_says_since_when_without_moving_the_clock() {
    let mut cluster = with_pod(&two_containers());
    let now = cluster.now();
    cluster.wait(D, "p", "ErrImagePull", Some(600_000)).unwrap();
    let waiting = pod(&cluster, "p");
    assert_eq!(waiting["spec"]["nodeName"], "n1");
    assert_eq!(waiting["status"]["phase"], "Pending");
    assert_eq!(waiting["status"]["startTime"], Timestamp(now.0 - 600_000).to_rfc3339());
    assert_eq!(waiting["status"]["containerStatuses"][1]["state"], json!({"waiting": {"reason": "ErrImagePull"}}));
    assert_eq!(cluster.now(), now);
    cluster.wait(D, "p", "ImagePullBackOff", None).unwrap();
    let again = pod(&cluster, "p");
    assert_eq!(again["status"]["startTime"], waiting["status"]["startTime"]);
    assert_eq!(again["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ImagePullBackOff");
    cluster.wait(D, "p", "ImagePullBackOff", Some(0)).unwrap();
    assert_eq!(pod(&cluster, "p")["status"]["startTime"], now.to_rfc3339());
    cluster.run(D, "p").unwrap();
    assert_eq!(phase(&cluster), "Running");
}

#[test]
fn exits_end_containers_and_the_phase_follows() {
    // (exits as (code, container), phase after each)
    type Case = (&'static [(i32, Option<&'static str>)], &'static [&'static str]);
    let cases: [Case; 7] = [
        (&[(0, None)], &["Succeeded"]),
        (&[(3, None)], &["Failed"]),
        (&[(0, Some("main")), (0, Some("side"))], &["Running", "Succeeded"]),
        (&[(0, Some("main")), (1, Some("side"))], &["Running", "Failed"]),
        (&[(1, Some("main")), (0, Some("side"))], &["Running", "Failed"]),
        (&[(137, Some("main")), (0, None)], &["Running", "Failed"]),
        (&[(0, Some("main")), (0, None)], &["Running", "Succeeded"]),
    ];
    for (exits, phases) in cases {
        let mut cluster = with_pod(&two_containers());
        cluster.run(D, "p").unwrap();
        let started = cluster.now();
        cluster.set_now(started.plus_ms(60_000));
        for ((code, container), want) in exits.iter().zip(phases) {
            cluster.exit(D, "p", *code, *container).unwrap();
            assert_eq!(phase(&cluster), *want, "{exits:?}");
        }
        let ended = pod(&cluster, "p");
        let first = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(first["exitCode"], exits[0].0);
        assert_eq!(first["reason"], if exits[0].0 == 0 { "Completed" } else { "Error" });
        assert_eq!(first["startedAt"], started.to_rfc3339());
        assert_eq!(first["finishedAt"], started.plus_ms(60_000).to_rfc3339());
        assert_eq!(condition(&ended, "Ready")["status"], "False");
        assert_eq!(ended["spec"]["nodeName"], "n1", "an ended pod keeps its node");
    }
}

#[test]
fn exits_that_cannot_be_are_errors() {
    let mut cluster = with_pod(&two_containers());
    let error = |e: Result<(), Error>| e.unwrap_err().to_string();
    assert_eq!(error(cluster.exit(D, "absent", 0, None)), "pod default/absent does not exist");
    assert_eq!(error(cluster.exit(D, "p", 0, Some("x"))), "pod default/p has no container x");
    cluster.exit(D, "p", 0, Some("main")).unwrap();
    assert_eq!(error(cluster.exit(D, "p", 0, Some("main"))), "container main of pod default/p has already ended");
    cluster.exit(D, "p", 0, None).unwrap();
    let ended = "pod default/p has ended (Succeeded)";
    assert_eq!(error(cluster.exit(D, "p", 0, None)), ended);
    assert_eq!(error(cluster.run(D, "p")), ended);
    assert_eq!(error(cluster.wait(D, "p", "x", None)), ended);
    assert_eq!(error(cluster.evict(D, "p")), ended);
    assert_eq!(error(cluster.schedule(D, "p", "n1")), ended);
}

#[test]
fn init_containers_end_on_their_own() {
    let mut cluster = with_pod(&two_containers());
    cluster.exit(D, "p", 0, Some("init")).unwrap();
    assert_eq!(phase(&cluster), "Pending");
    let mut cluster = with_pod(&two_containers());
    cluster.exit(D, "p", 9, Some("init")).unwrap();
    assert_eq!(phase(&cluster), "Failed");
    let failed = pod(&cluster, "p");
    assert_eq!(failed["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 9);
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn pods_whose_policy_restarts_them_go_on() {
    for (policy, code, want) in [
        ("Always", 0, "Running"),
        ("Always", 1, "Running"),
        ("OnFailure", 1, "Running"),
        ("OnFailure", 0, "Succeeded"),
        ("Never", 1, "Failed"),
    ] {
        let mut manifest = pod_manifest("p", &[]);
        manifest["spec"]["restartPolicy"] = json!(policy);
        let mut cluster = with_pod(&manifest);
        cluster.run(D, "p").unwrap();
        cluster.exit(D, "p", code, None).unwrap();
        assert_eq!(phase(&cluster), want, "{policy} {code}");
        if want == "Running" {
            let container = pod(&cluster, "p")["status"]["containerStatuses"][0].clone();
            assert_eq!(container["restartCount"], 1);
            assert_eq!(container["lastState"]["terminated"]["exitCode"], code);
            assert!(container["state"]["running"].is_object());
            cluster.exit_and_wait(D, "p", code).unwrap();
            let waits = pod(&cluster, "p")["status"]["containerStatuses"][0].clone();
            assert_eq!((&waits["restartCount"], &waits["state"]["terminated"]["exitCode"]), (&json!(1), &json!(code)));
            cluster.run(D, "p").unwrap();
            assert_eq!(pod(&cluster, "p")["status"]["containerStatuses"][0]["restartCount"], 2);
            delete(&mut cluster, "Pod", "p", None).unwrap();
            cluster.exit(D, "p", 143, None).unwrap();
            assert_eq!(phase(&cluster), "Failed", "what is being deleted is not started again");
        }
    }
}

#[test]
fn evict_leaves_no_container_statuses() {
    let mut cluster = with_pod(&two_containers());
    cluster.run(D, "p").unwrap();
    cluster.evict(D, "p").unwrap();
    let status = &pod(&cluster, "p")["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Evicted")));
    assert!(status["message"].as_str().unwrap().contains("low on resource"));
    assert_eq!((status.get("containerStatuses"), status.get("initContainerStatuses")), (None, None));
    assert!(status["startTime"].is_string());
}

#[test]
fn nodes_change_state_and_go() {
    let mut cluster = with_pod(&pod_manifest("p", &[]));
    cluster.schedule(D, "p", "n2").unwrap();
    for (state, status, reason) in [
        (NodeState::NotReady, "False", "KubeletNotReady"),
        (NodeState::Unknown, "Unknown", "NodeStatusUnknown"),
        (NodeState::Ready, "True", "KubeletReady"),
    ] {
        cluster.set_now(cluster.now().plus_ms(1_000));
        cluster.node("n2", state).unwrap();
        let ready = condition(&get(&cluster, "Node", "n2").unwrap(), "Ready");
        assert_eq!((&ready["status"], &ready["reason"]), (&json!(status), &json!(reason)));
        assert_eq!(ready["lastTransitionTime"], cluster.now().to_rfc3339());
        let before = cluster.revision();
        cluster.node("n2", state).unwrap();
        assert_eq!(cluster.revision(), before, "the same again is no change");
    }
    cluster.node_condition("n2", "GpuUnhealthy", "True", "Xid", "Xid 79").unwrap();
    assert_eq!(condition(&get(&cluster, "Node", "n2").unwrap(), "GpuUnhealthy")["message"], "Xid 79");
    let watcher = cluster.subscribe();
    cluster.watch(watcher);
    cluster.node("n2", NodeState::Removed).unwrap();
    let seen = cluster.watch(watcher);
    assert!(matches!(seen.as_slice(), [Observation::Deleted(node)] if meta(node, "name") == "n2"));
    assert_eq!(pod(&cluster, "p")["spec"]["nodeName"], "n2", "its pods stay");
    assert_eq!(cluster.node("n2", NodeState::Removed), Err(Error::NoSuchNode { name: "n2".into() }));
    let absent = cluster.node_condition("n2", "x", "True", "", "");
    assert_eq!(absent, Err(Error::NoSuchNode { name: "n2".into() }));
    cluster.node("n2", NodeState::Ready).unwrap();
    assert_eq!(condition(&get(&cluster, "Node", "n2").unwrap(), "Ready")["status"], "True");
    cluster.add_node(&NodeSpec::named("n3").with("nvidia.com/gpu", "8"));
    assert_eq!(get(&cluster, "Node", "n3").unwrap()["status"]["allocatable"], json!({"nvidia.com/gpu": "8"}));
    assert_eq!(["True", "False", "Unknown", "removed", "x"].map(NodeState::parse).iter().flatten().count(), 4);
}
