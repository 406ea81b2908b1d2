//! Requests to the run that has a data directory open: files in its folder `requests`, answered beside them.
//!
//! Owns their form, and asking. Files need no socket's short path, work wherever the directory is shared, and are as private as
//! it is. A request is renamed into place, so that half of one is never read. `serve` carries it out. Tests:
//! `cli/tests/local/control.rs`.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use model::JobKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use terminal::out::Failure;

use crate::data_dir::holder;

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
pub struct JobRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl From<&JobKey> for JobRef {
    fn from(key: &JobKey) -> Self {
        Self { kind: key.kind.to_string(), namespace: key.namespace.to_string(), name: key.name.to_string() }
    }
}

impl JobRef {
    /// Returns its name as a user writes it.
    pub fn written(&self) -> String {
        model::id::name_in(&self.namespace, &self.name)
    }

    /// Returns the refusal to run a job again that has succeeded.
    pub(crate) fn has_succeeded(&self) -> Failure {
        Failure::missing(format!("{} succeeded: `trainyard rerun` runs it all the same", self.written()))
    }
}

/// Request to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub enum Request {
    /// End, as with Ctrl-C.
    Stop,
    /// End a job as stopped: it is kept.
    StopJob {
        /// The job.
        job: JobRef,
        /// Why, in words; may be empty.
        why: String,
    },
    /// Delete a job.
    Delete {
        /// The job.
        job: JobRef,
    },
    /// Change a job's number of pods.
    Scale {
        /// The job.
        job: JobRef,
        /// The group; absent for the one that the job's API scales.
        group: Option<String>,
        /// The number.
        replicas: u32,
    },
    /// Suspend a job, or resume it.
    Suspend {
        /// The job.
        job: JobRef,
        /// False resumes it.
        suspend: bool,
    },
    /// Run manifests as well, as jobs of the process that asks.
    Submit(Submission),
    /// Run a job again that has ended.
    Rerun {
        /// The job.
        job: JobRef,
        /// Only if it did not succeed.
        failed: bool,
    },
}

impl Request {
    /// Returns the job that is to be changed.
    pub(crate) fn job(&self) -> Option<&JobRef> {
        match self {
            Self::StopJob { job, .. }
            | Self::Delete { job }
            | Self::Scale { job, .. }
            | Self::Suspend { job, .. }
            | Self::Rerun { job, .. } => Some(job),
            Self::Stop | Self::Submit(_) => None,
        }
    }
}

/// Manifests for a run, and what they need of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The objects.
    pub manifests: Vec<Value>,
    /// Jobs that have ended and are unchanged run again.
    pub rerun: bool,
    /// A job whose name is taken by one that has not ended gets a number.
    pub numbered: bool,
    /// GPUs that the run must have for it; absent where none were asked for.
    pub gpus: Option<u32>,
    /// Directory in which its programs start.
    pub workdir: PathBuf,
    /// Environment that its programs inherit.
    pub environment: Vec<(String, String)>,
}

/// A job that a run has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its name.
    pub job: JobRef,
    /// Its uid.
    pub uid: String,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// True if it was done.
    pub done: bool,
    /// In words.
    pub message: String,
    /// The jobs that were taken, for a submission.
    #[serde(default)]
    pub jobs: Vec<Submitted>,
}

impl Answer {
    /// Returns the answer that something was done.
    pub(crate) fn done(message: String) -> Self {
        Self { done: true, message, jobs: Vec::new() }
    }

    /// Returns the answer that it was not.
    pub(crate) fn refused(message: String) -> Self {
        Self { done: false, message, jobs: Vec::new() }
    }
}

/// Returns the folder of a data directory.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join(FOLDER)
}

/// Returns the time at which a request was written, by the name of its file or of its answer's.
pub(crate) fn asked_at(path: &Path) -> Option<SystemTime> {
    let (since, _) = path.file_stem()?.to_str()?.split_once('-')?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(since.parse().ok()?))
}

/// Writes a file that appears as a whole.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let draft = path.with_extension(DRAFT);
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    fs::write(&draft, serde_json::to_vec(content)?).and_then(|()| fs::rename(&draft, path)).map_err(failed)
}

/// Asks the run that has a data directory open, and waits for its answer. Returns the answer of what was done; `None` if the run ended
/// and did not see the request.
///
/// # Errors
/// When the run ends after it took the request, and when what was asked cannot be done.
pub(crate) fn ask(data_dir: &Path, request: &Request) -> Result<Option<Answer>, Failure> {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    let path = folder(data_dir).join(format!("{since:020}-{}.{REQUEST}", std::process::id()));
    let answer = path.with_extension(ANSWER);
    local::keep_files_private();
    // The run may not have come to it.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder(data_dir));
    write(&path, request)?;
    let asked = holder(data_dir);
    loop {
        // Asked first: an answer that was written last is then there.
        let now = holder(data_dir);
        let is_live = now.is_some() && (now == asked || path.exists());
        if let Ok(bytes) = fs::read(&answer) {
            let _ = fs::remove_file(&answer);
            let answer: Answer = serde_json::from_slice(&bytes)?;
            return if answer.done { Ok(Some(answer)) } else { Err(Failure::missing(answer.message)) };
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
