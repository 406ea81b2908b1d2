//! `trainyard crd`: the definitions this build serves, as YAML documents.

use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use terminal::out::{self, Failure};

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
    let is_asked = |kind: &str| args.kind.as_deref().is_none_or(|asked| asked == kind);
    for api in registry.iter().filter(|api| !api.is_external() && is_asked(&api.resource().kind)) {
        found = true;
        out::print(&format!("---\n{}", serde_saphyr::to_string(&api.crd())?));
    }
    if found {
        Ok(ExitCode::SUCCESS)
    } else {
        let kind = args.kind.as_deref().unwrap_or_default();
        let is_foreign = registry.iter().any(|api| *api.resource().kind == *kind);
        let why =
            if is_foreign { "its definition comes with its own operator" } else { "this build does not serve it" };
        Err(Failure::new(format!("kind {kind}: {why}")))
    }
}
