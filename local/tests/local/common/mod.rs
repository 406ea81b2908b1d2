//! What the tests with real processes share: a runtime, waiting for what it reports, and finding processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cluster::runtime::{PodReport, PodRuntime};
use local::{BackOff, Options, Output, Processes};
use serde_json::{Value, json};
use tempfile::TempDir;

/// No verdict hangs on this: it is how long to wait before a test that hangs is called failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// The binary that can be a supervisor.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_local-test-runner"))
}

/// A word no other process of this machine has in its arguments or environment.
pub(crate) fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("mark-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Processes with `marker` in their arguments or environment, as `pid: arguments`.
pub(crate) fn processes_with(marker: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if arguments.contains(marker) || String::from_utf8_lossy(&read("environ")).contains(marker) {
            found.push((pid, arguments));
        }
    }
    found.retain(|(pid, _)| *pid != i32::try_from(std::process::id()).unwrap());
    found
}

/// Waits until `get` has something.
pub(crate) fn eventually<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = get() {
            return found;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until no process with `marker` is left.
pub(crate) fn wait_until_gone(marker: &str) {
    let mut left = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        left = processes_with(marker);
        if left.is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("left over: {left:?}");
}

/// A pod with one container that runs a shell script.
pub(crate) fn shell_pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", script]}]},
    })
}

/// A runtime in a directory of its own, and all it said.
pub(crate) struct Harness {
    pub(crate) dir: TempDir,
    pub(crate) processes: Processes,
    pub(crate) reports: Vec<PodReport>,
    pub(crate) output: Arc<Mutex<Vec<Output>>>,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&output);
        let mut options = Options::new(dir.path(), program());
        options.back_off = BackOff { first_ms: 20, most_ms: 50, forget_ms: 600_000 };
        options.log_sink = Some(Arc::new(move |said| sink.lock().unwrap().push(said)));
        change(&mut options);
        Self { processes: Processes::new(options).unwrap(), dir, reports: Vec::new(), output }
    }

    pub(crate) fn start(&mut self, pod: &Value) {
        self.processes.start(pod);
    }

    pub(crate) fn stop(&mut self, name: &str, grace_seconds: u32) {
        self.processes.stop("ns", name, &format!("uid-{name}"), grace_seconds);
    }

    fn poll(&mut self) {
        self.reports.extend(self.processes.poll());
    }

    /// Waits for a report about a pod that fits.
    pub(crate) fn wait_for(&mut self, name: &str, what: &str, fits: impl Fn(&PodReport) -> bool) -> Value {
        let find = |reports: &[PodReport]| reports.iter().find(|r| r.name == name && fits(r)).map(|r| r.status.clone());
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.poll();
            if let Some(status) = find(&self.reports) {
                return status;
            }
            assert!(Instant::now() < deadline, "{name} never {what}: {:#?}", self.reports);
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_running(&mut self, name: &str) -> Value {
        self.wait_for(name, "ran", |report| report.status["phase"] == "Running")
    }

    pub(crate) fn wait_ended(&mut self, name: &str) -> Value {
        self.wait_for(name, "ended", |report| report.ended)
    }

    /// Runs a pod to its end.
    pub(crate) fn run(&mut self, pod: &Value) -> Value {
        self.start(pod);
        self.wait_ended(pod["metadata"]["name"].as_str().unwrap())
    }

    pub(crate) fn log(&self, pod: &str, restart: u32) -> String {
        read(&local::log_file(&fs::canonicalize(self.dir.path()).unwrap(), "ns", pod, "c", 0, restart))
    }

    /// Lines the sink got from a pod.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let output = self.output.lock().unwrap();
        let line = |said: &Output| match said {
            Output::Line { pod, text, .. } if pod == name => Some(text.clone()),
            _ => None,
        };
        output.iter().filter_map(line).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let output = self.output.lock().unwrap();
        let warning = |said: &Output| match said {
            Output::Warning { message, .. } => Some(message.clone()),
            Output::Line { .. } => None,
        };
        output.iter().filter_map(warning).collect()
    }
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// State of the first container in a status.
pub(crate) fn terminated(status: &Value) -> &Value {
    &status["containerStatuses"][0]["state"]["terminated"]
}

/// Starts processes that leave the group, the session, the parent and the environment behind, ignores SIGTERM, and says
/// when all are up. Every one has `marker` in its arguments.
pub(crate) fn escape_artist(marker: &str) -> String {
    let stay = format!("trap \"\" TERM HUP INT; while :; do sleep 1; done; : {marker}");
    format!(
        "setsid sh -c '{stay}' & \
         (setsid sh -c '{stay}' &) ; \
         (setsid sh -c '(setsid env -i PATH=\"$PATH\" sh -c \"trap : TERM; while :; do sleep 1; done; : {marker}\" &) ; {stay}' &) ; \
         trap '' TERM HUP INT; echo up; while :; do sleep 1; done; : {marker}"
    )
}

/// The shells of [`escape_artist`]: itself and four more. Their sleeps come and go.
pub(crate) const SHELLS: usize = 5;

pub(crate) fn shells(marker: &str) -> Vec<(i32, String)> {
    processes_with(marker).into_iter().filter(|(_, arguments)| arguments.starts_with("sh ")).collect()
}

pub(crate) fn wait_for_shells(marker: &str, count: usize) {
    // While one starts another, a short-lived copy of it counts as well: only what stays the same is up.
    eventually("all shells are up", || {
        let found = shells(marker);
        thread::sleep(Duration::from_millis(200));
        (found.len() == count && shells(marker) == found).then_some(())
    });
}

/// Another process with a runtime in it.
pub(crate) struct Runner {
    pub(crate) child: Child,
    pub(crate) dir: TempDir,
}

impl Runner {
    /// Starts pods and waits until each says that it is up.
    pub(crate) fn start(marker: &str, pods: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child =
            Command::new(program()).arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        for n in 0..pods {
            writeln!(input, "{}", shell_pod(&format!("{marker}-{n}"), &escape_artist(marker))).unwrap();
        }
        drop(input);
        let mut reports = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = std::collections::BTreeSet::new();
        while running.len() < pods {
            let report: Value = serde_json::from_str(&reports.next().unwrap().unwrap()).unwrap();
            if report["status"]["phase"] == "Running" {
                running.insert(report["name"].to_string());
            }
        }
        wait_for_shells(marker, pods * SHELLS);
        Self { child, dir }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Already killed, or the test failed before that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
