//! A program beside those of a container: what `kubectl exec` asks of a kubelet.
//!
//! It runs under a shim of its own, with the container's environment, working directory, user and mounts, and ends with its pod, with this
//! process, or when it is asked to. Its streams are pipes: the shim opens them again by their names below `/proc`. Must not know
//! who asks. Tests: `tests/local/processes.rs`.

use std::fmt;
use std::io::{self, BufReader, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::handle::Hub;
use crate::wire::{self, Program, ShimNote, Streams};
use crate::{SHIM_COMMAND, tree};

/// Reason for which a program cannot be started in a container.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    /// Its shim cannot be started, or has ended.
    #[error("cannot start a program in container {container}: {source}")]
    Shim {
        /// The container.
        container: String,
        /// Cause of the error.
        source: io::Error,
    },
    /// The program cannot be started, in the words of its shim.
    #[error("{0}")]
    Program(String),
}

/// Ends an execution.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<Mutex<Option<ChildStdin>>>);

impl Stop {
    /// Kills the program and what it started.
    pub(crate) fn stop(&self) {
        // A shim whose control pipe closes ends everything below it.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns whether its execution is still there.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// A program that was started in a container. When it is dropped, the program is killed.
pub struct Execution {
    /// What the program reads. Its input ends when this is dropped.
    pub stdin: Option<OwnedFd>,
    /// What the program prints.
    pub stdout: Option<OwnedFd>,
    /// What the program prints as errors.
    pub stderr: Option<OwnedFd>,
    shim: Option<Child>,
    notes: BufReader<ChildStdout>,
    stop: Stop,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("shim", &self.shim).finish_non_exhaustive()
    }
}

impl Execution {
    /// Starts a program. Returns once it runs.
    pub(crate) fn start(
        hub: &Hub,
        pod: (&str, &str),
        container: &str,
        mut program: Program,
    ) -> Result<Self, ExecutionError> {
        let failed = |source: io::Error| ExecutionError::Shim { container: container.to_owned(), source };
        let (stdin_reader, stdin) = io::pipe().map_err(failed)?;
        let (stdout, stdout_writer) = io::pipe().map_err(failed)?;
        let (stderr, stderr_writer) = io::pipe().map_err(failed)?;
        program.streams = Some(Streams {
            stdin: path_of(&stdin_reader),
            stdout: path_of(&stdout_writer),
            stderr: path_of(&stderr_writer),
        });
        let (namespace, name) = pod;
        let mut command = hub.command(namespace, name);
        command.args([SHIM_COMMAND, "run", &format!("{namespace}/{name}/{container}")]);
        let mut shim = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (Some(mut control), Some(notes)) = (shim.stdin.take(), shim.stdout.take()) else {
            return Err(failed(io::Error::other("no pipes")));
        };
        wire::send(&mut control, &program).map_err(failed)?;
        let stop = Stop(Arc::new(Mutex::new(Some(control))));
        let mut execution = Self {
            stdin: Some(stdin.into()),
            stdout: Some(stdout.into()),
            stderr: Some(stderr.into()),
            shim: Some(shim),
            notes: BufReader::new(notes),
            stop,
        };
        // Kept open until the shim has opened them by name.
        let kept: (PipeReader, PipeWriter, PipeWriter) = (stdin_reader, stdout_writer, stderr_writer);
        let begun = wire::receive::<ShimNote>(&mut execution.notes);
        drop(kept);
        match begun {
            Ok(Some(ShimNote::Running { .. })) => Ok(execution),
            Ok(Some(ShimNote::NotStarted { message })) => Err(ExecutionError::Program(message)),
            Ok(Some(ShimNote::Exited { .. }) | None) | Err(_) => {
                Err(failed(io::Error::other("its supervisor has ended")))
            }
        }
    }

    /// Returns what ends this execution.
    pub(crate) fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Kills the program and what it started.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Waits for the end of the program and returns its exit code, 137 if it was killed with its pod.
    pub fn wait(&mut self) -> i32 {
        let code = loop {
            match wire::receive::<ShimNote>(&mut self.notes) {
                Ok(Some(ShimNote::Exited { code, .. })) => break code,
                Ok(Some(ShimNote::Running { .. } | ShimNote::NotStarted { .. })) => {}
                Ok(None) | Err(_) => break 137,
            }
        };
        if let Some(mut shim) = self.shim.take() {
            let _ = shim.wait();
        }
        code
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.stop();
        if let Some(mut shim) = self.shim.take() {
            // Reaped when it has ended, which is not waited for here.
            thread::spawn(move || shim.wait());
        }
    }
}

/// The name by which a process of the same user opens an end of a pipe of this one.
fn path_of(end: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", tree::own_pid(), end.as_raw_fd()))
}
