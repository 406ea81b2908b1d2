//! Ports at which pods meet, and the addresses they are given.
//!
//! On the network of a node a pod's port follows from its job and its rank: it stays the same when the pod is replaced, so that the
//! service need not follow, and no two pods of a job have the same one. The scheduler keeps pods of other jobs with that port off the node.
//! Tests: `tests/pods.rs`.

use model::{SlotId, Text};
use serde_json::Value;

use super::constants::Task;
use crate::api::RenderInput;
use crate::objects::at;
use crate::replicas::slot_name;

/// Network of the pods of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network<'a> {
    source: RenderInput<'a>,
    /// Range of ports on nodes; absent where pods have networks of their own.
    host: Option<(u64, u64)>,
    /// Set if services of pods on the network of a node are headless.
    headless: bool,
}

impl<'a> Network<'a> {
    /// Returns the network of a job's pods.
    pub(super) fn of(source: RenderInput<'a>) -> Self {
        let host = at(source.manifest, &["hostNetwork"]).filter(|host| host.is_object());
        let number = |key: &str| host?.get(key)?.as_u64();
        Self {
            source,
            host: number("first").zip(number("count").filter(|count| *count > 0)),
            headless: host.and_then(|host| host.get("headless")?.as_bool()).unwrap_or_default(),
        }
    }

    /// Returns the port that the master's template declares.
    pub(super) fn declared(&self) -> u64 {
        at(self.source.manifest, &["port"]).and_then(Value::as_u64).unwrap_or_default()
    }

    /// Returns the port of a pod on its node; `None` where pods have networks of their own.
    pub(super) fn host_port(&self, slot: &SlotId) -> Option<u64> {
        let (first, count) = self.host?;
        let place = hash(&self.source.job.uid.0).checked_add(u64::from(self.rank(slot)))?;
        place.checked_rem(count)?.checked_add(first)
    }

    /// Returns true if services have an address of their own: they lead from the declared port to that on the node.
    pub(super) const fn translates_ports(&self) -> bool {
        self.host.is_some() && !self.headless
    }

    /// Returns the port at which a pod finds the master.
    pub(super) fn master_port(&self, slot: &SlotId) -> u64 {
        let master = SlotId { group: Text::from(Task::Master.lower()), index: 0 };
        let knows_node = self.headless || *slot == master;
        self.host_port(&master).filter(|_| knows_node).unwrap_or_else(|| self.declared())
    }

    /// Returns the name at which a pod finds the master.
    pub(super) fn master_address(&self, slot: &SlotId) -> String {
        let finds_itself = at(self.source.manifest, &["localMaster"]).and_then(Value::as_bool) == Some(true);
        if &*slot.group == Task::Master.lower() && finds_itself {
            return "localhost".to_owned();
        }
        slot_name(&self.source.job.name, Task::Master.lower(), 0)
    }

    /// Returns the number of pods that train.
    pub(super) fn world_size(&self) -> u32 {
        let groups = self.source.spec.groups.iter().filter(|group| &*group.name != Task::AiMaster.lower());
        groups.fold(0, |sum: u32, group| sum.saturating_add(group.replicas))
    }

    /// Returns a number of the pod that no other pod of the job has.
    fn rank(&self, slot: &SlotId) -> u32 {
        match Task::of_group(&slot.group) {
            Some(Task::Master) | None => 0,
            Some(Task::Worker) => slot.index.saturating_add(1),
            Some(Task::AiMaster) => slot.index.saturating_add(self.world_size()),
        }
    }
}

/// Returns the FNV-1a hash in 32 bits (Fowler, Noll, Vo) of a text.
fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(hash)
}
