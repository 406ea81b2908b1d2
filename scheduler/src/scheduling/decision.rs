//! Holds the output of a decision: targets, and why a claim is pending.
//!
//! Plain values; decides nothing. Tests: through [`super::decide`].

use std::fmt;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::job::JobError;
use crate::memory::MemoryChange;
use crate::units::{GpuType, Micros};

/// Output of a decision on a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// One target per claim, in the order of the claims.
    pub targets: Vec<PlacementTarget>,
    /// Change of the policies' memory, for [`super::History::apply`].
    pub memory: MemoryChange,
    /// Time of the next decision if nothing happens before; `None`: never.
    pub wake: Option<Micros>,
    /// Claims that hold nothing from now on, by queue and position in it.
    pub pending: Vec<PendingClaim>,
}

/// Decided workers of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementTarget {
    /// The claim.
    pub id: Text,
    /// Type of its GPUs; type 0 where it has none.
    pub gpu_type: GpuType,
    /// The node of worker 0, 1, 2, ...
    pub on: Vec<Text>,
    /// Difference from what was held; `None`: there is none.
    pub change: Option<TargetChange>,
}

/// Difference between a target and what was held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetChange {
    /// Kind of the change.
    pub why: Why,
    /// The claim that gains by it; named wherever workers are taken away for another claim.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<Text>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// It held nothing.
    Started,
    /// It gets more workers.
    Grown,
    /// It gives up workers to a claim of its queue.
    Shrunk,
    /// It gives up workers to a queue that takes back what it lent.
    Reclaimed,
    /// It gives up all workers to a claim of its queue.
    Preempted,
    /// It changes to another GPU type, as its policy says.
    Retyped,
    /// Workers on nodes that are gone are replaced elsewhere.
    Replaced,
    /// Workers on nodes that are gone find no room.
    Lost,
}

/// A claim that holds nothing, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingClaim {
    /// The claim.
    pub id: Text,
    /// Index of its queue; `None`: it has none.
    pub queue: Option<usize>,
    /// Position in its queue, from 1.
    pub place: u32,
    /// GPUs that it needs to start.
    pub needs: u32,
    /// GPUs that each of its workers needs, all on one node.
    pub width: u32,
    /// GPUs of its type that its queue may use more now.
    pub quota_left: u32,
    /// GPUs of its type that its queue may use at most.
    pub quota: u32,
    /// GPUs of its type that are free on the nodes that its queue may use.
    pub nodes_left: u32,
    /// GPUs of its type on all of these nodes.
    pub nodes: u32,
    /// GPUs of its type on the largest of them.
    pub widest: u32,
    /// The reason.
    pub reason: Reason,
}

/// Reason why a claim waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// It names no queue.
    NoQueue,
    /// Its queue admits nothing new.
    Paused,
    /// Its last start failed; time of the next try.
    BackOff(Micros),
    /// Its description is faulty: what is wrong.
    Faulty(String),
    /// It needs more than its queue may ever use.
    NeverQuota,
    /// It needs more than all its nodes have, or a worker more than any of them.
    NeverNodes,
    /// Its queue has not enough quota left.
    Quota,
    /// The nodes have not enough room.
    Nodes,
    /// An earlier claim of its queue waits, and could use what it asks for.
    Behind(Text),
    /// The policy prefers others.
    Policy,
}

impl Reason {
    pub(super) fn faulty(error: &JobError) -> Self {
        Self::Faulty(error.to_string())
    }
}

impl fmt::Display for PendingClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needs, width, quota_left, quota, nodes_left, nodes, widest, .. } = self;
        let needs = if *needs == 1 { "1 GPU".to_owned() } else { format!("{needs} GPUs") };
        match &self.reason {
            Reason::NoQueue => write!(f, "needs {needs}; it belongs to no queue"),
            Reason::Paused => write!(f, "needs {needs}; its queue is paused"),
            Reason::BackOff(_) => write!(f, "needs {needs}; its last start failed, and is tried again after a while"),
            Reason::Faulty(problem) => write!(f, "cannot be scheduled: {problem}"),
            Reason::NeverQuota => write!(f, "needs {needs}; its queue may never use more than {quota}"),
            Reason::NeverNodes => write!(
                f,
                "needs {needs}, {width} for each pod; the nodes that it may use have {nodes} in all and at most {widest} each"
            ),
            Reason::Quota => write!(f, "needs {needs}; its queue has {quota_left} of {quota} left"),
            Reason::Nodes => write!(f, "needs {needs}; the nodes have {nodes_left} left"),
            Reason::Behind(first) => {
                write!(f, "needs {needs}; {first} waits before it and needs what is left")
            }
            Reason::Policy => write!(
                f,
                "needs {needs}; its queue has {quota_left} of {quota} left, the nodes have {nodes_left}; \
                 the policy prefers others"
            ),
        }
    }
}
