//! The loop of a run: what wakes it, what it does then, and when it ends.
//!
//! Owns the order of one round. It must not make changes of jobs: `changes` and `serve` do. Tests: `cli/tests/local/`, by topic.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use apis::{ApiAnswer, ApiCall, Resource, Verb};
use embedded::Session;
use local::{Processes, now};
use model::{Phase, Timestamp};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use terminal::out::{self, Failure};

use crate::changed_files::{self, ChangedFiles};
use crate::faults::Faults;
use crate::foreground::Foreground;
use crate::listen::Received;
use crate::origins::Origins;
use crate::output::Lines;
use crate::peers::Places;
use crate::records::CACHE_AFTER;
use crate::requests::{JobRef, Request};
use crate::view::Progress;
use crate::{attempts, changes};

/// Maximum interval between two looks at the screen and the timers.
const SCREEN_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Records after which the log is made to begin at the present state.
const COMPACT_AFTER: u64 = 200_000;

/// Maximum time without output after the end of a run before its outcome is printed.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_millis(150);
/// Maximum number of batches of the pods' output printed in one turn.
const MAX_BATCHES: usize = 8;
/// Interval at which output that found no room is tried again.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for which a run that was stopped waits for the reader of its standard output.
const STOPPED_PRINT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a hint says that the run waits for the reader of its standard output.
const READER_HINT_AFTER: Duration = Duration::from_secs(5);

/// Wake-up of the loop.
pub(crate) enum Wake {
    /// A pod has something to say.
    Pods,
    /// Lines of pods wait to be printed.
    Lines,
    /// A pod differs from what a cluster would run.
    Warning { pod: String, message: String },
    /// The run is to stop.
    Stop(StopCause),
    /// Another process asks for something.
    Request(Received),
    /// The key by which the user answers the question whether to stop.
    Key(u8),
}

/// Why a run stops before its jobs have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// A signal.
    Signal(i32),
    /// `trainyard stop`.
    Request,
    /// Its time limit.
    Timeout,
}

impl StopCause {
    /// Returns the exit code of a run that stopped for this.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Signal(number) => {
                u8::try_from(number).map_or(out::FOUND, |number| out::SIGNAL.saturating_add(number))
            }
            Self::Request => Self::Signal(SIGTERM).code(),
            Self::Timeout => out::TIMEOUT,
        }
    }
}

/// A run under way.
pub(crate) struct Run {
    /// The manifest files, where the run follows them.
    pub(crate) files: Option<ChangedFiles>,
    /// Uids of the jobs of the manifests.
    pub(crate) mine: BTreeSet<String>,
    /// Uids of the jobs that other processes submitted.
    pub(crate) submitted: BTreeSet<String>,
    /// True once only those are left.
    pub(crate) is_for_others: bool,
    /// True if a manifest was rejected.
    pub(crate) rejected: bool,
    /// Jobs that were deleted before their end, in words.
    pub(crate) deleted: Vec<String>,
    pub(crate) progress: Progress,
    pub(crate) processes: Processes,
    /// Faults to inject, where some were asked for.
    pub(crate) faults: Option<Faults>,
    pub(crate) lines: Arc<Lines>,
    pub(crate) places: Places,
    pub(crate) origins: Origins,
    /// Time at which it stops.
    pub(crate) deadline: Option<Timestamp>,
    /// Why it stops, once it does.
    pub(crate) stopped: Option<StopCause>,
    /// The process in front of it, while it is on a terminal.
    pub(crate) foreground: Option<Foreground>,
    pub(crate) data_dir: PathBuf,
    pub(crate) wake: Sender<Wake>,
    /// True while requests of other processes are taken.
    pub(crate) listens: Arc<AtomicBool>,
}

