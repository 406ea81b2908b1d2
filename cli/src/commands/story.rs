//! `trainyard explain`, `history` and `diff`: a job's life from its log.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use engine::State;
use explain::{Line, Story, StoryReader};
use local_run::jobs::{self, split};
use local_run::records::{self, Flow, LogSource};
use local_run::view::DirOption;
use local_run::{holder, is_of_runs};
use model::{Phase, Position, Timestamp};
use serde_json::{Value, json};
use terminal::out::{self, Failure};
use terminal::shell::quoted;

use crate::remote::ServerArgs;

/// The log to read.
#[derive(Debug, Args)]
pub(crate) struct LogLocation {
    /// A log: a directory, an exported `.jsonl` or `.jsonl.gz` file.
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
    log: Option<PathBuf>,
    /// The data directory of `trainyard run`.
    #[arg(long, alias = "data-directory", default_value = "./trainyard-data", value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

impl LogLocation {
    pub(crate) fn source(&self) -> LogSource {
        let path = self.log.clone().unwrap_or_else(|| self.data_dir.join("log"));
        self.server.source_or(&path)
    }

    /// Returns the data directory, where the log is that of one.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        (self.log.is_none() && !self.server.given()).then_some(&*self.data_dir)
    }

    /// Returns whether the log is a live operator's.
    pub(crate) fn is_remote(&self) -> bool {
        self.server.given()
    }

    /// Returns whether nothing is added to the log any more: no run has its data directory open, or it is an export.
    pub(crate) fn is_over(&self) -> bool {
        !self.server.given() && self.data_dir().is_none_or(|dir| holder(dir).is_none())
    }

    /// Returns a note about unfinished jobs where no run is active; `None` for a log that is not a run's.
    pub(crate) fn idle_note(&self) -> Option<&'static str> {
        // An operator's directory is of the same form without the mark of a run.
        let is_idle = self.data_dir().is_some_and(is_of_runs) && self.is_over();
        is_idle.then_some("no run is active: the next `trainyard run` continues unfinished jobs")
    }

    /// Returns how the cluster of a live operator is reached.
    pub(crate) fn connection(&self) -> k8s_driver::api_server::Options {
        self.server.connection()
    }

    /// Returns the time that a state is looked at: now, or the end of a log that is kept.
    pub(crate) fn now(&self, state: &State) -> Timestamp {
        if self.log.is_some() { state.at } else { local::now() }
    }

    /// Returns the options that name this log in another command, with a space before them.
    pub(crate) fn option(&self) -> String {
        match (&self.log, self.server.given()) {
            (Some(log), _) => format!(" --log {}", quoted([log.to_string_lossy()])),
            (None, true) => format!(" --server {}", self.server),
            (None, false) => DirOption { data_dir: &self.data_dir }.text(),
        }
    }
}

/// Arguments of `trainyard explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard explain train             why it is where it is
  trainyard explain train --at 12     as of record 12 of the log
  trainyard explain train --server auto")]
pub(crate) struct ExplainArgs {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    /// As it was at this position (a number) or time (RFC 3339).
    #[arg(long, value_name = "POSITION|TIME")]
    at: Option<String>,
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    location: LogLocation,
}

/// Arguments of `trainyard history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard history train --decisions
  trainyard history train -o json --log story.jsonl")]
pub(crate) struct HistoryArgs {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    /// Only what was decided.
    #[arg(long)]
    decisions: bool,
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    location: LogLocation,
}

/// Arguments of `trainyard diff`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard diff 7 8                  what record 8 changed
  trainyard diff 1 20 --log story.jsonl")]
