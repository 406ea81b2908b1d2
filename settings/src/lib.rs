//! Settings as users write them: operator flags, durations, Kubernetes quantities.
//!
//! Owns reading text into exact numbers and into [`model::Config`]. It is pure, and must not know who asks: the operator, a run, a
//! simulation and a scenario read the same flags here. Tests: at the end of each file.

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
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod duration;
pub mod flags;
pub mod quantity;
pub mod torch;

pub use quantity::Quantity;
pub use torch::{ModelSettings, TorchSettings};
