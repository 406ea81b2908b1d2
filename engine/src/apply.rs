//! Folds decisions in. Needs no rule: what an event says is done to the state.

use model::fact::Milestone;
use model::{
    CauseKind, Decision, Event, JobKey, Milestones, Phase, Replacement, RestartScope, SlotId, Stamp, Text, Timestamp,
    Uid,
};

use crate::job::{Job, MAX_MILESTONES, PendingDeletion};
use crate::nodes::NodeView;
use crate::observe::answers;
use crate::slots;
use crate::state::{ApplyError, Behaviour, Scope, State};
use crate::words::scope_words;

/// Maximum number of slots that one entry of a trail names.
const MAX_NAMED: usize = 8;
/// Time in milliseconds in which a job is granted no share after its first start that did not come whole. Doubles with each.
const START_BACKOFF_MS: u64 = 10_000;
/// Upper bound of that time, in milliseconds.
const MAX_START_BACKOFF_MS: u64 = 600_000;

impl State {
    /// Folds one event of a record in.
    ///
    /// # Errors
    /// Returns an error if the event does not fit the state: the log is not the one this state was folded from.
    pub fn apply(&mut self, scope: &Scope, event: &Event) -> Result<(), ApplyError> {
        match scope {
            Scope::Job(key) => self.apply_job(key, event),
            Scope::Queues => self.apply_queues(event),
            Scope::Cluster => Err(ApplyError::Misplaced { event: event.name() }),
        }
    }

