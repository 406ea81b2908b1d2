//! Pods as real processes: what they get, how they end, what is reported.

use std::fs;

use crate::common::{Harness, eventually, marker, processes_with, read, shell_pod, terminated, wait_until_gone};
use cluster::runtime::PodRuntime;
use serde_json::json;

#[test]
fn exit_codes_and_signals() {
    let mut harness = Harness::new();
    let cases = [
        ("ok", "exit 0", 0, "Completed", "Succeeded"),
        ("seven", "exit 7", 7, "Error", "Failed"),
        ("max", "exit 255", 255, "Error", "Failed"),
        ("kill", "kill -KILL $$$$", 137, "Error", "Failed"),
        ("term", "kill -TERM $$$$", 143, "Error", "Failed"),
        ("segv", "kill -SEGV $$$$", 139, "Error", "Failed"),
    ];
    for (name, script, ..) in cases {
        harness.start(&shell_pod(name, script));
    }
    for (name, _, code, reason, phase) in cases {
        let status = harness.wait_ended(name);
        assert_eq!(
            (&terminated(&status)["exitCode"], &terminated(&status)["reason"]),
            (&code.into(), &reason.into()),
            "{name}"
        );
        assert_eq!(status["phase"], phase, "{name}");
        assert!(terminated(&status)["finishedAt"].as_str() >= terminated(&status)["startedAt"].as_str());
    }
    // Every pod was seen running before it ended, however short its life.
    for (name, ..) in cases {
        assert!(
            harness.reports.iter().any(|report| report.name == name && report.status["phase"] == "Running"),
            "{name}"
        );
    }
}

#[test]
fn a_program_that_cannot_be_started() {
    let mut harness = Harness::new();
    let plain = harness.dir.path().join("plain");
    fs::write(&plain, "not a program").unwrap();
    for (name, program, workdir, want) in [
        ("missing", "no-such-program-anywhere", "/", "No such file"),
        ("mistyped", "slepe", "/", "did you mean sleep?"),
        ("plain", plain.to_str().unwrap(), "/", "Permission denied"),
        ("nodir", "true", "/no/such/directory", "/no/such/directory does not exist"),
    ] {
        let mut pod = shell_pod(name, "");
        pod["spec"]["containers"][0]["command"] = json!([program]);
        pod["spec"]["containers"][0]["workingDir"] = json!(workdir);
        let status = harness.run(&pod);
        let end = terminated(&status);
        assert_eq!((&end["exitCode"], &end["reason"]), (&128.into(), &"StartError".into()), "{name}");
        assert!(end["message"].as_str().unwrap().contains(want), "{name}: {end}");
        assert_eq!(status["phase"], "Failed");
    }
}

