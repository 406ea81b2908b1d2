//! Kubernetes' own arithmetic on pods and nodes: what a pod requests, and whether a node takes it.
//!
//! | module | subject |
//! |---|---|
//! | [`resources`] | amounts of resources that containers and pods request |
//! | [`requirements`] | what a pod requires of its node, read from its spec |
//! | [`node`] | what counts of a node, read from its object |
//! | [`fits`] | the filters of kube-scheduler: whether a node takes a pod, and why not |
//!
//! One place for the engine, the embedded cluster and scenarios. Pure functions over plain values and JSON; it must not know a served API, a job or
//! a cluster. Preferences (preferred affinity, `PreferNoSchedule`, spreading) decide nothing here. Tests: at the end of each file.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::todo,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::unwrap_used, clippy::indexing_slicing))]

pub mod fits;
mod json;
pub mod node;
pub mod requirements;
pub mod resources;

pub use fits::{Refusal, Traits, meets, refuses};
pub use requirements::{preferences, requirements};