pub(crate) struct DiffArgs {
    /// The earlier position.
    from: u64,
    /// The later position.
    to: u64,
    /// Text for people, or JSON.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    location: LogLocation,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

fn print_lines(lines: &[Line]) {
    for line in lines {
        let mark = if line.decided { "=>" } else { "  " };
        out::line(&format!("  #{:<6} {} {mark} {}", line.position.0, out::clock(line.at), line.text));
    }
}

/// Returns the job that a user means by leaving its name out: the only one.
fn named(job: Option<&str>, location: &LogLocation) -> Result<String, Failure> {
    match job {
        Some(job) => Ok(job.to_owned()),
        None => Ok(jobs::written(&jobs::find(&records::latest(&location.source())?, None)?)),
    }
}

/// Prints a job: where it is, why, and what it waits for.
fn print_story(story: &Story, position: Position, location: &LogLocation) {
    let shown = Some(story.shown()).filter(|word| !word.is_empty()).unwrap_or("not started");
    let since = story.since.map(|at| format!(" since {}", out::moment(at))).unwrap_or_default();
    out::line(&format!("{} {} is {shown}{since} (as of #{position})", story.key.kind, story.key));
    // Of a deleted job it is its phase before.
    let introduction = if story.is_deleted { "" } else { "because " };
    if !story.why.is_empty() {
        out::line(&format!("{introduction}{}", story.why));
    }
    if story.job.phase == Phase::Failed && !story.is_deleted && location.data_dir().is_some() {
        let (name, option) = (jobs::written(&story.key), location.option());
        out::line(&format!("its output: trainyard logs {name}{option}"));
        out::line(&format!("to run it again: trainyard rerun {name}{option}"));
    }
    let continues = !story.job.phase.is_terminal() && !story.is_deleted;
    let idle = location.idle_note().filter(|_| continues);
    if !story.waits.is_empty() || continues {
        out::line("\nit waits for:");
    }
    for wait in &story.waits {
        out::line(&format!("  {wait}"));
    }
    match idle {
        Some(note) => out::line(&format!("  {note}")),
        None if story.waits.is_empty() && continues => out::line("  its pods"),
        None => {}
    }
}

/// Explains.
pub(crate) fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let job = named(args.job.as_deref(), &args.location)?;
    let (namespace, name) = split(&job);
    let (until, before) = match args.at.as_deref() {
        None => (Position(u64::MAX), Timestamp(u64::MAX)),
        Some(text) => match (text.parse(), Timestamp::parse_rfc3339(text)) {
            (Ok(position), _) => (Position(position), Timestamp(u64::MAX)),
            (_, Some(time)) => (Position(u64::MAX), time),
            _ => {
                return Err(Failure::new(format!(
                    "--at {text}: neither a position nor a time like 2026-01-31T12:00:00Z"
                )));
            }
        },
    };
    let source = args.location.source();
    let fold = |reader: &mut StoryReader| {
        records::fold(&source, &mut |state, record| {
            if record.position > until || record.at > before {
                return Ok(Flow::Stop);
            }
            reader.take(state, record);
            Ok(Flow::Go)
        })
    };
    let mut reader = StoryReader::new(namespace, name);
    let is_now = args.at.is_none();
    let mut state = if is_now {
        records::latest_with(&source, &mut |state, record| reader.take(state, record))?
    } else {
        fold(&mut reader)?
    };
    let mut story = reader.story(&state);
    if story.is_none() {
        if is_now {
            // Jobs that were deleted before a cached state are in the records before it.
            reader = StoryReader::new(namespace, name);
            state = fold(&mut reader)?;
        }
        story = reader.deleted(&state);
    }
    let Some(story) = story else { return Ok(unknown(&state, &job, args.at.as_deref())) };
    let lines = reader.lines(&story.job, state.stamp.position);
    if args.output == Output::Json {
        out::line(&story.to_json(state.stamp.position, &lines).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    print_story(&story, state.stamp.position, &args.location);
    out::line("\nwhat led there:");
    print_lines(&lines);
    if reader.has_earlier(&story.job, state.stamp.position) {
        let name = jobs::written(&story.key);
        out::line(&format!("  each record: trainyard history {name}{}", args.location.option()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that a log has no job of that name, and which there are.
fn unknown(state: &State, job: &str, at: Option<&str>) -> ExitCode {
    let at = at.map(|at| format!(" (at {at})")).unwrap_or_default();
    match jobs::pick(&jobs::all(state, true), Some(job)) {
        Err(error) => out::warn(&format!("{error}{at}")),
        Ok(_) => out::warn(&format!("{job}: this log has no record of that job{at}")),
    }
    ExitCode::from(out::FOUND)
}

/// Prints a timeline.
pub(crate) fn history(args: &HistoryArgs) -> Result<ExitCode, Failure> {
    let job = named(args.job.as_deref(), &args.location)?;
    let (namespace, name) = split(&job);
    let mut found = 0u64;
    let mut all = Vec::new();
    let state = records::fold(&args.location.source(), &mut |state, record| {
        if explain::concerns(record, namespace, name) {
            let lines: Vec<Line> =
                explain::lines(record, state).into_iter().filter(|l| l.decided || !args.decisions).collect();
            found += 1;
            if args.output == Output::Json {
                all.extend(lines);
            } else {
                print_lines(&lines);
            }
        }
        Ok(Flow::Go)
    })?;
    if args.output == Output::Json {
        out::line(&json!({"job": format!("{namespace}/{name}"), "timeline": all.iter().map(Line::to_json).collect::<Value>()}).to_string());
    }
    if found == 0 {
        return Ok(unknown(&state, &job, None));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what changed between two positions.
pub(crate) fn diff(args: &DiffArgs) -> Result<ExitCode, Failure> {
    if args.from > args.to {
        return Err(Failure::new(format!("position {} comes after position {}", args.from, args.to)));
    }
    let mut before = None;
    let mut after = None;
    let state = records::fold(&args.location.source(), &mut |state, record| {
        if record.position > Position(args.to) {
            return Ok(Flow::Stop);
        }
        // The state given is the one before the record.
        if record.position == Position(args.from).next() {
            before = Some(explain::summary(state));
        }
        Ok(Flow::Go)
    })?;
    if state.stamp.position < Position(args.to) {
        return Err(Failure::new(format!("position {}: the log ends at {}", args.to, state.stamp.position)));
    }
    if args.from == args.to {
        before = Some(explain::summary(&state));
    }
    let Some(before) = before else {
        return Err(Failure::new(format!("position {}: the log begins later", args.from)));
    };
    after.get_or_insert_with(|| explain::summary(&state));
    let differences = explain::differences(&before, &after.unwrap_or_default());
    if args.output == Output::Json {
        let list: Vec<Value> =
            differences.iter().map(|(path, a, b)| json!({"path": path, "before": a, "after": b})).collect();
        out::line(&json!({"from": args.from, "to": args.to, "differences": list}).to_string());
    } else {
        for (path, a, b) in &differences {
            out::line(&format!("{path}: {a} -> {b}"));
        }
        if differences.is_empty() {
            out::line("no difference");
        }
    }
    Ok(ExitCode::SUCCESS)
}
