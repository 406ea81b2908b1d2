//! A scenario that does to a job again what a log recorded of it.
//!
//! Owns the course: records come in order, the scenario is run before it is handed over, so that a difference is known.
//! `recording` and `job` turn facts into steps, `manifest` finds the manifest and its edits, `text` writes the file. Nothing is
//! guessed: what no step can do is a remark. It must not read logs or print. Tests: at the end of each file, and
//! `cli/tests/local/from_log.rs`.

mod calls;
mod job;
mod manifest;
mod nodes;
mod pods;
mod recorded;
mod recording;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use apis::Registry;
use cluster::runtime::VirtualPods;
use cluster::{Cluster, Mode};
use engine::Record;
use model::{JobFact, JobKey, Text};
use serde_json::Value;

pub use self::manifest::{Manifests, Unknown};
pub use self::recorded::RecordedScenario;
pub use self::recording::Recording;
use crate::scenario::{Error, parse};

/// Maximum number of differences between the log and the scenario's run that are reported.
const MAX_DIFFERENCES: usize = 5;

/// The newest job of each name that a log has specs of.
#[derive(Debug, Default)]
pub struct RecordedJobs {
    newest: BTreeMap<(Text, Text, Text), JobKey>,
}

impl RecordedJobs {
    /// Takes a record in.
    pub fn take(&mut self, record: &Record, registry: &Registry) {
        if let Some(key) = record.job()
            && registry.is_job(&key.kind)
            && record.job_facts().iter().any(|fact| matches!(fact, JobFact::Spec(_)))
        {
            self.newest.insert((key.kind.clone(), key.namespace.clone(), key.name.clone()), key.clone());
        }
    }

    /// Returns the jobs.
    pub fn into_keys(self) -> Vec<JobKey> {
        self.newest.into_values().collect()
    }
}

/// A scenario as a file, and what does not fit.
#[derive(Debug)]
pub struct WrittenScenario {
    /// The file.
    pub text: String,
    /// What no step does again.
    pub remarks: Vec<String>,
    /// What the scenario's run and the log differ in.
    pub differences: Vec<String>,
}

/// Writes a scenario of a log's name; `name` is that of its own file. Where it is not recorded whether calls took effect, both are
/// tried.
///
/// # Errors
/// Returns an error if what was written is no scenario.
pub fn write(scenario: RecordedScenario, log: &str, name: &str) -> Result<WrittenScenario, Error> {
    let mut scenario = scenario;
    let mut found = differences(&text::write(&scenario, log, &[]), name)?;
    let mut other = scenario.clone();
    if !found.is_empty() && other.assume_applied() {
        let otherwise = differences(&text::write(&other, log, &[]), name)?;
        if otherwise.is_empty() {
            (scenario, found) = (other, otherwise);
        }
    }
    let text = text::write(&scenario, log, &found);
    Ok(WrittenScenario { text, remarks: scenario.remarks(), differences: found })
}

/// Runs a scenario and returns what came out otherwise than the log recorded.
fn differences(text: &str, name: &str) -> Result<Vec<String>, Error> {
    let scenario = parse(text, name)?;
    let run = crate::run(&scenario);
    let mut differences = crate::check::failures(&scenario, &run);
    differences.truncate(MAX_DIFFERENCES);
    Ok(differences)
}

/// Returns the objects that a data directory holds of the run: the job, and what is no job.
pub fn stored(log: &Path, key: &JobKey, registry: &Registry) -> Vec<Value> {
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
