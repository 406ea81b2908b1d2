//! The time limit of a job: when its clock starts, stands still, and passes.
//!
//! The clock runs while the job is admitted. It stands still while the job waits in a queue, was preempted or halted, and for the gate of another
//! system, in every API; a waiting time moves the start of the clock, so that the mirror holds the start alone. It must not end a job
//! ([`crate::decide`] does). Tests: the scenarios `time-limit-*`.

use model::{ClockStart, JobSpec, SlotId, Timestamp};

use crate::job::Job;

impl Job {
    /// Returns the time at which its time limit passes; `None` without one, and while it stands still.
    pub fn time_limit_at(&self) -> Option<Timestamp> {
        let spec = self.spec().filter(|_| self.limit_paused_at.is_none())?;
        Some(self.limit_start(spec)?.plus_ms(spec.time_limit_ms?))
    }

    /// Returns the time at which its time limit would pass if it were admitted at a time: what is left of it, or all of it.
    pub(crate) fn time_limit_from(&self, admitted: Timestamp) -> Option<Timestamp> {
        let spec = self.spec()?;
        let limit = spec.time_limit_ms?;
        match (self.limit_start(spec), self.limit_paused_at) {
            (Some(start), None) => Some(start.plus_ms(limit)),
            (Some(start), Some(paused)) => Some(admitted.plus_ms(limit.saturating_sub(paused.since_ms(start)))),
            (None, _) => Some(admitted.plus_ms(limit)),
        }
    }

    fn limit_start(&self, spec: &JobSpec) -> Option<Timestamp> {
        match spec.limit_from {
            ClockStart::FirstRunning => self.first_running_at,
            ClockStart::Admitted => self.admitted_at,
        }
    }

    /// Returns true if a queue, a coordinator or another system has not admitted the job.
    pub(crate) fn waits_for_admission(&self) -> bool {
        let without_share = self.allocation.gated && self.allocation.share.is_empty();
        without_share || self.blocked_by_gate().is_some() || self.enqueued().is_some()
    }

    /// Starts the clock of a time limit that counts from the admission.
    pub(crate) fn admit(&mut self, at: Timestamp) {
        if self.spec().is_some_and(|spec| spec.limit_from == ClockStart::Admitted) {
            self.admitted_at.get_or_insert(at);
        }
    }

    /// Stops the clock: the job lost its admission, or its pods go so that it waits. Returns true if it stands still.
    pub(crate) fn pause_limit(&mut self, at: Timestamp) -> bool {
        let is_started = self.spec().is_some_and(|spec| self.limit_start(spec).is_some());
        if is_started && !self.phase.is_terminal() {
            self.limit_paused_at.get_or_insert(at);
        }
        self.limit_paused_at.is_some()
    }

    /// Has a clock that counts from the admission start again with the next one, as after a suspension.
    pub(crate) fn reset_limit(&mut self) {
        self.admitted_at = None;
        if self.spec().is_some_and(|spec| spec.limit_from == ClockStart::Admitted) {
            self.limit_paused_at = None;
        }
    }

    /// Lets the clock run again with the first pods that are created after a wait. Pods that run once prepare a job that may still wait.
    pub(crate) fn resume_limit<'a>(&mut self, mut slots: impl Iterator<Item = &'a SlotId>, at: Timestamp) {
        if !slots.any(|slot| !self.runs_once(&slot.group)) {
            return;
        }
        if let Some(paused) = self.limit_paused_at.take() {
            let waited = at.since_ms(paused);
            let from = self.spec().map(|spec| spec.limit_from).unwrap_or_default();
            let start = match from {
                ClockStart::FirstRunning => &mut self.first_running_at,
                ClockStart::Admitted => &mut self.admitted_at,
            };
            *start = start.map(|start| start.plus_ms(waited));
        }
        self.admit(at);
    }
}
