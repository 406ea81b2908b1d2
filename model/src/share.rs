//! Shares: places on nodes that a queue grants to a job, and the request they are granted for.
//!
//! Plain values. Queues decide shares (`engine::queues`); a job creates no pod outside its share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::id::{SlotId, Text, Timestamp};

/// GPUs that each pod of a group requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuRequest {
    /// Name of the extended resource, for example `nvidia.com/gpu`.
    pub resource: Text,
    /// Number of GPUs, at least 1.
    pub count: u32,
}

/// Numbers of pods of a group that the queues may choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SizeRange {
    /// Least number, at least 1.
    pub min: u32,
    /// Number under a policy that does not resize jobs.
    pub preferred: u32,
    /// Greatest number.
    pub max: u32,
    /// What becomes of the group's pods when another number is chosen.
    pub resize: Resize,
}

impl SizeRange {
    /// Returns a range with one number.
    pub const fn fixed(replicas: u32) -> Self {
        Self { min: replicas, preferred: replicas, max: replicas, resize: Resize::InPlace }
    }
}

/// What becomes of the pods of a job when the queues choose another number of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resize {
    /// Pods are added, or those with the highest indices are deleted. The others continue.
    #[default]
    InPlace,
    /// All pods of the job are deleted before the new ones are created: each is given the number of all.
    Restart,
}

/// Use of GPUs by a job, up to the last change of its share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// GPUs held, times the milliseconds for which they were.
    pub gpu_ms: u64,
    /// Time in milliseconds for which the job held any.
    pub held_ms: u64,
    /// Time in milliseconds for which the job held any without a break: since the last start or, while it holds none, before the last
    /// halt.
    pub spell_ms: u64,
    /// First start; absent before the share changed for the second time.
    pub first_start: Option<Timestamp>,
    /// Last start or, while it holds none, last halt; absent before the share changed for the second time.
    pub since: Option<Timestamp>,
}

impl Usage {
    /// Returns the use up to a time, of a job that has held this number of GPUs since its share changed last.
    #[must_use]
    pub fn until(mut self, now: Timestamp, gpus: u32, changed: Timestamp) -> Self {
        if gpus == 0 {
            return self;
        }
        let held = now.since_ms(changed);
        self.gpu_ms = self.gpu_ms.saturating_add(u64::from(gpus).saturating_mul(held));
        self.held_ms = self.held_ms.saturating_add(held);
        self.spell_ms = self.spell_ms.saturating_add(held);
        self.first_start.get_or_insert(changed);
        self.since.get_or_insert(changed);
        self
    }
}

/// Request of a job for a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Name of the queue; `None` is the root queue, which has no quota.
    pub queue: Option<Text>,
    /// Priority that the job sets itself, higher first; `None`: that of its classes.
    pub priority: Option<i32>,
    /// Names of the PriorityClasses of its pod templates, an empty one for templates without; none where no template names any, or
    /// the job sets its priority.
    pub classes: BTreeSet<Text>,
    /// Creation time of the job's object.
    pub submitted: Timestamp,
    /// Category of jobs with which it shares speed samples; `None`: its name says.
    pub category: Option<Text>,
    /// Units of work in all, as the job says before it reports; `None`: not known.
    pub units: Option<u64>,
    /// Queue of policies by attained service that it starts in, 0 first.
    pub level: u32,
}

/// Queue and GPUs that the places of a job count for, from the grant until they are free. An edit of the job takes effect afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Charge {
    /// Queue that granted the places; `None` is the root queue.
    pub queue: Option<Text>,
    /// GPUs of each pod, by group.
    pub gpus: BTreeMap<Text, u32>,
    /// The resource that these are; empty where an older build granted the places.
    pub resource: Text,
}

/// Node of each replica of a job's groups, by index. An empty name stands for a node that is not known yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Nodes by group. Groups without replicas are absent.
    pub groups: BTreeMap<Text, Vec<Text>>,
}

/// A node that the scheduler refused to a pod although the queues placed it there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRefusal {
    /// Number of refusals in a row.
    pub times: u32,
    /// Time before which the node is left out.
    pub until: Timestamp,
    /// The words of the scheduler.
    pub words: Text,
}

impl Charge {
    /// Returns the number of GPUs of a share. A pod whose number is not known counts with one.
    pub fn gpus_of(&self, share: &Share) -> u32 {
        let of = |(group, nodes): (&Text, &Vec<Text>)| {
            let each = self.gpus.get(group).copied().unwrap_or(1);
            each.saturating_mul(u32::try_from(nodes.len()).unwrap_or(u32::MAX))
        };
        share.groups.iter().map(of).fold(0, u32::saturating_add)
    }
}

impl Share {
    /// Returns true if it grants nothing.
    pub fn is_empty(&self) -> bool {
        self.groups.values().all(Vec::is_empty)
    }

    /// Returns the number of replicas.
    pub fn len(&self) -> usize {
        self.groups.values().map(Vec::len).fold(0, usize::saturating_add)
    }

    /// Returns the node of a slot; `None` when the slot is not in the share.
    pub fn node(&self, slot: &SlotId) -> Option<&Text> {
        self.groups.get(&slot.group)?.get(usize::try_from(slot.index).ok()?)
    }

    /// Returns each slot with its node.
    pub fn cells(&self) -> impl Iterator<Item = (SlotId, &Text)> {
        self.groups.iter().flat_map(|(group, nodes)| {
            (0u32..).zip(nodes).map(|(index, node)| (SlotId { group: group.clone(), index }, node))
        })
    }
}

impl fmt::Display for Share {
    /// Writes the number of replicas on each node: `2 on n1, 1 on n2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut on: BTreeMap<&str, u32> = BTreeMap::new();
        for node in self.groups.values().flatten() {
            let count = on.entry(node).or_default();
            *count = count.saturating_add(1);
        }
        if on.is_empty() {
            return f.write_str("nothing");
        }
        for (n, (node, count)) in on.iter().enumerate() {
            let node = if node.is_empty() { "a node not known yet" } else { node };
            write!(f, "{}{count} on {node}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Change of a job's share or target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareChange {
    /// Places granted from now on.
    pub share: Share,
    /// Places that the job shall hold once there is room; absent when they are those of the share.
    pub target: Option<Share>,
    /// Reason, when places are taken away; absent otherwise.
    pub why: Option<ShareLoss>,
}

/// Places that the queues decided that a job shall hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareTarget {
    /// The places.
    pub share: Share,
    /// Reason, when places are taken away for it; absent otherwise.
    pub why: Option<ShareLoss>,
}

/// Reason for taking places away from a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareLoss {
    /// Kind of the reason.
    pub kind: LossKind,
    /// Job that gains by it, as `namespace/name`; absent when there is none.
    pub beneficiary: Option<Text>,
    /// Job that loses them, as `namespace/name`; absent in records of older builds.
    pub job: Option<Text>,
}

impl ShareLoss {
    /// Returns a reason of a kind that names no job.
    pub const fn of(kind: LossKind) -> Self {
        Self { kind, beneficiary: None, job: None }
    }
}

/// Kind of a reason for taking places away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossKind {
    /// A job of the same queue needs them.
    Preempted,
    /// A queue takes back the quota that it lent.
    Reclaimed,
    /// Pods of a job that runs move to other nodes.
    Moved,
    /// The number of replicas changes.
    Resized,
    /// Nodes are lost and the others have no room.
    NodesLost,
}
