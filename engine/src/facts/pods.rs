//! Folds facts about pods in: slots and surplus first, then the counters that follow.

use std::borrow::Cow;

use model::{ObjectRef, Phase, PodFact, PodPhase, ResourceVersion, SlotId, Stamp, Timestamp, Uid};

use super::{Moves, answers};
use crate::job::{Job, PendingDeletion, Pod};
use crate::record_context::RecordContext;
use crate::slots;
use crate::text::share;

/// Maximum number of uids kept per job of pods that were gone before they were known.
const MAX_DEAD: usize = 64;

impl RecordContext<'_> {
    pub(super) fn pod(&self, job: &mut Job, fact: &PodFact, moves: &mut Moves) {
        let uid = &fact.uid;
        let id = fact.slot.as_ref().filter(|id| job.slot(id).is_some()).cloned();
        if let (Some(scaled_away), None) = (&fact.slot, &id) {
            // Its creation had been given up; now it is known that it took place.
            answers::give_up(job, scaled_away, self.stamp);
        }
        if let Some(id) = &id {
            let holder = job.slot(id).and_then(|slot| slot.pod.as_ref());
            if let Some(held) = job.namesake(holder, fact).map(|(uid, _)| uid.clone()) {
                // One name holds one pod at a time: the one known before is gone.
                self.pod_gone(job, &held, None, moves);
            }
        }
        self.leave_slot(job, fact);
        let runs_once = fact.slot.as_ref().is_some_and(|id| job.runs_once(&id.group));
        let before = job.pods.get(uid);
        let result = before.and_then(|pod| pod.fact.lingers.then_some(pod.fact.phase));
        let fact = &with_result(fact, result);
        let known = before.map_or(0, |pod| pod.fact.restarts);
        // Restarts in a pod that runs once count for its group alone.
        let (known, restarts) = if runs_once { (0, 0) } else { (known, fact.restarts) };
        let restarted = job.retry_counts.count_pod(known, restarts);
        moves.push((before.and_then(|p| p.fact.node.clone()), fact.node.clone()));
        let failed = (fact.phase == PodPhase::Failed).then_some(self.at);
        let running = (fact.phase == PodPhase::Running).then_some(self.at);
        let pod = Pod {
            deletion: before
                .and_then(|p| p.deletion.clone())
                .or_else(|| job.awaits(fact).then(|| Box::new(PendingDeletion::unconditional()))),
            running_at: before.and_then(|p| p.running_at).or(running),
            failed_at: before.and_then(|p| p.failed_at).or(failed),
            fact: self.share_texts(job, fact),
        };
        let deleting = pod.deletion.is_some();
        if deleting {
            job.deleting_pods.insert(uid.clone());
        }
        let leaving = pod.is_leaving();
        let late = job.phase.is_terminal() && before.is_none() && job.adopted != self.stamp;
        match &fact.message {
            Some(message) if fact.phase == PodPhase::Pending && fact.node.is_none() => {
                if job.unschedulable.is_none() {
                    job.unschedulable = Some((uid.clone(), message.clone()));
                }
            }
            Some(_) | None => job.schedulable(uid),
        }
        let kept = !late && job.ending().is_some() && !job.end_deletes(&pod);
        job.pods.insert(uid.clone(), Box::new(pod));
        if restarted && job.ended_at.is_none() {
            job.stamps.change(self.stamp);
        }
        if !self.behaviour.times_by_slots() {
            self.first_run(job, running);
        }
        let held = id
            .as_ref()
            .filter(|_| !late)
            .and_then(|id| job.slot_mut(id))
            .is_some_and(|slot| slot.pod.get_or_insert_with(|| uid.clone()) == uid);
        let Some(id) = id.filter(|_| held) else {
            if !kept {
                job.surplus_pods.insert(uid.clone());
            }
            return;
        };
        let completes = slots::completes(job, &id, fact);
        let Some(slot) = job.slot_mut(&id) else { return };
        slot.incarnation = slot.incarnation.max(fact.incarnation);
        if self.behaviour.times_by_slots() && !deleting {
            self.first_run(job, running);
        }
        let Some(slot) = job.slot_mut(&id) else { return };
        if completes && !leaving {
            slot.done = true;
        }
        if !deleting && slot.planned {
            slot.planned = false;
            slot.cancelled = false;
            slot.planned_on = None;
            job.planned_pods.remove(&id);
            answers::forget(job, &ObjectRef::Pod(id.clone()), self.stamp);
        }
        if !deleting {
            job.drop_delay(&id);
        }
        self.refresh_shown(job, &id);
    }

    /// Starts the time limit with the first pod that runs.
    fn first_run(&self, job: &mut Job, running: Option<Timestamp>) {
        if running.is_some() && job.first_running_at.is_none() && !job.phase.is_terminal() {
            job.first_running_at = running;
            job.stamps.change(self.stamp);
        }
    }

    /// The fact, its texts shared with what is known: a record that was read brings its own copy of each.
    fn share_texts(&self, job: &Job, fact: &PodFact) -> PodFact {
        let mut fact = fact.clone();
        let known = job.pods.get(&fact.uid).map(|p| &p.fact);
        if let Some(known) = known {
            fact.uid = known.uid.clone();
            share(&mut fact.name, &known.name);
        }
        if let Some(id) = &mut fact.slot
            && let Some((group, _)) = job.groups.get_key_value(&id.group)
        {
            id.group = group.clone();
        }
        if let Some(node) = &mut fact.node
            && let Some((name, _)) = self.node_view.nodes.get_key_value(node)
        {
            *node = name.clone();
        }
        // Pods of a job mostly have the same containers.
        if let Some(like) = known.or_else(|| job.pods.values().next().map(|p| &p.fact)) {
            for (container, like) in fact.containers.iter_mut().zip(&like.containers) {
                share(&mut container.name, &like.name);
            }
        }
        fact
    }

    /// A pod whose labels name another slot, or none, leaves the one it had.
    fn leave_slot(&self, job: &mut Job, fact: &PodFact) {
        let Some(old) = job.pods.get(&fact.uid).and_then(|pod| pod.fact.slot.clone()) else { return };
        if fact.slot.as_ref() == Some(&old) || job.slot(&old).is_none_or(|slot| slot.pod.as_ref() != Some(&fact.uid)) {
            return;
        }
        let promoted = job.promote(&old);
        if let Some(slot) = job.slot_mut(&old) {
            slot.count = None;
            slot.pod = promoted;
        }
        self.refresh_shown(job, &old);
    }

    pub(super) fn pod_gone(&self, job: &mut Job, uid: &Uid, rv: Option<ResourceVersion>, moves: &mut Moves) {
        job.deleting_pods.remove(uid);
        job.surplus_pods.remove(uid);
        job.schedulable(uid);
        answers::forget(job, &ObjectRef::PodUid(uid.clone()), self.stamp);
        let Some(pod) = job.pods.remove(uid) else {
            if job.dead.len() >= MAX_DEAD {
                job.dead.pop_front();
            }
            job.dead.push_back(uid.clone());
            return;
        };
        moves.push((pod.fact.node, None));
        let runs_once = pod.fact.slot.as_ref().is_some_and(|id| job.runs_once(&id.group));
        if pod.fact.restarts > 0 && !runs_once {
            job.retry_counts.count_pod_gone(pod.fact.restarts);
            job.stamps.change(self.stamp);
        }
        let Some(id) = pod.fact.slot else { return };
        let mut promoted = None;
        if job.slot(&id).is_some_and(|s| s.pod.as_ref() == Some(uid)) {
            promoted = job.promote(&id);
        } else if job.slot(&id).is_none_or(|s| s.pod.is_some()) {
            return;
        }
        if let Some(slot) = job.slot_mut(&id) {
            if pod.deletion.is_none() {
                // Lost by no decision: its replacement shows the restarts of its group so far.
                slot.count = None;
            }
            slot.last_gone = Some(pod.fact.uid);
            slot.last_gone_rv = rv.unwrap_or_default();
            slot.pod = promoted;
        }
        if let Some(attempt) = job.attempts.get_mut(&ObjectRef::Pod(id.clone())) {
            // The name may be free now.
            attempt.retry_at = attempt.retry_at.map(|_| self.at);
        }
        self.refresh_shown(job, &id);
    }

    fn refresh_shown(&self, job: &mut Job, id: &SlotId) {
        let before = job.groups.get(&id.group).map(|g| g.counters);
        slots::refresh(job, id, &self.node_view);
        if job.phase == Phase::Restarting && job.creating_at.is_none() && all_placed(job) {
            job.creating_at = Some(self.at);
        }
        // What an ended job shows is final. Another controller that creates the pods shows their numbers itself.
        let is_shown = job.ended_at.is_none() && job.phase != Phase::New;
        let is_own = job.spec().is_none_or(|spec| !spec.externally_managed);
        if before != job.groups.get(&id.group).map(|g| g.counters) && is_shown && is_own {
            job.stamps.change(self.stamp);
        }
    }
}

