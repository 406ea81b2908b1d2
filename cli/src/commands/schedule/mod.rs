//! `trainyard schedule`: the scheduler on its own, without a cluster.

mod compare;
mod decimal;
mod eval;
mod study;
mod vectors;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::out::Failure;

/// Arguments of `trainyard schedule`.
#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Debug, Subcommand)]
enum ScheduleCommand {
    /// Compute conformance vectors and print the results as JSON.
    Eval(eval::EvalArgs),
    /// Play a trace through one policy.
    Study(study::StudyArgs),
    /// Play a trace through several policies, side by side.
    Compare(compare::CompareArgs),
}

/// Runs one of the commands.
pub(crate) fn run(args: &ScheduleArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ScheduleCommand::Eval(args) => eval::run(args),
        ScheduleCommand::Study(args) => study::run(args),
        ScheduleCommand::Compare(args) => compare::run(args),
    }
}
