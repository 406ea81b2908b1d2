//! Applies events: what an event says is done to the state. No rule is needed for it.

mod decision;
mod owned;
mod phase;
mod pods;
mod restart;
mod services;

use model::{JobEvent, JobKey, QueueEvent};

use crate::nodes::NodeView;
use crate::record_context::RecordContext;
use crate::state::State;

/// An event that does not fit the state it is applied to: the log is not the one this state was folded from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The job is not known.
    #[error("event {event} for job {job}, which is not known")]
    UnknownJob {
        /// The job.
        job: String,
        /// The event.
        event: &'static str,
    },
}

impl State {
    /// Applies an event of the queues. Changes of shares reach each job by a fact of its own.
    pub fn apply_queue_event(&mut self, event: &QueueEvent) {
        self.format = self.format.max(crate::wire::format::of_queue_event(event));
        match event {
            QueueEvent::Allocated(update) => self.apply_targets(update),
            QueueEvent::Dequeued { turns, .. } => self.apply_dequeue(turns),
            QueueEvent::Reported { .. } => self.queues.mark_reported(),
            QueueEvent::Shared { .. } | QueueEvent::WaitsReported { .. } => {}
        }
    }

    /// Applies an event of a job.
    ///
    /// # Errors
    /// Returns an error if the event does not fit the state: the log is not the one this state was folded from.
    pub fn apply_job_event(&mut self, key: &JobKey, event: &JobEvent) -> Result<(), ApplyError> {
        let (at, stamp) = (self.at, self.stamp);
        self.format = self.format.max(crate::wire::format::of_job_event(event));
        let node_view = NodeView::new(&self.nodes, &self.list_rvs, &self.config);
        let context = RecordContext { at, stamp, behaviour: self.behaviour, node_view };
        let Some(job) = self.jobs.get_mut(key) else {
            return Err(ApplyError::UnknownJob { job: key.to_string(), event: event.name() });
        };
        match event {
            JobEvent::Fenced => job.stamps.fence(stamp),
            JobEvent::PodsPlanned { slots } => context.pods_planned(job, slots),
            JobEvent::ServicesPlanned { slots } => context.services_planned(job, slots),
            JobEvent::PodsDropped { uids } => context.pods_dropped(job, uids),
            JobEvent::ServicesDropped { uids } => services::dropped(job, uids),
            JobEvent::OwnedPlanned { objects } => owned::planned(job, objects),
            JobEvent::OwnedDropped { objects } => owned::dropped(job, objects),
            JobEvent::Achieved { group, run } => context.run_achieved(job, group, run),
            JobEvent::Decided(decision) => self.format = self.format.max(context.decided(job, decision)),
            JobEvent::Replaced { group, slots } => context.pods_replaced(job, group, slots),
            JobEvent::Lost { slots } => context.slots_lost(job, slots),
            JobEvent::RestartCleared => context.restart_cleared(job),
            JobEvent::Ended { phase } => context.ended(job, *phase),
            JobEvent::PhaseChanged { to, message } => context.phase_entered(job, *to, message.clone()),
            JobEvent::Stalled { message } => {
                job.stalled.clone_from(message);
                job.stamps.change(stamp);
            }
            JobEvent::UsersCounted(counts) => {
                job.users = *counts;
                job.stamps.change(stamp);
            }
            JobEvent::Autoscaled(step) => {
                job.autoscale(step, at);
                if let Some(scaling) = &step.scaling {
                    job.stamps.change(stamp);
                    job.note(stamp, at, crate::autoscaler::words(scaling));
                }
            }
            JobEvent::NodeDropped => job.drop_node(stamp, at),
            JobEvent::MessageChanged { message } => {
                if let Some(last) = job.milestones.back_mut() {
                    last.message = message.clone();
                }
                job.stamps.change(stamp);
            }
        }
        Ok(())
    }
}
