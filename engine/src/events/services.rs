//! Applies what was decided of services: planned and dropped.

use model::{SlotId, Stamp, Uid};

use crate::job::{Job, PendingDeletion};
use crate::record_context::RecordContext;
use crate::slots;

impl RecordContext<'_> {
    pub(super) fn services_planned(&self, job: &mut Job, slots: &[SlotId]) {
        for id in slots {
            if let Some(slot) = job.slot_mut(id) {
                slot.service_planned = true;
                job.planned_services.insert(id.clone());
                slots::refresh(job, id, &self.node_view);
            }
        }
    }
}

/// Marks services to be deleted.
pub(super) fn dropped(job: &mut Job, uids: &[Uid]) {
    for uid in uids {
        if let Some(service) = job.services.get_mut(uid) {
            service.deletion.get_or_insert_with(|| Box::new(PendingDeletion::unconditional()));
        }
        job.surplus_services.remove(uid);
    }
}

/// Gives up planned services.
pub(super) fn cancel_planned(job: &mut Job) {
    let planned = std::mem::take(&mut job.planned_services);
    for id in planned {
        job.attempts.remove(&model::ObjectRef::Service(id.clone()));
        if let Some(slot) = job.slot_mut(&id) {
            slot.service_planned = false;
        }
    }
}

/// Marks the services that an ending deletes, once the stamp of the ending is in the mirror.
pub(super) fn end(job: &mut Job, stamp: Stamp) {
    let services = job.services.iter().filter(|(_, service)| job.end_deletes_service(service));
    let services: Vec<Uid> = services.map(|(uid, _)| uid.clone()).collect();
    for uid in services {
        let Some(service) = job.services.get_mut(&uid) else { continue };
        service
            .deletion
            .get_or_insert_with(|| Box::new(PendingDeletion { requires: stamp, ordered: false, forced: false }));
    }
}
