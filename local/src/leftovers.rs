//! Processes that an earlier run of the same data directory left: found by the mark they carry, and ended.
//!
//! There are some only when runner, supervisors and shims were all killed at once. Every process of a pod has the mark in its
//! environment. One that cleared its environment is found by its parent, or by its container's log, which it can write to.
//! They are killed at once: the program whose grace period it would be died with its shim, and what it left must neither go
//! on beside its successor nor hold it up. The caller holds the data directory's lock, so no live run is concerned.
//! Tests: at the end, and `tests/local/leftovers.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::shim::KILL_TIMEOUT;
use crate::tree::{self, Process};
use crate::{SHIM_COMMAND, SUPERVISOR_COMMAND};

/// The variable that holds the mark.
pub(crate) const VARIABLE: &str = "TRAINYARD_RUN";

/// Interval between looks at `/proc`.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of processes that a message names.
const MAX_NAMED: usize = 8;

/// Namespace and name of a pod.
pub(crate) type PodName = (String, String);

/// Environment variables that mark a process of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Identifies the data directory.
    pub(crate) directory: String,
    pub(crate) runner: Process,
    pub(crate) pod: PodName,
}

impl Mark {
    /// The mark of a pod that this process runs.
    pub(crate) fn of_pod(directory: &str, namespace: &str, name: &str) -> Self {
        let pid = tree::own_pid();
        let runner = tree::process(pid).unwrap_or(Process { pid, start_ticks: 0 });
        Self { directory: directory.to_owned(), runner, pod: (namespace.to_owned(), name.to_owned()) }
    }

    /// Writes it as the variable's value. The directory comes last: it may hold anything.
    pub(crate) fn value(&self) -> String {
        let (Process { pid, start_ticks }, (namespace, name)) = (self.runner, &self.pod);
        format!("{pid}:{start_ticks}:{namespace}:{name}:{}", self.directory)
    }

    fn parse(value: &str) -> Option<Self> {
        let mut parts = value.splitn(5, ':');
        let mut next = || parts.next();
        let runner = Process { pid: next()?.parse().ok()?, start_ticks: next()?.parse().ok()? };
        let pod = (next()?.to_owned(), next()?.to_owned());
        Some(Self { directory: next()?.to_owned(), runner, pod })
    }
}

/// A process and its name.
type Named = BTreeMap<Process, String>;

/// Processes that were ended, by pod; processes that still run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) ended: BTreeMap<PodName, Named>,
    pub(crate) left: Named,
}

/// Ends what an earlier run of a data directory left and waits until it is gone. `logs` is the directory of the containers' logs.
pub(crate) fn end(directory: &str, logs: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let started = Instant::now();
    loop {
        let found = find(directory, logs);
        if found.is_empty() {
            return outcome;
        }
        // Supervisors and shims that live have noticed the runner's end and are ending their pods: better than anything from
        // here, because they know every process below them.
        let at_work = found.iter().any(|(process, _)| is_chain(process.pid));
        if !(at_work && started.elapsed() < KILL_TIMEOUT) {
            // Stopped first, so that none of them can start another one meanwhile.
            for process in found.keys() {
                tree::signal(*process, Signal::STOP);
            }
            for (process, (name, pod)) in &found {
                tree::signal(*process, Signal::KILL);
                outcome.ended.entry(pod.clone()).or_default().insert(*process, name.clone());
            }
        }
        if started.elapsed() >= KILL_TIMEOUT * 2 {
            outcome.left = found.into_iter().map(|(process, (name, _))| (process, name)).collect();
            return outcome;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Names processes for a message, for example `4711 (sleep), 4712 (python)`.
pub(crate) fn words(processes: &Named) -> String {
    let mut words: Vec<String> =
        processes.iter().take(MAX_NAMED).map(|(process, name)| format!("{} ({name})", process.pid)).collect();
    if processes.len() > MAX_NAMED {
        words.push("...".to_owned());
    }
    words.join(", ")
}

/// The processes of a directory's dead runners, with name and pod, and all below them; never this one or one above it.
fn find(directory: &str, logs: &Path) -> BTreeMap<Process, (String, PodName)> {
    let own = own_ancestry();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if own.contains(&pid) {
            continue;
        }
        let Some(process) = tree::process(pid) else { continue };
        let pod = match mark_of(pid) {
            // A runner that lives looks after its own: this one, or one of a copy of the directory.
            Some(mark) if mark.directory == directory && !is_alive(mark.runner) => Some(mark.pod),
            Some(_) => None,
            None => pod_of_log(pid, logs),
        };
        let Some(pod) = pod else { continue };
        for below in [process].into_iter().chain(tree::descendants(pid, &[])) {
            if !own.contains(&below.pid) {
                found.entry(below).or_insert_with(|| (name_of(below.pid), pod.clone()));
            }
        }
    }
    found
}

fn is_alive(process: Process) -> bool {
    tree::process(process.pid) == Some(process)
}

fn mark_of(pid: i32) -> Option<Mark> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{VARIABLE}=");
    let value = environment.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(prefix.as_bytes()))?;
    Mark::parse(std::str::from_utf8(value).ok()?)
}

/// The pod whose log a process can write to. Readers (`tail -f`, `less`) are no part of a pod.
fn pod_of_log(pid: i32, logs: &Path) -> Option<PodName> {
    let logs_of = |fd: &fs::DirEntry| {
        let target = fs::read_link(fd.path()).ok()?;
        let mut below = target.strip_prefix(logs).ok()?.iter().map(|part| part.to_string_lossy().into_owned());
        let pod = (below.next()?, below.next()?);
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd.file_name().to_str()?)).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        // The two lowest bits are the access mode; 0 is reading.
        (u32::from_str_radix(flags.trim(), 8).ok()? & 3 != 0).then_some(pod)
    };
    fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().find_map(|fd| logs_of(&fd))
}

fn is_chain(pid: i32) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let second = arguments.split(|byte| *byte == 0).nth(1).unwrap_or_default();
    second == SUPERVISOR_COMMAND.as_bytes() || second == SHIM_COMMAND.as_bytes()
}

fn name_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn own_ancestry() -> BTreeSet<i32> {
    std::iter::successors(Some(tree::own_pid()), |pid| tree::parent(*pid).filter(|parent| *parent > 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks() {
        let mark = Mark::of_pod("/data:dir x", "ns", "j-0");
        assert_eq!(Mark::parse(&mark.value()), Some(mark));
        for text in ["", "1:2:ns:pod", "x:2:ns:pod:dir"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_and_its_ancestors_are_left_alone() {
        let own = own_ancestry();
        assert!(own.contains(&tree::own_pid()) && own.contains(&1));
    }
}
