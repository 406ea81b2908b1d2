//! `trainyard crd`: the definitions this build serves, as YAML documents.

use std::process::ExitCode;

use apis::Registry;
use clap::Args;

use crate::out::{self, Failure};

/// Arguments of `trainyard crd`.
#[derive(Debug, Args)]
pub(crate) struct CrdArgs {
    /// Only this kind, for example AITrainingJob.
    kind: Option<String>,
}

/// Prints the definitions.
pub(crate) fn run(args: &CrdArgs) -> Result<ExitCode, Failure> {
    let registry = Registry::all();
    let mut found = false;
    for api in registry.iter().filter(|api| args.kind.as_deref().is_none_or(|kind| *api.resource().kind == *kind)) {
        found = true;
        out::print(&format!("---\n{}", serde_saphyr::to_string(&api.crd())?));
    }
    if found {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::new(format!("kind {}: this build does not serve it", args.kind.as_deref().unwrap_or_default())))
    }
}
