//! `trainyard scenario from-log`: writes a scenario that does to a job again what a log recorded of it.
//!
//! Owns the command: which job, which files, the warnings. [`recording`] and [`job`] turn facts into steps, [`manifest`] finds the manifest and
//! its edits, [`text`] writes the file. Nothing is guessed: what no step can do is a remark, and the scenario is run before it is
//! handed over, so that a difference is known. Tests: `tests/local/from_log.rs`.

mod calls;
mod job;
mod manifest;
mod nodes;
mod pods;
mod recorded;
mod recording;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use cluster::runtime::VirtualPods;
use cluster::{Cluster, Mode};
use engine::{Scope, State};
use local_run::jobs;
use local_run::records::{self, Flow, LogSource};
use local_run::session::flag;
use model::{Fact, JobKey, Text};
use serde_json::Value;
use terminal::out::{self, Failure};

use self::manifest::Manifests;
use self::recording::Recording;

/// Maximum number of differences between the log and the scenario's run that are reported.
const MAX_DIFFERENCES: usize = 5;

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
    let stored = stored(&args.log, &key, &registry);
    let manifests = Manifests::new(api.clone(), &key, given, stored);
    let mut recording = Recording::new(&key, api.clone(), manifests, flags);
    let mut state = State::default();
    records::each(&source, &mut state, &mut |state, record| {
        recording.take(state, &record).map_err(|error| error.in_log(&args.log, &key))?;
        state.fold(&record)?;
        recording.after(state, &record);
        Ok(Flow::Go)
    })?;
    let Some(mut scenario) = recording.finish(&state) else {
        return Err(Failure::new(format!(
            "{}: the log begins after {}: what happened before its first record is not in it",
            args.log.display(),
            jobs::written(&key)
        )));
    };
    let log = args.log.display().to_string();
    let mut differing = differences(&text::write(&scenario, &log, &[]), args.output.as_deref())?;
    let mut other = scenario.clone();
    if !differing.is_empty() && other.assume_applied() {
        let otherwise = differences(&text::write(&other, &log, &[]), args.output.as_deref())?;
        if otherwise.is_empty() {
            (scenario, differing) = (other, otherwise);
        }
    }
    for remark in scenario.remarks() {
        out::warn(&remark);
    }
    for difference in &differing {
        out::warn(&format!("the scenario does not do what the log recorded: {difference}"));
    }
    let text = text::write(&scenario, &log, &differing);
    match &args.output {
        None => out::print(&text),
        Some(path) => {
            fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        }
    }
    Ok(if differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

/// Returns the newest job of each name that a log has records of.
fn recorded(source: &LogSource, registry: &Registry) -> Result<Vec<JobKey>, Failure> {
    let mut newest: BTreeMap<(Text, Text, Text), JobKey> = BTreeMap::new();
    records::fold(source, &mut |_, record| {
        if let Scope::Job(key) = &record.scope
            && registry.is_job(&key.kind)
            && record.facts.iter().any(|fact| matches!(fact, Fact::Spec(_)))
        {
            newest.insert((key.kind.clone(), key.namespace.clone(), key.name.clone()), key.clone());
        }
        Ok(Flow::Go)
    })?;
    Ok(newest.into_values().collect())
}

/// Runs a scenario and returns what came out otherwise than the log recorded.
fn differences(text: &str, output: Option<&Path>) -> Result<Vec<String>, Failure> {
    let name = output.map_or_else(|| "scenario".to_owned(), |path| path.display().to_string());
    let scenario = simulator::parse(text, &name)?;
    let run = simulator::run(&scenario);
    let mut differences = simulator::check::failures(&scenario, &run);
    differences.truncate(MAX_DIFFERENCES);
    Ok(differences)
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

/// Returns the objects that a data directory holds of the run: the job, and what is no job.
fn stored(log: &Path, key: &JobKey, registry: &Registry) -> Vec<Value> {
    let Ok(cluster) = Cluster::load(&log.join("cluster.json"), Mode::Automatic, Box::new(VirtualPods)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for api in registry.iter() {
        let resource = api.resource();
        for object in cluster.objects_of(&resource) {
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
            if !registry.is_job(&resource.kind) || uid == Some(&*key.uid.0) {
                found.push(manifest::as_written(&object));
            }
        }
    }
    found
}
