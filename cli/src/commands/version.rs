//! `trainyard version`: the build, and what it serves. Tests: `tests/local/verbs.rs`.

use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use serde_json::{Value, json};
use terminal::out;

use super::story::Output;

/// Arguments of `trainyard version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Commit of the build, where it is known.
const COMMIT: Option<&str> = option_env!("TRAINYARD_COMMIT");
/// Its date.
const COMMIT_DATE: Option<&str> = option_env!("TRAINYARD_COMMIT_DATE");

/// Returns program and version on one line, with the commit where it is known.
pub(crate) fn words() -> String {
    let built = match (COMMIT, COMMIT_DATE) {
        (Some(commit), Some(date)) => format!(" (commit {commit} of {date})"),
        (Some(commit), None) => format!(" (commit {commit})"),
        (None, _) => String::new(),
    };
    format!("trainyard {}{built}", env!("CARGO_PKG_VERSION"))
}

/// Prints the version, the commit, and the served kinds.
pub(crate) fn run(args: &VersionArgs) -> ExitCode {
    let (commit, date) = (COMMIT, COMMIT_DATE);
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
    out::line(&words());
    for (kind, version) in kinds {
        out::line(&format!("serves {kind} ({version})"));
    }
    ExitCode::SUCCESS
}
