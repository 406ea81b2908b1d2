//! Requests of other commands to the run of a data directory: to ask it, to stop it, to follow it.
//!
//! Owns the choice between a run that is active, which is asked (`requests`), and none, where the change is recorded for the next
//! one (`offline`). It must not print: what is known before the end goes to the caller's `note`. Tests:
//! `cli/tests/local/control.rs`, `cli/tests/local/detached.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use terminal::out::Failure;

use crate::data_dir::holder;
use crate::growing::GrowingFile;
use crate::jobs;
use crate::records::{self, LogSource};
use crate::requests::{self, Answer, JobRef, Request};
use crate::view::DirOption;
use crate::{detached, offline};

/// Polling interval for a run that is waited for or followed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the job that a user means.
///
/// # Errors
/// Returns an error if there is none, or several without a name.
pub fn job(data_dir: &Path, wanted: Option<&str>) -> Result<JobRef, Failure> {
    let state = records::latest(&log_of(data_dir))?;
    Ok(JobRef::from(&jobs::find(&state, wanted)?))
}

/// Asks the run that has the directory open; returns `None` where none has, or it ended first.
///
/// # Errors
/// Returns an error if what was asked cannot be done.
pub fn ask(data_dir: &Path, request: &Request) -> Result<Option<Answer>, Failure> {
    match holder(data_dir) {
        Some(_) => requests::ask(data_dir, request),
        None => Ok(None),
    }
}

/// Makes a change, by the run that has the directory open or here. Returns what was done.
///
/// # Errors
/// Returns an error if it cannot be done.
pub fn change(data_dir: &Path, request: &Request) -> Result<String, Failure> {
    if let Some(answer) = ask(data_dir, request)? {
        return Ok(answer.message);
    }
    let done = offline::change(data_dir, request)?;
    let later =
        if matches!(request, Request::Delete { .. }) { "" } else { "; no run is active: the next one applies it" };
    Ok(format!("{done}{later}"))
}

/// Ends a job as stopped, and waits for its end. Returns what was done.
///
/// # Errors
/// Returns an error if it cannot be stopped.
pub fn stop_job(data_dir: &Path, job: &JobRef, note: &mut dyn FnMut(&str)) -> Result<String, Failure> {
    let name = format!("{} {}", job.kind, job.written());
    let request = Request::StopJob { job: job.clone(), why: String::new() };
    match ask(data_dir, &request)? {
        Some(answer) => note(&answer.message),
        None => drop(offline::change(data_dir, &request)?),
    }
    loop {
        let is_live = holder(data_dir).is_some();
        let state = records::latest(&log_of(data_dir))?;
        let is_over = jobs::find(&state, Some(&format!("{}/{}/{}", job.kind, job.namespace, job.name)))
            .map_or(true, |key| state.job(&key).is_none_or(|job| job.object.is_gone() || job.phase.is_terminal()));
        if is_over || !is_live {
            return Ok(format!("{name} is stopped"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Stops a run, and waits for its end. Returns what was done.
///
/// # Errors
/// Returns an error if no run is active.
pub fn stop(data_dir: &Path, note: &mut dyn FnMut(&str)) -> Result<String, Failure> {
    let Some(found) = holder(data_dir) else {
        return Err(Failure::missing(format!("{}: no run is active there", data_dir.display())));
    };
    if let Some(answer) = requests::ask(data_dir, &Request::Stop)? {
        note(&answer.message);
    }
    while holder(data_dir).is_some_and(|now| now.pid == found.pid) {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(format!("the run of process {} has ended", found.pid))
}

/// Follows the output of a run that has no terminal, to its end. Returns its exit code, if it left one.
///
/// # Errors
/// Returns an error if there is no such run, or its output cannot be read.
pub fn attach(data_dir: &Path, print: &mut dyn FnMut(&str)) -> Result<Option<u8>, Failure> {
    let (code, output) = detached::noted(data_dir);
    let Some(output) = output else {
        let option = DirOption { data_dir }.text();
        return Err(Failure::missing(match holder(data_dir) {
            Some(holder) => format!(
                "the run of process {} has a terminal of its own; its jobs: trainyard ps{option}, their output: trainyard logs -f{option}",
                holder.pid,
            ),
            None if code.is_some() => format!("{}: no run is active there", data_dir.display()),
            None => format!("{}: no run was started there in the background: trainyard run -d", data_dir.display()),
        }));
    };
    follow(output, &|| holder(data_dir).is_some(), print)?;
    Ok(detached::noted(data_dir).0)
}

/// Reads a file until its writer ends.
fn follow(path: PathBuf, is_written: &dyn Fn() -> bool, print: &mut dyn FnMut(&str)) -> Result<(), Failure> {
    let mut file = GrowingFile::from(path, 0);
    loop {
        let was_on = is_written();
        file.read(!was_on, print)?;
        if !was_on {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn log_of(data_dir: &Path) -> LogSource {
    LogSource::Path(data_dir.join("log"))
}
