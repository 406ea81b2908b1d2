//! `trainyard log`: look into logs, check them, move them.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use engine::Body;
use event_log::disk::{self, SledLog};
use event_log::{EventLog, jsonl};
use local_run::records::{self, Flow, LogSource};
use model::{Position, Timestamp};
use serde_json::json;
use terminal::out::{self, Failure};

use crate::commands::story::Output;
use crate::remote::ServerArgs;

/// Arguments of `trainyard log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the jobs in a log: phase, records, time of the last record.
    Ls {
        /// A log directory, a data directory, or an export.
        #[arg(default_value = "./trainyard-data", conflicts_with = "server")]
        path: PathBuf,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print the records, in words or unchanged.
    Show(ShowArgs),
    /// Read everything and check it; names the first bad position.
    Verify {
        /// A log directory, a data directory, or an export.
        #[arg(default_value = "./trainyard-data", conflicts_with = "server")]
        path: PathBuf,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Write the log, or its undamaged part, as JSON lines.
    Export {
        /// A log directory or a data directory.
        #[arg(default_value = "./trainyard-data", conflicts_with = "server")]
        path: PathBuf,
        #[command(flatten)]
        server: ServerArgs,
        /// The file to write; compressed when its name ends in `.gz`. Absent or `-`: standard output.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Make a log directory from an export.
    Import {
        /// The export.
        file: PathBuf,
        /// The log directory to make; new or empty. It is removed if the import fails.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Compact the log: it then begins with the present state.
    Compact {
        /// A log directory or a data directory that no run has open.
        #[arg(default_value = "./trainyard-data")]
        path: PathBuf,
        /// First write the whole log to this file.
        #[arg(long, value_name = "FILE")]
        archive: Option<PathBuf>,
    },
    /// Print figures of a log.
    Stats {
        /// A log directory or a data directory.
        #[arg(default_value = "./trainyard-data")]
        path: PathBuf,
        /// Text for people, or JSON.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// A log directory, a data directory, or an export.
    #[arg(default_value = "./trainyard-data", conflicts_with = "server")]
    path: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Only this job: NAMESPACE/NAME, or NAME in namespace default.
    #[arg(long)]
    job: Option<String>,
    /// From this position on.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Up to this position.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    /// From this time on (RFC 3339).
    #[arg(long, value_parser = time)]
    since: Option<Timestamp>,
    /// Up to this time (RFC 3339).
    #[arg(long, value_parser = time)]
    until: Option<Timestamp>,
    /// Print the record bodies unchanged, one a line.
    #[arg(long)]
    raw: bool,
}

/// A text that is no time.
#[derive(Debug, thiserror::Error)]
#[error("{0}: not a time such as 2026-01-31T12:00:00Z")]
struct TimeError(String);

fn time(text: &str) -> Result<Timestamp, TimeError> {
    Timestamp::parse_rfc3339(text).ok_or_else(|| TimeError(text.to_owned()))
}

/// Runs the subcommand.
pub(crate) fn run(args: &LogArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Ls { path, server } => ls(&server.source_or(path)),
        Command::Show(args) => show(args),
        Command::Verify { path, server } => verify(&server.source_or(path)),
        Command::Export { path, server, to } => export(&server.source_or(path), to.as_deref()),
        Command::Import { file, to } => import(file, to),
        Command::Compact { path, archive } => compact(path, archive.as_deref()),
        Command::Stats { path, output } => stats(path, *output),
    }
}

fn ls(source: &LogSource) -> Result<ExitCode, Failure> {
    let mut counts: std::collections::BTreeMap<String, (u64, Timestamp)> = std::collections::BTreeMap::new();
    let state = records::fold(source, &mut |_, record| {
        if let Some(key) = record.job() {
            let entry = counts.entry(format!("{key} {}", key.uid)).or_default();
            *entry = (entry.0 + 1, record.at);
        }
        Ok(Flow::Go)
    })?;
    // Jobs whose records are compacted away are still known.
    for (key, job) in state.jobs.iter().filter(|(_, job)| job.object.is_known()) {
        let last = job.milestones.back().map_or(state.at, |m| m.at);
        counts.entry(format!("{key} {}", key.uid)).or_insert((0, last));
    }
    let registry = apis::Registry::all();
    out::line("JOB                                      PHASE         RECORDS  LAST");
    for (name, (records, last)) in &counts {
        let (job, uid) = name.split_once(' ').unwrap_or((name, ""));
        let there = state.jobs.summaries().find(|(key, _)| *key.uid.0 == *uid);
        let phase = there.and_then(|(key, j)| Some(registry.api_of(key)?.phase_word(j.phase))).unwrap_or("(gone)");
        out::line(&format!("{job:<40} {phase:<13} {records:>7}  {}", out::moment(*last)));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let job = args.job.as_deref().map(|job| job.split_once('/').unwrap_or(("default", job)));
    records::fold(&args.server.source_or(&args.path), &mut |state, record| {
        if record.position.0 > args.to || args.until.is_some_and(|until| record.at > until) {
            return Ok(Flow::Stop);
        }
        let wanted = record.position.0 >= args.from
            && args.since.is_none_or(|since| record.at >= since)
            && job.is_none_or(|(namespace, name)| explain::concerns(record, namespace, name));
        if !wanted {
            return Ok(Flow::Go);
        }
        if args.raw {
            out::line(&String::from_utf8_lossy(&record.encode()?));
            return Ok(Flow::Go);
        }
        let scope = match &record.body {
            Body::Cluster { .. } => "cluster".to_owned(),
            Body::Queues { .. } => "queues".to_owned(),
            Body::Job { key, .. } => key.to_string(),
        };
        let causes: Vec<String> = record.causes.iter().map(|c| format!("#{c}")).collect();
        let because = if causes.is_empty() { String::new() } else { format!(" because of {}", causes.join(", ")) };
        out::line(&format!("#{} {} term {} {scope}{because}", record.position, out::clock(record.at), record.term));
        for line in explain::lines(record, state) {
            out::line(&format!("    {} {}", if line.decided { "=>" } else { "  " }, line.text));
        }
        Ok(Flow::Go)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn verify(source: &LogSource) -> Result<ExitCode, Failure> {
    let path = match source {
        LogSource::Path(path) if path.is_dir() => path,
        LogSource::Path(path) => return Ok(verify_lines(jsonl::open(path)?)),
        LogSource::Remote(log) => return Ok(verify_lines(log.open()?)),
    };
    let report = match disk::verify(records::log_dir(path)) {
        Ok(report) => report,
        Err(error @ event_log::Error::Damaged { .. }) => {
            out::line(&format!("bad: {error}"));
            return Ok(ExitCode::from(out::FOUND));
        }
        Err(error) => return Err(error.into()),
    };
    let good = report.good_prefix_head;
    match report.first_bad {
        None => {
            // The chain is whole; the bodies have to be records as well.
            records::fold(source, &mut |_, _| Ok(Flow::Go))?;
            out::line(&format!(
                "good: {} records, positions {} to {}, digest {}",
                report.records, report.first, good.position, good.digest
            ));
            Ok(ExitCode::SUCCESS)
        }
        Some((position, reason)) => {
            out::line(&format!("bad: position {position}: {reason}"));
            out::line(&format!(
                "good before that: {} records, up to position {}; `trainyard log export` saves them",
                report.records, good.position
            ));
            Ok(ExitCode::from(out::FOUND))
        }
    }
}

fn verify_lines(reader: jsonl::Reader<Box<dyn BufRead>>) -> ExitCode {
    let mut last = None;
    for frame in reader {
        match frame {
            Ok(frame) => last = Some(frame.position),
            Err(error) => {
                out::line(&format!("bad: {error}"));
                return ExitCode::from(out::FOUND);
            }
        }
    }
    out::line(&format!("good: up to position {}", last.unwrap_or_default()));
    ExitCode::SUCCESS
}

fn export(source: &LogSource, to: Option<&Path>) -> Result<ExitCode, Failure> {
    let to = to.filter(|to| *to != Path::new("-"));
    let path = match source {
        LogSource::Path(path) => path,
        LogSource::Remote(log) => return export_lines(log.open()?, to),
    };
    let dir = records::log_dir(path);
    let damaged = disk::verify(&dir)?.first_bad;
    let log = disk::salvage(&dir)?;
    if let Some(file) = to {
        let head = records::export(&log, file)?;
        out::warn(&format!("{} up to position {}", file.display(), head.position));
    } else {
        jsonl::export(&log, out::Stdout, jsonl::Digests::default())?;
    }
    match damaged {
        None => Ok(ExitCode::SUCCESS),
        Some((position, reason)) => {
            out::warn(&format!(
                "the log is damaged from position {position} on ({reason}); what came before is exported"
            ));
            Ok(ExitCode::from(out::FOUND))
        }
    }
}

/// Writes what a live operator sends: verified line by line, never held as a whole.
fn export_lines(reader: jsonl::Reader<Box<dyn BufRead>>, to: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(file) = to else {
        jsonl::copy(reader, out::Stdout, jsonl::Digests::default())?;
        return Ok(ExitCode::SUCCESS);
    };
    let head = records::copy(reader, file)?;
    out::warn(&format!("{} up to position {}", file.display(), head.position));
    Ok(ExitCode::SUCCESS)
}

fn import(file: &Path, to: &Path) -> Result<ExitCode, Failure> {
    // A log that no operator of this build could open is not made.
    let state = records::fold(&LogSource::from(file), &mut |_, _| Ok(Flow::Go))?;
    let head = records::import(jsonl::open(file)?, to, &state)?;
    out::line(&format!("{}: up to position {}, digest {}", to.display(), head.position, head.digest));
    Ok(ExitCode::SUCCESS)
}

fn compact(path: &Path, archive: Option<&Path>) -> Result<ExitCode, Failure> {
    let dir = records::log_dir(path);
    if let Some(file) = archive {
        records::export(&disk::salvage(&dir)?, file)?;
    }
    let state = records::fold(&LogSource::from(&*dir), &mut |_, _| Ok(Flow::Go))?;
    let mut log = SledLog::open(&dir, disk::Options { must_exist: true, ..disk::Options::default() })?;
    let (head, before) = (log.head(), log.stats());
    if state.stamp.position != head.position {
        return Err(Failure::new(format!(
            "{}: the log grew during the command: stop the run, then repeat it",
            dir.display()
        )));
    }
    log.compact(&records::checkpoint_of(&state, head)?)?;
    let after = log.stats();
    out::line(&format!(
        "{} records and {} bytes on disk before, {} records and {} bytes after; the log begins at position {}",
        before.records, before.disk_bytes, after.records, after.disk_bytes, after.first
    ));
    Ok(ExitCode::SUCCESS)
}

fn stats(path: &Path, output: Output) -> Result<ExitCode, Failure> {
    let log = records::open_dir(path)?;
    let s = log.stats();
    let first = (s.first <= s.head.position).then_some(s.first.0);
    let mut kinds: std::collections::BTreeMap<&'static str, u64> = std::collections::BTreeMap::new();
    let mut span: Option<(Timestamp, Timestamp)> = None;
    let state = records::fold(&LogSource::from(path), &mut |_, record| {
        span = Some((span.map_or(record.at, |s| s.0), record.at));
        for name in record.fact_names().into_iter().chain(record.event_names()) {
            *kinds.entry(name).or_default() += 1;
        }
        Ok(Flow::Go)
    })?;
    let per_record = s.body_bytes.checked_div(s.records).unwrap_or_default();
    if output == Output::Json {
        let value = json!({
            "records": s.records, "first": first, "head": s.head.position, "digest": s.head.digest.to_string(),
            "terms": state.terms.len(), "lastTerm": s.last_term, "bodyBytes": s.body_bytes, "diskBytes": s.disk_bytes,
            "jobs": state.jobs.len(), "contents": kinds,
            "from": span.map(|s| s.0.to_rfc3339()), "to": span.map(|s| s.1.to_rfc3339()),
        });
        out::line(&value.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    out::line(&format!(
        "records      {} (positions {} to {})",
        s.records,
        first.map(Position).unwrap_or_default(),
        s.head.position
    ));
    if let Some((from, to)) = span {
        out::line(&format!("time         {} to {}", out::moment(from), out::moment(to)));
    }
    out::line(&format!("terms        {}, the last is {}", state.terms.len(), s.last_term.unwrap_or_default()));
    out::line(&format!("jobs         {}", state.jobs.len()));
    out::line(&format!("bodies       {} bytes, {per_record} a record", s.body_bytes));
    out::line(&format!("on disk      {} bytes", s.disk_bytes));
    out::line(&format!("digest       {}", s.head.digest));
    for (name, count) in kinds {
        out::line(&format!("  {name:<18} {count}"));
    }
    Ok(ExitCode::SUCCESS)
}
