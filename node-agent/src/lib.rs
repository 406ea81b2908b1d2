//! A small kubelet: this machine as a node of a real cluster, its pods as processes.
//!
//! Owns: the Node object and its heartbeat, which pods run here, what becomes of them, and their status. The processes
//! themselves are [`local::Processes`]'s. It must not schedule, and must not know jobs.
//!
//! What it does otherwise than a kubelet: images are not pulled (a container runs its `command`), nothing is mounted (a volume
//! is the directory in `TRAINYARD_VOLUME_<NAME>`, and paths below its mount in commands and environment are replaced), files of `ConfigMap`s and Secrets are read again every 5 s, a security context that a process cannot have is refused, probes are not run, a pod's address is a loopback address found by its name,
//! and its processes end with the agent. An agent that comes back reports what ran as failed with code 137, or starts it again
//! where the pod's `restartPolicy` says so, as a kubelet does after its machine was rebooted.
//!
//! | file | one concern |
//! |---|---|
//! | [`options`] | what can be set |
//! | `pods` | what is to be done for each pod: pure, level-triggered |
//! | `status` | pod statuses: of lost pods, and carried over from before a restart. Pure |
//! | `references` | what a pod refers to. Pure |
//! | `node` | the Node and Lease objects. Pure |
//! | `machine` | what this machine has |
//! | `api` | requests to the API server |
//! | `access` | who may read what containers printed, and start programs in them |
//! | `logs`, `serve` | what containers printed, and `kubectl logs` |
//! | `exec`, `forward`, `websocket` | programs in containers (`kubectl exec`), connections to pods, and what carries both |
//! | `heartbeat` | registering the node and keeping it Ready |
//! | `agent` | the loop that ties them together |
//!
//! Tests: beside each pure file; `tests/` against a real API server.

#![cfg(target_os = "linux")]

mod access;
mod agent;
mod api;
mod exec;
mod forward;
mod heartbeat;
mod logs;
mod machine;
mod node;
pub mod options;
mod pods;
mod references;
mod serve;
mod status;
mod websocket;

use std::io;
use std::path::PathBuf;

pub use agent::run;
pub use options::{Options, Quantity, Taint};

/// What keeps an agent from working.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server cannot be found.
    #[error("no way to an API server: {0}")]
    Config(String),
    /// The API server refused something nothing can be done without.
    #[error("{what}: {answer}")]
    Api {
        /// What was asked of it.
        what: String,
        /// Its answer.
        answer: String,
    },
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another agent uses the data directory.
    #[error("the data directory {} is in use by another agent; give each its own with --data-directory", .0.display())]
    InUse(PathBuf),
    /// The output of containers cannot be served.
    #[error("cannot serve the output of containers: {0}")]
    Serve(String),
    /// This machine cannot run pods.
    #[error(transparent)]
    Runtime(#[from] local::Error),
}
