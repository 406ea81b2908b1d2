//! Signals from outside: supervisors and shims do not listen to them, programs get them as they are.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::common::{Harness, eventually, marker, processes_with, shell_pod, terminated, wait_until_gone};
use rustix::process::{Pid, Signal};

/// Sends a signal to every process with `marker` in its arguments or environment.
fn signal_all(marker: &str, signal: Signal) {
    for (pid, _) in processes_with(marker) {
        // It may have ended since it was listed.
        let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
    }
}

/// A program that works on its checkpoint in a child after SIGTERM.
fn saves(marker: &str) -> String {
    format!("trap 'sh -c \"sleep 1; echo saved\"; exit 7' TERM; echo up; while :; do sleep 0.05; done; : {marker}")
}

#[test]
fn signals_to_the_chain_end_nothing() {
    let (mut harness, marker) = (Harness::new(), marker());
    harness.start(&shell_pod(&marker, &saves(&marker)));
    eventually("the trap is set", || (harness.lines(&marker) == ["up"]).then_some(()));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1, Signal::QUIT] {
        for (pid, arguments) in processes_with(&marker) {
            if arguments.contains("pod-supervisor") || arguments.contains("pod-exec") {
                rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
            }
        }
    }
    harness.stop(&marker, 60);
    let status = harness.wait_ended(&marker);
    assert_eq!(terminated(&status)["exitCode"], 7, "the program got its grace period");
    assert_eq!(harness.lines(&marker).last().unwrap(), "saved");
    wait_until_gone(&marker);
}

#[test]
fn a_program_that_was_signalled_with_its_chain_keeps_its_grace_period() {
    let (mut harness, marker) = (Harness::new(), marker());
    harness.start(&shell_pod(&marker, &saves(&marker)));
    eventually("the trap is set", || (harness.lines(&marker) == ["up"]).then_some(()));
    signal_all(&marker, Signal::TERM);
    harness.stop(&marker, 60);
    let status = harness.wait_ended(&marker);
    assert_eq!(terminated(&status)["exitCode"], 7);
    assert!(harness.lines(&marker).contains(&"saved".to_owned()), "{:?}", harness.lines(&marker));
    wait_until_gone(&marker);
}

/// The signals a process blocks and ignores, as masks.
const MASKS: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status";

/// 32 and 33 belong to the C library, which lets no program handle them.
const OF_THE_C_LIBRARY: u64 = 0b11 << 31;

#[test]
fn programs_start_with_the_default_of_every_signal() {
    let dir = tempfile::tempdir().unwrap();
    let marker = marker();
    // As `nohup` and background jobs of shells start programs.
    let script = "trap '' HUP INT QUIT TERM USR1 USR2 ALRM TSTP PIPE; exec \"$@\"";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([crate::common::program().as_os_str(), dir.path().as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", shell_pod(&marker, &format!("exec {MASKS}"))).unwrap();
    let mut reports = BufReader::new(child.stdout.take().unwrap()).lines();
    while !reports.next().unwrap().unwrap().contains("\"ended\":true") {}
    child.kill().unwrap();
    child.wait().unwrap();
    let log = crate::common::read(&local::log_file(dir.path(), "ns", &marker, "c", 0, 0));
    let mask = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    let masks: Vec<u64> = log.lines().map(|line| mask(line) & !OF_THE_C_LIBRARY).collect();
    assert_eq!(masks, [0, 0], "{log}");
}