    pub(crate) fn apply_job(&mut self, key: &JobKey, event: &Event) -> Result<(), ApplyError> {
        let (at, stamp, behaviour) = (self.at, self.stamp, self.behaviour);
        self.format = self.format.max(crate::wire::format::of_event(event));
        let node_view = NodeView::new(&self.nodes, &self.list_rvs, &self.config);
        let Some(job) = self.jobs.get_mut(key) else {
            return Err(ApplyError::UnknownJob { job: key.to_string(), event: event.name() });
        };
        match event {
            Event::Fenced => {
                job.fenced_by = stamp;
                job.status_stamp = stamp;
            }
            Event::PodsPlanned { slots } => {
                for (id, incarnation) in slots {
                    let node = job.allocation.share.node(id).cloned();
                    if let Some(slot) = job.slot_mut(id) {
                        slot.planned = true;
                        slot.cancelled = false;
                        slot.incarnation = *incarnation;
                        slot.planned_on.clone_from(&node);
                        job.planned_pods.insert(id.clone());
                        job.drop_delay(id);
                        slots::refresh(job, id, &node_view);
                    }
                }
                if behaviour.delays_slots() {
                    // Pods are planned only once it has passed.
                    job.retry_at = None;
                }
                if behaviour.pauses_limits() {
                    job.resume_limit(slots.iter().map(|(slot, _)| slot), at);
                }
            }
            Event::ServicesPlanned { slots } => {
                for id in slots {
                    if let Some(slot) = job.slot_mut(id) {
                        slot.service_planned = true;
                        job.planned_services.insert(id.clone());
                        slots::refresh(job, id, &node_view);
                    }
                }
            }
            Event::PodsDropped { uids } => {
                let has_run = |id: &SlotId| job.runs_once(&id.group) && job.slot(id).is_some_and(|slot| slot.done);
                let tells = |uid: &Uid| job.pods.get(uid).and_then(|pod| pod.fact.slot.as_ref()).is_some_and(has_run);
                let is_elastic = job.elastic().is_some();
                let needs_mirror = is_elastic || job.ending().is_some() || uids.iter().any(tells);
                if is_elastic && job.ending().is_none() {
                    // Without it, a pod that is being deleted waits for a checkpoint.
                    job.decided = stamp;
                    job.status_stamp = stamp;
                }
                let requires = if needs_mirror { job.decided } else { Stamp::default() };
                for uid in uids {
                    schedule_deletion(job, uid, requires, &node_view);
                }
            }
            Event::ServicesDropped { uids } => {
                for uid in uids {
                    if let Some(service) = job.services.get_mut(uid) {
                        service.deletion.get_or_insert_with(|| Box::new(PendingDeletion::unconditional()));
                    }
                    job.surplus_services.remove(uid);
                }
            }
            Event::OwnedPlanned { objects } => {
                for object in objects {
                    job.owned.entry(object.clone()).or_default().planned = true;
                }
            }
            Event::OwnedDropped { objects } => {
                for object in objects {
                    if let Some(owned) = job.owned.get_mut(object) {
                        owned.deletion.get_or_insert_with(|| Box::new(PendingDeletion::unconditional()));
                    }
                }
            }
            Event::UsersCounted(counts) => {
                job.users = *counts;
                job.status_stamp = stamp;
            }
            Event::Autoscaled(step) => {
                job.autoscale(step, at);
                if let Some(scaling) = &step.scaling {
                    job.status_stamp = stamp;
                    job.note(stamp, at, crate::autoscaler::words(scaling));
                }
            }
            Event::NodeDropped => job.drop_node(stamp, at),
            Event::Achieved { group, run } => {
                if let Some(group) = job.groups.get_mut(group) {
                    group.achieved = Some(run.clone());
                }
                // The pods that tell it are deleted once the mirror does.
                job.decided = stamp;
                job.status_stamp = stamp;
                slots::refresh_group(job, group, &node_view);
                job.note(stamp, at, format!("{group} completed run {run}"));
            }
            Event::Decided(decision) => {
                job.decision = Some((**decision).clone());
                job.decided = stamp;
                job.status_stamp = stamp;
                job.creating_at = None;
                // Something follows from its pods after all.
                job.stalled = None;
                match &**decision {
                    Decision::Restart { group, scope, slot, cause, failures, retry_at } => {
                        if !behaviour.delays_slots() {
                            job.retry_at = *retry_at;
                        } else if let Some(until) = retry_at {
                            delay(job, group, *scope, slot, *until);
                        }
                        if let Some(slot) = job.slot_mut(slot) {
                            slot.failures.insert(cause.kind, *failures);
                        }
                        let is_charged = cause.kind != CauseKind::Resized;
                        restart(job, group, *scope, slot, is_charged, stamp, &node_view);
                        job.note(
                            stamp,
                            at,
                            format!("restart of {} decided: {}", scope_words(*scope, group, slot), cause.message),
                        );
                    }
                    Decision::Halt { cause } => {
                        if cause.kind == CauseKind::NotStarted && job.note_refusals(at) {
                            self.format = self.format.max(7);
                        }
                        job.allocation.give_up(stamp, at);
                        if behaviour.pauses_limits() && job.pause_limit(at) {
                            self.format = self.format.max(7);
                        }
                        if cause.kind == CauseKind::NotStarted {
                            let starts = job.allocation.failed_starts.saturating_add(1);
                            let delay =
                                answers::backoff(starts.saturating_add(1), START_BACKOFF_MS, MAX_START_BACKOFF_MS);
                            job.allocation.failed_starts = starts;
                            job.allocation.start_after = Some(at.plus_ms(delay));
                        }
                        halt(job, stamp, &node_view);
                        job.note(stamp, at, format!("halt decided: {}", cause.message));
                    }
                    Decision::End { phase, cause, clean, .. } => {
                        end(job, *clean, stamp, &node_view);
                        job.allocation.give_up(stamp, at);
                        job.note(stamp, at, format!("ending as {phase:?} decided: {}", cause.message));
                    }
                }
            }
            Event::Replaced { group, slots } => {
                // All that one record replaces is one round.
                let budget = job.spec().and_then(|spec| spec.budget).filter(|budget| budget.rounds);
                if let Some(budget) = budget.filter(|budget| budget.containers || job.decided != stamp)
                    && !job.runs_once(group)
                {
                    job.rounds = job.rounds.saturating_add(budget.retries_of(slots.iter().map(|slot| slot.kind)));
                }
                if job.noted().is_some() {
                    job.round_at = Some(at);
                }
                job.decided = stamp;
                job.status_stamp = stamp;
                replace(job, group, slots, stamp, &node_view);
                let names: Vec<String> =
                    slots.iter().take(MAX_NAMED).map(|each| format!("{group}-{}", each.index)).collect();
                let more = if slots.len() > MAX_NAMED { ", ..." } else { "" };
                job.note(stamp, at, format!("replacing {}{more}", names.join(", ")));
            }
            Event::Lost { slots } => {
                job.status_stamp = stamp;
                for (id, kind) in slots {
                    if let Some(slot) = job.slot_mut(id) {
                        slot.lost = true;
                        slots::refresh(job, id, &node_view);
                        job.note(stamp, at, format!("{id} failed for good ({kind:?}): not created again"));
                    }
                }
            }
            Event::RestartCleared => {
                if job.is_halting()
                    && let Some(latest) = job.spec.as_ref().filter(|latest| latest.spec.is_ok())
                {
                    // Its pods are gone: an edit that waited for that takes effect.
                    job.valid = Some(job.sized(latest.clone()));
                }
                job.decision = None;
                job.waits_below.clear();
                job.status_stamp = stamp;
            }
            Event::Ended { phase } => {
                job.ended_at = Some(at);
                let observes = job.spec().is_some_and(|spec| spec.observes_pods);
                let message = match &job.decision {
                    // What becomes of the pods is another controller's.
                    Some(Decision::End { cause, .. }) if observes => cause.message.clone(),
                    Some(Decision::End { cause, clean, live_only, .. }) => {
                        let pods = match (clean, live_only) {
                            (true, false) => "pods deleted",
                            (true, true) => "pods that have not ended are deleted",
                            (false, _) => "pods kept",
                        };
                        Text::from(format!("{}; {pods}", cause.message))
                    }
                    Some(Decision::Restart { .. } | Decision::Halt { .. }) | None => Text::from(""),
                };
                enter(job, *phase, message, stamp, at, behaviour);
            }
            Event::PhaseChanged { to, message } => enter(job, *to, message.clone(), stamp, at, behaviour),
            Event::Stalled { message } => {
                job.stalled.clone_from(message);
                job.status_stamp = stamp;
            }
            Event::Dequeued { .. }
            | Event::Allocated(_)
            | Event::Shared { .. }
            | Event::Reported { .. }
            | Event::WaitsReported { .. } => {
                return Err(ApplyError::Misplaced { event: event.name() });
            }
            Event::MessageChanged { message } => {
                if let Some(last) = job.milestones.back_mut() {
                    last.message = message.clone();
                }
                job.status_stamp = stamp;
            }
        }
        Ok(())
    }
}