/// Returns a pod with the result that it ended with before, where its other containers ran on: how these end is no result.
fn with_result(fact: &PodFact, result: Option<PodPhase>) -> Cow<'_, PodFact> {
    match result.filter(|phase| *phase != fact.phase) {
        Some(phase) => Cow::Owned(PodFact { phase, lingers: !fact.phase.is_terminal(), ..fact.clone() }),
        None => Cow::Borrowed(fact),
    }
}

impl Job {
    /// Takes out of the surplus the first pod that claims a slot which became free.
    fn promote(&mut self, id: &SlotId) -> Option<Uid> {
        let claims = |uid: &&Uid| self.pods.get(*uid).is_some_and(|pod| pod.fact.slot.as_ref() == Some(id));
        let found = self.surplus_pods.iter().find(claims).cloned()?;
        self.surplus_pods.remove(&found);
        Some(found)
    }

    /// The pod is not waiting for a node (any more).
    fn schedulable(&mut self, uid: &Uid) {
        if self.unschedulable.as_ref().is_some_and(|(held, _)| held == uid) {
            self.unschedulable = None;
        }
    }

    /// Returns true if an adopted mirror names a pod as going.
    fn awaits(&self, pod: &PodFact) -> bool {
        let below = pod.slot.as_ref().and_then(|id| self.waits_below.get(&id.group));
        self.deleting_pods.contains(&pod.uid) || below.is_some_and(|newest| pod.incarnation < *newest)
    }
}

impl PendingDeletion {
    /// For what may go at once: surplus, or a pod that an adopted mirror already names as going.
    pub(crate) fn unconditional() -> Self {
        Self { requires: Stamp::default(), ordered: false, forced: false }
    }
}

/// Returns true if every wanted slot has a pod on a node, and one of them has not started.
fn all_placed(job: &Job) -> bool {
    let mut starting = false;
    for group in job.groups.values() {
        starting |= group.counters.scheduled > 0;
        if group.counters.pending > 0 || !group.missing.is_empty() {
            return false;
        }
    }
    starting && job.planned_pods.is_empty()
}
