//! Keeps a job's counters and index sets in step with its pods, services and spec.
//!
//! Every change of a slot, its pod or its node goes through [`refresh`]; nothing else writes those sets.

use std::collections::BTreeSet;

use model::{ContainerState, PodPhase, SlotId, Text, Uid};

use crate::job::{Counter, Group, Job, Pod, Slot};
use crate::state::Surroundings;

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

/// The creation error a pod shows: container name and reason.
pub(crate) fn creation_error(pod: &Pod) -> Option<(&Text, &Text)> {
    pod.fact.containers.iter().find_map(|c| match &c.state {
        ContainerState::Waiting { reason } if CREATION_ERRORS.contains(&&**reason) => Some((&c.name, reason)),
        ContainerState::Waiting { .. } | ContainerState::Running | ContainerState::Terminated { .. } => None,
    })
}

/// Brings a group's counters and sets in step with one of its slots.
pub(crate) fn refresh(job: &mut Job, id: &SlotId, around: &Surroundings<'_>) {
    let (services, gpus) = job.spec().and_then(|s| s.group(&id.group)).map_or((false, false), |g| (g.services, g.gpus));
    let Job { groups, pods, .. } = job;
    let Some(group) = groups.get_mut(&id.group) else { return };
    let Group { slots, counters, missing, unserved, done, suspects, .. } = &mut **group;
    let Some(slot) = usize::try_from(id.index).ok().and_then(|n| slots.get_mut(n)) else { return };
    let pod = slot.pod.as_ref().and_then(|uid| pods.get(uid));
    let counter = pod.map(|pod| pod.counter()).or_else(|| slot.done.then_some(Counter::Succeeded));
    if counter != slot.counter {
        if let Some(old) = slot.counter {
            let n = counters.get_mut(old);
            *n = n.saturating_sub(1);
        }
        if let Some(new) = counter {
            let n = counters.get_mut(new);
            *n = n.saturating_add(1);
        }
        slot.counter = counter;
    }
    put(missing, id.index, pod.is_none() && !slot.planned && !slot.done);
    put(unserved, id.index, services && slot.service.is_none() && !slot.service_planned);
    put(done, id.index, slot.done);
    put(suspects, id.index, pod.is_some_and(|p| is_suspect(p, gpus, around)));
}

fn put(set: &mut BTreeSet<u32>, index: u32, member: bool) {
    if member {
        set.insert(index);
    } else {
        set.remove(&index);
    }
}

fn is_suspect(pod: &Pod, gpus: bool, around: &Surroundings<'_>) -> bool {
    let bad_node = || pod.fact.node.as_ref().is_some_and(|n| around.is_suspicious(n, gpus));
    match pod.fact.phase {
        _ if pod.is_leaving() => bad_node(),
        PodPhase::Failed | PodPhase::Unknown => true,
        PodPhase::Succeeded => false,
        PodPhase::Pending => creation_error(pod).is_some() || bad_node() || has_gpu_condition(pod, around),
        PodPhase::Running => bad_node() || has_gpu_condition(pod, around),
    }
}

pub(crate) fn has_gpu_condition(pod: &Pod, around: &Surroundings<'_>) -> bool {
    pod.fact.conditions.iter().any(|c| around.names_fault(c))
}

/// Lays the job's groups out for its present valid spec and sorts its pods into slots and strays.
pub(crate) fn lay_out(job: &mut Job, around: &Surroundings<'_>) {
    let Some(valid) = job.valid.clone() else { return };
    let Ok(spec) = &valid.spec else { return };
    for (name, group) in &mut job.groups {
        if spec.group(name).is_none() {
            resize(group, 0);
        }
    }
    for wanted in &spec.groups {
        let group = job.groups.entry(wanted.name.clone()).or_default();
        resize(group, wanted.replicas);
        // New pods must be told from those that an adopted mirror still waits for.
        if let Some(below) = job.waits_below.get(&wanted.name) {
            for slot in &mut group.slots {
                slot.incarnation = slot.incarnation.max(model::Incarnation(below.0.saturating_sub(1)));
            }
        }
    }
    let fits = |job: &Job, id: &SlotId| job.slot(id).is_some();
    let planned: Vec<SlotId> = job.planned_pods.iter().filter(|id| !fits(job, id)).cloned().collect();
    for id in planned {
        job.planned_pods.remove(&id);
    }
    let planned: Vec<SlotId> = job.planned_services.iter().filter(|id| !fits(job, id)).cloned().collect();
    for id in planned {
        job.planned_services.remove(&id);
    }
    // What stood when an ending that keeps pods was decided is nobody's surplus.
    let kept = job.ending().is_some_and(|(_, clean, _)| !clean);
    job.strays.clear();
    let placed: Vec<(Uid, Option<SlotId>)> =
        job.pods.values().map(|p| (p.fact.uid.clone(), p.fact.slot.clone())).collect();
    for (uid, id) in placed {
        let held =
            id.and_then(|id| job.slot_mut(&id)).is_some_and(|s| s.pod.get_or_insert_with(|| uid.clone()) == &uid);
        if !held && !kept {
            job.strays.insert(uid);
        }
    }
    job.stray_services.clear();
    let serving: Vec<(Uid, Option<SlotId>)> =
        job.services.iter().map(|(uid, s)| (uid.clone(), s.slot.clone())).collect();
    for (uid, id) in serving {
        let held =
            id.and_then(|id| job.slot_mut(&id)).is_some_and(|s| s.service.get_or_insert_with(|| uid.clone()) == &uid);
        if !held && !kept {
            job.stray_services.insert(uid);
        }
    }
    for (name, count) in std::mem::take(&mut job.slot_counts) {
        if let Some(slot) = SlotId::parse(&name).and_then(|id| job.slot_mut(&id)) {
            slot.count = Some(count);
        }
    }
    for wanted in &spec.groups {
        refresh_group(job, &wanted.name, around);
    }
}

/// Refreshes every slot of a group.
pub(crate) fn refresh_group(job: &mut Job, name: &Text, around: &Surroundings<'_>) {
    let replicas = job.groups.get(name).map_or(0, |g| g.replicas);
    for index in 0..replicas {
        refresh(job, &SlotId { group: name.clone(), index }, around);
    }
}

fn resize(group: &mut Group, replicas: u32) {
    let len = usize::try_from(replicas).unwrap_or(usize::MAX);
    if group.slots.len() > len {
        for slot in group.slots.get(len..).unwrap_or_default() {
            if let Some(counter) = slot.counter {
                let n = group.counters.get_mut(counter);
                *n = n.saturating_sub(1);
            }
        }
        for set in [&mut group.missing, &mut group.unserved, &mut group.done, &mut group.suspects] {
            set.retain(|index| *index < replicas);
        }
    }
    group.delays.retain(|index, _| *index < replicas);
    group.slots.resize(len, Slot::default());
    group.replicas = replicas;
}