fn enter(job: &mut Job, phase: Phase, message: Text, stamp: Stamp, at: Timestamp, behaviour: Behaviour) {
    let is_admitted = |job: &Job| !(behaviour.pauses_limits() && job.waits_for_admission());
    // Beside the decision it follows from, a change of phase needs no words of its own.
    let told = job.trail.back().is_some_and(|last| last.stamp == stamp);
    let words = if message.is_empty() || told { String::new() } else { format!(": {message}") };
    job.note(stamp, at, format!("{:?} -> {phase:?}{words}", job.phase));
    job.phase = phase;
    job.status_stamp = stamp;
    match phase {
        Phase::Pending | Phase::Preparing => {
            job.started_at = job.started_at.or(Some(at));
            job.creating_at = None;
            // Where waiting for nodes is a phase of its own, the job is admitted with it.
            if !job.spec().is_some_and(|spec| spec.phase_rules.queued) && is_admitted(job) {
                job.admit(at);
            }
        }
        Phase::Queued => {
            job.started_at = job.started_at.or(Some(at));
            job.creating_at = None;
            if is_admitted(job) {
                job.admit(at);
            }
        }
        Phase::Creating => job.creating_at = Some(at),
        Phase::Running => {
            if behaviour.pauses_limits() {
                job.admit(at);
            }
            job.running_at = job.running_at.or(Some(at));
            job.creating_at = None;
            job.groups.values_mut().for_each(|group| group.forget_growth());
        }
        Phase::New
        | Phase::Restarting
        | Phase::Terminating
        | Phase::Succeeded
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed => {}
        Phase::Suspended => job.reset_limit(),
    }
    if job.milestones.len() >= MAX_MILESTONES {
        let rule = job.spec().map(|spec| spec.phase_rules.milestones).unwrap_or_default();
        let comes_again = |n: &usize| {
            let later = job
                .milestones
                .range(n.saturating_add(1)..)
                .any(|m| job.milestones.get(*n).is_some_and(|at| at.phase == m.phase));
            later || job.milestones.get(*n).is_some_and(|at| at.phase == phase)
        };
        let dropped = match rule {
            Milestones::Latest => 0,
            Milestones::EachPhase => (0..job.milestones.len()).find(comes_again).unwrap_or_default(),
        };
        job.milestones.remove(dropped);
    }
    job.milestones.push_back(Milestone { phase, at, message });
}

