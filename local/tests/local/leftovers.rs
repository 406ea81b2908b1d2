//! Runner, supervisors and shims killed at once: the next run of the directory ends what they left.

use crate::common::{Harness, Runner, marker, processes_with, shell_pod, wait_until_gone};
use rustix::process::{Pid, Signal};

/// Kills a runner with all of its supervisors and shims. They are stopped first, so that none can do anything about it.
fn kill_chain(runner: &mut Runner, marker: &str) {
    let mut chain: Vec<i32> = processes_with(marker)
        .into_iter()
        .filter(|(_, arguments)| arguments.contains("pod-supervisor") || arguments.contains("pod-exec"))
        .map(|(pid, _)| pid)
        .collect();
    chain.insert(0, i32::try_from(runner.child.id()).unwrap());
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in &chain {
            rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap();
        }
    }
    runner.child.wait().unwrap();
}

#[test]
fn the_next_run_ends_what_is_left_of_the_one_before() {
    let marker = marker();
    let mut runner = Runner::start(&marker, 2);
    kill_chain(&mut runner, &marker);
    assert!(!processes_with(&marker).is_empty(), "what left its session outlives the chain");
    let dir = runner.dir.path().to_owned();
    let mut harness = Harness::with(|options| options.data_dir = dir);
    wait_until_gone(&marker);
    let warnings = harness.warnings();
    assert_eq!(warnings.len(), 2, "one for each pod: {warnings:?}");
    assert!(warnings[0].contains("that an earlier run left") && warnings[0].contains("(sh)"), "{warnings:?}");
    assert_eq!(harness.run(&shell_pod("p", "echo fine"))["phase"], "Succeeded");
}

#[test]
fn another_directory_and_a_live_runner_are_left_alone() {
    let marker = marker();
    let mut runner = Runner::start(&marker, 1);
    let dir = runner.dir.path().to_owned();
    let before = crate::common::shells(&marker);
    // The same directory (as a copy would have the same id) while its runner lives, and another one.
    let same = Harness::with(|options| {
        options.directory_id = Some(std::fs::canonicalize(&dir).unwrap().to_string_lossy().into_owned());
    });
    let other = Harness::new();
    assert_eq!(crate::common::shells(&marker), before);
    assert_eq!((same.warnings().len(), other.warnings().len()), (0, 0));
    kill_chain(&mut runner, &marker);
    let after = Harness::with(|options| options.data_dir = dir);
    wait_until_gone(&marker);
    assert_eq!(after.warnings().len(), 1);
}
