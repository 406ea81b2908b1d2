//! `trainyard version`: the build, and what it serves. Tests: `tests/local/verbs.rs`.

use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use serde_json::{Value, json};

use super::story::Output;
use crate::out;

/// Arguments of `trainyard version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the version, the commit, and the served kinds.
pub(crate) fn run(args: &VersionArgs) -> ExitCode {
    let (commit, date) = (option_env!("TRAINYARD_COMMIT"), option_env!("TRAINYARD_COMMIT_DATE"));
    let kinds: Vec<(String, String)> = Registry::all()
        .iter()
        .map(|api| (api.resource().kind.to_string(), api.resource().api_version.to_string()))
        .collect();
    if args.output == Output::Json {
        let kinds: Vec<Value> =
            kinds.iter().map(|(kind, version)| json!({"kind": kind, "apiVersion": version})).collect();
        let version = env!("CARGO_PKG_VERSION");
        out::line(&json!({"version": version, "commit": commit, "date": date, "kinds": kinds}).to_string());
        return ExitCode::SUCCESS;
    }
    let built = match (commit, date) {
        (Some(commit), Some(date)) => format!(" (commit {commit} of {date})"),
        (Some(commit), None) => format!(" (commit {commit})"),
        (None, _) => String::new(),
    };
    out::line(&format!("trainyard {}{built}", env!("CARGO_PKG_VERSION")));
    for (kind, version) in kinds {
        out::line(&format!("serves {kind} ({version})"));
    }
    ExitCode::SUCCESS
}