#[test]
fn environment_directory_input_and_output() {
    let work = tempfile::tempdir().unwrap();
    let mut harness = Harness::with(|options| options.workdir = Some(work.path().to_owned()));
    let mut pod = shell_pod("p", "echo A=$A IP=$IP $1; pwd; cat; echo HOSTNAME=$HOSTNAME >&2; printf unfinished");
    pod["spec"]["containers"][0]["args"] = json!(["name", "$(A)"]);
    pod["spec"]["containers"][0]["env"] = json!([
        {"name": "A", "value": "x y"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]);
    let status = harness.run(&pod);
    let address = harness.processes.address("ns", "p");
    let dir = fs::canonicalize(work.path()).unwrap();
    let want = format!("A=x y IP={address} x y\n{}\nHOSTNAME=p\nunfinished", dir.display());
    assert_eq!(harness.log("p", 0), want);
    assert_eq!(harness.lines("p"), want.lines().collect::<Vec<_>>());
    assert_eq!(status["podIP"], address.to_string());
}

#[test]
fn init_containers_first_and_a_volume_between() {
    let mut harness = Harness::new();
    let mut pod = shell_pod(
        "p",
        "cat $TRAINYARD_VOLUME_SHARED_DATA/x $TRAINYARD_VOLUME_CONF/key; echo $TRAINYARD_VOLUME_SHARED_DATA",
    );
    let script = |text: &str| json!(["sh", "-c", format!("echo {text} >> $TRAINYARD_VOLUME_SHARED_DATA/x")]);
    pod["spec"]["initContainers"] = json!([
        {"name": "one", "command": script("1"), "volumeMounts": [{"name": "other", "mountPath": "/other"}]},
        {"name": "two", "command": script("2")},
    ]);
    pod["spec"]["volumes"] = json!([{"name": "other", "emptyDir": {}}, {"name": "shared-data", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "m"}}]);
    harness.processes.provide(
        &json!({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}, "data": {"key": "value\n"}}),
    );
    let status = harness.run(&pod);
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["initContainerStatuses"][1]["state"]["terminated"]["exitCode"], 0);
    let lines = harness.lines("p");
    assert_eq!(lines[..3], ["1", "2", "value"]);
    assert!(!std::path::Path::new(&lines[3]).exists(), "an emptyDir goes with its pod");
    assert_eq!(harness.warnings().len(), 1);
    assert!(harness.warnings()[0].contains("/other"));
    // A failed init container: the others are never started.
    pod["spec"]["initContainers"][0]["command"] = json!(["false"]);
    pod["metadata"]["name"] = json!("q");
    pod["metadata"]["uid"] = json!("uid-q");
    let status = harness.run(&pod);
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn containers_are_started_again_in_place() {
    let mut harness = Harness::new();
    let mut pod =
        shell_pod("p", "echo run; echo >> $TRAINYARD_VOLUME_V/runs; test $(wc -l < $TRAINYARD_VOLUME_V/runs) -ge 3");
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let status = harness.run(&pod);
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 2);
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!([harness.log("p", 0), harness.log("p", 1), harness.log("p", 2)], ["run\n"; 3]);
    assert_eq!(harness.lines("p"), ["run"; 3]);
    let backed_off =
        |status: &serde_json::Value| status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    assert!(harness.reports.iter().any(|report| backed_off(&report.status)));
}

#[test]
fn the_last_words_as_message() {
    let mut harness = Harness::new();
    let pod = |name: &str, script: &str, policy: serde_json::Value| {
        let mut pod = shell_pod(name, script);
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = policy;
        pod
    };
    let fails = "echo first; echo Xid 79 >&2; exit 1";
    let fallback = json!("FallbackToLogsOnError");
    for (name, policy) in [("p", json!(null)), ("q", fallback.clone())] {
        assert_eq!(terminated(&harness.run(&pod(name, fails, policy)))["message"], "first\nXid 79");
    }
    // As with a kubelet: nothing where a file was to hold it, nothing of a success.
    let silent = [pod("r", fails, json!("File")), pod("s", "echo first", fallback)];
    assert!(silent.iter().all(|pod| terminated(&harness.run(pod)).get("message").is_none()));
}

#[test]
fn an_exception_in_the_error_file_is_the_message() {
    let mut harness = Harness::new();
    let script =
        r#"echo noise; echo '{"message": {"message": "KeyError: loss"}}' > "$TORCHELASTIC_ERROR_FILE"; exit 1"#;
    assert_eq!(terminated(&harness.run(&shell_pod("p", script)))["message"], "KeyError: loss");
    // A second run in the same pod does not get the file of the first.
    let script = format!(
        "test $(ls $TRAINYARD_VOLUME_V | wc -l) = 0 || {{ echo second; exit 3; }}; touch $TRAINYARD_VOLUME_V/x; {script}"
    );
    let mut pod = shell_pod("q", &script);
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    harness.start(&pod);
    let status = harness.wait_for("q", "failed twice", |report| {
        report.status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    });
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["message"], "second");
    harness.stop("q", 0);
    harness.wait_ended("q");
}

#[test]
fn a_container_ends_when_its_program_does() {
    let mut harness = Harness::new();
    // What it leaves behind withstands SIGTERM; ending that is not part of the container's time.
    let status = harness.run(&shell_pod("p", "sh -c 'trap \"\" TERM; sleep 1000' & date +%s%3N; exit 1"));
    let written: u64 = harness.log("p", 0).trim().parse().unwrap();
    let end = model::Timestamp::parse_rfc3339(terminated(&status)["finishedAt"].as_str().unwrap()).unwrap();
    assert!(end.0 >= written, "{} is before {written}", end.0);
    assert!(terminated(&status)["finishedAt"].as_str().unwrap().contains('.'), "{status}");
}

