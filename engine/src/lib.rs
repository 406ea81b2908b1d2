//! The rules: how facts change what is known, what is decided from it, and what follows.
//!
//! A function over values. It must not read a clock, draw a random number, start a thread, touch a socket or a file, be
//! `async`, use a float, or iterate a hash map; nor may it ask which API a job came from (differences are policy values
//! in [`model::JobSpec`]). Time enters as the `at` of a record and nowhere else.
//!
//! The way through: [`State::begin`] a record, [`State::handle_cluster_fact`] or [`State::handle_job_fact`] for its facts,
//! [`step`] to decide and apply, then [`State::effects_of`]. A record that was written is replayed: [`State::replay`].
//! Tests: beside `admit`, `wire`, `state`, `jobs`, `finished` and `facts::answers`; every rule through the `snapshots`
//! package (scenarios, truth tables, crash sweep, random walks).
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
mod autoscaler;
pub mod blocked_by;
mod checkpoint;
mod classify;
mod deadline;
mod decide;
mod effects;
mod events;
mod facts;
mod finished;
pub mod gates;
pub mod group;
mod handle;
mod in_place;
pub mod job;
mod jobs;
mod message;
pub mod nodes;
mod notes;
mod object_state;
pub mod queues;
mod ranges;
mod record;
mod record_context;
mod referrers;
mod refusals;
mod replay;
mod retry_counts;
mod slots;
pub mod state;
mod status_stamps;
pub mod storage;
mod text;
mod time_limit;
pub mod wire;

pub use admit::{Admission, Arrival};
pub use allocation::Allocation;
pub use autoscaler::words as scaling_words;
pub use blocked_by::BlockedBy;
pub use decide::{decide, step};
pub use events::ApplyError;
pub use group::{Counters, Group, Slot};
pub use handle::Handled;
pub use job::{Attempt, Job, Owned, PendingDeletion, Pod, Service};
pub use jobs::{JobSummary, Jobs};
pub use message::{amount_words, creation_trouble, pod_trouble, trouble, unplaced_pod, with_message};
pub use object_state::ObjectState;
pub use record::{Body, Record};
pub use replay::ReplayError;
pub use retry_counts::RetryCounts;
pub use state::{Dirty, State};
pub use status_stamps::StatusStamps;
pub use wire::WireError;
