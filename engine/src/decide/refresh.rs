//! Replaces pods of an elastic job that are of an older generation, group after group, once its object says that they may be.
//!
//! A replacement counts as no retry. Pods that others delete are none of it: they are let go after a checkpoint ([`crate::notes`]).
//! Where another system can restart containers in place, pods stay ([`crate::in_place`]).

use model::{GroupSpec, JobEvent, JobSpec, Phase, Uid};

use crate::in_place::RestartStep;
use crate::job::{Job, Pod};

/// Maximum number of pods of a group that are replaced at once.
const MAX_AT_ONCE: usize = 100;

/// Renews the old pods of the first group that has any. The next group follows when all of this one are new.
pub(super) fn renew(job: &Job, spec: &JobSpec) -> Option<Vec<JobEvent>> {
    let (group, pods) = old_pods(job, spec)?;
    let (mut dropped, mut planned, mut deleted): (Vec<Uid>, Vec<_>, Vec<_>) = Default::default();
    for pod in pods {
        match job.restart_step(spec, group, pod) {
            RestartStep::Recreate => dropped.push(pod.fact.uid.clone()),
            RestartStep::Create(object) => planned.push(object),
            RestartStep::Delete(object) => deleted.push(object),
            RestartStep::Mark(_) | RestartStep::Wait => {}
        }
    }
    // The first object shows whether the cluster serves its type.
    planned.truncate(if job.knows_restarts() { MAX_AT_ONCE } else { 1 });
    let mut events = Vec::new();
    events.extend((!dropped.is_empty()).then_some(JobEvent::PodsDropped { uids: dropped }));
    events.extend((!planned.is_empty()).then_some(JobEvent::OwnedPlanned { objects: planned }));
    events.extend((!deleted.is_empty()).then_some(JobEvent::OwnedDropped { objects: deleted }));
    (!events.is_empty()).then_some(events)
}

/// Returns the first group that has old pods, with those that may be replaced now.
pub(crate) fn old_pods<'a>(job: &'a Job, spec: &'a JobSpec) -> Option<(&'a GroupSpec, Vec<&'a Pod>)> {
    let elastic = job.elastic().filter(|_| job.phase == Phase::Running)?;
    // The annotation is written before any pod is replaced.
    let is_scaling = job.is_scaling_open(elastic) && elastic.scaling == Some(true);
    let resized = spec.autoscaler.as_ref().filter(|_| job.restarts_for_size()).map(|own| &own.group);
    let is_open = |group: &GroupSpec| group.shape.is_some() && (is_scaling || resized == Some(&group.name));
    let mut groups = spec.groups.iter().filter(|group| is_open(group));
    let (wanted, group) = groups.find_map(|wanted| {
        let group = job.groups.get(&wanted.name).filter(|group| !job.is_current(group))?;
        Some((wanted, group))
    })?;
    let of_slots = group.slots.iter().filter_map(|slot| job.pods.get(slot.pod.as_ref()?));
    let room = MAX_AT_ONCE.saturating_sub(of_slots.filter(|pod| pod.is_leaving()).count());
    let old = group.outdated.iter().filter_map(|index| job.pods.get(group.slot(*index)?.pod.as_ref()?));
    let old: Vec<&Pod> = old.map(|pod| &**pod).filter(|pod| !pod.is_leaving()).take(room).collect();
    (!old.is_empty()).then_some((wanted, old))
}
