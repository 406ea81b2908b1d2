//! Arguments of `trainyard run`, and what follows from them alone: the objects to apply, the form of progress, settings.
//!
//! It must not start anything. Tests: `cli/tests/local/`, by topic.

use std::path::{Path, PathBuf};

use apis::{Registry, Resource};
use clap::Args;
use inputs::manifests;
use serde_json::Value;
use terminal::out::{Failure, Stream};
use terminal::shell::quoted;

use crate::command::{self, CommandArgs};
use crate::faults::Fault;
use crate::gpus::GpuCount;
use crate::requests::JobRef;
use crate::rerun::Stored;
use crate::session::{duration, flag};
use crate::view::{Audience, Form};

/// Time after a first failure in which failures of other pods are waited for. The workers of one machine lose a peer within
/// milliseconds, and take some time to end.
const FAILURE_WINDOW: &str = "500ms";

/// Default of `--restart-limit`.
pub(crate) const RESTART_LIMIT: &str = "3";

/// Form of the events of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Events {
    /// Lines for people.
    Text,
    /// One JSON object for each event, on standard output.
    Jsonl,
}

/// Options that show or hide the pods' output.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Output")]
pub struct ShowLogs {
    /// Show the pods' output: as without this option where one job runs in the foreground.
    #[arg(long, overrides_with = "no_logs")]
    logs: bool,
    /// Do not show the pods' output: `trainyard logs` does.
    #[arg(long, overrides_with = "logs")]
    no_logs: bool,
}

impl ShowLogs {
    /// Returns what was said; `None` where nothing was.
    fn wanted(self) -> Option<bool> {
        (self.logs || self.no_logs).then_some(self.logs)
    }

    /// Returns the option for another command line.
    pub(crate) fn option(self) -> Option<&'static str> {
        self.wanted().map(|shows| if shows { "--logs" } else { "--no-logs" })
    }
}

/// Arguments of `trainyard run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard run job.yaml
  trainyard run a.yaml b.yaml --logs
  trainyard run -n 4 --gpus-per-worker 1 -- python train.py
  trainyard run -d job.yaml && trainyard logs -f

Exit codes: 0 every job succeeded, 1 one did not, 2 nothing was started,
124 --timeout has passed, 130 Ctrl-C, 143 SIGTERM or `trainyard stop`.")]
pub struct RunArgs {
    /// Manifest files (YAML or JSON): jobs, and the `ConfigMaps` and Secrets they use. Directories of them, or - for standard input.
    #[arg(required_unless_present_any = ["command", "stored", "filenames"], conflicts_with = "command", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The same, as kubectl has it.
    #[arg(short = 'f', long = "filename", hide = true, conflicts_with_all = ["command", "files"], value_name = "FILE")]
    filenames: Vec<PathBuf>,
    /// Warn of unknown fields and wrong values in the manifests, and continue (`trainyard validate` lists them).
    #[arg(long)]
    pub(crate) lax: bool,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    /// Number of GPUs to claim, or `auto` for all: of those that no other run holds and `CUDA_VISIBLE_DEVICES` allows.
    #[arg(long, value_name = "N|auto", help_heading = "The machine")]
    pub(crate) gpus: Option<GpuCount>,
    /// Working directory of containers without one.
    #[arg(long, value_name = "DIR", help_heading = "The machine")]
    pub(crate) workdir: Option<PathBuf>,
    /// Number of nodes that this machine stands for. Default: 2, and 1 for a job without a manifest.
    #[arg(long, value_name = "N", help_heading = "The machine")]
    pub(crate) nodes: Option<u32>,
    /// Directory of the log, the cluster's objects and the pods' output.
    #[arg(
        long,
        alias = "data-directory",
        default_value = "./trainyard-data",
        value_name = "DIR",
        help_heading = "The machine"
    )]
    pub(crate) data_dir: PathBuf,
    /// Run in the background, and return once the jobs are applied. `trainyard attach` follows it, `trainyard stop` ends it.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) detach: bool,
    #[command(flatten)]
    logs: ShowLogs,
    /// Print the outcome only.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Lines for people, or a JSON object for each event.
    #[arg(long, short, value_enum, default_value_t = Events::Text, help_heading = "Output")]
    pub(crate) output: Events,
    /// Maximum number of restarts of a group without a limit of its own: a number, or `none`.
    #[arg(long, default_value = RESTART_LIMIT, value_name = "N|none", value_parser = restart_limit, help_heading = "The course of the jobs")]
    pub(crate) restart_limit: String,
    /// Stop the jobs after this time, for example 90s or 2h. The exit code is then 124.
    #[arg(long, value_name = "TIME", value_parser = time_limit, help_heading = "The course of the jobs")]
    pub(crate) timeout: Option<u64>,
    /// Apply the files again when they change while the run continues, for example to scale a job.
    #[arg(long, help_heading = "The course of the jobs")]
    pub(crate) watch: bool,
    /// Run jobs again that ended in an earlier run and are unchanged.
    #[arg(long, help_heading = "The course of the jobs")]
    pub(crate) rerun: bool,
    /// Remove the data of earlier runs from the data directory, except volume claims, and start over.
    #[arg(long, help_heading = "The course of the jobs")]
    pub(crate) again: bool,
    /// With `--again`: remove the volume claims as well, and with them checkpoints that jobs keep there.
    #[arg(long, requires = "again", help_heading = "The course of the jobs")]
    pub(crate) claims: bool,
    /// Fault to inject: exit=POD:CODE[@TIME], node=NODE[@TIME], image=POD[@FOR], preempt=JOB[@TIME]. May be repeated.
    #[arg(long = "fault", value_name = "FAULT", help_heading = "The course of the jobs")]
    pub(crate) faults: Vec<Fault>,
    /// A setting of the operator, for example `enable-creating-failed=true`. May be repeated.
    #[arg(long = "flag", value_name = "NAME=VALUE", value_parser = flag, help_heading = "The course of the jobs")]
    pub(crate) flags: Vec<(String, String)>,
    /// This process is the run that another one started in the background.
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    /// Another process stands in front of this one.
    #[arg(long, hide = true)]
    pub(crate) in_front: bool,
    /// A job of the data directory that runs again: KIND/NAMESPACE/NAME.
    #[arg(long, hide = true, value_name = "JOB")]
    pub(crate) stored: Option<String>,
}