#[test]
fn a_sink_that_panics_costs_only_output() {
    let mut harness =
        Harness::with(|options| options.log_sink = Some(std::sync::Arc::new(|_| panic!("the terminal is gone"))));
    for name in ["p", "q"] {
        assert_eq!(harness.run(&shell_pod(name, "echo one; echo two"))["phase"], "Succeeded");
        assert_eq!(harness.log(name, 0), "one\ntwo\n");
    }
}

#[test]
fn stop_is_polite_first() {
    let mut harness = Harness::new();
    harness.start(&shell_pod("p", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"));
    eventually("the trap is set", || (harness.lines("p") == ["up"]).then_some(()));
    harness.stop("p", 60);
    let status = harness.wait_ended("p");
    assert_eq!(terminated(&status)["exitCode"], 3);
    // The whole tree is asked, so the shell may say that its `sleep` was terminated before it says goodbye.
    assert_eq!(harness.lines("p").last().unwrap(), "bye");
}

#[test]
fn stop_kills_after_the_grace_period_and_at_once_with_none() {
    let mut harness = Harness::new();
    for (name, grace) in [("stubborn", 1), ("forced", 0)] {
        let marker = marker();
        harness.start(&shell_pod(name, &format!("trap '' TERM; echo {marker}; while :; do sleep 0.05; done")));
        eventually("the trap is set", || (!harness.lines(name).is_empty()).then_some(()));
        harness.stop(name, grace);
        let status = harness.wait_ended(name);
        assert_eq!((&terminated(&status)["exitCode"], &status["phase"]), (&137.into(), &"Failed".into()), "{name}");
        assert!(processes_with(&marker).is_empty(), "an ended pod has no processes");
    }
}

#[test]
fn stop_of_what_never_ran() {
    let mut harness = Harness::new();
    harness.stop("unknown", 30);
    assert_eq!(harness.wait_ended("unknown"), json!({}));
    // One right after the start: it ends in every stage.
    for n in 0..5 {
        let name = format!("p{n}");
        harness.start(&shell_pod(&name, "sleep 1000"));
        harness.stop(&name, 5);
        harness.wait_ended(&name);
    }
}

#[test]
fn an_injected_exit() {
    let mut harness = Harness::new();
    assert!(harness.processes.inject_exit("ns", "p", 1).is_err());
    let marker = marker();
    harness.start(&shell_pod("p", &format!("setsid sh -c 'sleep 1000; : {marker}' & sleep 1000; : {marker}")));
    harness.wait_running("p");
    harness.processes.inject_exit("ns", "p", 42).unwrap();
    let status = harness.wait_ended("p");
    assert_eq!((&terminated(&status)["exitCode"], &status["phase"]), (&42.into(), &"Failed".into()));
    wait_until_gone(&marker);
    assert!(harness.processes.inject_exit("ns", "p", 1).is_err());
}

#[test]
fn a_pod_waits_for_its_config_map() {
    let mut harness = Harness::new();
    let mut pod = shell_pod("p", "echo $X");
    pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "m"}}]);
    harness.start(&pod);
    let status = harness.wait_for("p", "was refused", |report| !report.ended);
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!((&status["phase"], &waiting["reason"]), (&"Pending".into(), &"CreateContainerConfigError".into()));
    assert_eq!(waiting["message"], "configmap \"m\" not found");
    harness
        .processes
        .provide(&json!({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}, "data": {"X": "here"}}));
    assert_eq!(harness.wait_ended("p")["phase"], "Succeeded");
    assert_eq!(harness.log("p", 0), "here\n");
    // Another one is deleted while it waits.
    pod["metadata"] = json!({"name": "q", "namespace": "other", "uid": "uid-q"});
    harness.start(&pod);
    harness.processes.stop("other", "q", "uid-q", 30);
    assert_eq!(harness.wait_ended("q")["phase"], "Failed");
}

