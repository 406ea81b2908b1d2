//! The operator as a process of its own, under the account and the rights of `deploy/base`, and what it uses.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use control_plane::{ProcessId, Usage};

use crate::probe;
use crate::table::AnyError;
use crate::test_bed::TestBed;

/// Namespace of the operator's Lease.
pub(crate) const HOME: &str = "trainyard-system";
/// Time limit of the expected line of its log.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Labels of a counted call in words; an answer other than success is named.
fn call_words(labels: &str) -> String {
    let label = |name: &str| {
        let after = labels.split_once(&format!("{name}=\"")).map(|(_, after)| after);
        after.and_then(|after| after.split_once('"')).map_or("?", |(value, _)| value)
    };
    let resource = format!("{}s", label("kind").to_lowercase());
    let call = match label("verb") {
        "apply_status" => format!("patch {resource}/status"),
        verb => format!("{verb} {resource}"),
    };
    match label("code") {
        "200" => call,
        code => format!("{call}, answered {code}"),
    }
}

/// Returns the difference of two readings.
pub(crate) fn difference(after: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let rest = after.iter().map(|(what, count)| (what.clone(), count - before.get(what).unwrap_or(&0.0)));
    rest.filter(|(_, count)| *count > 0.0).collect()
}

/// Options of one operator process, besides the common ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Start {
    /// Directory of its log; absent, a temporary one.
    pub(crate) data: Option<PathBuf>,
    /// True if it runs alone, without leader election.
    pub(crate) alone: bool,
    /// Further arguments.
    pub(crate) arguments: Vec<String>,
}

/// A running operator; killed when dropped.
pub(crate) struct Operator {
    child: Child,
    id: ProcessId,
    health: u16,
    log: PathBuf,
    _own: tempfile::TempDir,
}

impl Operator {
    /// Starts one. It is not waited for.
    pub(crate) fn start(test_bed: &TestBed, name: &str, start: &Start) -> Result<Self, AnyError> {
        let plane = &test_bed.plane;
        let own = tempfile::tempdir()?;
        // Free at this moment; no other program on this machine asks for this one by number.
        let health = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(&test_bed.program);
        command.args(["operator", &format!("--leader-elect-resource-namespace={HOME}")]);
        command.arg(format!("--leader-elect={}", !start.alone));
        command.arg(format!("--health-address=127.0.0.1:{health}"));
        command.arg("--log-address=127.0.0.1:0");
        command.arg("--data-directory").arg(start.data.clone().unwrap_or_else(|| own.path().join("data")));
        command.arg("--kubeconfig").arg(&test_bed.account);
        command.args(test_bed.kind.arguments()).args(&start.arguments);
        let child = plane.spawn(name, command)?;
        let id = ProcessId::of(child.id()).ok_or("the operator is gone at once")?;
        let log = plane.directory().join(format!("logs/{name}.log"));
        Ok(Self { child, id, health, log, _own: own })
    }

    /// Waits until `/readyz` says these words.
    pub(crate) fn until_says(&mut self, words: &str) -> Result<(), AnyError> {
        let started = Instant::now();
        loop {
            let says = probe::get(self.health, "/readyz").unwrap_or_default();
            if says.contains(words) {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || started.elapsed() > START_TIMEOUT {
                let text = fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(12)..].join("\n");
                return Err(format!("the operator does not say {words:?} but {says:?}; its last lines:\n{tail}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Every figure of `/metrics` whose name begins so, by the rest of its line: `{labels}`.
    pub(crate) fn metrics(&self, name: &str) -> Result<BTreeMap<String, f64>, AnyError> {
        let text = probe::get(self.health, "/metrics")?;
        let figures = text.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            Some((labels.to_owned(), value.parse().ok()?))
        });
        Ok(figures.collect())
    }

    /// Calls to the API server so far, in the words of its authorisation: `create pods`, `patch aitrainingjobs/status`.
    pub(crate) fn calls(&self) -> Result<BTreeMap<String, f64>, AnyError> {
        let counted = self.metrics("trainyard_calls_total")?;
        Ok(counted.into_iter().map(|(labels, count)| (call_words(&labels), count)).collect())
    }

    /// Returns the resources the process has used and holds; it has no children.
    pub(crate) fn usage(&self) -> Result<Usage, AnyError> {
        Ok(self.id.usage().ok_or("the operator is gone")?)
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Result<(), AnyError> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM: it gives its lease back and ends.
    pub(crate) fn stop(mut self) -> Result<(), AnyError> {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let status = self.child.wait()?;
        if sent.success() && status.success() {
            Ok(())
        } else {
            Err(format!("the operator ended with {status}").into())
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
