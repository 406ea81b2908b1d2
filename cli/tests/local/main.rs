//! The binary on this machine alone: runs, simulations and checks of manifests. One program for all of these tests.
//!
//! They run side by side: no test may change what the process has once, such as its environment or working directory.

mod attempts;
mod causes;
mod closing;
mod collect;
mod command;
mod control;
mod data_dir;
mod deleted;
mod detached;
mod elastic;
mod events;
mod files;
mod from_log;
mod golden;
mod habits;
mod help;
mod logs;
mod output;
mod place;
mod queue;
mod recorded;
mod run_processes;
mod scenarios;
mod simulate;
mod submit;
mod terminal;
mod top;
mod torchjob;
mod torchrun;
mod validate;
mod verbs;
mod voda;
mod watch;
