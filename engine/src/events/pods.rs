//! Applies what was decided of single pods: planned, dropped, replaced, lost, and runs of groups that are complete.

use model::{CauseKind, Incarnation, Replacement, SlotId, Stamp, Text, Uid};

use crate::job::{Job, PendingDeletion};
use crate::nodes::NodeView;
use crate::record_context::RecordContext;
use crate::slots;

/// Maximum number of slots that one entry of a trail names.
const MAX_NAMED: usize = 8;

impl RecordContext<'_> {
    pub(super) fn pods_planned(&self, job: &mut Job, slots: &[(SlotId, Incarnation)]) {
        for (id, incarnation) in slots {
            let node = job.allocation.share.node(id).cloned();
            if let Some(slot) = job.slot_mut(id) {
                slot.planned = true;
                slot.cancelled = false;
                slot.incarnation = *incarnation;
                slot.planned_on.clone_from(&node);
                job.planned_pods.insert(id.clone());
                job.drop_delay(id);
                slots::refresh(job, id, &self.node_view);
            }
        }
        if self.behaviour.delays_slots() {
            // Pods are planned only once it has passed.
            job.retry_at = None;
        }
        if self.behaviour.pauses_limits() {
            job.resume_limit(slots.iter().map(|(slot, _)| slot), self.at);
        }
    }

    pub(super) fn pods_dropped(&self, job: &mut Job, uids: &[Uid]) {
        let has_run = |id: &SlotId| job.runs_once(&id.group) && job.slot(id).is_some_and(|slot| slot.done);
        let shows = |uid: &Uid| job.pods.get(uid).and_then(|pod| pod.fact.slot.as_ref()).is_some_and(has_run);
        let is_elastic = job.elastic().is_some();
        let needs_mirror = is_elastic || job.ending().is_some() || uids.iter().any(shows);
        if is_elastic && job.ending().is_none() {
            // Without it, a pod that is being deleted waits for a checkpoint.
            job.decided = self.stamp;
            job.stamps.change(self.stamp);
        }
        let requires = if needs_mirror { job.decided } else { Stamp::default() };
        for uid in uids {
            schedule_deletion(job, uid, requires, &self.node_view);
        }
    }

    pub(super) fn run_achieved(&self, job: &mut Job, group: &Text, run: &Text) {
        if let Some(group) = job.groups.get_mut(group) {
            group.achieved = Some(run.clone());
        }
        // The pods that show it are deleted once the mirror does.
        job.decided = self.stamp;
        job.stamps.change(self.stamp);
        slots::refresh_group(job, group, &self.node_view);
        job.note(self.stamp, self.at, format!("{group} completed run {run}"));
    }

    pub(super) fn pods_replaced(&self, job: &mut Job, group: &Text, slots: &[Replacement]) {
        // All that one record replaces is one round.
        let budget = job.spec().and_then(|spec| spec.budget).filter(|budget| budget.rounds);
        if let Some(budget) = budget.filter(|budget| budget.containers || job.decided != self.stamp)
            && !job.runs_once(group)
        {
            job.retry_counts.add_rounds(budget.retries_of(slots.iter().map(|slot| slot.kind)));
        }
        if job.noted().is_some() {
            job.retry_counts.note_round(self.at);
        }
        job.decided = self.stamp;
        job.stamps.change(self.stamp);
        replace(job, group, slots, self.stamp, &self.node_view);
        let names: Vec<String> = slots.iter().take(MAX_NAMED).map(|each| format!("{group}-{}", each.index)).collect();
        let more = if slots.len() > MAX_NAMED { ", ..." } else { "" };
        job.note(self.stamp, self.at, format!("replacing {}{more}", names.join(", ")));
    }

    pub(super) fn slots_lost(&self, job: &mut Job, slots: &[(SlotId, CauseKind)]) {
        job.stamps.change(self.stamp);
        for (id, kind) in slots {
            if let Some(slot) = job.slot_mut(id) {
                slot.lost = true;
                slots::refresh(job, id, &self.node_view);
                job.note(self.stamp, self.at, format!("{id} failed for good ({kind:?}): not created again"));
            }
        }
    }
}

/// Replaces pods by themselves: nothing else of the job is touched.
fn replace(job: &mut Job, group: &Text, slots: &[Replacement], stamp: Stamp, node_view: &NodeView<'_>) {
    for each in slots {
        let id = SlotId { group: group.clone(), index: each.index };
        if let Some(slot) = job.slot_mut(&id) {
            slot.failures.insert(each.kind, each.failures);
        }
        if let Some(group) = job.groups.get_mut(group) {
            group.charged = group.charged.saturating_add(1);
            if let Some(until) = each.retry_at {
                group.delay(each.index, until);
            }
        }
        schedule_deletion(job, &each.uid, stamp, node_view);
    }
}

/// Marks a pod to be deleted once the stamp that its deletion requires is in the mirror.
pub(super) fn schedule_deletion(job: &mut Job, uid: &Uid, requires: Stamp, node_view: &NodeView<'_>) {
    let Some(pod) = job.pods.get_mut(uid) else { return };
    pod.deletion.get_or_insert_with(|| Box::new(PendingDeletion { requires, ordered: false, forced: false }));
    let slot = pod.fact.slot.clone();
    job.deleting_pods.insert(uid.clone());
    if let Some(id) = slot {
        slots::refresh(job, &id, node_view);
    }
}