impl RunArgs {
    /// Returns the objects to apply.
    pub(crate) fn manifests(&self) -> Result<Vec<Value>, Failure> {
        if let Some(stored) = &self.stored {
            let mut parts = stored.splitn(3, '/').map(str::to_owned);
            let mut next = || parts.next().unwrap_or_default();
            let job = JobRef { kind: next(), namespace: next(), name: next() };
            return Ok(vec![Stored::read(&self.data_dir, &job)?.manifest]);
        }
        if let Some(dir) = self.workdir.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(Failure::new(format!("--workdir {}: no such directory. Nothing was started", dir.display())));
        }
        if self.command.is_given() {
            self.command.check(self.workdir.as_deref())?;
            return manifests::checked(vec![self.command.manifest()], "the command line");
        }
        manifests::load(self.files(), self.lax).map_err(|failure| match self.files() {
            [first, ..] if command::is_program(first) => {
                let words = self.files().iter().map(|word| word.display().to_string());
                failure.with(&format!("\nto run a command, write -- before it: trainyard run -- {}", quoted(words)))
            }
            _ => failure,
        })
    }

    /// Returns the manifest files.
    pub(crate) fn files(&self) -> &[PathBuf] {
        if self.files.is_empty() { &self.filenames } else { &self.files }
    }

    /// Returns true if the manifests come from standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.files().iter().any(|file| file == Path::new(manifests::STDIN))
    }

    /// Returns true if the pods' output is shown: of one job, if nothing else is said.
    pub(crate) fn shows_output(&self, manifests: &[Value]) -> bool {
        let is_plain = self.output == Events::Text && !self.quiet && !self.background;
        self.logs.wanted().unwrap_or_else(|| is_plain && is_one_job(manifests))
    }

    /// Returns stream and form of progress.
    pub(crate) fn audience(&self) -> Audience {
        let form = match self.output {
            Events::Jsonl => Form::Json,
            Events::Text if self.quiet => Form::Quiet,
            Events::Text => Form::Text,
        };
        Audience { stream: Stream::of_progress(), form }
    }

    /// Returns the operator's flags: those of every run, then the given ones, which win.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let own = [("restart-limit", self.restart_limit.as_str()), ("failure-window", FAILURE_WINDOW)];
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().chain(self.flags.clone()).collect()
    }
}

/// Returns true if there is exactly one job among the objects.
pub(crate) fn is_one_job(objects: &[Value]) -> bool {
    let registry = Registry::all();
    objects.iter().filter(|object| registry.serves_jobs(&Resource::of(object))).count() == 1
}

/// Reason for refusing the value of an option.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    /// It is no duration.
    #[error(transparent)]
    Duration(#[from] settings::duration::Error),
    /// A time limit of 0.
    #[error("a time limit must be longer than 0; without the option there is none")]
    NoTime,
    /// It is no limit of restarts.
    #[error("a number of restarts, or `none`")]
    RestartLimit,
}

/// Reads the value of `--timeout`.
fn time_limit(text: &str) -> Result<u64, OptionError> {
    match duration(text)? {
        0 => Err(OptionError::NoTime),
        limit => Ok(limit),
    }
}

/// Reads the value of `--restart-limit`.
fn restart_limit(text: &str) -> Result<String, OptionError> {
    let known = text == "none" || text.parse::<u32>().is_ok();
    known.then(|| text.to_owned()).ok_or(OptionError::RestartLimit)
}