fn schedule_deletion(job: &mut Job, uid: &Uid, requires: Stamp, node_view: &NodeView<'_>) {
    let Some(pod) = job.pods.get_mut(uid) else { return };
    pod.deletion.get_or_insert_with(|| Box::new(PendingDeletion { requires, ordered: false, forced: false }));
    let slot = pod.fact.slot.clone();
    job.deleting_pods.insert(uid.clone());
    if let Some(id) = slot {
        slots::refresh(job, &id, node_view);
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

fn restart(
    job: &mut Job,
    group: &Text,
    scope: RestartScope,
    slot: &SlotId,
    is_charged: bool,
    stamp: Stamp,
    node_view: &NodeView<'_>,
) {
    if let Some(charged) = job.groups.get_mut(group).filter(|_| is_charged) {
        charged.charged = charged.charged.saturating_add(1);
    }
    let is_single = is_single(scope);
    let taken = groups_taken(job, group, scope);
    for name in &taken {
        let Some(group) = job.groups.get_mut(name) else { continue };
        if !is_charged {
            continue;
        }
        group.restarts = group.restarts.saturating_add(1);
        if !is_single {
            group.forget_growth();
        }
        let (restarts, len) = (group.restarts, group.replicas);
        for (index, each) in (0..len).zip(&mut group.slots) {
            if !is_single || index == slot.index {
                each.count = Some(restarts);
                each.done = false;
            }
        }
    }
    let victims: Vec<Uid> = match scope {
        RestartScope::All => job.pods.keys().cloned().collect(),
        RestartScope::Replica => {
            let of_group = |p: &crate::job::Pod| p.fact.slot.as_ref().is_some_and(|id| id.group == *group);
            // Where no pod failed, those that ended stay ended.
            let taken = |p: &crate::job::Pod| of_group(p) && (is_charged || !p.fact.phase.is_terminal());
            job.pods.values().filter(|p| taken(p)).map(|p| p.fact.uid.clone()).collect()
        }
        RestartScope::Pod | RestartScope::Each => job.slot(slot).and_then(|s| s.pod.clone()).into_iter().collect(),
    };
    for uid in &victims {
        schedule_deletion(job, uid, stamp, node_view);
    }
    for name in &taken {
        slots::refresh_group(job, name, node_view);
    }
}

/// Returns true if a restart takes one pod along.
const fn is_single(scope: RestartScope) -> bool {
    matches!(scope, RestartScope::Pod | RestartScope::Each)
}

/// Groups that a restart takes along, wholly or in part.
fn groups_taken(job: &Job, group: &Text, scope: RestartScope) -> Vec<Text> {
    match scope {
        RestartScope::All => job.spec().map(|s| s.groups.iter().map(|g| g.name.clone()).collect()).unwrap_or_default(),
        RestartScope::Replica | RestartScope::Pod | RestartScope::Each => vec![group.clone()],
    }
}

/// Holds back the replacements of a restart, and nothing else.
fn delay(job: &mut Job, group: &Text, scope: RestartScope, slot: &SlotId, until: Timestamp) {
    for name in groups_taken(job, group, scope) {
        let Some(group) = job.groups.get_mut(&name) else { continue };
        let indexes = if is_single(scope) { slot.index..slot.index.saturating_add(1) } else { 0..group.replicas };
        for index in indexes {
            group.delay(index, until);
        }
    }
}

/// Deletes the pods that have not ended. Ended ones stay: they tell what was reached. Pods that run once go on. Pods that another
/// controller created are deleted by that one.
fn halt(job: &mut Job, stamp: Stamp, node_view: &NodeView<'_>) {
    forget_delays(job);
    if job.spec().is_some_and(|spec| spec.observes_pods) {
        return;
    }
    for id in job.planned_pods.clone() {
        if !job.runs_once(&id.group) {
            answers::cancel(job, &id, stamp);
        }
    }
    let live: Vec<Uid> = job.live_pods().map(|pod| pod.fact.uid.clone()).collect();
    for uid in &live {
        schedule_deletion(job, uid, stamp, node_view);
    }
}

fn forget_delays(job: &mut Job) {
    job.retry_at = None;
    job.groups.values_mut().for_each(|group| group.delays.clear());
}

fn end(job: &mut Job, clean: bool, stamp: Stamp, node_view: &NodeView<'_>) {
    job.limit_paused_at = None;
    job.wait_reason = None;
    forget_delays(job);
    let finals = job.groups.iter().map(|(name, g)| (name.clone(), (g.counters.succeeded, g.counters.failed)));
    job.finals = finals.collect();
    for id in job.planned_pods.clone() {
        answers::cancel(job, &id, stamp);
    }
    let planned = std::mem::take(&mut job.planned_services);
    for id in planned {
        job.attempts.remove(&model::ObjectRef::Service(id.clone()));
        if let Some(slot) = job.slot_mut(&id) {
            slot.service_planned = false;
        }
    }
    if clean {
        let pods = job.pods.iter().filter(|(_, pod)| job.end_deletes(pod));
        let pods: Vec<Uid> = pods.map(|(uid, _)| uid.clone()).collect();
        for uid in &pods {
            schedule_deletion(job, uid, stamp, node_view);
        }
        let services = job.services.iter().filter(|(_, service)| job.end_deletes_service(service));
        let services: Vec<Uid> = services.map(|(uid, _)| uid.clone()).collect();
        for uid in services {
            let Some(service) = job.services.get_mut(&uid) else { continue };
            service
                .deletion
                .get_or_insert_with(|| Box::new(PendingDeletion { requires: stamp, ordered: false, forced: false }));
        }
    }
}
