//! Security contexts with real processes. What needs another user is tried where these tests may change to one.

use crate::common::{Harness, eventually, marker, processes_with, shell_pod, terminated, wait_until_gone};
use cluster::runtime::PodRuntime;
use serde_json::{Value, json};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn with_context(name: &str, script: &str, pod_context: &Value, own: &Value) -> Value {
    let mut pod = shell_pod(name, script);
    pod["spec"]["securityContext"] = pod_context.clone();
    pod["spec"]["containers"][0]["securityContext"] = own.clone();
    pod["spec"]["containers"][0]["workingDir"] = json!("/");
    pod
}

#[test]
fn a_container_runs_as_the_user_it_names_or_a_warning_says_why_not() {
    let mut harness = Harness::new();
    let script = "echo $(id -u) $(id -g) $(id -G) $HOME; grep NoNewPrivs /proc/self/status; echo again >> /dev/stderr";
    let context = json!({"runAsUser": 54321, "runAsGroup": 54322, "supplementalGroups": [54323]});
    let status = harness.run(&with_context("p", script, &context, &json!({"allowPrivilegeEscalation": false})));
    assert_eq!(status["phase"], "Succeeded", "{}", harness.log("p", 0));
    let lines = harness.lines("p");
    assert_eq!(lines[1], "NoNewPrivs:\t1");
    if is_root() {
        assert_eq!(lines[0], "54321 54322 54322 54321 54323 /");
        assert_eq!(harness.warnings(), [""; 0]);
    } else {
        let own = rustix::process::geteuid().as_raw().to_string();
        assert!(lines[0].starts_with(&own), "{lines:?}");
        assert_eq!(harness.warnings().len(), 3, "{:?}", harness.warnings());
        assert!(harness.warnings()[1].starts_with("securityContext.runAsUser 54321 of the pod is not honoured"));
    }
}

#[test]
fn a_runner_that_refuses_what_cannot_be_honoured_says_so_in_the_status() {
    let mut harness = Harness::with(|options| options.refuse_unhonoured = true);
    harness.start(&with_context(
        "p",
        "echo started",
        &json!({}),
        &json!({"seccompProfile": {"type": "RuntimeDefault"}}),
    ));
    let status = harness.wait_for("p", "was refused", |report| report.status["phase"] == "Pending");
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert!(waiting["message"].as_str().unwrap().contains("securityContext.seccompProfile"), "{waiting}");
    // An init container has no status yet: the others say it.
    let mut pod = with_context("q", "echo started", &json!({}), &json!({}));
    pod["spec"]["initContainers"] =
        json!([{"name": "first", "command": ["true"], "securityContext": {"readOnlyRootFilesystem": true}}]);
    harness.start(&pod);
    let status = harness.wait_for("q", "was refused", |report| report.status["phase"] == "Pending");
    let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
    assert!(message.as_str().is_some_and(|text| text.contains("container \"first\"")), "{status}");
}

#[test]
fn pods_get_the_variables_that_are_named_and_no_others() {
    let mut harness = Harness::with(|options| options.inherited_variables = Some(vec!["PATH".to_owned()]));
    assert_eq!(harness.run(&shell_pod("p", "env"))["phase"], "Succeeded");
    let inherited = std::env::vars().filter(|(name, _)| {
        !["PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "TRAINYARD_RUN"].contains(&name.as_str())
    });
    let lines = harness.lines("p");
    for (name, _) in inherited {
        assert!(!lines.iter().any(|line| line.starts_with(&format!("{name}="))), "{name}: {lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("PATH=")), "{lines:?}");
}

#[test]
fn what_cannot_be_honoured_is_said_once() {
    let mut harness = Harness::new();
    for name in ["p", "q"] {
        let mut pod = with_context(name, "true", &json!({}), &json!({"readOnlyRootFilesystem": true}));
        pod["metadata"]["ownerReferences"] = json!([{"name": "j", "controller": true}]);
        assert_eq!(harness.run(&pod)["phase"], "Succeeded");
    }
    let warnings = harness.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("securityContext.readOnlyRootFilesystem true of container \"c\""), "{warnings:?}");
}

#[test]
fn a_container_that_must_not_run_as_root_is_not_started_as_root() {
    let mut harness = Harness::new();
    let pod = with_context("p", "echo started", &json!({"runAsNonRoot": true}), &json!({}));
    if !is_root() {
        assert_eq!(harness.run(&pod)["phase"], "Succeeded", "this user is not root");
        return;
    }
    harness.start(&pod);
    let status = harness.wait_for("p", "was refused", |report| !report.ended);
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert!(waiting["message"].as_str().unwrap().contains("runAsNonRoot"), "{waiting}");
}

#[test]
fn dropped_capabilities_are_gone() {
    let mut harness = Harness::new();
    let own = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
    let status = harness.run(&with_context("p", "grep CapEff /proc/self/status", &json!({}), &own));
    assert_eq!(status["phase"], "Succeeded");
    // A user who has no capability cannot give one.
    let left = if is_root() { "0000000000000400" } else { "0000000000000000" };
    assert_eq!(harness.log("p", 0), format!("CapEff:\t{left}\n"));
}

/// The change of user takes away what the kernel was asked to do at the parent's death, unless it is asked afterwards. Without root the
/// user stays the same, and the chain ends likewise.
#[test]
fn a_container_of_another_user_ends_with_its_chain() {
    let (mut harness, marker) = (Harness::new(), marker());
    let script = format!("trap '' TERM; echo up; while :; do sleep 1; done; : {marker}");
    harness.start(&with_context(&marker, &script, &json!({"runAsUser": 54321}), &json!({})));
    eventually("it runs", || (harness.lines(&marker) == ["up"]).then_some(()));
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::KILL] {
        for (pid, arguments) in processes_with(&marker) {
            if arguments.contains("pod-supervisor") || arguments.contains("pod-exec") {
                rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
            }
        }
    }
    assert_eq!(harness.wait_ended(&marker)["phase"], "Failed");
    wait_until_gone(&marker);
    // A stop reaches it as well.
    harness.start(&with_context(
        "q",
        "trap 'exit 3' TERM; echo up; sleep 100 & wait",
        &json!({"runAsUser": 54321}),
        &json!({}),
    ));
    eventually("it runs", || (harness.lines("q") == ["up"]).then_some(()));
    harness.processes.stop("ns", "q", "uid-q", 60);
    assert_eq!(terminated(&harness.wait_ended("q"))["exitCode"], 3);
}
