//! The coordinator of jobs: the request of a job that is enqueued, ResourceQuotas, and the rule by which queues are served.
//!
//! Plain values. `engine::queues` decides by them; `apis` reads them.

use std::collections::BTreeMap;

use crate::id::{ResourceVersion, Text, Timestamp};
use crate::selector::LabelSelector;

/// Request of a job that is enqueued: no pod is created before it is dequeued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordination {
    /// Name of its queue.
    pub queue: Text,
    /// Priority that it sets itself, higher first; `None`: that of its class.
    pub priority: Option<i32>,
    /// Name of the PriorityClass that names its priority; 0 where there is none.
    pub class: Option<Text>,
    /// Number of its tasks.
    pub tasks: u32,
    /// Amounts that its pods request together, in thousandths, by the name under which a ResourceQuota counts them.
    pub request: BTreeMap<Text, u64>,
    /// The same amounts by the scopes of the pods, for a ResourceQuota that counts only some pods.
    pub scoped: Vec<ScopedRequest>,
    /// Creation time of the job's object.
    pub submitted: Timestamp,
}

/// Amounts that those pods of a job request which are in the same scopes of a ResourceQuota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedRequest {
    /// Scopes that the pods are in, each with its value: the class for `PriorityClass`, else nothing.
    pub scopes: BTreeMap<Text, Text>,
    /// The amounts, as in [`Coordination::request`].
    pub request: BTreeMap<Text, u64>,
}

/// Adds amounts up, name by name.
pub fn sum(all: impl IntoIterator<Item = BTreeMap<Text, u64>>) -> BTreeMap<Text, u64> {
    let mut sums = BTreeMap::new();
    for (name, amount) in all.into_iter().flatten() {
        let sum: &mut u64 = sums.entry(name).or_default();
        *sum = sum.saturating_add(amount);
    }
    sums
}

/// A ResourceQuota, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaFact {
    /// Its namespace.
    pub namespace: Text,
    /// Its name.
    pub name: Text,
    /// Its version.
    pub rv: ResourceVersion,
    /// Limits in thousandths, by name.
    pub hard: BTreeMap<Text, u64>,
    /// Amounts in use in thousandths, of the same names.
    pub used: BTreeMap<Text, u64>,
    /// Scopes that a pod must be in to count. The key of a requirement is the name of a scope.
    pub scopes: LabelSelector,
}

/// Rule by which queues are served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueSelector {
    /// Each after the other.
    #[default]
    RoundRobin,
    /// By the number of waiting tasks, one queue several times in a row.
    WeightedRoundRobin,
    /// By the number of waiting tasks, spread evenly.
    SmoothWeightedRoundRobin,
}

impl QueueSelector {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::RoundRobin, Self::WeightedRoundRobin, Self::SmoothWeightedRoundRobin];

    /// Returns its name, as flags have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "RoundRobin",
            Self::WeightedRoundRobin => "WeightedRoundRobin",
            Self::SmoothWeightedRoundRobin => "SmoothWeightedRoundRobin",
        }
    }
}
