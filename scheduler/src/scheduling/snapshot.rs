//! Holds the input of a decision: claims, nodes and queues at one time.
//!
//! Plain values; decides nothing. Tests: through [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::placement::{Node, Packing};
use crate::scheduling::estimate::SpeedEstimate;
use crate::scheduling::queue::QueueSnapshot;
use crate::units::{GpuMicros, GpuType, Micros};

/// GPUs by type.
pub type Pools = BTreeMap<GpuType, u32>;

/// Sizes of a claim, in workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Fewest workers it starts and runs with, at least 1.
    pub min: u32,
    /// Workers asked for; policies that are not elastic give these or none.
    pub num: u32,
    /// Most workers it can use.
    pub max: u32,
}

impl Sizes {
    /// One size only.
    pub const fn rigid(workers: u32) -> Self {
        Self { min: workers, num: workers, max: workers }
    }
}

/// The part of a claim that no decision may change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fixed {
    /// Nothing.
    #[default]
    No,
    /// Its number of workers; lost ones are replaced. A job that is not preemptible, or in a restart.
    Size,
    /// Its workers and their nodes. A pod of another owner, or a job whose pods are being created.
    Place,
}

/// Use of GPUs by a claim so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Service attained.
    pub attained: GpuMicros,
    /// Time it has held GPUs.
    pub ran: Micros,
    /// Time it has held GPUs since its last start.
    pub spell: Micros,
    /// First start; `None`: never.
    pub first_start: Option<Micros>,
    /// Last start if it holds GPUs, else last halt, else submission.
    pub since: Micros,
    /// Last decision that changed its workers or their nodes; `None`: never.
    pub changed: Option<Micros>,
}

/// A job that wants workers, or holds them.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Name, unique in the snapshot. The last tie-break.
    pub id: &'a Text,
    /// Index of its queue in [`Snapshot::queues`]; `None`: it belongs to no queue, and gets nothing new.
    pub queue: Option<usize>,
    /// Sizes in workers.
    pub sizes: Sizes,
    /// GPUs of each worker, all on one node; at least 1.
    pub width: u32,
    /// Priority, higher first.
    pub priority: i32,
    /// First queue of least-attained-service policies: see [`crate::JobView::level`].
    pub level: u32,
    /// Time of submission.
    pub submitted: Micros,
    /// Use of GPUs so far.
    pub usage: Usage,
    /// Estimates; their speeds name the GPU types it can use, home first, by number of GPUs.
    pub estimate: &'a SpeedEstimate,
    /// The last target: the node of worker 0, 1, 2, ... A node that is gone means a lost worker.
    pub held: &'a [Text],
    /// The part that no decision may change.
    pub fixed: Fixed,
    /// Nodes that take none of its new workers: they refused it.
    pub avoid: &'a [Text],
    /// Nodes that could take one of its workers, by their labels and taints and by their room when empty; `None`: all.
    pub fits: Option<&'a Arc<BTreeSet<Text>>>,
    /// What each of its workers needs of its node besides GPUs, in the order of [`Node::others`].
    pub needs: &'a [u64],
    /// Time before which it does not start, and reserves nothing: the back-off after a start that failed.
    pub not_before: Micros,
}

/// Input of a decision, next to [`super::History`].
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The time.
    pub now: Micros,
    /// Nodes, with what each has when it is empty.
    pub nodes: &'a [Node],
    /// Nodes that take nothing new. Workers there stay.
    pub closed: &'a BTreeSet<Text>,
    /// Queues and cohorts.
    pub queues: &'a [QueueSnapshot],
    /// Amounts besides GPUs that pods without a claim hold on each node, in the order of [`Node::others`].
    pub taken: &'a BTreeMap<Text, Vec<u64>>,
    /// Claims, in any order.
    pub claims: &'a [Claim<'a>],
    /// Rule by which nodes are filled.
    pub packing: Packing,
    /// [`super::Decision::wake`] of the last decision. It stands until it has passed, so that it cannot recede.
    pub wake: Option<Micros>,
}

/// Adds GPUs of a type.
pub(super) fn add(pools: &mut Pools, gpu_type: GpuType, gpus: u32) {
    let sum = pools.entry(gpu_type).or_default();
    *sum = sum.saturating_add(gpus);
}

/// Takes GPUs of a type, as far as there are any.
pub(super) fn take(pools: &mut Pools, gpu_type: GpuType, gpus: u32) {
    if let Some(sum) = pools.get_mut(&gpu_type) {
        *sum = sum.saturating_sub(gpus);
    }
}

/// Number of GPUs of a type.
pub(super) fn count(pools: &Pools, gpu_type: GpuType) -> u32 {
    pools.get(&gpu_type).copied().unwrap_or_default()
}
