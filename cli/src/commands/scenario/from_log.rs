//! `trainyard scenario from-log`: writes a scenario that does to a job again what a log recorded of it.
//!
//! Owns the arguments: which job, which files, where the warnings go. The scenario is made by `simulator::from_log`. Tests:
//! `tests/local/from_log.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use engine::State;
use local_run::jobs;
use local_run::records::{self, Flow, LogSource};
use local_run::session::flag;
use model::JobKey;
use serde_json::Value;
use simulator::from_log::{self, Manifests, RecordedJobs, Recording, Unknown};
use terminal::out::{self, Failure};

/// Arguments of `trainyard scenario from-log`.
#[derive(Debug, Args)]
#[command(after_help = "A log holds what decisions were made from, not the manifest. The manifest is that
of --manifest, or the job's object in a data directory; it must translate to
what the log recorded. What no step can do again is a comment in the file and a
warning. The scenario is run before it is written.

Exit codes: 0 the scenario does what the log recorded, 1 it does not (it is
written all the same), 2 usage or unreadable input.

Examples:
  trainyard scenario from-log trainyard-data train -o train.yaml
  trainyard scenario from-log story.jsonl --manifest job.yaml > train.yaml
  trainyard test train.yaml")]
pub(super) struct FromLogArgs {
    /// A data directory, a log directory, or an exported log (`.jsonl`, `.jsonl.gz`).
    log: PathBuf,
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    /// The job's manifest, with what it needs (a queue, for example). Again for a later version of it.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// A setting of the operator by which manifests were translated, for example `enable-gang-scheduling=false`. May be repeated.
    #[arg(long = "flag", value_name = "NAME=VALUE", value_parser = flag)]
    flags: Vec<(String, String)>,
    /// The file to write; standard output if left out.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the scenario.
pub(super) fn run(args: &FromLogArgs) -> Result<ExitCode, Failure> {
    let source = LogSource::from(&*args.log);
    let flags: BTreeMap<String, Value> =
        args.flags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    settings::flags::config(&flags)?;
    let registry = Registry::with(&settings::ApiSettings::read(&flags)?);
    let key = jobs::pick(&recorded(&source, &registry)?, args.job.as_deref())?;
    let api = registry.api_of(&key).ok_or_else(|| Failure::new(format!("{}: not served by this build", key.kind)))?;
    let given = documents(&args.manifest)?;
    let stored = from_log::stored(&args.log, &key, &registry);
    let manifests = Manifests::new(api.clone(), &key, given, stored);
    let mut recording = Recording::new(&key, api.clone(), manifests, flags);
    let mut state = State::default();
    records::each(&source, &mut state, &mut |state, record| {
        let unknown = |error: Unknown| Failure::new(error.in_log(&args.log, &key));
        recording.take(state, &record).map_err(unknown)?;
        state.replay(&record)?;
        recording.after(state, &record);
        Ok(Flow::Go)
    })?;
    let Some(scenario) = recording.finish(&state) else {
        return Err(Failure::new(format!(
            "{}: the log begins after {}: what happened before its first record is not in it",
            args.log.display(),
            jobs::written(&key)
        )));
    };
    let name = args.output.as_ref().map_or_else(|| "scenario".to_owned(), |path| path.display().to_string());
    let written = from_log::write(scenario, &args.log.display().to_string(), &name)?;
    for remark in &written.remarks {
        out::warn(remark);
    }
    for difference in &written.differences {
        out::warn(&format!("the scenario does not do what the log recorded: {difference}"));
    }
    match &args.output {
        None => out::print(&written.text),
        Some(path) => {
            fs::write(path, written.text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        }
    }
    Ok(if written.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

/// Returns the jobs that a log has specs of.
fn recorded(source: &LogSource, registry: &Registry) -> Result<Vec<JobKey>, Failure> {
    let mut jobs = RecordedJobs::default();
    records::fold(source, &mut |_, record| {
        jobs.take(record, registry);
        Ok(Flow::Go)
    })?;
    Ok(jobs.into_keys())
}

/// Returns the objects of manifest files. Several versions of one object may stand in them.
fn documents(files: &[PathBuf]) -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for file in files {
        // One file at a time: versions of one object in different files are no mistake.
        let found = inputs::manifests::examine(std::slice::from_ref(file));
        if found.unusable {
            let problems: Vec<String> = found.problems.iter().map(|problem| problem.line(true)).collect();
            return Err(Failure::new(problems.join("\ntrainyard: ")));
        }
        objects.extend(found.objects);
    }
    Ok(objects)
}
