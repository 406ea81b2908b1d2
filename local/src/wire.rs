//! What runner, pod supervisor and container shims say to each other: one JSON document per line over pipes.
//!
//! Both ends are always the same build, so there is no versioning here. Tests: `tests/local/processes.rs` uses all of it.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mounts::Mounts;
use crate::options::BackOff;
use crate::security::Identity;

/// A pod, ready to run: everything is resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) restart_policy: RestartPolicy,
    /// Time from the start of the pod after which it is failed.
    pub(crate) active_deadline_ms: Option<u64>,
    /// Grace period of a stop without its own: past the deadline, and for sidecars at the end.
    pub(crate) grace_ms: u64,
    pub(crate) pod_ip: String,
    pub(crate) host_ip: String,
    /// Conditions set by others on the pod, which are preserved.
    pub(crate) conditions: Vec<Value>,
    pub(crate) back_off: BackOff,
    /// Init containers, in order.
    pub(crate) init: Vec<Container>,
    /// The others.
    pub(crate) main: Vec<Container>,
}

/// `restartPolicy` of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// One container of a [`Plan`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) program: Program,
    /// Log file of the first run.
    pub(crate) log: PathBuf,
    /// An init container with `restartPolicy: Always`.
    pub(crate) sidecar: bool,
    /// True if the end of the log becomes the message of a failed run.
    pub(crate) message_from_log: bool,
    /// File in which torch's error handler writes an exception; it is a better message.
    pub(crate) error_file: PathBuf,
    /// Its mounts, for programs that are started beside it by the runner.
    #[serde(skip)]
    pub(crate) mounts: Mounts,
}

/// Program that a shim starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    /// Added to the environment the runner was started with, in this order.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: PathBuf,
    pub(crate) identity: Identity,
    /// Its streams; absent: no input, and all output goes where the shim's errors go.
    pub(crate) streams: Option<Streams>,
}

/// Files that are the streams of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streams {
    pub(crate) stdin: PathBuf,
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
}

/// Runner to supervisor, after the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// End the pod: SIGTERM now, SIGKILL after the grace period.
    Stop { grace_ms: u64 },
    /// Kill what runs and say it ended with this code.
    Exit { code: i32 },
}

/// Supervisor to runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Note {
    /// A container is being started. Its output goes to `log`, from byte `log_from` on; `shim_*` are the pid of its shim
    /// and that process's start time (clock ticks since boot).
    Starting { container: String, log: PathBuf, log_from: u64, shim_pid: i32, shim_start_ticks: u64 },
    /// The pod's status changed. With `ended` no process of it is left, and this is the last note.
    Status { status: Value, ended: bool },
}

/// Supervisor to shim, after the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShimOrder {
    /// SIGTERM to every process.
    Term,
    /// SIGKILL to every process, until none is left.
    Kill,
}

/// Shim to supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShimNote {
    /// The program runs.
    Running { pid: i32 },
    /// The program could not be started.
    NotStarted { message: String },
    /// The program ended with this code, at that time in milliseconds since the epoch, and nothing it started is left.
    Exited { code: i32, at_ms: u64 },
}

/// Writes one message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None` when the other end is gone, also in the middle of a line.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
}
