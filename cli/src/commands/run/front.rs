//! Ctrl-C on a terminal: asked once whether the jobs stop or go on without it.
//!
//! Owns the question and what follows from the answer. The process in front, to which a shell gives its terminal, is in `detached`.
//! Tests: `tests/local/detached.rs`.

use std::{io, thread};

use embedded::Session;
use signal_hook::consts::{SIGHUP, SIGINT};

use super::detached;
use super::turns::{Run, StopCause, Wake};
use crate::out::Failure;
use crate::view::Place;

/// The process in front of a run on a terminal.
pub(super) struct Front {
    pid: Option<rustix::process::Pid>,
    /// True while the user is asked whether to stop.
    is_asking: bool,
}

impl Front {
    /// Returns the process that started this one.
    pub(super) fn standing() -> Self {
        Self { pid: rustix::process::getppid(), is_asking: false }
    }
}

impl Run {
    pub(super) fn may_ask(&self) -> bool {
        self.stopped.is_none() && self.front.as_ref().is_some_and(|front| !front.is_asking)
    }

    pub(super) fn is_asking(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.is_asking)
    }

    /// Asks whether to stop or to go on without the terminal.
    pub(super) fn ask(&mut self, cause: StopCause) {
        self.progress.finish();
        self.progress.say("\nStop the jobs [s], or keep them running in the background [k]?");
        if let Some(front) = &mut self.front {
            front.is_asking = true;
        }
        let wake = self.wake.clone();
        thread::spawn(move || {
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line).unwrap_or_default();
            let _ = wake.send(if read == 0 { Wake::Stop(cause) } else { Wake::Answer(line) });
        });
    }

    /// Carries out the user's answer. Anything but stop and keep changes nothing.
    pub(super) fn answered(&mut self, answer: &str, session: &mut Session) -> Result<(), Failure> {
        if !self.is_asking() || self.stopped.is_some() {
            return Ok(());
        }
        match answer.trim().to_lowercase().as_str() {
            "s" | "stop" | "y" | "yes" => self.stop(StopCause::Signal(SIGINT), session)?,
            "k" | "keep" => {
                let option = Place { data_dir: &self.data_dir }.option();
                self.progress.say(&format!(
                    "running in the background. Follow it: trainyard attach{option}; end it: trainyard stop{option}"
                ));
                detached::leave(&self.data_dir)?;
                self.front = None;
                self.progress.leave_screen();
            }
            _ => {
                self.progress.say("continuing");
                if let Some(front) = &mut self.front {
                    front.is_asking = false;
                }
            }
        }
        Ok(())
    }

    /// Stops where the process in front is gone: its terminal is, or it was killed.
    pub(super) fn look_at_front(&mut self, session: &mut Session) -> Result<(), Failure> {
        let is_gone = self.front.as_ref().is_some_and(|front| rustix::process::getppid() != front.pid);
        if is_gone {
            self.front = None;
            if self.stopped.is_none() {
                self.stop(StopCause::Signal(SIGHUP), session)?;
            }
        }
        Ok(())
    }
}
