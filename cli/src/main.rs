//! The `trainyard` binary: arguments in, text out. What it prints is made by the crates below it.
//!
//! Exit codes: 0 fine, 1 a difference or a failure was found, 2 usage or unreadable input.

mod commands;
mod help;
mod logging;
mod remote;
mod sample;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use plugins::{collect, torchrun, voda};
use terminal::{completion, out};

#[cfg(feature = "top")]
use crate::commands::top;
use crate::commands::{
    control, crd, log, logs, man, node_agent, operator, ps, queue, rbac, replay, scenario, schedule, simulate, story,
    test, validate, version, wait,
};

/// With musl's own the operator takes up to 1.6 times the processor time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Name by which kubectl calls this program as its plugin.
const PLUGIN: &str = "kubectl-trainyard";

/// Maximum time for which the end of the process waits for its last message.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs distributed training jobs: on this machine, on a cluster, or again from their log.
#[derive(Debug, Parser)]
#[command(name = "trainyard", version, about, max_term_width = 80)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run manifests, or a command, as real processes.
    #[command(aliases = ["submit", "apply"])]
    Run(local_run::RunArgs),
    /// Run manifests with virtual pods in virtual time.
    Simulate(simulate::SimulateArgs),
    /// Find mistakes in manifests, with their place and the right word.
    Validate(validate::ValidateArgs),
    /// Serve the job APIs on a Kubernetes cluster.
    Operator(Box<operator::OperatorArgs>),
    /// Serve as a node whose pods are processes of this machine.
    NodeAgent(Box<node_agent::NodeAgentArgs>),
    /// Replay a scenario, an exported log or a log directory.
    Replay(replay::ReplayArgs),
    /// Inspect, verify, export and compact logs.
    Log(log::LogArgs),
    /// List jobs: phase, pods that run, restarts, GPUs, age, reason.
    #[command(aliases = ["list", "ls", "status"])]
    Ps(ps::PsArgs),
    /// Show the jobs on the whole terminal, as they change.
    #[cfg(feature = "top")]
    Top(top::TopArgs),
    /// Show a job and its pods, or its object.
    Get(ps::GetArgs),
    /// Print what the pods of a job wrote.
    Logs(logs::LogsArgs),
    /// Wait until a job has ended, runs, or is somewhere else.
    Wait(wait::WaitArgs),
    /// Follow a run in the background to its end.
    Attach(control::Directory),
    /// Stop the run, or one job of it.
    #[command(aliases = ["cancel", "kill"])]
    Stop(control::StopArgs),
    /// Delete a job.
    Delete(control::JobOf),
    /// Change a job's number of pods.
    Scale(control::ScaleArgs),
    /// Have a job wait without pods.
    Suspend(control::JobOf),
    /// Resume a suspended job.
    Resume(control::JobOf),
    /// Run a job again that has ended.
    Rerun(control::RerunArgs),
    /// Run a job again that did not succeed.
    Retry(control::RerunArgs),
    /// Explain why a job is where it is, and what it waits for.
    #[command(alias = "describe")]
    Explain(story::ExplainArgs),
    /// Show who holds places on nodes and who waits, by queue.
    Queue(queue::QueueArgs),
    /// Print a job's timeline.
    #[command(alias = "events")]
    History(story::HistoryArgs),
    /// Print what changed between two positions of a log.
    Diff(story::DiffArgs),
    /// Submit torchrun jobs to a cluster from a directory.
    Torchrun(Box<torchrun::TorchrunArgs>),
    /// Submit jobs of the MPI operator as with Voda, and look after them.
    Voda(Box<voda::VodaArgs>),
    /// Write the progress of jobs, from the CSV files of their epochs.
    Collect(collect::CollectArgs),
    /// Run the scheduler alone: policies, traces, vectors.
    Schedule(schedule::ScheduleArgs),
    /// Print the custom resource definitions that are served.
    Crd(crd::CrdArgs),
    /// Print the roles that the operator needs.
    Rbac,
    /// Print the version, its commit, and the kinds it serves.
    Version(version::VersionArgs),
    /// Run scenarios, each held to what it expects.
    Test(test::TestArgs),
    /// Help with writing scenarios: from a log, and their JSON Schema.
    Scenario(scenario::ScenarioArgs),
    /// Print a script that completes commands and options.
    Completion(completion::CompletionArgs),
    /// Print the manual, or write its pages.
    Man(man::ManArgs),
    /// Small programs for the sample manifests.
    Sample(sample::SampleArgs),
}

