//! The rules: how facts change what is known, what is decided from it, and what follows.
//!
//! A function over values. It must not read a clock, draw a random number, start a thread, touch a socket or a file, be
//! `async`, use a float, or iterate a hash map; nor may it ask which API a job came from (differences are policy values
//! in [`model::JobSpec`]). Time enters as the `at` of a record and nowhere else.
//!
//! The way through: [`State::begin`] a record, [`State::admit`] and [`State::observe`] its facts, [`step`] to decide and
//! apply, then [`State::effects_of`]. Tests: beside `admit`, `wire`, `state`, `jobs`, `finished` and `observe::answers`; every rule through the `snapshots` package
//! (scenarios, truth tables, crash sweep, random walks).
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

pub mod admit;
mod adopt;
pub mod allocation;
mod apply;
mod autoscaler;
pub mod blocked_by;
mod classify;
mod deadline;
mod decide;
mod effects;
mod finished;
mod fold;
pub mod gates;
pub mod group;
mod in_place;
pub mod job;
mod jobs;
pub mod nodes;
mod notes;
mod observe;
pub mod queues;
mod ranges;
mod refusals;
mod slots;
pub mod state;
pub mod storage;
mod text;
mod time_limit;
mod users;
pub mod wire;
mod words;

pub use admit::{Admission, Arrival};
pub use allocation::Allocation;
pub use autoscaler::words as scaling_words;
pub use blocked_by::BlockedBy;
pub use decide::{decide, step};
pub use fold::FoldError;
pub use group::{Counters, Group, Slot};
pub use job::{Attempt, Job, Owned, PendingDeletion, Pod, Service};
pub use jobs::{JobSummary, Jobs};
pub use observe::FactError;
pub use state::{ApplyError, Dirty, Scope, State};
pub use wire::{Record, WireError};
pub use words::{amount_words, creation_trouble, pod_trouble, trouble, unplaced_pod, with_message};
