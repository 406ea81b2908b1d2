//! The processes below this one: finding them, signalling them, ending every one.
//!
//! Works on `/proc`, because a process can leave its group and its session but not its ancestors: a process of this chain
//! is a child subreaper, so a process below it that loses its parent becomes its child. Hence the proof that nothing is left: a
//! subreaper without children has no descendants. Tests: at the end, and `tests/local/trees.rs` with processes that try to get away.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

/// One process; its start time distinguishes it from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks from boot to its start.
    pub(crate) start_ticks: u64,
}

struct Stat {
    parent: i32,
    zombie: bool,
    start_ticks: u64,
}

/// Becomes the process that orphans below it are given to.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// A process by its pid; `None` when there is none, or only an unreaped rest of one.
pub(crate) fn process(pid: i32) -> Option<Process> {
    let stat = stat(pid)?;
    (!stat.zombie).then_some(Process { pid, start_ticks: stat.start_ticks })
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    Some(stat(pid)?.parent)
}

/// Every live process below `root`, leaving out the subtrees of `except`.
pub(crate) fn descendants(root: i32, except: &[i32]) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<(Process, bool)>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends while it is read is not there any more: no error.
        let Some(stat) = stat(pid) else { continue };
        let process = Process { pid, start_ticks: stat.start_ticks };
        children.entry(stat.parent).or_default().push((process, stat.zombie));
    }
    let mut found = Vec::new();
    let mut unvisited = vec![root];
    while let Some(parent) = unvisited.pop() {
        for (process, zombie) in children.remove(&parent).unwrap_or_default() {
            if !except.contains(&process.pid) {
                unvisited.push(process.pid);
                if !zombie {
                    found.push(process);
                }
            }
        }
    }
    found.sort_unstable();
    found
}

/// Sends `signal` to a process, unless its pid has passed to another one meanwhile.
pub(crate) fn signal(process: Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => {
            if stat(process.pid).is_some_and(|stat| stat.start_ticks == process.start_ticks) {
                // Gone already, or not ours to signal (a set-user-id program): the caller looks again in either case.
                let _ = rustix::process::pidfd_send_signal(&fd, signal);
            }
        }
        Err(Errno::NOSYS | Errno::PERM) => {
            let _ = rustix::process::kill_process(pid, signal);
        }
        Err(_) => {}
    }
}

/// Sends `signal` to everything below this process.
pub(crate) fn signal_all(signal_to_send: Signal) {
    for process in descendants(own_pid(), &[]) {
        signal(process, signal_to_send);
    }
}

/// Kills everything below this process except the subtrees of `except`, once. They are stopped first, so that none of
/// them can start another one while the list is worked through.
pub(crate) fn kill_once(except: &[i32]) -> usize {
    let mut stopped: Vec<Process> = Vec::new();
    // Rounds are bounded: a process that escapes in between is found by the caller's next pass.
    for _ in 0..20 {
        let new: Vec<Process> =
            descendants(own_pid(), except).into_iter().filter(|process| !stopped.contains(process)).collect();
        if new.is_empty() {
            break;
        }
        for process in new {
            signal(process, Signal::STOP);
            stopped.push(process);
        }
    }
    for process in &stopped {
        signal(*process, Signal::KILL);
    }
    stopped.len()
}

/// Kills and reaps everything below this process except the subtrees of `except`, which are to end by themselves, until
/// it has no children, or `timeout` is over. True when nothing is left. Only for a process that has no other use for the
/// exit statuses of its children.
pub(crate) fn end_all(except: &[i32], timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    let mut pause = Duration::from_millis(1);
    loop {
        kill_once(except);
        match reap_without_waiting() {
            Reaped::NoChildren => return true,
            Reaped::SomeLive if Instant::now() >= deadline => return false,
            Reaped::SomeLive => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

enum Reaped {
    NoChildren,
    SomeLive,
}

fn reap_without_waiting() -> Reaped {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Reaped::SomeLive,
            Err(_) => return Reaped::NoChildren,
        }
    }
}

/// Waits for any child to end; `None` when there are none.
pub(crate) fn reap() -> Option<(i32, WaitStatus)> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => return Some((pid.as_raw_nonzero().get(), status)),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Exit code as a kubelet shows it: the program's own, or 128 + the signal that ended it.
pub(crate) fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(255)
}

/// This process.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `pid (name) state parent ... start`; the name may hold anything, also spaces and parentheses.
fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let close = bytes.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(bytes.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22 of the line; two of the ones after the name are read already.
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat { parent, zombie: matches!(state, "Z" | "X"), start_ticks })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_lines() {
        let line = b"42 (a) b) Z) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876 1 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.zombie, stat.start_ticks), (7, false, 9876));
        assert!(parse_stat(b"42 (x) Z 7").is_none());
        assert!(parse_stat(b"").is_none());
        assert!(parse_stat(b"42 (\xff) Z 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876").unwrap().zombie);
    }

    #[test]
    fn a_child_is_found_left_out_and_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = process(pid).unwrap();
        assert!(descendants(own_pid(), &[]).contains(&found));
        assert!(!descendants(own_pid(), &[pid]).contains(&found));
        signal(Process { start_ticks: found.start_ticks + 1, ..found }, Signal::KILL); // another process by now
        assert!(child.try_wait().unwrap().is_none());
        signal(found, Signal::KILL);
        assert!(!child.wait().unwrap().success());
        assert_eq!(process(pid), None);
    }
}
