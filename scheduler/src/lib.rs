//! Allocation policies, queue selection, placement and learning: arithmetic over plain values.
//!
//! Two levels. [`allocate`] asks one [`Policy`]: a [`PolicyInput`] of jobs, GPUs and a time leads to an [`PolicyOutput`].
//! [`scheduling::decide()`] takes a whole decision for queues and nodes, as `engine::queues` and the trace studies need it.
//! What a policy remembers between calls is an explicit value, [`Memory`], owned by the caller.
//!
//! Like `engine`, this crate must not read a clock, draw a random number, start a thread, do IO, use a float in a
//! decision, or iterate a hash map. Numbers are fixed-point integers ([`units`]). The result does not depend on the order
//! in which the jobs are listed. Tests: beside each module; the conformance vectors and the properties in `tests/`.
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
// The build without tests holds the code itself to these.
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation, clippy::float_arithmetic))]

pub mod changes;
mod fixed;
pub mod job;
pub mod learning;
pub mod memory;
pub mod placement;
pub mod policies;
pub mod policy;
pub mod queues;
mod round;
pub mod scheduling;
pub mod units;

pub use job::{Curve, Grant, JobError, JobView, Speeds};
pub use memory::{Memory, MemoryChange};
pub use policies::{NAMES, NameError, by_name};
pub use policy::{Error, Policy, PolicyInput, PolicyOutput, RejectedJob, allocate};
pub use round::{Pool, Round};
pub use units::{GpuMicros, GpuType, Micros, Speed};
