//! Requests to the run that has a data directory open: files in its folder `requests`, answered beside them.
//!
//! Owns their form, and asking. Files need no socket's short path, work wherever the directory is shared, and are as private as
//! it is. A request is renamed into place, so that half of one is never read. `commands::run` carries it out. Tests:
//! `tests/local/control.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use model::JobKey;
use serde::{Deserialize, Serialize};

use crate::commands::run::data_dir::holder;
use crate::jobs;
use crate::out::Failure;

/// Name of the folder.
pub(crate) const FOLDER: &str = "requests";
/// Ending of a request.
pub(crate) const REQUEST: &str = "json";
/// Ending of an answer.
pub(crate) const ANSWER: &str = "answer";
/// Ending of what is being written.
const DRAFT: &str = "new";

/// Polling interval for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// A job as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Its kind.
    pub(crate) kind: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

impl From<&JobKey> for Target {
    fn from(key: &JobKey) -> Self {
        Self { kind: key.kind.to_string(), namespace: key.namespace.to_string(), name: key.name.to_string() }
    }
}

impl Target {
    /// Returns its name as a user writes it.
    pub(crate) fn written(&self) -> String {
        jobs::name_in(&self.namespace, &self.name)
    }

    /// Returns the refusal to run a job again that has succeeded.
    pub(crate) fn has_succeeded(&self) -> Failure {
        Failure::missing(format!("{} succeeded: `trainyard rerun` runs it all the same", self.written()))
    }
}

/// Request to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub(crate) enum Request {
    /// End, as with Ctrl-C.
    Stop,
    /// Delete a job.
    Delete {
        /// The job.
        job: Target,
    },
    /// Change a job's number of pods.
    Scale {
        /// The job.
        job: Target,
        /// The group; absent for the one that the job's API scales.
        group: Option<String>,
        /// The number.
        replicas: u32,
    },
    /// Suspend a job, or resume it.
    Suspend {
        /// The job.
        job: Target,
        /// False resumes it.
        suspend: bool,
    },
    /// Run a job again that has ended.
    Rerun {
        /// The job.
        job: Target,
        /// Only if it did not succeed.
        failed: bool,
    },
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// True if it was done.
    pub(crate) done: bool,
    /// In words.
    pub(crate) message: String,
}

/// Returns the folder of a data directory.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join(FOLDER)
}

/// Writes a file that appears as a whole.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let draft = path.with_extension(DRAFT);
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    fs::write(&draft, serde_json::to_vec(content)?).and_then(|()| fs::rename(&draft, path)).map_err(failed)
}

/// Asks the run that has a data directory open, and waits for its answer. Returns what was done; `None` if the run ended and did not
/// see the request.
///
/// # Errors
/// When the run ends after it took the request, and when what was asked cannot be done.
pub(crate) fn ask(data_dir: &Path, request: &Request) -> Result<Option<String>, Failure> {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    let path = folder(data_dir).join(format!("{since:020}-{}.{REQUEST}", std::process::id()));
    let answer = path.with_extension(ANSWER);
    local::keep_files_private();
    write(&path, request)?;
    loop {
        // Asked first: an answer that was written last is then there.
        let is_live = holder(data_dir).is_some();
        if let Ok(bytes) = fs::read(&answer) {
            let _ = fs::remove_file(&answer);
            let Answer { done, message } = serde_json::from_slice(&bytes)?;
            return if done { Ok(Some(message)) } else { Err(Failure::missing(message)) };
        }
        if !is_live {
            return match fs::remove_file(&path) {
                Ok(()) => Ok(None),
                Err(_) => Err(Failure::missing(format!(
                    "{}: its run ended before it answered: say it again",
                    data_dir.display()
                ))),
            };
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
