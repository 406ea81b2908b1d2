//! Applies decisions that pods are deleted for: restarts, halts and endings.

use model::{CauseKind, Decision, Stamp, Uid};

use super::pods::schedule_deletion;
use super::{restart, services};
use crate::facts::answers;
use crate::job::Job;
use crate::message::scope_words;
use crate::nodes::NodeView;
use crate::record_context::RecordContext;

/// Time in milliseconds in which a job is granted no share after its first start that did not come whole. Doubles with each.
const START_BACKOFF_MS: u64 = 10_000;
/// Upper bound of that time, in milliseconds.
const MAX_START_BACKOFF_MS: u64 = 600_000;
/// Format of checkpoints that hold a time limit that stands still, or nodes that were refused.
const FORMAT_7: u16 = 7;

impl RecordContext<'_> {
    /// Applies a decision. Returns the oldest format that can hold what the job remembers of it besides the event itself.
    pub(super) fn decided(&self, job: &mut Job, decision: &Decision) -> u16 {
        let (at, stamp) = (self.at, self.stamp);
        job.decision = Some(decision.clone());
        job.decided = stamp;
        job.stamps.change(stamp);
        job.creating_at = None;
        // Something follows from its pods after all.
        job.stalled = None;
        let mut format = 1;
        match decision {
            Decision::Restart { group, scope, slot, cause, failures, retry_at } => {
                if !self.behaviour.delays_slots() {
                    job.retry_at = *retry_at;
                } else if let Some(until) = retry_at {
                    restart::delay(job, group, *scope, slot, *until);
                }
                if let Some(slot) = job.slot_mut(slot) {
                    slot.failures.insert(cause.kind, *failures);
                }
                let is_charged = cause.kind != CauseKind::Resized;
                restart::restart(job, group, *scope, slot, is_charged, stamp, &self.node_view);
                let scope = scope_words(*scope, group, slot);
                job.note(stamp, at, format!("restart of {scope} decided: {}", cause.message));
            }
            Decision::Halt { cause } => {
                let is_late = cause.kind == CauseKind::NotStarted;
                if is_late && job.note_refusals(at) {
                    format = FORMAT_7;
                }
                job.allocation.give_up(stamp, at);
                if self.behaviour.pauses_limits() && job.pause_limit(at) {
                    format = FORMAT_7;
                }
                if is_late {
                    let starts = job.allocation.failed_starts.saturating_add(1);
                    let delay = answers::backoff(starts.saturating_add(1), START_BACKOFF_MS, MAX_START_BACKOFF_MS);
                    job.allocation.failed_starts = starts;
                    job.allocation.start_after = Some(at.plus_ms(delay));
                }
                halt(job, stamp, &self.node_view);
                job.note(stamp, at, format!("halt decided: {}", cause.message));
            }
            Decision::End { phase, cause, clean, .. } => {
                end(job, *clean, stamp, &self.node_view);
                job.allocation.give_up(stamp, at);
                job.note(stamp, at, format!("ending as {phase:?} decided: {}", cause.message));
            }
        }
        format
    }

    /// Forgets a restart or a halt whose pods are gone.
    pub(super) fn restart_cleared(&self, job: &mut Job) {
        if job.is_halting()
            && let Some(latest) = job.spec.as_ref().filter(|latest| latest.spec.is_ok())
        {
            // Its pods are gone: an edit that waited for that takes effect.
            job.valid = Some(job.sized(latest.clone()));
        }
        job.decision = None;
        job.waits_below.clear();
        job.stamps.change(self.stamp);
    }
}

/// Deletes the pods that have not ended. Ended ones stay: they show what was reached. Pods that run once continue. Pods that another
/// controller created are deleted by that one.
fn halt(job: &mut Job, stamp: Stamp, node_view: &NodeView<'_>) {
    forget_delays(job);
    if job.spec().is_some_and(|spec| spec.externally_managed) {
        return;
    }
    for id in job.planned_pods.clone() {
        if !job.runs_once(&id.group) {
            answers::cancel(job, &id, stamp);
        }
    }
    let live: Vec<Uid> = job.live_pods().map(|pod| pod.fact.uid.clone()).collect();
    for uid in &live {
        schedule_deletion(job, uid, stamp, node_view);
    }
}

fn forget_delays(job: &mut Job) {
    job.retry_at = None;
    job.groups.values_mut().for_each(|group| group.delays.clear());
}

/// Gives up what was planned, and deletes what the ending deletes.
fn end(job: &mut Job, clean: bool, stamp: Stamp, node_view: &NodeView<'_>) {
    job.limit_paused_at = None;
    job.wait_reason = None;
    forget_delays(job);
    let finals = job.groups.iter().map(|(name, g)| (name.clone(), (g.counters.succeeded, g.counters.failed)));
    job.finals = finals.collect();
    for id in job.planned_pods.clone() {
        answers::cancel(job, &id, stamp);
    }
    services::cancel_planned(job);
    if clean {
        let pods = job.pods.iter().filter(|(_, pod)| job.end_deletes(pod));
        let pods: Vec<Uid> = pods.map(|(uid, _)| uid.clone()).collect();
        for uid in &pods {
            schedule_deletion(job, uid, stamp, node_view);
        }
        services::end(job, stamp);
    }
}
