//! The MPI operator of Kubeflow, built from the Go module in `mpi-operator/`.
//!
//! Owns which of its files are kept. It is no part of a control plane: only the test of `MPIJob`s asks for it.

use std::path::PathBuf;

use crate::build::Module;
use crate::error::Error;

const DEFINITION: &str = "kubeflow.org_mpijobs.yaml";
const MODULE: Module = Module {
    what: "the MPI operator",
    sources: &[("go.mod", include_str!("../mpi-operator/go.mod")), ("go.sum", include_str!("../mpi-operator/go.sum"))],
    link: "-s -w -X github.com/kubeflow/mpi-operator/pkg/version.Version=v0.6.0",
    package: "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
    program: "mpi-operator",
    beside: Some(("github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml")),
};

/// Paths of its files.
#[derive(Debug, Clone)]
pub struct MpiOperator {
    /// The program.
    pub program: PathBuf,
    /// The definition of `MPIJob`.
    pub definition: PathBuf,
}

impl MpiOperator {
    /// Builds it with Go if it is not in the cache, which is that of the control plane's programs.
    ///
    /// # Errors
    /// Returns an error if Go is not installed, or the build fails.
    pub fn ensure() -> Result<Self, Error> {
        let program = MODULE.ensure()?;
        Ok(Self { definition: program.with_file_name(DEFINITION), program })
    }
}
