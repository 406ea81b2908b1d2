//! `trainyard schedule`: the scheduler on its own, without a cluster.

#[cfg(feature = "studies")]
mod compare;
mod eval;
mod policies;
#[cfg(feature = "studies")]
mod provenance;
#[cfg(feature = "studies")]
mod recorded;
#[cfg(feature = "studies")]
mod study;
mod vectors;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use terminal::out::Failure;

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
    /// List the policies: what each does, and where it comes from.
    Policies(policies::PoliciesArgs),
    /// Play a trace, or the workload of a recorded log, through one policy.
    #[cfg(feature = "studies")]
    Study(study::StudyArgs),
    /// Play a trace through several policies, side by side.
    #[cfg(feature = "studies")]
    Compare(compare::CompareArgs),
}

/// Runs one of the commands.
pub(crate) fn run(args: &ScheduleArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ScheduleCommand::Eval(args) => eval::run(args),
        ScheduleCommand::Policies(args) => Ok(policies::run(args)),
        #[cfg(feature = "studies")]
        ScheduleCommand::Study(args) => study::run(args),
        #[cfg(feature = "studies")]
        ScheduleCommand::Compare(args) => compare::run(args),
    }
}
