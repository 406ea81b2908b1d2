//! Ctrl-C on a terminal: asked once whether the jobs stop or continue without it.
//!
//! Owns the question and what follows from the answer. The process in front, to which a shell gives its terminal, is in `detached`.
//! Tests: `cli/tests/local/detached.rs`.

use std::thread;

use embedded::Session;
use signal_hook::consts::{SIGHUP, SIGINT};
use terminal::out::Failure;

use crate::turns::{Run, StopCause, Wake};
use crate::view::DirOption;
use crate::{detached, keys};

/// Asked at the first Ctrl-C.
const QUESTION: &str = "Stop the jobs [s], keep them in background [k], or continue [any other key]?";

/// The process in front of a run on a terminal.
pub(crate) struct Foreground {
    pid: Option<rustix::process::Pid>,
    /// True while the user is asked whether to stop.
    is_asking: bool,
}

impl Foreground {
    /// Returns the process that started this one.
    pub(crate) fn of_parent() -> Self {
        keys::begin();
        Self { pid: rustix::process::getppid(), is_asking: false }
    }
}

impl Run {
    pub(crate) fn may_ask(&self) -> bool {
        self.stopped.is_none() && self.foreground.as_ref().is_some_and(|process| !process.is_asking)
    }

    fn is_asking(&self) -> bool {
        self.foreground.as_ref().is_some_and(|process| process.is_asking)
    }

    /// Asks whether to stop or to continue without the terminal.
    pub(crate) fn ask(&mut self, cause: StopCause) {
        self.progress.ask(Some(QUESTION));
        if let Some(process) = &mut self.foreground {
            process.is_asking = true;
        }
        keys::forget();
        let wake = self.wake.clone();
        let asks = thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let _ = wake.send(keys::next().map_or(Wake::Stop(cause), Wake::Key));
        });
        if asks.is_err() {
            // Without the thread no answer is read.
            let _ = self.wake.send(Wake::Stop(cause));
        }
    }

    /// Carries out the user's answer. Any key but those for stop and keep changes nothing.
    pub(crate) fn answered(&mut self, key: u8, session: &mut Session) -> Result<(), Failure> {
        if !self.is_asking() || self.stopped.is_some() {
            return Ok(());
        }
        self.progress.ask(None);
        match key.to_ascii_lowercase() {
            b's' => self.stop(StopCause::Signal(SIGINT), session),
            b'k' => {
                let option = DirOption { data_dir: &self.data_dir }.text();
                self.progress.say(&format!(
                    "running in the background. Follow it: trainyard attach{option}; end it: trainyard stop{option}"
                ));
                detached::leave(&self.data_dir)?;
                self.foreground = None;
                self.progress.leave_screen();
            }
            _ => {
                self.progress.say("the jobs continue");
                if let Some(process) = &mut self.foreground {
                    process.is_asking = false;
                }
            }
        }
        Ok(())
    }

    /// Stops where the process in front is gone: its terminal is, or it was killed.
    pub(crate) fn check_foreground(&mut self, session: &mut Session) {
        let is_gone = self.foreground.as_ref().is_some_and(|process| rustix::process::getppid() != process.pid);
        if is_gone {
            self.foreground = None;
            if self.stopped.is_none() {
                self.stop(StopCause::Signal(SIGHUP), session);
            }
        }
    }
}
