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

pub mod decimal;
pub mod duration;
pub mod flags;
pub mod quantity;
pub mod storage;
pub mod torch;
pub mod torchrun;

use std::collections::BTreeMap;

pub use quantity::Quantity;
use serde_json::Value;
pub use storage::ModelStorage;
pub use torch::{ModelSettings, TorchSettings};
pub use torchrun::TorchrunSettings;

/// Settings of an operator by which objects of the served APIs are translated and written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiSettings {
    /// Those of TorchJobs and ModelVersions.
    pub torch: TorchSettings,
    /// Those of TorchrunQueues.
    pub torchrun: TorchrunSettings,
}

impl ApiSettings {
    /// The settings of a scenario or run with these flags; what they leave out has its default. Other flags are passed over. Parents of KAI
    /// Queues are not checked: there are none.
    ///
    /// # Errors
    /// When a value cannot be read.
    pub fn read(flags: &BTreeMap<String, Value>) -> Result<Self, flags::Error> {
        Self::with(TorchrunSettings::default(), flags)
    }

    /// The settings of an operator that is started with these flags. It checks parents of KAI Queues.
    ///
    /// # Errors
    /// When a value cannot be read.
    pub fn of_operator(flags: &BTreeMap<String, Value>) -> Result<Self, flags::Error> {
        Self::with(TorchrunSettings { checks_parents: true }, flags)
    }

    fn with(torchrun: TorchrunSettings, flags: &BTreeMap<String, Value>) -> Result<Self, flags::Error> {
        Ok(Self { torch: torch::read(flags)?, torchrun: torchrun::read(torchrun, flags)? })
    }
}
