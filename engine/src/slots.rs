//! Keeps a job's counters and index sets in step with its pods, services and spec.
//!
//! Every change of a slot, its pod or its node goes through [`refresh`]; nothing else writes those sets.

use std::collections::BTreeSet;

use model::{ContainerFact, ContainerState, GroupSpec, ObjectRef, PodFact, PodPhase, SlotId, Text, Uid};

use crate::facts::answers;
use crate::group::{Counter, Group, Slot};
use crate::job::{Job, Pod};
use crate::nodes::NodeView;
use crate::record_context::RecordContext;

/// Waiting reasons that mean a container could not be created.
pub(crate) const CREATION_ERRORS: [&str; 8] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
];

/// The creation error a pod shows: container name, reason, and the node's words on it.
pub(crate) fn creation_error(pod: &PodFact) -> Option<(&Text, &Text, Option<&Text>)> {
    creation_error_of(&pod.containers)
}

fn creation_error_of(containers: &[ContainerFact]) -> Option<(&Text, &Text, Option<&Text>)> {
    containers.iter().find_map(|c| match &c.state {
        ContainerState::Waiting { reason, message } if CREATION_ERRORS.contains(&&**reason) => {
            Some((&c.name, reason, message.as_ref()))
        }
        ContainerState::Waiting { .. } | ContainerState::Running | ContainerState::Terminated(_) => None,
    })
}

/// Why a container of a pod cannot be created, init containers included: container name, reason, and the node's words on it.
pub(crate) fn any_creation_error(pod: &PodFact) -> Option<(&Text, &Text, Option<&Text>)> {
    creation_error_of(&pod.init).or_else(|| creation_error(pod))
}

/// Brings a group's counters and sets in step with one of its slots.
pub(crate) fn refresh(job: &mut Job, id: &SlotId, node_view: &NodeView<'_>) {
    let Job { groups, pods, valid, .. } = job;
    let spec = valid.as_ref().and_then(|fact| fact.spec.as_ref().ok());
    let wanted = spec.and_then(|spec| spec.group(&id.group));
    let (services, gpus) = wanted.map_or((false, false), |group| (group.services, group.gpus));
    let shape = wanted.and_then(|group| group.shape.as_ref());
    let once = wanted.is_some_and(|group| group.once);
    let main_ended = spec.and_then(|spec| spec.retryable.as_ref()).is_some_and(|listed| listed.main_ended);
    let ignores_leaving = spec.is_some_and(|spec| spec.phase_rules.ignores_leaving);
    let Some(group) = groups.get_mut(&id.group) else { return };
    let Group {
        slots, counters, missing, missing_services, done, to_evaluate, grown_from, grown, lost, outdated, ..
    } = &mut **group;
    let Some(slot) = usize::try_from(id.index).ok().and_then(|n| slots.get_mut(n)) else { return };
    let pod = slot.pod.as_ref().and_then(|uid| pods.get(uid));
    let counter = pod
        .filter(|pod| !(ignores_leaving && pod.is_leaving()))
        .map(|pod| pod.counter())
        .or_else(|| slot.done.then_some(Counter::Succeeded))
        .or_else(|| slot.lost.then_some(Counter::Failed));
    if counter != slot.counter {
        counters.shift(slot.counter, counter);
        if grown_from.is_some_and(|from| from <= id.index) {
            grown.shift(slot.counter, counter);
        }
        slot.counter = counter;
    }
    set_membership(missing, id.index, pod.is_none() && !slot.planned && !slot.done && !slot.lost);
    set_membership(missing_services, id.index, services && slot.service.is_none() && !slot.service_planned);
    set_membership(done, id.index, slot.done);
    // What became of a pod that ran once and succeeded has no consequence.
    let is_over = slot.lost || (once && slot.done);
    let evaluates = |pod: &Pod| {
        (!is_over || pod.is_leaving())
            && (needs_evaluation(pod, gpus, node_view) || (main_ended && has_ended_main(pod)))
    };
    set_membership(to_evaluate, id.index, pod.is_some_and(|pod| evaluates(pod)));
    set_membership(lost, id.index, slot.lost);
    set_membership(outdated, id.index, pod.is_some_and(|pod| is_outdated(pod, shape, once)));
}