fn main() -> ExitCode {
    if let Some(code) = local::reexec() {
        return code;
    }
    let program = std::env::args_os().next();
    let mut command = help::grouped(Arguments::command());
    match program.as_deref().and_then(name_of) {
        Some(torchrun::PLUGIN) => return finished(torchrun::plugin()),
        Some(voda::COMMAND) => return finished(voda::command()),
        Some(PLUGIN) => command = of_cluster(command, std::env::args_os()),
        _ => {}
    }
    let matches = command.clone().get_matches_from(operator::hyphenated(std::env::args_os()));
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match arguments.command {
        Command::Run(args) => local_run::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Operator(args) => operator::run(&args),
        Command::NodeAgent(args) => node_agent::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Ps(args) => ps::ps(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(args),
        Command::Get(args) => ps::get(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Scenario(args) => scenario::run(&args),
        Command::Completion(args) => Ok(completion::completion(&args, command, "trainyard")),
        Command::Man(args) => man::man(&args, &command),
        Command::Version(args) => Ok(version::run(&args)),
        Command::Attach(args) => control::attach(&args),
        Command::Stop(args) => control::stop(&args),
        Command::Delete(args) => control::delete(&args),
        Command::Scale(args) => control::scale(&args),
        Command::Suspend(args) => control::suspend(&args, true),
        Command::Resume(args) => control::suspend(&args, false),
        Command::Rerun(args) => control::rerun(&args, false),
        Command::Retry(args) => control::rerun(&args, true),
        Command::Explain(args) => story::explain(&args),
        Command::Queue(args) => queue::run(&args),
        Command::History(args) => story::history(&args),
        Command::Diff(args) => story::diff(&args),
        Command::Torchrun(args) => torchrun::run(&args),
        Command::Voda(args) => voda::run(&args),
        Command::Collect(args) => collect::run(&args),
        Command::Schedule(args) => schedule::run(&args),
        Command::Crd(args) => crd::run(&args),
        Command::Rbac => Ok(rbac::run()),
        Command::Sample(args) => return sample::run(args),
    };
    finished(outcome)
}

/// Returns the name by which a program was called.
fn name_of(program: &OsStr) -> Option<&str> {
    Path::new(program).file_stem()?.to_str()
}

/// Has the commands that read a log read that of the cluster's operator, where the command line names no other one.
fn of_cluster(command: clap::Command, mut words: impl Iterator<Item = OsString>) -> clap::Command {
    let options = ["--log", "--data-dir", "--data-directory"];
    let names_log = |word: &OsString| {
        let word = word.to_string_lossy();
        options.contains(&word.split('=').next().unwrap_or_default())
    };
    if words.any(|word| names_log(&word)) {
        return command;
    }
    command.mut_subcommands(|part| {
        let reads_log = part.get_arguments().any(|arg| arg.get_id() == "server");
        if reads_log { part.mut_arg("server", |arg| arg.default_value("auto")) } else { part }
    })
}

/// Prints what a command failed with, and returns its exit code.
fn finished(outcome: Result<ExitCode, out::Failure>) -> ExitCode {
    let code = outcome.unwrap_or_else(|error| {
        out::warn(&error.to_string());
        ExitCode::from(error.code())
    });
    out::wait_said(LAST_MESSAGE_TIMEOUT);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_plugin_of_kubectl_commands_read_the_log_of_the_clusters_operator() {
        let name = |program: &str| name_of(OsStr::new(program)).map(str::to_owned);
        assert_eq!(name("/usr/bin/kubectl-trainyard").as_deref(), Some(PLUGIN));
        assert_eq!((name("trainyard").as_deref(), name("")), (Some("trainyard"), None));
        let server = |words: &[&str]| {
            let command = of_cluster(Arguments::command(), words.iter().map(OsString::from));
            let matches = command.try_get_matches_from(words).unwrap();
            let (_, of_command) = matches.subcommand().unwrap();
            of_command.get_one::<String>("server").cloned()
        };
        assert_eq!(server(&["trainyard", "ps"]).as_deref(), Some("auto"));
        assert_eq!(server(&["trainyard", "logs", "j", "--server", "https://h"]).as_deref(), Some("https://h"));
        assert_eq!(server(&["trainyard", "explain", "j", "--log=l.jsonl"]), None);
        assert_eq!(server(&["trainyard", "ps", "--data-dir", "d"]), None);
    }

    /// The definition is sound.
    #[test]
    fn a_data_directory_goes_by_both_names_everywhere() {
        let command = Arguments::command();
        command.clone().debug_assert();
        let names = ["data-dir", "data-directory"];
        let mut found = Vec::new();
        for part in command.get_subcommands() {
            for arg in part.get_arguments() {
                let mut known: Vec<_> =
                    arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default()).collect();
                known.sort_unstable();
                if known.iter().any(|name| names.contains(name)) {
                    assert_eq!(known, names, "{}", part.get_name());
                    found.push(part.get_name());
                }
            }
        }
        assert_eq!(
            found,
            [
                "run",
                "operator",
                "node-agent",
                "ps",
                "top",
                "get",
                "logs",
                "wait",
                "attach",
                "stop",
                "delete",
                "scale",
                "suspend",
                "resume",
                "rerun",
                "retry",
                "explain",
                "queue",
                "history",
                "diff"
            ]
        );
    }
}