impl Run {
    pub(crate) fn until_done(&mut self, session: &mut Session, woken: &Receiver<Wake>) -> Result<(), Failure> {
        loop {
            self.apply_changed_files(session)?;
            let at = now();
            if self.stopped.is_none() && self.deadline.is_some_and(|deadline| at >= deadline) {
                self.stop(StopCause::Timeout, session);
            }
            self.check_foreground(session);
            self.places.update(session);
            let processes = self.processes.clone();
            session.settle(&mut now, &mut |call, answer| provide(&processes, call, answer))?;
            if let Some(faults) = &mut self.faults {
                faults.inject(session, at, &mut |_, namespace, pod, code| {
                    // A pod that has just ended cannot be made to: the next of its name is not meant any more.
                    let _ = processes.inject_exit(namespace, pod, code);
                    Ok(())
                })?;
                session.settle(&mut now, &mut |call, answer| provide(&processes, call, answer))?;
            }
            let more = self.show_lines(session);
            self.note_others(session);
            // A table that waits for a reader would be old when it is read.
            if out::has_room() {
                self.progress.update(session, at);
            }
            if session.operator.log().records() > COMPACT_AFTER {
                session.operator.compact()?;
            } else if session.operator.uncached() > CACHE_AFTER
                && let Err(error) = session.operator.cache_state()
            {
                tracing::warn!(%error, "the state cannot be cached beside the log");
            }
            let pods = || session.cluster().objects_of(&Resource::new("v1", "Pod"));
            let jobs = session.jobs();
            let is_hopeless = |key: &model::JobKey| {
                session.operator.state().job(key).is_some_and(|j| j.phase == Phase::New && j.invalid().is_some())
            };
            let ended = if self.stopped.is_some() {
                let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                jobs.iter().all(|(key, phase)| phase.is_terminal() || is_hopeless(key))
                    && pods().iter().all(|pod| is_over(pod))
            } else {
                let swept =
                    |job: &model::JobKey| session.operator.state().job(job).is_none_or(|j| j.deleting_pods.is_empty());
                let over = |key: &model::JobKey, phase: Phase| (phase.is_terminal() || is_hopeless(key)) && swept(key);
                session.operator.is_ready() && jobs.iter().all(|(key, phase)| over(key, *phase))
            };
            if ended {
                self.listens.store(false, Ordering::SeqCst);
                return Ok(());
            }
            let mut wait = session.next_wake().map_or(SCREEN_POLL_INTERVAL, |wake| {
                Duration::from_millis(wake.since_ms(now())).min(SCREEN_POLL_INTERVAL)
            });
            if self.files.is_some() {
                wait = wait.min(changed_files::POLL_INTERVAL);
            }
            if let Some(deadline) = self.deadline.filter(|_| self.stopped.is_none()) {
                wait = wait.min(Duration::from_millis(deadline.since_ms(now())));
            }
            if more {
                wait = wait.min(if out::has_room() { Duration::ZERO } else { ROOM_POLL_INTERVAL });
            }
            match woken.recv_timeout(wait) {
                Ok(wake) => self.woken(wake, session)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("the runtime of the pods ended: run the command again"));
                }
            }
            while let Ok(wake) = woken.try_recv() {
                self.woken(wake, session)?;
            }
        }
    }

    /// Applies the manifest files again if they have changed. What is wrong with them is printed, and the jobs stay as they are.
    fn apply_changed_files(&mut self, session: &mut Session) -> Result<(), Failure> {
        let Some(changed) = self.files.as_mut().filter(|_| self.stopped.is_none()).and_then(ChangedFiles::take) else {
            return Ok(());
        };
        let manifests = match changed {
            Ok(manifests) => manifests,
            Err(problem) => {
                self.progress.say(&format!("the changed files are not applied: {problem}"));
                return Ok(());
            }
        };
        self.progress.say("the manifest files have changed: they are applied again");
        let prepared = attempts::prepare(session, &manifests, false, &mut |line| self.progress.say(line))?;
        for rejection in session.apply(&prepared)? {
            self.rejected = true;
            self.progress.say(&rejection.to_string());
        }
        for object in &manifests {
            self.processes.provide(object);
            self.places.add(object);
        }
        self.mine.extend(manifests.iter().filter_map(|manifest| session.job_uid(manifest)));
        Ok(())
    }

    pub(crate) fn woken(&mut self, wake: Wake, session: &mut Session) -> Result<(), Failure> {
        match wake {
            Wake::Pods | Wake::Lines => {}
            Wake::Warning { pod, message } => self.progress.say(&format!("warning: pod {pod}: {message}")),
            Wake::Stop(cause @ StopCause::Signal(SIGINT)) if self.may_ask() => self.ask(cause),
            Wake::Stop(cause) => self.stop(cause, session),
            Wake::Request(received) => self.serve(&received, session),
            Wake::Key(key) => self.answered(key, session)?,
        }
        Ok(())
    }

    /// Ends the jobs as stopped, and at the second stop ends at once.
    pub(crate) fn stop(&mut self, cause: StopCause, session: &mut Session) {
        if self.stopped.is_some() {
            self.progress.finish();
            out::wait_written(ROOM_POLL_INTERVAL);
            // The supervisors end every pod as soon as this process is gone.
            std::process::exit(i32::from(cause.code()));
        }
        self.stopped = Some(cause);
        self.progress.ask(None);
        let why = if cause == StopCause::Timeout { "the time limit has passed: " } else { "" };
        self.progress.say(&format!("{why}stopping the jobs; Ctrl-C kills their pods at once"));
        let why = if cause == StopCause::Timeout { "--timeout has passed" } else { "" };
        // What has ended stays as it is, and what was not started has nothing to end.
        for (key, _) in session.jobs().into_iter().filter(|(_, phase)| !phase.is_terminal()) {
            let request = Request::StopJob { job: JobRef::from(&key), why: why.to_owned() };
            if let Some(Err(failure)) = changes::make(session, &request) {
                self.progress.say(&failure.to_string());
            }
        }
    }

    /// Prints lines of pods while standard output takes them. Returns whether some are left.
    fn show_lines(&mut self, session: &Session) -> bool {
        let others = self.pods_of_others(session);
        for _ in 0..MAX_BATCHES {
            if !out::has_room() {
                return !self.lines.is_empty();
            }
            let Some(mut batch) = self.lines.take() else { return false };
            batch.lines.retain(|(pod, _)| !others.contains(pod));
            if !batch.lines.is_empty() {
                self.progress.pod_lines(session.operator.state(), &batch.lines);
            }
            if batch.dropped > 0 {
                let dropped = batch.dropped;
                self.progress.gap(&format!(
                    "... {dropped} lines of pods are not shown: standard output is too slow. They are in the log files"
                ));
            }
        }
        true
    }

    /// Prints what the pods wrote last: it may still be on its way. Returns whether the user wants no more of it.
    pub(crate) fn last_lines(&mut self, session: &Session, woken: &Receiver<Wake>) -> bool {
        let started = Instant::now();
        loop {
            match woken.recv_timeout(LAST_OUTPUT_TIMEOUT) {
                Ok(Wake::Stop(_)) => return true,
                Ok(Wake::Warning { pod, message }) => self.progress.say(&format!("warning: pod {pod}: {message}")),
                Err(_) if self.lines.is_empty() => return false,
                Ok(Wake::Request(received)) => received.put_back(),
                Ok(Wake::Pods | Wake::Lines | Wake::Key(_)) | Err(_) => {}
            }
            self.show_lines(session);
            if self.stopped.is_some() && started.elapsed() > STOPPED_PRINT_TIMEOUT {
                return true;
            }
        }
    }
}

/// Waits until everything is printed, or the user ends the wait. Reports the lines not printed.
pub(crate) fn finish_printing(woken: &Receiver<Wake>, stopped: bool) {
    let (started, mut hinted) = (Instant::now(), false);
    while !out::wait_written(ROOM_POLL_INTERVAL) {
        let stop = woken.try_iter().any(|wake| matches!(wake, Wake::Stop(_)));
        if stop || stopped && started.elapsed() > STOPPED_PRINT_TIMEOUT {
            break;
        }
        if !hinted && started.elapsed() > READER_HINT_AFTER {
            hinted = true;
            out::warn(
                "the run has ended; its output waits for the reader of standard output. Ctrl-C ends it without waiting",
            );
        }
    }
    let left = out::unwritten();
    if left > 0 {
        out::warn(&format!("{left} lines were not printed: standard output was blocked"));
    }
}

/// Provides what the operator wrote to the runtime: names that stand for addresses, and settings that pods read.
fn provide(processes: &Processes, call: &ApiCall, answer: &ApiAnswer) {
    if let (Verb::Create | Verb::Patch, Ok(object)) = (call.verb, answer)
        && matches!(&*call.resource.kind, "Pod" | "Service" | "ConfigMap")
    {
        processes.provide(object);
    }
}
