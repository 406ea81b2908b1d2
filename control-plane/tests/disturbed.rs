//! Components paused, stopped, killed and started again; history that is gone; clients with few rights.

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use control_plane::{Component, ControlPlane, Error, Identity, Options};
use serde_json::json;
use support::{get, pod, wait_for_phase};

/// The steps build on each other: one plane, one test.
#[test]
fn a_plane_takes_what_is_done_to_it() {
    // After kwok was killed, its nodes rest for four fifths of this.
    let node_grace = Some(Duration::from_secs(10));
    let plane = ControlPlane::start(Options { nodes: 1, node_grace, ..Options::default() }).unwrap();
    paused_api_server_answers_when_resumed(&plane);
    data_outlives_restarts(&plane);
    history_can_be_forgotten(&plane);
    clients_may_do_what_their_role_says(&plane);
    usage_is_measured(&plane);
}

fn paused_api_server_answers_when_resumed(plane: &ControlPlane) {
    plane.pause(Component::ApiServer).unwrap();
    assert!(plane.process(Component::ApiServer).unwrap().is_stopped());
    let mut waiting = plane.kubectl(["get", "nodes"]);
    let mut waiting = waiting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(waiting.try_wait().unwrap().is_none(), "a paused API server answered");
    plane.resume(Component::ApiServer).unwrap();
    assert!(waiting.wait().unwrap().success());
}

fn data_outlives_restarts(plane: &ControlPlane) {
    plane.run_kubectl(["create", "configmap", "kept", "--from-literal=a=b"]).unwrap();
    plane.apply(&pod("before", &json!({}))).unwrap();
    let before = wait_for_phase(plane, "before", "Running");

    plane.stop(Component::ApiServer).unwrap();
    assert!(matches!(plane.usage(Component::ApiServer), Err(Error::NotRunning { .. })));
    plane.start_again(Component::ApiServer).unwrap();
    assert!(plane.start_again(Component::ApiServer).unwrap_err().to_string().contains("runs already"));
    plane.kill(Component::Etcd).unwrap();
    plane.start_again(Component::Etcd).unwrap();
    for component in [Component::ControllerManager, Component::Scheduler, Component::Kwok] {
        plane.kill(component).unwrap();
        plane.start_again(component).unwrap();
    }
    assert_eq!(get(plane, "configmap", "kept").unwrap()["data"]["a"], "b");
    let after = get(plane, "pod", "before").unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    plane.apply(&pod("after", &json!({}))).unwrap();
    wait_for_phase(plane, "after", "Running");
}

fn history_can_be_forgotten(plane: &ControlPlane) {
    let old = get(plane, "pod", "before").unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = format!("/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=1&resourceVersion={old}");
    let answer = plane.run_kubectl(["get", "--raw", &watch]);
    assert!(answer.is_ok(), "before: {answer:?}");
    plane.run_kubectl(["create", "configmap", "newer"]).unwrap();
    plane.forget_history().unwrap();
    let answer = match plane.run_kubectl(["get", "--raw", &watch]) {
        Ok(text) => text,
        Err(error) => error.to_string(),
    };
    assert!(answer.contains("too old resource version"), "{answer}");
    assert!(plane.compact().unwrap() > old.parse().unwrap());
}

fn clients_may_do_what_their_role_says(plane: &ControlPlane) {
    let as_client = |identity: Identity<'_>, words: &[&str]| {
        let kubeconfig = plane.kubeconfig_for(identity).unwrap();
        plane.kubectl(words).env("KUBECONFIG", kubeconfig).output().unwrap()
    };
    let who = as_client(Identity::User { name: "anna", group: Some("readers") }, &["auth", "whoami", "-o", "json"]);
    let who = String::from_utf8_lossy(&who.stdout).into_owned();
    assert!(who.contains("\"anna\"") && who.contains("\"readers\""), "{who}");

    plane.run_kubectl(["create", "serviceaccount", "robot"]).unwrap();
    let robot = Identity::ServiceAccount { namespace: "default", name: "robot" };
    let refused = as_client(robot, &["get", "pods"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("forbidden"), "{refused:?}");
    plane.run_kubectl(["create", "role", "reader", "--verb=get,list", "--resource=pods"]).unwrap();
    let subject = "--serviceaccount=default:robot";
    plane.run_kubectl(["create", "rolebinding", "robot", "--role=reader", subject]).unwrap();
    assert!(as_client(robot, &["get", "pods"]).status.success());
    assert!(!as_client(robot, &["delete", "pod", "before"]).status.success());
    assert!(!as_client(Identity::Token("nobody"), &["get", "pods"]).status.success());
    let missing = plane.kubeconfig_for(Identity::ServiceAccount { namespace: "default", name: "nobody" }).unwrap_err();
    assert!(missing.to_string().contains("not found"), "{missing}");
}

fn usage_is_measured(plane: &ControlPlane) {
    let before = plane.usage(Component::ApiServer).unwrap();
    assert!(before.rss_bytes > 50 << 20, "{before:?}");
    for _ in 0..5 {
        plane.run_kubectl(["get", "pods", "--all-namespaces"]).unwrap();
    }
    let after = plane.usage(Component::ApiServer).unwrap();
    assert!(after.cpu_seconds > before.cpu_seconds, "{before:?} {after:?}");
}

#[test]
fn a_component_that_does_not_come_up_shows_its_log() {
    let ready_within = Duration::from_secs(300);
    let mut options =
        Options { kwok: false, scheduler: false, controller_manager: false, ready_within, ..Options::default() };
    options.arguments.insert(Component::ApiServer, vec!["--no-such-flag".into()]);
    let start = Instant::now();
    let error = ControlPlane::start(options).unwrap_err().to_string();
    assert!(error.contains("kube-apiserver ended") && error.contains("unknown flag: --no-such-flag"), "{error}");
    assert!(start.elapsed() < ready_within, "it is not waited for");
}

#[test]
fn options_that_contradict_each_other_are_named() {
    let error = ControlPlane::start(Options { nodes: 1, kwok: false, ..Options::default() }).unwrap_err();
    assert_eq!(error.to_string(), "nodes: 1: simulated nodes need kwok");
    let grace = Some(Duration::from_secs(1));
    let error = ControlPlane::start(Options { node_grace: grace, ..Options::default() }).unwrap_err();
    assert_eq!(error.to_string(), "node_grace: 1s: at least 5s");
}

#[test]
fn pods_can_be_made_without_a_controller_manager() {
    let options = Options { nodes: 2, controller_manager: false, ..Options::default() };
    let plane = ControlPlane::start(options).unwrap();
    plane.apply(&pod("alone", &json!({}))).unwrap();
    wait_for_phase(&plane, "alone", "Running");
}
