//! Keeps what policies remember from one decision to the next: an explicit, serialisable value that the caller owns.
//!
//! It holds marks, not counters: the caller's [`crate::JobView`] carries totals, and a mark says what the total was when a
//! job last changed its queue. So nothing has to be ticked, and a decision is exact at any time. Filled by
//! [`crate::policies::las`] and [`crate::policies::afs_p`]. Tests: there, and at the end of this file.

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

/// Queue of a job in a least-attained-service policy, with its totals at the last promotion.
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

/// A value of one job before and after a decision; `None`: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed<T> {
    /// Before.
    pub old: Option<T>,
    /// After.
    pub new: Option<T>,
}

/// Difference between two memories: the jobs whose marks or leases differ. It is small, and can be recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryChange {
    /// Queue marks by job id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<Text, Changed<QueueMark>>,
    /// Leases by job id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leases: BTreeMap<Text, Changed<Lease>>,
}

impl MemoryChange {
    /// Returns the difference that leads from `old` to `new`.
    pub fn between(old: &Memory, new: &Memory) -> Self {
        Self { queues: difference(&old.queues, &new.queues), leases: difference(&old.leases, &new.leases) }
    }

    /// Returns true if nothing differs.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.leases.is_empty()
    }
}

fn difference<T: Copy + PartialEq>(old: &BTreeMap<Text, T>, new: &BTreeMap<Text, T>) -> BTreeMap<Text, Changed<T>> {
    let set = new.iter().map(|(id, value)| (id, Changed { old: old.get(id).copied(), new: Some(*value) }));
    let gone = old.iter().filter(|(id, _)| !new.contains_key(*id));
    let gone = gone.map(|(id, value)| (id, Changed { old: Some(*value), new: None }));
    let differs = |(_, changed): &(&Text, Changed<T>)| changed.old != changed.new;
    set.chain(gone).filter(differs).map(|(id, changed)| (id.clone(), changed)).collect()
}

fn put<T: Copy>(map: &mut BTreeMap<Text, T>, changes: &BTreeMap<Text, Changed<T>>) {
    for (id, changed) in changes {
        match changed.new {
            Some(value) => map.insert(id.clone(), value),
            None => map.remove(id),
        };
    }
}

impl Memory {
    /// Applies a change that was decided.
    pub fn apply(&mut self, change: &MemoryChange) {
        put(&mut self.queues, &change.queues);
        put(&mut self.leases, &change.leases);
    }

    /// Forgets jobs of which `is_live` is false. Call it when jobs end, or memory grows with every job ever seen.
    pub fn retain(&mut self, is_live: impl Fn(&str) -> bool) {
        self.queues.retain(|id, _| is_live(id));
        self.leases.retain(|id, _| is_live(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leads_from_one_memory_to_the_other() {
        let mark = |level| QueueMark { level, ..QueueMark::default() };
        let marks = |marks: &[(&str, u32)]| marks.iter().map(|&(id, level)| (Text::from(id), mark(level))).collect();
        let lease = Lease { until: Micros(7), expired: 1 };
        let old = Memory { queues: marks(&[("a", 0), ("b", 1), ("c", 2)]), leases: BTreeMap::new() };
        let new = Memory { queues: marks(&[("a", 0), ("b", 2), ("d", 0)]), leases: [("d".into(), lease)].into() };
        let change = MemoryChange::between(&old, &new);
        assert_eq!(change.queues.keys().map(|id| &**id).collect::<Vec<_>>(), ["b", "c", "d"]);
        assert_eq!(change.queues["b"], Changed { old: Some(mark(1)), new: Some(mark(2)) });
        let mut memory = old;
        memory.apply(&change);
        assert_eq!(memory, new);
        assert!(MemoryChange::between(&new, &memory).is_empty() && !change.is_empty());
    }
}
