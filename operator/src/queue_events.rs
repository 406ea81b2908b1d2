//! Kubernetes Events about a job and its queue: `Queued`, `Admitted`, `Preempted`, `Requeued`, alike for every API.
//!
//! A job is looked at before a turn and after it, so that one which is admitted at once is not reported as queued. Best effort, as all
//! Events are. It must not decide. Tests: the scenarios of TrainingQueue.

use engine::{BlockedBy, Job};
use model::{JobKey, LossKind, Stamp};

use crate::announce::fnv;
use crate::operator::Operator;

/// Where a job stands with the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// It neither holds places nor waits for some.
    Outside,
    /// It waits for places.
    Waiting,
    /// It holds places.
    Admitted,
}

impl QueueState {
    fn of(job: Option<&Job>) -> Self {
        let job = job.filter(|job| job.gate().is_none() && job.ending().is_none() && !job.phase.is_terminal());
        match job {
            Some(job) if !job.allocation.share.is_empty() => Self::Admitted,
            Some(job) if wait(job).is_some() && !is_at_hand(job) => Self::Waiting,
            _ => Self::Outside,
        }
    }
}

/// Returns true if places were decided for a job whose object was not written yet: they are granted with the answer, if they are free.
fn is_at_hand(job: &Job) -> bool {
    job.allocation.has_target && job.stamps.acknowledged() == Stamp::default()
}

/// Returns the hold of a job that waits for places.
fn wait(job: &Job) -> Option<BlockedBy<'_>> {
    let spec = job.spec()?;
    let mut blockers = spec.groups.iter().filter_map(|group| job.blocked_by(spec, group));
    blockers.find(|blocker| matches!(blocker, BlockedBy::NoShare { .. }))
}

impl Operator {
    /// Notes where a job stands, before the first record of a turn about it. What came before an adoption was reported then.
    pub(crate) fn note_queue_state(&mut self, key: &JobKey, adopted: bool) {
        if adopted || !self.queue_states.contains_key(key) {
            let queue_state = QueueState::of(self.state.job(key).as_deref());
            self.queue_states.insert(key.clone(), queue_state);
        }
    }

    /// Creates Kubernetes Events about the jobs that stand otherwise with their queues than before the turn.
    pub(crate) fn announce_queue_states(&mut self) {
        for (key, before) in std::mem::take(&mut self.queue_states) {
            let Some(job) = self.state.job(&key) else { continue };
            let now = QueueState::of(Some(&job));
            if now == before {
                continue;
            }
            let salt = fnv(&job.allocation.at.map(|at| at.0).unwrap_or_default().to_string());
            let loss = job.allocation.loss.as_ref().filter(|_| before == QueueState::Admitted);
            let loss = loss.filter(|loss| matches!(loss.kind, LossKind::Preempted | LossKind::Reclaimed));
            let preempted = loss.and_then(|loss| Some((job.loss_words()?, loss.beneficiary.clone())));
            let reported = match now {
                QueueState::Waiting => {
                    let reason = if job.allocation.at.is_some() { "Requeued" } else { "Queued" };
                    wait(&job).map(|blocker| (reason, format!("{blocker:#}")))
                }
                QueueState::Admitted => match job.queue() {
                    Some(queue) => Some(("Admitted", format!("admitted by queue {queue}: {}", job.allocation.share))),
                    // Without a queue of its own a job that starts at once was not aware of any.
                    None if before == QueueState::Outside => None,
                    None => Some(("Admitted", format!("admitted: {}", job.allocation.share))),
                },
                QueueState::Outside => None,
            };
            drop(job);
            if let Some((message, beneficiary)) = preempted {
                let gainer = beneficiary.and_then(|name| self.state.queues.job_named(&name).cloned());
                self.emit(&key, "Normal", "Preempted", &message, salt);
                if let Some(gainer) = gainer {
                    self.emit(&gainer, "Normal", "Preempted", &message, salt);
                }
            }
            if let Some((reason, message)) = reported {
                self.emit(&key, "Normal", reason, &message, salt);
            }
        }
    }
}
