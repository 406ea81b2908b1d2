//! Requests that a run gets from other processes (`trainyard stop`, `scale` and so on).
//!
//! Owns taking them from the folder and answering. `changes` makes the changes. Tests: `tests/local/control.rs`.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use super::turns::Wake;
use crate::out::Failure;
use crate::requests::{self, Answer, Request};

/// Polling interval for the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request, and where its answer goes.
pub(super) struct Received {
    pub(super) request: Request,
    answer: PathBuf,
}

impl Received {
    /// Gives the request back: it came too late. The process that asked takes care of it when the run is gone.
    pub(super) fn put_back(&self) {
        let _ = requests::write(&self.answer.with_extension(requests::REQUEST), &self.request);
    }

    /// Writes the answer. An error is ignored: the process that asked may have ended.
    pub(super) fn answer(&self, outcome: &Result<String, Failure>) {
        let answer = match outcome {
            Ok(message) => Answer { done: true, message: message.clone() },
            Err(failure) => Answer { done: false, message: failure.to_string() },
        };
        let _ = requests::write(&self.answer, &answer);
    }
}

/// Empties the folder and takes every request from now on, until what it returns is set to false.
pub(super) fn start(data_dir: &Path, wake: Sender<Wake>) -> Result<Arc<AtomicBool>, Failure> {
    let folder = requests::folder(data_dir);
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", folder.display()));
    let _ = fs::remove_dir_all(&folder);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    let listens = Arc::new(AtomicBool::new(true));
    let goes_on = Arc::clone(&listens);
    thread::spawn(move || {
        while goes_on.load(Ordering::SeqCst) && take(&folder, &wake) {
            thread::sleep(POLL_INTERVAL);
        }
    });
    Ok(listens)
}

/// Sends the requests in the folder to the run, oldest first. Returns false once the run takes none any more.
fn take(folder: &Path, wake: &Sender<Wake>) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == requests::REQUEST)).collect();
    paths.sort();
    for path in paths {
        let read = fs::read(&path).map_err(Failure::from).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        let _ = fs::remove_file(&path);
        let answer = path.with_extension(requests::ANSWER);
        match read {
            Ok(request) => {
                if wake.send(Wake::Request(Received { request, answer })).is_err() {
                    return false;
                }
            }
            Err(error) => {
                let message = format!("the run does not understand the request ({error}): is it of another version?");
                let _ = requests::write(&answer, &Answer { done: false, message });
            }
        }
    }
    true
}