#[test]
fn a_volume_follows_its_config_map() {
    let mut harness = Harness::new();
    let map = |hosts: &str| json!({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}, "data": {"hosts.sh": hosts}});
    let address = harness.processes.address("ns", "j-worker-1").to_string();
    harness.processes.provide(&json!({"kind": "Service", "metadata": {"name": "j", "namespace": "ns"}}));
    harness.processes.provide(&map("#!/bin/sh\n"));
    let mut pod = shell_pod("p", "echo up; while ! /conf/hosts.sh | grep -q .; do sleep 0.05; done; /conf/hosts.sh");
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "conf", "mountPath": "/conf"}]);
    pod["spec"]["volumes"] = json!([{"name": "conf", "configMap": {"name": "m", "defaultMode": 0o555}}]);
    harness.start(&pod);
    eventually("the program reads", || (harness.lines("p") == ["up"]).then_some(()));
    harness.processes.provide(&map("#!/bin/sh\necho j-worker-1.j.ns.svc\n"));
    assert_eq!(harness.wait_ended("p")["phase"], "Succeeded");
    assert_eq!(harness.lines("p"), ["up", &address]);
}

#[test]
fn a_container_without_a_command_is_refused_with_what_to_add() {
    let mut harness = Harness::new();
    let mut pod = shell_pod("p", "");
    pod["spec"]["containers"][0]["command"] = json!([]);
    harness.start(&pod);
    let status = harness.wait_for("p", "was refused", |report| !report.ended);
    let message = status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("images are not pulled") && message.contains("`command: [...]`"), "{message}");
    assert_eq!(harness.warnings(), [message]);
}

#[test]
fn gpus_go_to_one_pod_at_a_time() {
    let mut harness = Harness::with(|options| {
        options.gpus = Some(2);
        // Names of their own: other tests of this machine may run at the same time.
        options.visible_gpus.devices = Some(format!("a{0},b{0},c{0}", std::process::id()));
    });
    let pod = |name: &str, count: u32, script: &str| {
        let mut pod = shell_pod(name, script);
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": count}});
        pod
    };
    harness.start(&pod("a", 2, "echo $CUDA_VISIBLE_DEVICES; sleep 1000"));
    harness.wait_running("a");
    let refused = harness.run(&pod("b", 1, "true"));
    assert_eq!((&refused["phase"], &refused["reason"]), (&"Failed".into(), &"UnexpectedAdmissionError".into()));
    assert_eq!(harness.run(&pod("none", 0, "echo \"[$CUDA_VISIBLE_DEVICES]\""))["phase"], "Succeeded");
    assert_eq!(harness.log("none", 0), "[]\n");
    harness.stop("a", 0);
    harness.wait_ended("a");
    assert_eq!(harness.log("a", 0), format!("a{0},b{0}\n", std::process::id()));
    assert_eq!(harness.run(&pod("c", 1, "echo $CUDA_VISIBLE_DEVICES"))["phase"], "Succeeded");
    assert_eq!(harness.log("c", 0), format!("a{}\n", std::process::id()));
}

#[test]
fn several_containers_and_their_own_ends() {
    let mut harness = Harness::new();
    let mut pod = shell_pod("p", "until test -e $TRAINYARD_VOLUME_V/go; do sleep 0.02; done");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    pod["spec"]["containers"].as_array_mut().unwrap().push(
        // What a container leaves behind is ended with it, though the pod continues.
        json!({"name": "d", "command": ["sh", "-c", "setsid sleep 1000 & echo $! > $TRAINYARD_VOLUME_V/left; exit 4"]}),
    );
    harness.start(&pod);
    harness.wait_for("p", "had one end while the other container ran", |report| {
        let states = &report.status["containerStatuses"];
        states[1]["state"]["terminated"]["exitCode"] == 4 && states[0]["state"]["running"].is_object()
    });
    let volume = fs::canonicalize(harness.dir.path()).unwrap().join("pods/uid-p/volumes/v");
    let left = read(&volume.join("left"));
    assert!(!std::path::Path::new(&format!("/proc/{}", left.trim())).exists());
    fs::write(volume.join("go"), "").unwrap();
    assert_eq!(harness.wait_ended("p")["phase"], "Failed");
}

#[test]
fn two_runtimes_never_share_an_address() {
    // Two of 24 directories have the same hash in nine of ten tries.
    let harnesses: Vec<Harness> = (0..24).map(|_| Harness::new()).collect();
    let networks: std::collections::BTreeSet<u8> =
        harnesses.iter().map(|harness| harness.processes.address("ns", "p").octets()[1]).collect();
    assert_eq!(networks.len(), harnesses.len());
}
