//! Jobs on this machine: a run with pods as real processes, and what other commands share with it.
//!
//! Owns the run, its data directory, the requests of other processes to it, and what is read from its log. It prints through
//! `terminal::out` alone, and must not know commands other than those that act on a run. Tests: at the end of each file, and
//! `cli/tests/local/`.

mod args;
mod attempts;
mod changed_files;
mod changes;
pub mod client;
mod command;
mod data_dir;
mod detached;
pub mod faults;
mod foreground;
mod gpus;
mod growing;
mod images;
pub mod jobs;
mod keys;
mod listen;
mod nodes;
mod offline;
mod origins;
mod output;
pub mod output_files;
mod peers;
pub mod records;
mod requests;
mod rerun;
mod run;
mod serve;
pub mod session;
mod signals;
mod submissions;
mod submit;
mod threads;
mod turns;
mod uploads;
pub mod view;

pub use args::{RunArgs, ShowLogs};
pub use data_dir::{Holder, holder, is_of_runs};
pub use requests::{Answer, JobRef, Request, Submission, Submitted};
pub use rerun::{Rerun, rerun};
pub use run::run;
