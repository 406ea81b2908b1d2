//! Programs beside those of a container, and paths of mounts that are directories.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use local::Execution;
use serde_json::json;

use crate::common::{Harness, marker, processes_with, shell_pod, terminated, wait_until_gone};

fn words(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

/// What a stream holds until its end.
fn all_of(stream: Option<OwnedFd>) -> String {
    let mut text = String::new();
    File::from(stream.unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn started(harness: &Harness, pod: &str, script: &str) -> Execution {
    harness.processes.exec("ns", pod, "c", &words(script)).unwrap()
}

#[test]
fn a_program_in_a_container_has_its_place_and_streams_of_its_own() {
    let mut harness = Harness::new();
    let mut pod = shell_pod("p", "until test -e go; do sleep 0.05; done; cat said");
    pod["spec"]["volumes"] = json!([{"name": "work", "persistentVolumeClaim": {"claimName": "c1"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "work", "mountPath": "/data"}]);
    pod["spec"]["containers"][0]["workingDir"] = json!("/data");
    pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "x"}, {"name": "AT", "value": "/data/said"}]);
    harness.start(&pod);
    harness.wait_running("p");
    let mut execution =
        started(&harness, "p", "cat > $AT; test -e /data/said || exit 1; echo out=$A; echo err >&2; exit 3");
    let mut stdin = File::from(execution.stdin.take().unwrap());
    // More than a pipe holds.
    stdin.write_all(&vec![b'x'; 300_000]).unwrap();
    drop(stdin);
    assert_eq!(all_of(execution.stdout.take()), "out=x\n");
    assert_eq!(all_of(execution.stderr.take()), "err\n");
    assert_eq!(execution.wait(), 3);
    let claim = harness.dir.path().join("claims/ns/c1");
    assert_eq!(std::fs::metadata(claim.join("said")).unwrap().len(), 300_000);

    for (pod, container, command, want) in [
        ("q", "c", "true", "pod ns/q does not run here"),
        ("p", "d", "true", "pod ns/p has no container d"),
        ("p", "c", "no-such-program-anywhere", "cannot start no-such-program-anywhere: No such file"),
    ] {
        let error = harness.processes.exec("ns", pod, container, &[command.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    std::fs::write(claim.join("go"), "").unwrap();
    let status = harness.wait_ended("p");
    assert_eq!(terminated(&status)["exitCode"], 0, "{status}");
}

#[test]
fn a_program_in_a_container_ends_with_its_pod_and_with_who_started_it() {
    let mut harness = Harness::new();
    let (dropped, stopped) = (marker(), marker());
    harness.start(&shell_pod("p", "sleep 600"));
    harness.wait_running("p");
    let sleeps = |mark: &str| format!("echo up; sleep 600 & sleep 600; : {mark}");
    let first = started(&harness, "p", &sleeps(&dropped));
    assert!(!processes_with(&dropped).is_empty());
    drop(first);
    wait_until_gone(&dropped);
    let mut second = started(&harness, "p", &sleeps(&stopped));
    harness.stop("p", 0);
    harness.wait_ended("p");
    let ended = std::thread::spawn(move || second.wait());
    wait_until_gone(&stopped);
    assert_ne!(ended.join().unwrap(), 0);
}
