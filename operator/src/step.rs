//! Steps: what a turn did to a job, for those who show or count it.
//!
//! Plain values; nothing is decided by them. Tests: `embedded/src/session.rs`.

use engine::Job;
use model::{JobKey, LossKind, Phase, Position, ShareChange, Text, Timestamp};

use crate::launch::Launch;

/// A record as the turn left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its position.
    pub position: Position,
    /// The job it is about.
    pub job: JobKey,
    /// The job's phase after it.
    pub phase: Phase,
    /// The phase before it.
    pub from: Phase,
    /// Set if the job was taken over from its object.
    pub adopted: bool,
    /// Set if the job's object is gone.
    pub gone: bool,
    /// Message shown beside the phase; empty when there is nothing to add.
    pub message: Text,
    /// Change of the places that the job holds; absent where there is none.
    pub share: Option<ShareStep>,
    /// Delays of its launch that ended.
    pub launch: Launch,
}

/// Change by the queues of the places that a job holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareStep {
    /// It held none and holds some now.
    Admitted {
        /// Its queue; empty for the root queue.
        queue: Text,
        /// Milliseconds since its object was created; absent where it was admitted before.
        waited_ms: Option<u64>,
    },
    /// Places were taken away.
    Lost {
        /// Its queue; empty for the root queue.
        queue: Text,
        /// Kind of the reason.
        kind: LossKind,
    },
}

impl ShareStep {
    /// Returns what a change means for a job as it was before.
    pub(crate) fn of(job: &Job, change: &ShareChange, now: Timestamp) -> Option<Self> {
        let queue = job.queue().cloned().unwrap_or_default();
        if let Some(why) = &change.why {
            return Some(Self::Lost { queue, kind: why.kind });
        }
        let is_admitted = job.allocation.share.is_empty() && !change.share.is_empty();
        let submitted = job.spec().and_then(|spec| spec.demand.as_ref()).map(|demand| demand.submitted);
        let first = submitted.filter(|_| job.allocation.at.is_none());
        let waited_ms = first.map(|submitted| now.0.saturating_sub(submitted.0));
        is_admitted.then_some(Self::Admitted { queue, waited_ms })
    }
}
