//! What policies remember from one decision to the next: an explicit, serialisable value that the caller keeps.
//!
//! It holds marks, not counters: the caller's [`crate::JobView`] carries totals, and a mark says what the total was when a
//! job last changed its queue. So nothing has to be ticked, and a decision is exact at any time. Filled by
//! [`crate::policies::las`] and [`crate::policies::afs_p`]. Tests: there.

use std::collections::BTreeMap;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::units::{GpuMicros, Micros};

/// What is remembered of all jobs. An empty one is right for a first decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Queue marks by job id; a job without one stands in its own [`crate::JobView::level`].
    pub queues: BTreeMap<Text, QueueMark>,
    /// Leases by job id; a job without one never held any.
    pub leases: BTreeMap<Text, Lease>,
}

/// A time during which a job keeps what it holds (AFS-P and the like).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When the present one ends.
    pub until: Micros,
    /// How many were served to the end.
    pub expired: u32,
}

/// Where a job stands in a least-attained-service policy, and what it had when it was last promoted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueMark {
    /// Its queue, 0 first.
    pub level: u32,
    /// Service attained at the last promotion.
    pub attained: GpuMicros,
    /// Time run at the last promotion.
    pub ran: Micros,
    /// When it was last promoted; the waiting clock starts there at the earliest.
    pub promoted: Micros,
}

impl Memory {
    /// Forgets jobs of which `is_live` is false. Call it when jobs end, or memory grows with every job ever seen.
    pub fn retain(&mut self, is_live: impl Fn(&str) -> bool) {
        self.queues.retain(|id, _| is_live(id));
        self.leases.retain(|id, _| is_live(id));
    }
}
