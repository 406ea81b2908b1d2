//! Nothing is ever left: programs that try to get away, and every process of the chain killed.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{
    Harness, Runner, SHELLS, escape_artist, marker, processes_with, shell_pod, shells, terminated, wait_for_shells,
    wait_until_gone,
};
use rustix::process::{Pid, Signal};

fn kill(pid: i32) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// The supervisor or shim of a pod, recognised by its arguments.
fn of_chain(command: &str, pod: &str) -> i32 {
    let found = processes_with(pod);
    found.iter().find(|(_, arguments)| arguments.contains(command)).unwrap_or_else(|| panic!("{found:?}")).0
}

#[test]
fn a_stop_reaches_everyone() {
    let (mut harness, marker) = (Harness::new(), marker());
    harness.start(&shell_pod(&marker, &escape_artist(&marker)));
    wait_for_shells(&marker, SHELLS);
    harness.stop(&marker, 0);
    assert_eq!(terminated(&harness.wait_ended(&marker))["exitCode"], 137);
    assert!(shells(&marker).is_empty(), "the end is reported when all are gone");
    wait_until_gone(&marker);
}

#[test]
fn what_a_program_leaves_behind_goes_with_it() {
    let (mut harness, marker) = (Harness::new(), marker());
    // Its last part, the shell that stays, is cut off: it leaves as soon as the others are up.
    let script = escape_artist(&marker);
    let (children, _) = script.split_once(" trap '' TERM HUP INT; echo up;").unwrap();
    let ready = harness.dir.path().join("ready");
    let script = format!("{children} until test -e {}; do sleep 0.02; done; exit 6", ready.display());
    harness.start(&shell_pod(&marker, &script));
    wait_for_shells(&marker, SHELLS);
    std::fs::write(ready, "").unwrap();
    let status = harness.wait_ended(&marker);
    assert_eq!(terminated(&status)["exitCode"], 6);
    assert!(shells(&marker).is_empty());
    wait_until_gone(&marker);
}

#[test]
fn a_killed_shim_fails_its_container_and_leaves_nothing() {
    let (mut harness, marker) = (Harness::new(), marker());
    harness.start(&shell_pod(&marker, &escape_artist(&marker)));
    wait_for_shells(&marker, SHELLS);
    kill(of_chain("pod-exec", &marker));
    let status = harness.wait_ended(&marker);
    assert_eq!(terminated(&status)["exitCode"], 137);
    assert!(terminated(&status)["message"].as_str().unwrap().contains("was killed"));
    wait_until_gone(&marker);
}

#[test]
fn a_killed_shim_does_not_touch_its_neighbour() {
    let (mut harness, marker) = (Harness::new(), marker());
    let mut pod = shell_pod(&marker, &escape_artist(&marker));
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.push(serde_json::json!({"name": "d", "command": ["sleep", "1000"]}));
    harness.start(&pod);
    harness.wait_running(&marker);
    wait_for_shells(&marker, SHELLS);
    kill(of_chain("/c", &marker));
    let status = harness.wait_for(&marker, "lost a container", |report| terminated(&report.status)["exitCode"] == 137);
    assert!(shells(&marker).is_empty(), "the end of a container is reported when all of it is gone");
    assert_eq!(status["phase"], "Running");
    assert!(status["containerStatuses"][1]["state"]["running"].is_object());
    harness.stop(&marker, 0);
    harness.wait_ended(&marker);
    wait_until_gone(&marker);
}

#[test]
fn a_killed_supervisor_fails_its_pod_and_leaves_nothing() {
    let (mut harness, marker) = (Harness::new(), marker());
    harness.start(&shell_pod(&marker, &escape_artist(&marker)));
    harness.wait_running(&marker);
    wait_for_shells(&marker, SHELLS);
    kill(of_chain("pod-supervisor", &marker));
    let status = harness.wait_ended(&marker);
    assert_eq!((&terminated(&status)["exitCode"], &status["phase"]), (&137.into(), &"Failed".into()));
    assert!(status["message"].as_str().unwrap().contains("supervisor ended"));
    assert!(shells(&marker).is_empty(), "the end is reported when all are gone");
    wait_until_gone(&marker);
}

#[test]
fn a_program_dies_even_when_its_whole_chain_is_killed_at_once() {
    let (mut harness, marker) = (Harness::new(), marker());
    harness.start(&shell_pod(&marker, &format!("trap '' TERM HUP; while :; do sleep 1; done; : {marker}")));
    wait_for_shells(&marker, 1);
    let chain = [of_chain("pod-supervisor", &marker), of_chain("pod-exec", &marker)];
    // Stopped first, so that neither can do anything about the other's end.
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in chain {
            rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        }
    }
    assert_eq!(harness.wait_ended(&marker)["phase"], "Failed");
    wait_until_gone(&marker);
}

#[test]
fn dropping_the_runtime_ends_everything() {
    let (mut harness, marker) = (Harness::new(), marker());
    let names: Vec<String> = (0..3).map(|n| format!("{marker}-{n}")).collect();
    for name in &names {
        harness.start(&shell_pod(name, &escape_artist(&marker)));
    }
    wait_for_shells(&marker, 3 * SHELLS);
    drop(harness);
    assert_eq!(processes_with(&marker), [], "the drop waits until all are gone");
}

#[test]
fn a_killed_runner_leaves_nothing() {
    let marker = marker();
    let mut runner = Runner::start(&marker, 3);
    runner.child.kill().unwrap();
    runner.child.wait().unwrap();
    wait_until_gone(&marker);
}

#[test]
fn a_runner_killed_together_with_its_supervisors_leaves_nothing() {
    let marker = marker();
    let mut runner = Runner::start(&marker, 2);
    let supervisors =
        [of_chain("pod-supervisor", &format!("{marker}-0")), of_chain("pod-supervisor", &format!("{marker}-1"))];
    runner.child.kill().unwrap();
    for pid in supervisors {
        // It may have noticed the runner's end before this.
        let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    runner.child.wait().unwrap();
    wait_until_gone(&marker);
}

/// The supervisors notice the runner's end and are killed in the middle of ending their pods.
#[test]
fn supervisors_killed_at_their_last_work_leave_nothing() {
    for delay_us in [100, 500, 1000, 2000, 4000, 8000] {
        let marker = marker();
        let mut runner = Runner::start(&marker, 1);
        let supervisor = of_chain("pod-supervisor", &marker);
        runner.child.kill().unwrap();
        runner.child.wait().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(delay_us));
        // It may be done already.
        let _ = rustix::process::kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL);
        wait_until_gone(&marker);
    }
}

#[test]
fn a_runner_killed_while_it_starts_pods_leaves_nothing() {
    for delay_ms in [0, 1, 3, 10, 30, 60] {
        let (marker, dir) = (marker(), tempfile::tempdir().unwrap());
        let mut child = Command::new(crate::common::program())
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        for n in 0..4 {
            writeln!(input, "{}", shell_pod(&format!("{marker}-{n}"), &escape_artist(&marker))).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_gone(&marker);
    }
}
