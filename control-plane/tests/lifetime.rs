//! That nothing outlives its owner, and that a directory serves one plane at a time.

mod support;

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use control_plane::{Component, ControlPlane, Options, until_within};
use support::processes_in;

/// Set for the process that is to own a plane and to be killed.
const OWNER: &str = "CONTROL_PLANE_TEST_OWNER";

fn small() -> Options {
    Options { nodes: 1, ..Options::default() }
}

#[test]
fn nothing_is_left_after_drop() {
    let plane = ControlPlane::start(small()).unwrap();
    let directory = plane.directory().to_path_buf();
    // Five components, and the shell that removes the directory.
    assert!(processes_in(&directory).len() >= 6, "{:?}", processes_in(&directory));
    plane.pause(Component::ApiServer).unwrap();
    drop(plane);
    assert_eq!(processes_in(&directory), Vec::<String>::new());
    assert!(!directory.exists());
}

#[test]
fn nothing_is_left_after_the_owner_was_killed() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "owner_for_another_test", "--nocapture"]).env(OWNER, "1");
    let mut owner = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let directory =
        lines.map_while(Result::ok).find_map(|line| line.split_once("owns ").map(|(_, path)| PathBuf::from(path)));
    let directory = directory.expect("the owner says what it owns");
    assert!(processes_in(&directory).len() >= 6, "{:?}", processes_in(&directory));
    owner.kill().unwrap();
    owner.wait().unwrap();
    until_within(Duration::from_secs(10), "all processes to end", || {
        let left = processes_in(&directory);
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    });
    until_within(Duration::from_secs(10), "the directory to go", || {
        if directory.exists() { Err(directory.display()) } else { Ok(()) }
    });
}

/// Not a test by itself: the process that `nothing_is_left_after_the_owner_was_killed` kills.
#[test]
fn owner_for_another_test() {
    if env::var_os(OWNER).is_none() {
        return;
    }
    let plane = ControlPlane::start(small()).unwrap();
    // Also one that cannot act on anything.
    plane.pause(Component::Scheduler).unwrap();
    println!("\nowns {}", plane.directory().display());
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn a_directory_serves_one_plane_at_a_time_and_starts_again() {
    let bare = || Options { scheduler: false, controller_manager: false, kwok: false, ..Options::default() };
    let directory = tempfile::tempdir().unwrap();
    let given = || Options { directory: Some(directory.path().join("plane")), ..bare() };
    let first = ControlPlane::start(given()).unwrap();
    first.run_kubectl(["create", "configmap", "old"]).unwrap();
    let error = ControlPlane::start(given()).unwrap_err().to_string();
    assert!(error.contains("another control plane is using it"), "{error}");
    drop(first);
    assert!(directory.path().join("plane/logs/etcd.log").exists(), "logs in a directory of one's own stay");
    let second = ControlPlane::start(given()).unwrap();
    assert_eq!(second.run_kubectl(["get", "configmap", "old", "--ignore-not-found"]).unwrap(), "");
}
