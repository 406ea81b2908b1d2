//! The loop of a run: what wakes it, what it does then, and when it ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use apis::{ApiAnswer, ApiCall, Resource, Verb};
use local::{Output, Processes};
use model::Phase;

use super::now;
use crate::faults::Faults;
use crate::out::{self, Failure};
use crate::session::Session;
use crate::view::Progress;

/// How often the screen and timers are looked at when nothing happens.
const LOOK: Duration = Duration::from_millis(500);
/// Records after which the log is made to begin at the present state.
const COMPACT_AFTER: u64 = 200_000;

/// What wakes the loop.
pub(super) enum Wake {
    /// A pod has something to say.
    Pods,
    /// A line of a pod, or a warning.
    Output(Output),
    /// The user wants to stop.
    Stop,
}

/// A run under way.
pub(super) struct Run {
    pub(super) progress: Progress,
    pub(super) processes: Processes,
    pub(super) faults: Faults,
    pub(super) stops: u32,
}

impl Run {
    pub(super) fn until_done(&mut self, session: &mut Session, woken: &Receiver<Wake>) -> Result<(), Failure> {
        loop {
            let at = now();
            let processes = self.processes.clone();
            session.pump(&mut now, &mut |call, answer| provide(&processes, call, answer))?;
            self.faults.strike(session, at, &mut |_, namespace, pod, code| {
                // A pod that has just ended cannot be made to: the next of its name is not meant any more.
                let _ = processes.inject_exit(namespace, pod, code);
                Ok(())
            })?;
            session.pump(&mut now, &mut |call, answer| provide(&processes, call, answer))?;
            self.progress.update(session, at);
            if session.operator.log().records() > COMPACT_AFTER {
                session.operator.compact()?;
            }
            let pods = || session.cluster.objects_of(&Resource::new("v1", "Pod"));
            let jobs = session.jobs();
            let ended = if self.stops > 0 {
                jobs.is_empty() && pods().is_empty()
            } else {
                let swept = |job: &model::JobKey| session.operator.state().job(job).is_none_or(|j| j.doomed.is_empty());
                let over = |key: &model::JobKey, phase: Phase| {
                    let hopeless = session
                        .operator
                        .state()
                        .job(key)
                        .is_some_and(|j| j.phase == Phase::New && j.invalid().is_some());
                    (phase.is_terminal() || hopeless) && swept(key)
                };
                session.operator.is_ready() && jobs.iter().all(|(key, phase)| over(key, *phase))
            };
            if ended {
                return Ok(());
            }
            let wait = session.next_wake().map_or(LOOK, |wake| Duration::from_millis(wake.since_ms(now())).min(LOOK));
            match woken.recv_timeout(wait) {
                Ok(wake) => self.woken(wake, session)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("the pods' runtime has ended")),
            }
            while let Ok(wake) = woken.try_recv() {
                self.woken(wake, session)?;
            }
        }
    }

    pub(super) fn woken(&mut self, wake: Wake, session: &mut Session) -> Result<(), Failure> {
        match wake {
            Wake::Pods => {}
            Wake::Output(Output::Line { pod, container: _, text, .. }) => {
                self.progress.pod_line(&pod, &text);
            }
            Wake::Output(Output::Warning { pod, message, .. }) => {
                self.progress.say(&format!("warning: pod {pod}: {message}"));
            }
            Wake::Stop => {
                self.stops += 1;
                if self.stops > 1 {
                    self.progress.finish();
                    // The supervisors end every pod as soon as this process is gone.
                    std::process::exit(i32::from(out::FOUND));
                }
                self.progress.say("stopping: deleting the jobs; Ctrl-C kills their pods at once");
                for (key, _) in session.jobs() {
                    if let Some(resource) = session.cluster.resource_named(&key.kind) {
                        session.cluster.delete_as_user(&resource, &key.namespace, &key.name, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The runtime learns the names of what is created, so that they can stand for addresses.
fn provide(processes: &Processes, call: &ApiCall, answer: &ApiAnswer) {
    if let (Verb::Create, Ok(object)) = (call.verb, answer)
        && matches!(&*call.resource.kind, "Pod" | "Service")
    {
        processes.provide(object);
    }
}
