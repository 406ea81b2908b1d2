//! `trainyard scenario`: help with writing scenario files.
//!
//! Owns the choice of the command alone: the language is `simulator::scenario`'s. Tests: `tests/local/scenarios.rs` and
//! `tests/local/from_log.rs`.

mod from_log;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use terminal::out::{self, Failure};

/// Arguments of `trainyard scenario`.
#[derive(Debug, Args)]
pub(crate) struct ScenarioArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the JSON Schema of scenario files, by which editors complete and check them.
    #[command(after_help = "Examples:
  trainyard scenario schema > scenario.schema.json

In an editor with a YAML language server, the first line of a scenario then is
  # yaml-language-server: $schema=scenario.schema.json")]
    Schema,
    /// Write what happened to a job, as a log recorded it, as a scenario.
    FromLog(from_log::FromLogArgs),
}

/// Runs the command.
pub(crate) fn run(args: &ScenarioArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Schema => {
            out::print(&format!("{:#}\n", simulator::scenario::schema()));
            Ok(ExitCode::SUCCESS)
        }
        Command::FromLog(args) => from_log::run(args),
    }
}
