//! Pods as real processes of this machine: the [`cluster::runtime::PodRuntime`] behind `trainyard run`.
//!
//! Owns: turning a Pod object into programs with an environment, starting and ending them, restarting containers as a
//! kubelet would, addresses, GPUs, volumes and logs. It must not know jobs, decide anything about them, or write objects:
//! it reports pod statuses and nothing else.
//!
//! A pod is a chain of processes, so that no single death leaves anything running:
//!
//! ```text
//! runner ── pod supervisor ── one shim per container ── the program ── its children
//! ```
//!
//! The supervisor and the shims are this same binary, started again with a hidden first argument; [`reexec`] runs them.
//! Each of the two adopts orphans below it and holds a pipe from its parent: when that pipe closes (the parent is gone,
//! even by SIGKILL), it ends every process below itself and exits.
//!
//! | file | one concern |
//! |---|---|
//! | [`options`] | what the runner can set |
//! | [`processes`] | the runtime: table of pods, reports |
//! | `handle` | the runner's end of one pod supervisor |
//! | `execution` | a program beside those of a container |
//! | `pod` | the part of a Pod object that is read |
//! | `plan` | Pod object to programs; `environment`, `torch`, `expand`, `names`, `mounts`, `volumes`, `object_files`, `gpus`, `objects` serve it |
//! | `security`, `accounts` | users, groups and capabilities of containers, and what cannot be honoured |
//! | [`supervisor`], `lifecycle`, `status` | one pod: processes; decisions (pure); the status that shows them |
//! | [`shim`], `tree` | one container: starting the program, ending everything below |
//! | `clock` | the machine's time |
//! | `last_words` | the end of a failed container's output, as its message |
//! | `nearest` | near names of a program that is not there |
//! | `claims`, `ports` | what other runs of this machine must not take as well |
//! | `private` | who may read what a run writes |
//! | `leftovers` | processes that an earlier run left |
//! | `signals` | what supervisors and shims do not listen to |
//! | `log_files` | which file holds what a container printed |
//! | `tail` | log files to the terminal |
//! | `wire` | what these processes say to each other |
//!
//! Tests: beside each pure file, and `tests/` with real processes.

#![cfg(target_os = "linux")]

mod accounts;
mod claims;
mod clock;
mod environment;
mod error;
mod execution;
mod expand;
mod gpus;
mod handle;
mod last_words;
mod leftovers;
mod lifecycle;
mod log_files;
mod mounts;
mod names;
mod nearest;
mod object_files;
mod objects;
pub mod options;
mod plan;
mod pod;
mod ports;
mod private;
pub mod processes;
mod security;
pub mod shim;
mod signals;
mod status;
pub mod supervisor;
mod tail;
mod torch;
mod tree;
mod volumes;
mod wire;

use std::process::ExitCode;

pub use clock::now;
pub use error::Error;
pub use execution::{Execution, ExecutionError};
pub use gpus::{GpuError, VisibleGpus};
pub use last_words::of_file as last_output;
pub use log_files::{log_file, log_run, newest_log};
pub use nearest::{has_program, nearest_program};
pub use options::{BackOff, Options, Origin, OriginOf, Output, PathIn, Peer, Peers, PortOf, Prepare, Sink, Waker};
pub use ports::Ports;
pub use private::keep_files_private;
pub use processes::Processes;
pub use security::{Unhonoured, unhonoured};
pub use volumes::is_plain_name;

/// First argument that makes this binary a pod supervisor.
pub const SUPERVISOR_COMMAND: &str = "pod-supervisor";

/// First argument that makes this binary a container shim.
pub const SHIM_COMMAND: &str = "pod-exec";

/// Runs the hidden command this process was started for, if it was. A binary that runs pods calls this first in `main`,
/// before it reads its arguments in any other way, and returns the code it gets.
#[must_use]
pub fn reexec() -> Option<ExitCode> {
    match std::env::args_os().nth(1)?.to_str()? {
        SUPERVISOR_COMMAND => Some(supervisor::main()),
        SHIM_COMMAND => Some(shim::main()),
        _ => None,
    }
}

/// Ends this process as `kill -9` would: for programs that are to show what happens then.
pub fn kill_this_process() -> ! {
    // A process may always kill itself; if that fails, this is the next best.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
