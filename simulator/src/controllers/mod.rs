//! Controllers of other projects, as far as scenarios need them: what they do with objects that the operator writes.
//!
//! They act after each step, until neither they nor the operator have anything to do. They work on any cluster, through the writes of a
//! user, and keep no state: what they do follows from the objects. Tests: the scenarios that name them.

pub mod mpi_operator;

use apis::ApiError;

use crate::backend::ClusterBackend;

/// A controller that a scenario names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// The MPI operator: pods and status of `MPIJob`s.
    MpiOperator,
}

impl Controller {
    /// Does what is to be done now. Returns true if it changed something.
    ///
    /// # Errors
    /// When the API server refuses a write.
    pub fn reconcile<B: ClusterBackend>(self, backend: &mut B) -> Result<bool, ApiError> {
        match self {
            Self::MpiOperator => mpi_operator::reconcile(backend),
        }
    }
}
