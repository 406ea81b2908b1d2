//! `trainyard replay`: a scenario on the embedded cluster, or a recorded log decided again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use engine::{Body, Record, State};
use local_run::records;
use model::Event;
use serde_json::{Value, json};
use terminal::out::{self, Failure};

use crate::commands::story::Output;

/// Jobs whose phases are printed as text.
const MAX_LISTED_JOBS: usize = 100;

/// Arguments of `trainyard replay`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard replay trainyard-data     decide every record again, and compare
  trainyard replay story.jsonl
  trainyard replay scenario.yaml --log story.jsonl")]
pub(crate) struct ReplayArgs {
    /// A scenario (`.yaml`), an exported log (`.jsonl`, `.jsonl.gz`) or a log directory.
    file: PathBuf,
    /// Text for people, or one JSON object.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the log of a scenario's run as JSON lines to this file.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Replays.
pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let ending = args.file.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if args.file.is_dir() || matches!(ending, "jsonl" | "gz") {
        if args.log.is_some() {
            return Err(Failure::new(format!("--log: {} is a log, not a scenario", args.file.display())));
        }
        replay_log(&args.file, args.output)
    } else {
        replay_scenario(&args.file, args.output, args.log.as_deref())
    }
}

fn replay_scenario(file: &Path, output: Output, log: Option<&Path>) -> Result<ExitCode, Failure> {
    let scenario = simulator::load(file)?;
    let run = simulator::run(&scenario);
    let expected = !scenario.expect.is_empty();
    let differences = if expected { simulator::check::failures(&scenario, &run) } else { Vec::new() };
    // A step that fails is reported as such, whether that was expected or not.
    let outcome = run.inspect_err(|_| {
        for difference in differences.iter().filter(|_| scenario.expect.error.is_some()) {
            out::warn(&format!("not as expected: {difference}"));
        }
    })?;
    if let Some(log) = log {
        records::export(&outcome.log.open()?, log)?;
    }
    match output {
        Output::Json => {
            let mut value = outcome.to_json();
            if let Some(value) = value.as_object_mut().filter(|_| !differences.is_empty()) {
                value.insert("differences".to_owned(), json!(differences));
            }
            out::line(&value.to_string());
        }
        Output::Text => {
            out::print(&out::shown(&simulator::text::render(&scenario, &outcome)));
            for difference in &differences {
                out::line(&format!("not as expected: {difference}"));
            }
        }
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

/// A record that this build decides differently.
struct Difference {
    record: String,
    job: String,
    field: String,
    recorded: Value,
    decided: Value,
}

fn replay_log(path: &Path, output: Output) -> Result<ExitCode, Failure> {
    let registry = Registry::all();
    let mut phases: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let mut found = None;
    let mut records = 0u64;
    let mut decisions = 0u64;
    let (mut state, mut frames) = (State::default(), 0u64);
    let head = records::each(&records::LogSource::from(path), &mut state, &mut |state: &mut State, record: Record| {
        frames += 1;
        let decided = state.redecide(&record)?;
        let recorded = record.events();
        decisions += u64::try_from(recorded.len()).unwrap_or_default();
        records += 1;
        if decided != recorded {
            found = Some(difference(&record, &recorded, &decided));
            return Ok(records::Flow::Stop);
        }
        if let Some(key) = record.job()
            && let Some(job) = state.job(key)
            && let Some(word) = registry.api_of(key).map(|api| api.phase_word(job.phase)).filter(|w| !w.is_empty())
        {
            let name = key.to_string();
            // What is not printed is not kept: a log may hold any number of jobs.
            if output == Output::Text && phases.len() > MAX_LISTED_JOBS && !phases.contains_key(&name) {
                return Ok(records::Flow::Go);
            }
            let list = phases.entry(name).or_default();
            if list.last() != Some(&word) {
                list.push(word);
            }
        }
        Ok(records::Flow::Go)
    })?;
    let code = if found.is_some() { ExitCode::from(out::FOUND) } else { ExitCode::SUCCESS };
    if output == Output::Json {
        let differences: Vec<Value> = found
            .iter()
            .map(|d| json!({"position": d.record, "job": d.job, "field": d.field, "recorded": d.recorded, "decided": d.decided}))
            .collect();
        let value = json!({
            "steps": [], "objects": [], "phases": phases,
            "log": {"records": records, "digest": head.digest.to_string()},
            "differences": differences,
        });
        out::line(&value.to_string());
        return Ok(code);
    }
    if let Some(d) = &found {
        out::line(&format!("position {}, job {}: {} differs", d.record, d.job, d.field));
        out::line(&format!("  recorded: {}", d.recorded));
        out::line(&format!("  decided:  {}", d.decided));
    } else {
        for (job, list) in phases.iter().take(MAX_LISTED_JOBS) {
            out::line(&format!("{job}: {}", list.join(", ")));
        }
        if phases.len() > MAX_LISTED_JOBS {
            out::line("... and more jobs");
        }
        out::line(&format!("{records} records, {decisions} decisions: all decided alike; digest {}", head.digest));
    }
    Ok(code)
}

fn difference(record: &Record, recorded: &[Event], decided: &[Event]) -> Difference {
    let n = recorded.iter().zip(decided).take_while(|(a, b)| a == b).count();
    let value = |events: &[Event]| events.get(n).map_or(Value::Null, engine::wire::event_value);
    let (recorded, now) = (value(recorded), value(decided));
    let fields = explain::differences(&recorded, &now);
    let (path, recorded, decided) = fields.into_iter().next().unwrap_or((String::new(), recorded, now));
    let job = match &record.body {
        Body::Job { key, .. } => key.to_string(),
        Body::Cluster { .. } => "(cluster)".to_owned(),
        Body::Queues { .. } => "(queues)".to_owned(),
    };
    let field = if path.is_empty() { format!("events[{n}]") } else { format!("events[{n}].{path}") };
    let behaviour = if record.behaviour == engine::wire::BEHAVIOUR {
        String::new()
    } else {
        format!(" (behaviour {})", record.behaviour)
    };
    Difference { record: format!("{}{behaviour}", record.position), job, field, recorded, decided }
}
