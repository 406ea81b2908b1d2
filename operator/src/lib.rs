//! The turn: take in observations and answers, decide, append durably, derive effects, dispatch calls.
//!
//! Owns the order of those steps, the inbox, the calls in flight, terms and recovery. Synchronous and without IO of its own:
//! the log is injected, observations and answers come in, calls go out, and time is an argument. It must not hold rules of
//! a job's life (`engine`) nor spell out objects (`apis`). [`Operator`] documents the contract with its caller.
//!
//! Tests: the `snapshots` package runs it on the embedded cluster, with a crash at every boundary.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::todo,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::wildcard_enum_match_arm
)]

mod announce;
mod answers;
mod authorize;
mod backlog;
mod dispatch;
mod error;
mod foreign;
mod in_flight;
mod inbox;
mod intake;
mod launch;
mod log;
mod manifests;
mod operator;
mod queue_events;
mod recent;
mod references;
mod render;
mod sources;
mod step;
mod terms;
mod throttle;
mod turn;

pub use error::Error;
pub use launch::Launch;
pub use operator::{Operator, Options};
pub use step::{ShareStep, Step};
