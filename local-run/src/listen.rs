//! Requests that a run gets from other processes (`trainyard stop`, `scale` and so on).
//!
//! Owns taking them from the folder and answering. `changes` makes the changes. Tests: `cli/tests/local/control.rs`.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, SystemTime};

use terminal::out::Failure;

use crate::requests::{self, Answer, Request};
use crate::turns::Wake;

/// Polling interval for the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request, and where its answer goes.
pub(crate) struct Received {
    pub(crate) request: Request,
    answer: PathBuf,
}

impl Received {
    /// Gives the request back: it came too late. The process that asked takes care of it when the run is gone.
    pub(crate) fn put_back(&self) {
        let _ = requests::write(&self.answer.with_extension(requests::REQUEST), &self.request);
    }

    /// Writes the answer. An error is ignored: the process that asked may have ended.
    pub(crate) fn answer(&self, outcome: Result<Answer, Failure>) {
        let answer = outcome.unwrap_or_else(|failure| Answer::refused(failure.to_string()));
        let _ = requests::write(&self.answer, &answer);
    }
}

/// Takes every request from now on, until what it returns is set to false. Those from before `opened` were meant for another run.
pub(crate) fn start(data_dir: &Path, opened: SystemTime, wake: Sender<Wake>) -> Result<Arc<AtomicBool>, Failure> {
    let folder = requests::folder(data_dir);
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", folder.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    refuse_old(&folder, opened);
    let listens = Arc::new(AtomicBool::new(true));
    let goes_on = Arc::clone(&listens);
    thread::Builder::new().name("requests".to_owned()).spawn(move || {
        while goes_on.load(Ordering::SeqCst) && take(&folder, &wake) {
            thread::sleep(POLL_INTERVAL);
        }
    })?;
    Ok(listens)
}

/// Answers the requests from before a time, and removes older answers that have no reader left.
fn refuse_old(folder: &Path, opened: SystemTime) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if requests::asked_at(&path).is_some_and(|asked| asked >= opened) {
            continue;
        }
        let _ = fs::remove_file(&path);
        if path.extension().is_some_and(|ending| ending == requests::REQUEST) {
            let message = "the run ended before it answered: say it again".to_owned();
            let _ = requests::write(&path.with_extension(requests::ANSWER), &Answer::refused(message));
        }
    }
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
                let _ = requests::write(&answer, &Answer::refused(message));
            }
        }
    }
    true
}
