//! Requests of other processes, as a run carries them out.
//!
//! Owns stopping and running again on request; other changes are in `changes`, jobs of others in `submissions`. Tests:
//! `cli/tests/local/control.rs`.

use embedded::Session;
use model::Phase;
use serde_json::Value;
use terminal::out::Failure;

use crate::listen::Received;
use crate::requests::{Answer, JobRef, Request};
use crate::turns::{Run, StopCause};
use crate::{attempts, changes};

impl Run {
    /// Does what another process asked for, and answers.
    pub(crate) fn serve(&mut self, received: &Received, session: &mut Session) {
        if self.stopped.is_some() {
            received.answer(Err(Failure::missing("the run is stopping")));
            return;
        }
        match &received.request {
            Request::Stop => {
                received.answer(Ok(Answer::done("stopping: the pods have their grace period".to_owned())));
                self.stop(StopCause::Request, session);
            }
            Request::Rerun { job, failed } => received.answer(self.rerun(job, *failed, session).map(Answer::done)),
            Request::Submit(submission) => received.answer(self.submit(submission, session)),
            change => {
                let is_own =
                    change.job().and_then(|job| uid_of(session, job)).is_none_or(|uid| !self.submitted.contains(&uid));
                let outcome = changes::make(session, change).unwrap_or_else(|| Ok(String::new()));
                if let Ok(done) = &outcome {
                    self.progress.say(&format!("as asked: {done}"));
                    if let (Request::Delete { job }, true) = (change, is_own) {
                        self.deleted.push(format!("{} {}/{}", job.kind, job.namespace, job.name));
                    }
                }
                received.answer(outcome.map(Answer::done));
            }
        }
    }

    /// Runs a job again that has ended.
    fn rerun(&mut self, job: &JobRef, failed: bool, session: &mut Session) -> Result<String, Failure> {
        let (resource, object) = changes::stored(session, job)?;
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let known = session.jobs().into_iter().find(|(key, _)| &*key.uid.0 == uid);
        let (key, phase) = known.ok_or_else(|| Failure::missing(format!("{}: it has not begun yet", job.written())))?;
        if !phase.is_terminal() {
            let word = session.phase_word(&key, phase);
            return Err(Failure::missing(format!("{} is {word}: stop it first, or wait for its end", job.written())));
        }
        if failed && phase == Phase::Succeeded {
            return Err(job.has_succeeded());
        }
        let manifest = session.cluster().last_applied(&resource, &job.namespace, &job.name);
        let manifest =
            manifest.ok_or_else(|| Failure::missing(format!("{}: its manifest is not stored", job.written())))?;
        let manifests = [(*manifest).clone()];
        let prepared = attempts::prepare(session, &manifests, true, &mut |line| self.progress.say(line))?;
        if let Some(rejection) = session.apply(&prepared)?.first() {
            return Err(Failure::missing(rejection.to_string()));
        }
        // The attempt before does not count any more.
        let owner = if self.submitted.remove(uid) { &mut self.submitted } else { &mut self.mine };
        owner.remove(uid);
        owner.extend(manifests.iter().filter_map(|manifest| session.job_uid(manifest)));
        Ok(format!("{} {} runs again", job.kind, job.written()))
    }
}

/// Returns the uid of a job that is there.
fn uid_of(session: &Session, job: &JobRef) -> Option<String> {
    let (_, object) = changes::stored(session, job).ok()?;
    object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
}
