//! Dispatch: the commands that follow from the state become calls, at most one in flight per object.
//!
//! Owns which commands are dispatched now: the in-flight limit, the backlog's order, the status throttle. It must not decide
//! what is to be done ([`State::effects_of`](engine::State::effects_of)) nor render it. Tests: `snapshots/tests/limits.rs`.

use std::collections::BTreeMap;

use apis::{ApiCall, ApiError};
use model::{Command, Effect, JobKey, Stamp, Timestamp};

use crate::authorize::Verdict;
use crate::in_flight::Purpose;
use crate::operator::Operator;

impl Operator {
    /// Dispatches for the jobs in the backlog until the in-flight limit is reached. `causes` names the record that each job's
    /// calls follow from, where this turn wrote one.
    pub(crate) fn dispatch(&mut self, causes: &BTreeMap<JobKey, Stamp>, now: Timestamp, calls: &mut Vec<ApiCall>) {
        // Each job gets its share, then in order what others left.
        for shared in [true, false] {
            let mut unfinished = Vec::new();
            while self.in_flight.free() > 0
                && let Some(key) = self.backlog.next()
            {
                let free = self.in_flight.free();
                let limit = if shared { self.backlog.share(free).min(free) } else { free };
                let cause = causes.get(&key).copied().unwrap_or(self.state.stamp);
                if !self.dispatch_job(&key, cause, limit, now, calls) {
                    unfinished.push(key);
                }
            }
            self.backlog.put_back(unfinished);
        }
    }

    /// Dispatches up to `limit` of the job's outstanding commands, tagged with the record `cause`. Returns false if some are
    /// left.
    fn dispatch_job(
        &mut self,
        key: &JobKey,
        cause: Stamp,
        limit: usize,
        now: Timestamp,
        calls: &mut Vec<ApiCall>,
    ) -> bool {
        for read in self.in_flight.take_reads(key) {
            if let Some(call) = self.render_read(key, &read) {
                calls.push(self.send(key, ApiCall { cause, ..call }, read));
            }
        }
        let (commands, all) = self.outstanding(key, limit, now);
        let mut pods = self.render_pods(key, &commands);
        for command in commands {
            let rendered = if matches!(command, Command::CreatePod { .. }) {
                pods.pop_front().unwrap_or(Ok(None))
            } else {
                self.render(key, &command)
            };
            match rendered {
                Ok(Some(call)) => match self.authorize(key, &command, &call) {
                    Verdict::Permitted => {
                        calls.push(self.send(key, ApiCall { cause, ..call }, Purpose::Command(command)));
                    }
                    Verdict::Undecided { found, next } => {
                        let read = Purpose::ReadBefore { command, found, next };
                        if let Some(call) = self.render_read(key, &read) {
                            calls.push(self.send(key, ApiCall { cause, ..call }, read));
                        }
                    }
                    Verdict::Refused(error) => self.reject(key, command, error),
                },
                Ok(None) => {}
                Err(error) => {
                    let invalid = ApiError { code: 422, reason: "Invalid".into(), message: error.to_string() };
                    self.reject(key, command, invalid);
                }
            }
        }
        if all {
            self.manifests.forget(key);
            self.reads.remove(key);
        }
        all
    }

    /// Counts a command that is not sent as rejected by the API server: its reason is reported, and other commands continue.
    fn reject(&mut self, key: &JobKey, command: Command, error: ApiError) {
        let id = self.in_flight.begin(key, Purpose::Command(command));
        self.inbox.answer(id, Err(error));
    }

    /// Returns up to `limit` of the job's commands without a call in flight, and whether these are all.
    fn outstanding(&mut self, key: &JobKey, limit: usize, now: Timestamp) -> (Vec<Command>, bool) {
        let limit = limit.min(self.in_flight.free());
        let mut commands = Vec::new();
        for effect in self.state.effects_of(key) {
            let Effect::Dispatch(command) = effect else { continue };
            if self.in_flight.contains(key, &command.object()) {
                continue;
            }
            if commands.len() >= limit {
                return (commands, false);
            }
            if matches!(command, Command::WriteStatus { .. })
                && let Some(job) = self.state.jobs.live(key)
                && !self.throttle.admits(key, job, self.state.stamp.term, now)
            {
                continue;
            }
            commands.push(command);
        }
        (commands, true)
    }

    /// Adds a call to those in flight and gives it its number.
    fn send(&mut self, key: &JobKey, call: ApiCall, purpose: Purpose) -> ApiCall {
        let object = Some(purpose.object());
        let id = self.in_flight.begin(key, purpose);
        ApiCall { id, object, ..call }
    }
}
