//! Pods as real processes: one program for all of these tests.
//!
//! No test may change what the process has once, such as its environment, working directory or signal handlers.

mod common;
mod execution;
mod leftovers;
mod private;
mod processes;
mod security;
mod signals;
mod trees;
