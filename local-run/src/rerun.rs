//! Runs a job again that has ended, if no run is active: `trainyard rerun` and `retry`.
//!
//! Owns the run that is started for it, with the machine that the run before had. It must not change a run that is active. Tests: `cli/tests/local/control.rs`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use cluster::runtime::VirtualPods;
use cluster::{Cluster, Mode};
use model::Phase;
use serde_json::Value;
use terminal::out::Failure;

use crate::args::{RunArgs, ShowLogs};
use crate::jobs;
use crate::records::{self, LogSource};
use crate::requests::JobRef;
use crate::run::{attach_command, run};
use crate::{detached, nodes};

/// Arguments of a job's next run, started by `rerun` or `retry`.
pub struct Rerun<'a> {
    /// The data directory.
    pub data_dir: &'a Path,
    /// The job.
    pub job: &'a JobRef,
    /// Only if it did not succeed.
    pub failed: bool,
    /// In the background.
    pub detach: bool,
    /// Option that shows or hides the pods' output.
    pub logs: ShowLogs,
}

/// The arguments of a run alone, for one that another command starts.
#[derive(Debug, Parser)]
#[command(name = "trainyard")]
struct Alone {
    #[command(flatten)]
    args: RunArgs,
}

/// Runs a job again that has ended, and all else of its data directory that has not.
///
/// # Errors
/// Returns an error if its manifest is not stored, or the run cannot be started.
pub fn rerun(rerun: &Rerun<'_>) -> Result<ExitCode, Failure> {
    let JobRef { kind, namespace, name } = rerun.job;
    let mut words: Vec<OsString> = vec!["run".into(), "--data-dir".into(), rerun.data_dir.into(), "--rerun".into()];
    words.extend(["--stored".into(), format!("{kind}/{namespace}/{name}").into()]);
    words.extend(rerun.logs.option().map(OsString::from));
    let stored = Stored::read(rerun.data_dir, rerun.job)?;
    if rerun.failed && stored.succeeded {
        return Err(rerun.job.has_succeeded());
    }
    words.extend(["--nodes".into(), stored.machine.nodes.to_string().into()]);
    if stored.machine.gpus > 0 {
        words.extend(["--gpus".into(), stored.machine.gpus.to_string().into()]);
    }
    if rerun.detach {
        words.insert(1, detached::BACKGROUND.into());
        return detached::start(&words, None, &attach_command(rerun.data_dir));
    }
    let alone = Alone::try_parse_from(words).map_err(|error| Failure::new(error.to_string()))?;
    run(&alone.args)
}

/// Stored manifest, machine and result of a job that runs rerun.
pub(crate) struct Stored {
    pub(crate) manifest: Value,
    machine: nodes::Machine,
    succeeded: bool,
}

impl Stored {
    pub(crate) fn read(data_dir: &Path, job: &JobRef) -> Result<Self, Failure> {
        let file = data_dir.join("cluster.json");
        let cluster = Cluster::load(&file, Mode::Automatic, Box::new(VirtualPods))?;
        let missing =
            || Failure::missing(format!("{}: its manifest is not stored here any more: run its file", job.written()));
        let resource = cluster.resource_named(&job.kind).ok_or_else(missing)?;
        let manifest = cluster.last_applied(&resource, &job.namespace, &job.name).ok_or_else(missing)?;
        let state = records::latest(&LogSource::Path(data_dir.join("log")))?;
        let key = jobs::pick(&jobs::all(&state, false), Some(&format!("{}/{}/{}", job.kind, job.namespace, job.name)))?;
        let succeeded = state.job(&key).is_some_and(|job| job.phase == Phase::Succeeded);
        Ok(Self { manifest: (*manifest).clone(), machine: nodes::Machine::of(&cluster), succeeded })
    }
}