/// Returns true if a pod that continues was made in another shape than the group's present one. A pod whose shape is not reported
/// was made by another operator, and stays as it is. One that ran once, in another run, makes room even if it has ended.
fn is_outdated(pod: &Pod, shape: Option<&Text>, once: bool) -> bool {
    let differs = shape.is_some_and(|wanted| pod.fact.shape.as_ref().is_some_and(|shape| shape != wanted));
    differs && !pod.is_leaving() && (once || !pod.fact.phase.is_terminal())
}

/// Returns true if a pod that succeeded completed its slot: in a group that runs once, only one of the present run.
pub(crate) fn completes(job: &Job, id: &SlotId, pod: &PodFact) -> bool {
    let spec = job.spec().and_then(|spec| spec.group(&id.group));
    pod.phase == PodPhase::Succeeded && spec.is_none_or(|spec| !spec.once || pod.shape == spec.shape)
}

/// Brings the successes of a group that runs once in step with its present run.
fn refresh_run(job: &mut Job, wanted: &GroupSpec) {
    let Some(group) = job.groups.get(&wanted.name) else { return };
    let has_run = group.has_run(wanted);
    let completed = |slot: &Slot| {
        let pod = slot.pod.as_ref().and_then(|uid| job.pods.get(uid));
        pod.is_some_and(|pod| pod.fact.phase == PodPhase::Succeeded && pod.fact.shape == wanted.shape)
    };
    let done: Vec<bool> = group.slots.iter().map(|slot| has_run || completed(slot)).collect();
    let Some(group) = job.groups.get_mut(&wanted.name) else { return };
    for (slot, done) in group.slots.iter_mut().zip(done) {
        slot.done = done;
        slot.lost &= done;
    }
    group.lost.retain(|index| group.slots.get(usize::try_from(*index).unwrap_or(usize::MAX)).is_some_and(|s| s.lost));
}

fn set_membership(set: &mut BTreeSet<u32>, index: u32, member: bool) {
    if member {
        set.insert(index);
    } else {
        set.remove(&index);
    }
}

fn needs_evaluation(pod: &Pod, gpus: bool, node_view: &NodeView<'_>) -> bool {
    let bad_node = || pod.fact.node.as_ref().is_some_and(|n| node_view.is_troubled(n, gpus));
    match pod.fact.phase {
        _ if pod.is_leaving() => bad_node(),
        PodPhase::Failed | PodPhase::Unknown => true,
        PodPhase::Succeeded => false,
        PodPhase::Pending => any_creation_error(&pod.fact).is_some() || bad_node() || has_gpu_condition(pod, node_view),
        PodPhase::Running => bad_node() || has_gpu_condition(pod, node_view),
    }
}

/// Returns true if a main container of a pod has ended, while the pod continues.
fn has_ended_main(pod: &Pod) -> bool {
    let is_ended = |c: &model::ContainerFact| c.main && matches!(c.state, ContainerState::Terminated(_));
    !pod.is_leaving() && !pod.fact.phase.is_terminal() && pod.fact.containers.iter().any(is_ended)
}

pub(crate) fn has_gpu_condition(pod: &Pod, node_view: &NodeView<'_>) -> bool {
    pod.fact.conditions.iter().any(|c| node_view.names_fault(c))
}

