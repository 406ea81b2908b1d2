//! Ctrl-C on a terminal: asked once whether the jobs stop or go on without it.
//!
//! Owns the question and what follows from the answer. The process in front, to which a shell gives its terminal, is in `detached`.
//! Tests: `tests/local/detached.rs`.

use std::thread;

use embedded::Session;
use signal_hook::consts::{SIGHUP, SIGINT};

use super::turns::{Run, StopCause, Wake};
use super::{detached, keys};
use crate::out::Failure;
use crate::view::Place;

/// Asked at the first Ctrl-C.
const QUESTION: &str = "Stop the jobs [s], keep them in background [k], or continue [any other key]?";

/// The process in front of a run on a terminal.
pub(super) struct Front {
    pid: Option<rustix::process::Pid>,
    /// True while the user is asked whether to stop.
    is_asking: bool,
}

impl Front {
    /// Returns the process that started this one.
    pub(super) fn standing() -> Self {
        keys::begin();
        Self { pid: rustix::process::getppid(), is_asking: false }
    }
}

impl Run {
    pub(super) fn may_ask(&self) -> bool {
        self.stopped.is_none() && self.front.as_ref().is_some_and(|front| !front.is_asking)
    }

    fn is_asking(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.is_asking)
    }

    /// Asks whether to stop or to go on without the terminal.
    pub(super) fn ask(&mut self, cause: StopCause) {
        self.progress.ask(Some(QUESTION));
        if let Some(front) = &mut self.front {
            front.is_asking = true;
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
    pub(super) fn answered(&mut self, key: u8, session: &mut Session) -> Result<(), Failure> {
        if !self.is_asking() || self.stopped.is_some() {
            return Ok(());
        }
        self.progress.ask(None);
        match key.to_ascii_lowercase() {
            b's' => self.stop(StopCause::Signal(SIGINT), session),
            b'k' => {
                let option = Place { data_dir: &self.data_dir }.option();
                self.progress.say(&format!(
                    "running in the background. Follow it: trainyard attach{option}; end it: trainyard stop{option}"
                ));
                detached::leave(&self.data_dir)?;
                self.front = None;
                self.progress.leave_screen();
            }
            _ => {
                self.progress.say("the jobs continue");
                if let Some(front) = &mut self.front {
                    front.is_asking = false;
                }
            }
        }
        Ok(())
    }

    /// Stops where the process in front is gone: its terminal is, or it was killed.
    pub(super) fn look_at_front(&mut self, session: &mut Session) {
        let is_gone = self.front.as_ref().is_some_and(|front| rustix::process::getppid() != front.pid);
        if is_gone {
            self.front = None;
            if self.stopped.is_none() {
                self.stop(StopCause::Signal(SIGHUP), session);
            }
        }
    }
}
