//! Runs a job again that has ended, if no run is active: `trainyard rerun` and `retry`.
//!
//! Owns the run that is started for it, with the machine that the run before had. Tests: `tests/local/control.rs`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use cluster::runtime::VirtualPods;
use cluster::{Cluster, Mode};
use model::Phase;
use serde_json::Value;

use super::args::{RunArgs, ShowLogs};
use super::{attach_command, detached, nodes, run};
use crate::jobs;
use crate::out::Failure;
use crate::records::{self, LogSource};
use crate::requests::Target;

/// Arguments of a job's next run, started by `rerun` or `retry`.
pub(crate) struct Again<'a> {
    /// The data directory.
    pub(crate) data_dir: &'a Path,
    /// The job.
    pub(crate) job: &'a Target,
    /// Only if it did not succeed.
    pub(crate) failed: bool,
    /// In the background.
    pub(crate) detach: bool,
    /// Option that shows or hides the pods' output.
    pub(crate) logs: ShowLogs,
}

/// The arguments of a run alone, for one that another command starts.
#[derive(Debug, Parser)]
struct Alone {
    #[command(flatten)]
    args: RunArgs,
}

/// Runs a job again that has ended, and whatever else of its data directory has not.
pub(crate) fn again(again: &Again<'_>) -> Result<ExitCode, Failure> {
    let Target { kind, namespace, name } = again.job;
    let mut words: Vec<OsString> = vec!["run".into(), "--data-dir".into(), again.data_dir.into(), "--rerun".into()];
    words.extend(["--stored".into(), format!("{kind}/{namespace}/{name}").into()]);
    words.extend(again.logs.option().map(OsString::from));
    let stored = Stored::read(again.data_dir, again.job)?;
    if again.failed && stored.succeeded {
        return Err(again.job.has_succeeded());
    }
    words.extend(["--nodes".into(), stored.machine.nodes.to_string().into()]);
    if stored.machine.gpus > 0 {
        words.extend(["--gpus".into(), stored.machine.gpus.to_string().into()]);
    }
    if again.detach {
        words.insert(1, detached::BACKGROUND.into());
        return detached::start(&words, None, &attach_command(again.data_dir));
    }
    let alone = Alone::try_parse_from(words).map_err(|error| Failure::new(error.to_string()))?;
    run(&alone.args)
}

/// Stored manifest, machine and result of a job that runs again.
pub(super) struct Stored {
    pub(super) manifest: Value,
    machine: nodes::Machine,
    succeeded: bool,
}

impl Stored {
    pub(super) fn read(data_dir: &Path, job: &Target) -> Result<Self, Failure> {
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
