//! Keeps the node that is searched for the local storage of a job: its first pod runs on the node with the most free storage.
//!
//! Source: the storage heuristic of torch-on-k8s, before the pod instead of after it. What was found is a note on the job's object
//! ([`crate::notes`]), which precedes the pod: a lost log loses nothing. A pod that cannot be placed there within a minute may run on
//! any node. It must not know how much storage a node has: `apis` adds that up. Tests: the scenarios `storage-node-*` of `TorchJob`.

use model::{GroupSpec, Incarnation, JobEvent, JobSpec, ObjectRef, Outcome, PodPhase, Stamp, Text, Timestamp};

use crate::blocked_by::BlockedBy;
use crate::job::{Job, Pod};

/// Time in milliseconds for which a pod may wait for its node.
const PLACE_TIMEOUT_MS: u64 = 60_000;
/// Message about a pod that waited for longer.
pub const DROPPED: &str =
    "the pod could not be placed on the node with the most free storage within a minute: it may run on any node";

/// The node that was searched for a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobStorage {
    /// The node; empty where the pod may run on any. `None` in a term that did not search: the note on the object shows it.
    pub found: Option<Text>,
    /// Since when the pod for that node waits to be placed.
    pub unplaced_since: Option<Timestamp>,
}

impl Job {
    /// Returns the node on which the first pod of the storage group shall run; `None` where that may be any.
    pub fn storage_node(&self) -> Option<&Text> {
        self.found_node().or_else(|| self.noted()?.storage_node.as_ref()).filter(|node| !node.is_empty())
    }

    fn found_node(&self) -> Option<&Text> {
        self.storage.as_ref()?.found.as_ref()
    }

    /// Returns true while no pod of a group may be created since the node of the first one is not known, or not noted.
    pub(crate) fn awaits_node(&self, spec: &JobSpec, group: &GroupSpec) -> bool {
        let is_meant = spec.storage_group.as_ref() == Some(&group.name) && !self.is_gated(group);
        // A pod that was there before the search stays where it was.
        let is_new = || {
            let slot = self.groups.get(&group.name).and_then(|group| group.slot(0));
            slot.is_some_and(|slot| slot.pod.is_none() && !slot.planned && slot.incarnation == Incarnation::default())
        };
        is_meant
            && is_new()
            && if self.found_node().is_some() { self.unwritten_node().is_some() } else { self.lacks_node() }
    }

    /// Returns true while a node is to be searched.
    pub(crate) fn seeks_node(&self) -> bool {
        let Some(spec) = self.spec().filter(|_| !self.phase.is_terminal() && self.ending().is_none()) else {
            return false;
        };
        let group = spec.storage_group.as_ref().and_then(|name| spec.group(name));
        let waits = |group| matches!(self.blocked_by(spec, group), Some(BlockedBy::NodeSought));
        self.found_node().is_none() && group.is_some_and(waits)
    }

    /// Returns true if no node is known and one may be searched.
    fn lacks_node(&self) -> bool {
        let is_noted = self.noted().is_some_and(|noted| noted.storage_node.is_some());
        !is_noted && !self.is_refused(&ObjectRef::StorageNode)
    }

    /// Returns the node that is to be written on the job's object; `None` where it stands there, or cannot be written.
    pub(crate) fn unwritten_node(&self) -> Option<&Text> {
        let found = self.found_node()?;
        // A pod that is bound to the node goes first: without the log nothing but the note shows that it waits for it.
        let waits = found.is_empty() && !self.deleting_pods.is_empty();
        let noted = self.noted().and_then(|noted| noted.storage_node.as_deref()).unwrap_or_default();
        (!waits && noted != &**found && !self.is_refused(&ObjectRef::Annotations)).then_some(found)
    }

    fn is_refused(&self, object: &ObjectRef) -> bool {
        self.attempts.get(object).is_some_and(|attempt| matches!(attempt.last, Outcome::Refused { .. }))
    }

    /// Takes the result of a search in.
    pub(crate) fn storage_found(&mut self, node: &Text, stamp: Stamp, at: Timestamp) {
        self.storage.get_or_insert_default().found = Some(node.clone());
        if !node.is_empty() {
            self.note(stamp, at, format!("node {node} has the most free storage"));
        }
    }

    /// Lets the pod run on any node.
    pub(crate) fn drop_node(&mut self, stamp: Stamp, at: Timestamp) {
        let storage = self.storage.get_or_insert_default();
        (storage.found, storage.unplaced_since) = (Some(Text::from("")), None);
        self.note(stamp, at, DROPPED);
    }

    /// Notes since when the pod waits for its node.
    pub(crate) fn note_unplaced(&mut self, at: Timestamp) {
        let waits = self.unplaced_pod().is_some();
        if waits {
            self.storage.get_or_insert_default().unplaced_since.get_or_insert(at);
        } else if let Some(storage) = &mut self.storage {
            storage.unplaced_since = None;
        }
    }

    /// Returns the pod that waits for its node.
    fn unplaced_pod(&self) -> Option<&Pod> {
        let group = self.spec()?.storage_group.as_ref()?;
        self.storage_node()?;
        let pod = self.pods.get(self.groups.get(group)?.slot(0)?.pod.as_ref()?)?;
        let waits = pod.fact.phase == PodPhase::Pending && pod.fact.node.is_none() && !pod.is_leaving();
        waits.then_some(&**pod)
    }

    /// Returns the time until which the pod may wait for its node.
    pub(crate) fn unplaced_until(&self) -> Option<Timestamp> {
        Some(self.storage.as_ref()?.unplaced_since?.plus_ms(PLACE_TIMEOUT_MS))
    }

    /// Replaces a pod that waited for its node for too long.
    pub(crate) fn unplaced(&self, now: Timestamp) -> Option<Vec<JobEvent>> {
        let is_over = self.unplaced_until().is_some_and(|until| until <= now);
        let pod = self.unplaced_pod().filter(|_| is_over)?;
        Some(vec![JobEvent::NodeDropped, JobEvent::PodsDropped { uids: vec![pod.fact.uid.clone()] }])
    }
}
