//! Controllers of other projects, as far as scenarios need them: what they do with objects that the operator writes.
//!
//! They act after each step, until neither they nor the operator have anything to do. They work on any cluster, through the writes of a
//! user, and keep no state: what they do follows from the objects. The programs of jobs have some: [`crate::trainer`]. Tests: the
//! scenarios that name them.

pub mod mpi_operator;

/// A controller or program that acts beside the operator in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// The MPI operator: pods and status of `MPIJob`s.
    MpiOperator,
    /// The programs of `MPIJob`s that name their epochs: they make progress while their pods run, report it, and end.
    Trainer,
}
