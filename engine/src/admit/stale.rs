//! Compares facts with what is known: whether they are older, or change nothing of it.

use model::{JobFact, NodeFact, ObjectFact, ObjectRef, OwnedFact, PodFact, ResourceVersion, ServiceFact, Stamp, Uid};

use crate::job::Job;
use crate::state::State;

impl State {
    /// Returns true if the fact is not newer than what is known of the node.
    pub(crate) fn is_stale_node(&self, fact: &NodeFact) -> bool {
        self.nodes.get(&fact.name).is_some_and(|known| known.fact.rv >= fact.rv)
    }
}

impl Job {
    /// Returns true if the fact is about an object and older than what is known of it. Such facts stand in records of builds
    /// that admitted them; folding passes them over.
    pub(crate) fn is_stale(&self, fact: &JobFact) -> bool {
        matches!(fact, JobFact::Object(fact) if self.is_stale_object(fact))
            || matches!(fact, JobFact::Pod(fact) if self.is_stale_pod(fact))
            || matches!(fact, JobFact::Service(fact) if self.is_stale_service(fact))
            || matches!(fact, JobFact::Owned(fact) if self.is_stale_owned(fact))
    }

    pub(super) fn is_stale_object(&self, fact: &ObjectFact) -> bool {
        self.object.is_known() && fact.rv < self.object.rv()
    }

    pub(super) fn is_stale_service(&self, fact: &ServiceFact) -> bool {
        self.services.get(&fact.uid).is_some_and(|known| known.rv >= fact.rv)
    }

    pub(super) fn is_stale_owned(&self, fact: &OwnedFact) -> bool {
        let known = self.owned.get(&fact.object).and_then(|owned| owned.fact.as_ref());
        known.is_some_and(|known| known.rv >= fact.rv)
    }

    /// Returns true if the pod is known in this version or a newer one, was reported deleted, or had its name before the pod
    /// that has it now.
    pub(super) fn is_stale_pod(&self, fact: &PodFact) -> bool {
        let uid = &fact.uid;
        if self.pods.get(uid).is_some_and(|known| known.fact.rv >= fact.rv) || self.dead.contains(uid) {
            return true;
        }
        let Some(slot) = fact.slot.as_ref().and_then(|id| self.slot(id)) else { return false };
        let came_back = slot.last_gone_rv.0 > 0 && fact.rv > slot.last_gone_rv;
        let is_late = slot.last_gone.as_ref() == Some(uid) && !came_back;
        is_late || self.namesake(slot.pod.as_ref(), fact).is_some_and(|(_, known)| known.rv > fact.rv)
    }

    /// Returns the pod that holds the slot, if it is another one of the same name.
    pub(crate) fn namesake<'a>(&'a self, holder: Option<&'a Uid>, fact: &PodFact) -> Option<(&'a Uid, &'a PodFact)> {
        let holder = holder.filter(|holder| **holder != fact.uid)?;
        let known = self.pods.get(holder).map(|pod| &pod.fact)?;
        (known.name == fact.name).then_some((holder, known))
    }

    /// Returns true if the end of a pod matters. Of a pod that was never seen it does while a creation is unresolved, or while
    /// an adopted mirror waits for it.
    pub(super) fn awaits_end_of(&self, uid: &Uid) -> bool {
        self.pods.contains_key(uid) || self.deleting_pods.contains(uid) || !self.planned_pods.is_empty()
    }

    /// Returns true if an acknowledged status write changes anything. What a watch has shown already still ends the attempts
    /// to write it.
    pub(super) fn is_changed_by_write(&self, stamp: Stamp, rv: ResourceVersion) -> bool {
        stamp > self.stamps.acknowledged() || rv > self.object.rv() || self.attempts.contains_key(&ObjectRef::Status)
    }
}