/// Rebuilds the slots of the job's groups for its present valid spec and sorts its pods into slots and surplus. `edited`: another valid spec
/// was in force before.
pub(crate) fn rebuild_slots(job: &mut Job, edited: bool, context: &RecordContext<'_>) {
    let node_view = &context.node_view;
    let Some(valid) = job.valid.clone() else { return };
    let Ok(spec) = &valid.spec else { return };
    for (name, group) in &mut job.groups {
        if spec.group(name).is_none() {
            resize(group, 0, false);
        }
    }
    for wanted in &spec.groups {
        let group = job.groups.entry(wanted.name.clone()).or_default();
        // Of an adopted job its mirror may show the number before.
        let was_known = edited || group.replicas > 0;
        resize(group, wanted.replicas, was_known && context.behaviour.records_growth());
        // Of an adopted job its mirror shows the slots whose pods failed for good, those included that were scaled away meanwhile.
        let lost = group.lost.len();
        group.lost.retain(|index| *index < wanted.replicas);
        if group.lost.len() < lost {
            job.stamps.change(context.stamp);
        }
        for index in &group.lost {
            if let Some(slot) = usize::try_from(*index).ok().and_then(|n| group.slots.get_mut(n)) {
                slot.lost = true;
            }
        }
        // New pods must be distinguished from those that an adopted mirror still waits for.
        if let Some(below) = job.waits_below.get(&wanted.name) {
            for slot in &mut group.slots {
                slot.incarnation = slot.incarnation.max(model::Incarnation(below.0.saturating_sub(1)));
            }
        }
    }
    sort_plans(job, context);
    // Objects that stood when an ending that keeps pods was decided are no surplus.
    let kept = job.ending().is_some_and(|(_, clean, _)| !clean);
    job.surplus_pods.clear();
    let placed: Vec<(Uid, Option<SlotId>)> =
        job.pods.values().map(|p| (p.fact.uid.clone(), p.fact.slot.clone())).collect();
    for (uid, id) in placed {
        let held =
            id.and_then(|id| job.slot_mut(&id)).is_some_and(|s| s.pod.get_or_insert_with(|| uid.clone()) == &uid);
        if !held && !kept {
            job.surplus_pods.insert(uid);
        }
    }
    job.surplus_services.clear();
    let serving: Vec<(Uid, Option<SlotId>)> =
        job.services.iter().map(|(uid, s)| (uid.clone(), s.slot.clone())).collect();
    for (uid, id) in serving {
        let held =
            id.and_then(|id| job.slot_mut(&id)).is_some_and(|s| s.service.get_or_insert_with(|| uid.clone()) == &uid);
        if !held && !kept {
            job.surplus_services.insert(uid);
        }
    }
    for (name, count) in std::mem::take(&mut job.slot_counts) {
        if let Some(slot) = SlotId::parse(&name).and_then(|id| job.slot_mut(&id)) {
            slot.count = Some(count);
        }
    }
    for wanted in &spec.groups {
        if wanted.once {
            refresh_run(job, wanted);
        }
        refresh_group(job, &wanted.name, node_view);
    }
}

/// Gives up what was planned for slots that were scaled away. A pod that may have been created stays planned until that is
/// known: its slot may come back before.
fn sort_plans(job: &mut Job, context: &RecordContext<'_>) {
    for id in job.planned_pods.clone() {
        match job.slot_mut(&id) {
            Some(slot) if !slot.planned => {
                slot.planned = true;
                slot.cancelled = false;
            }
            Some(_) => {}
            None if context.behaviour.cancels_plans() => answers::cancel(job, &id, context.stamp),
            None => answers::give_up(job, &id, context.stamp),
        }
    }
    let Job { groups, attempts, planned_services, .. } = job;
    let fits = |id: &SlotId| groups.get(&id.group).is_some_and(|group| id.index < group.replicas);
    planned_services.retain(fits);
    attempts.retain(|object, _| !matches!(object, ObjectRef::Service(id) if !fits(id)));
}

/// Gives up what was planned for slots that are not in the share any more, or on another node there.
pub(crate) fn leave_share(job: &mut Job, stamp: model::Stamp) {
    for id in job.planned_pods.clone() {
        let lasts = job.runs_once(&id.group) || !job.allocation.gated;
        let planned_on = job.slot(&id).and_then(|slot| slot.planned_on.clone());
        if !lasts && planned_on.as_ref() != job.allocation.share.node(&id) {
            answers::cancel(job, &id, stamp);
        }
    }
}

/// Refreshes every slot of a group.
pub(crate) fn refresh_group(job: &mut Job, name: &Text, node_view: &NodeView<'_>) {
    let replicas = job.groups.get(name).map_or(0, |g| g.replicas);
    for index in 0..replicas {
        refresh(job, &SlotId { group: name.clone(), index }, node_view);
    }
}

fn resize(group: &mut Group, replicas: u32, records_growth: bool) {
    let len = usize::try_from(replicas).unwrap_or(usize::MAX);
    let Group { slots, counters, grown, grown_from, past, .. } = &mut *group;
    if slots.len() > len {
        for (index, slot) in (replicas..).zip(slots.get(len..).unwrap_or_default()) {
            *past = slot.incarnation.max(*past);
            counters.shift(slot.counter, None);
            if grown_from.is_some_and(|from| from <= index) {
                grown.shift(slot.counter, None);
            }
        }
        for set in group.sets_mut() {
            set.retain(|index| *index < replicas);
        }
    }
    if records_growth && group.restarts > 0 && group.replicas < replicas {
        group.grown_from.get_or_insert(group.replicas);
    }
    if group.grown_from.is_some_and(|from| from >= replicas) {
        group.forget_growth();
    }
    group.delays.retain(|index, _| *index < replicas);
    group.slots.resize(len, Slot { incarnation: group.past, ..Slot::default() });
    group.replicas = replicas;
}
