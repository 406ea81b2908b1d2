//! Facts about services.

use model::{ObjectRef, ServiceFact, Uid};

use super::answers;
use crate::job::{Job, Service};
use crate::record_context::RecordContext;
use crate::slots;
use crate::text::share;

impl RecordContext<'_> {
    pub(super) fn service(&self, job: &mut Job, fact: &ServiceFact) {
        let deletion = job.services.get(&fact.uid).and_then(|s| s.deletion.clone());
        let mut service = Service {
            name: fact.name.clone(),
            slot: fact.slot.clone(),
            rv: fact.rv,
            deleting: fact.deleting,
            deletion,
        };
        if let Some(id) = &mut service.slot
            && let Some((group, _)) = job.groups.get_key_value(&id.group)
        {
            id.group = group.clone();
        }
        // A slot's service is called like its pod.
        let pod = service.slot.as_ref().and_then(|id| job.pods.get(job.slot(id)?.pod.as_ref()?));
        if let Some(pod) = pod {
            share(&mut service.name, &pod.fact.name);
        }
        job.services.insert(fact.uid.clone(), Box::new(service));
        let held = fact.slot.as_ref().and_then(|id| job.slot_mut(id)).is_some_and(|slot| {
            slot.service_planned = false;
            slot.service.get_or_insert_with(|| fact.uid.clone()) == &fact.uid
        });
        let kept = job.ending().is_some_and(|(_, clean, _)| !clean) && job.adopted == self.stamp;
        if !held && !kept {
            job.surplus_services.insert(fact.uid.clone());
        }
        let Some(id) = fact.slot.as_ref() else { return };
        job.planned_services.remove(id);
        answers::forget(job, &ObjectRef::Service(id.clone()), self.stamp);
        slots::refresh(job, id, &self.node_view);
    }

    pub(super) fn service_gone(&self, job: &mut Job, uid: &Uid) {
        answers::forget(job, &ObjectRef::ServiceUid(uid.clone()), self.stamp);
        job.surplus_services.remove(uid);
        let Some(id) = job.services.remove(uid).and_then(|s| s.slot) else { return };
        if job.slot(&id).is_some_and(|slot| slot.service.as_ref() == Some(uid)) {
            // Its successor may have been seen before it was seen gone.
            let is_successor = |service: &Service| service.slot.as_ref() == Some(&id) && service.deletion.is_none();
            let successor = job.services.iter().find(|(_, service)| is_successor(service)).map(|(uid, _)| uid.clone());
            if let Some(successor) = &successor {
                job.surplus_services.remove(successor);
            }
            if let Some(slot) = job.slot_mut(&id) {
                slot.service = successor;
            }
        }
        slots::refresh(job, &id, &self.node_view);
    }
}
