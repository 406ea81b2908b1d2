//! Computes a job's deadline: the earliest of its limits, windows, back-offs and retries.

use model::{Config, PodPhase, Running, Stamp, Timestamp};

use crate::job::Job;
use crate::nodes::{NodeTrouble, NodeView};
use crate::slots::creation_error;

/// The earliest time after `at` at which something falls due.
pub(crate) fn of(job: &Job, at: Timestamp, node_view: &NodeView<'_>, config: &Config) -> Option<Timestamp> {
    let mut next: Option<Timestamp> = None;
    let mut at_or_after = |time: Timestamp| {
        if time > at && next.is_none_or(|n| time < n) {
            next = Some(time);
        }
    };
    job.attempts.values().filter_map(|a| a.retry_at).for_each(&mut at_or_after);
    if !job.object.exists() {
        job.orphan_since.map(|since| since.plus_ms(config.orphan_grace_ms)).into_iter().for_each(&mut at_or_after);
        return next;
    }
    if job.object.is_deleting() {
        return next;
    }
    if job.phase.is_terminal() {
        job.expires_at().into_iter().for_each(&mut at_or_after);
        return next;
    }
    if job.ending().is_none() {
        job.time_limit_at().into_iter().chain(job.retry_at).for_each(&mut at_or_after);
        job.start_deadline(at, node_view, config).into_iter().for_each(&mut at_or_after);
        job.unplaced_until().into_iter().for_each(&mut at_or_after);
        job.autoscaler.iter().filter_map(|own| own.wakes_at()).for_each(&mut at_or_after);
        job.groups.values().flat_map(|group| group.delays.values().copied()).for_each(&mut at_or_after);
    }
    crate::decide::failures_awaited_until(job, config.failure_window_ms).into_iter().for_each(&mut at_or_after);
    for group in job.groups.values() {
        for index in &group.to_evaluate {
            let Some(pod) = group.slot(*index).and_then(|s| s.pod.as_ref()).and_then(|uid| job.pods.get(uid)) else {
                continue;
            };
            if let Some(node) = &pod.fact.node {
                match node_view.trouble(node, at) {
                    Some(NodeTrouble::LostAt(time)) => at_or_after(time),
                    Some(NodeTrouble::Lost) => pod.fact.deleting.into_iter().for_each(&mut at_or_after),
                    None => {}
                }
            }
            if pod.fact.phase == PodPhase::Pending
                && creation_error(&pod.fact).is_some()
                && let Some(since) = job.creating_at
            {
                at_or_after(since.plus_ms(config.creating_restart_ms));
                pod.fact.started.map(|t| t.plus_ms(config.creating_timeout_ms)).into_iter().for_each(&mut at_or_after);
            }
        }
    }
    next
}

impl Job {
    /// Returns the time at which a job that has a share must have come whole; `None` once it has.
    pub(crate) fn start_deadline(
        &self,
        now: Timestamp,
        node_view: &NodeView<'_>,
        config: &Config,
    ) -> Option<Timestamp> {
        let granted = self.allocation.at?;
        // A mirror does not say that it has come whole. An adopted job all of whose pods ran since it got its places has.
        let runs_whole = || self.spec().is_some_and(|spec| spec.phase_rules.running == Running::All);
        let is_adopted = self.adopted != Stamp::default();
        let has_run = is_adopted && self.running_at.is_some_and(|at| at >= granted) && runs_whole();
        let waits = self.allocation.gated && !self.allocation.whole && !has_run && !self.allocation.share.is_empty();
        (waits && !self.is_halting()).then(|| granted.plus_ms(self.start_limit_ms(now, node_view, config)))
    }
}
