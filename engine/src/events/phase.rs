//! Applies changes of phase: the end of a job included, with the milestones that are kept and the clocks that start.

use model::fact::Milestone;
use model::{Decision, Milestones, Phase, Text};

use crate::job::{Job, MAX_MILESTONES};
use crate::record_context::RecordContext;

impl RecordContext<'_> {
    pub(super) fn ended(&self, job: &mut Job, phase: Phase) {
        job.ended_at = Some(self.at);
        let observes = job.spec().is_some_and(|spec| spec.externally_managed);
        let message = match &job.decision {
            // What becomes of the pods is another controller's.
            Some(Decision::End { cause, .. }) if observes => cause.message.clone(),
            Some(Decision::End { cause, clean, live_only, .. }) => {
                let pods = match (clean, live_only) {
                    (true, false) => "pods deleted",
                    (true, true) => "pods that have not ended are deleted",
                    (false, _) => "pods kept",
                };
                Text::from(format!("{}; {pods}", cause.message))
            }
            Some(Decision::Restart { .. } | Decision::Halt { .. }) | None => Text::from(""),
        };
        self.phase_entered(job, phase, message);
    }

    pub(super) fn phase_entered(&self, job: &mut Job, phase: Phase, message: Text) {
        let (at, stamp, behaviour) = (self.at, self.stamp, self.behaviour);
        let is_admitted = |job: &Job| !(behaviour.pauses_limits() && job.waits_for_admission());
        // Beside the decision it follows from, a change of phase needs no words of its own.
        let reported = job.trail.back().is_some_and(|last| last.stamp == stamp);
        let words = if message.is_empty() || reported { String::new() } else { format!(": {message}") };
        job.note(stamp, at, format!("{:?} -> {phase:?}{words}", job.phase));
        job.phase = phase;
        job.stamps.change(stamp);
        match phase {
            Phase::Pending | Phase::Preparing => {
                job.started_at = job.started_at.or(Some(at));
                job.creating_at = None;
                // Where waiting for nodes is a phase of its own, the job is admitted with it.
                if !job.spec().is_some_and(|spec| spec.phase_rules.queued) && is_admitted(job) {
                    job.admit(at);
                }
            }
            Phase::Queued => {
                job.started_at = job.started_at.or(Some(at));
                job.creating_at = None;
                if is_admitted(job) {
                    job.admit(at);
                }
            }
            Phase::Creating => job.creating_at = Some(at),
            Phase::Running => {
                if behaviour.pauses_limits() {
                    job.admit(at);
                }
                job.running_at = job.running_at.or(Some(at));
                job.creating_at = None;
                job.groups.values_mut().for_each(|group| group.forget_growth());
            }
            Phase::New
            | Phase::Restarting
            | Phase::Terminating
            | Phase::Succeeded
            | Phase::Failed
            | Phase::TimedOut
            | Phase::Preempted
            | Phase::NodeFailed => {}
            Phase::Suspended => job.reset_limit(),
        }
        if job.milestones.len() >= MAX_MILESTONES {
            let rule = job.spec().map(|spec| spec.phase_rules.milestones).unwrap_or_default();
            let comes_again = |n: &usize| {
                let later = job
                    .milestones
                    .range(n.saturating_add(1)..)
                    .any(|m| job.milestones.get(*n).is_some_and(|at| at.phase == m.phase));
                later || job.milestones.get(*n).is_some_and(|at| at.phase == phase)
            };
            let dropped = match rule {
                Milestones::Latest => 0,
                Milestones::EachPhase => (0..job.milestones.len()).find(comes_again).unwrap_or_default(),
            };
            job.milestones.remove(dropped);
        }
        job.milestones.push_back(Milestone { phase, at, message });
    }
}
