//! Replaces pods of an elastic job that are of an older generation, group after group, once its object says that they may be.
//!
//! A replacement counts as no retry. Pods that others delete are none of it: they are let go after a checkpoint ([`crate::notes`]).

use model::{Event, GroupSpec, JobSpec, Phase, Uid};

use crate::job::Job;

/// Maximum number of pods of a group that are replaced at once.
const MAX_AT_ONCE: usize = 100;

/// Drops the pods of the first group that has old ones. The next group follows when all of this one are new.
pub(super) fn old_pods(job: &Job, spec: &JobSpec) -> Option<Vec<Event>> {
    let elastic = job.elastic().filter(|_| job.phase == Phase::Running)?;
    // The annotation is written before any pod is replaced.
    let is_scaling = job.is_scaling_open(elastic) && elastic.scaling == Some(true);
    let resized = spec.autoscaler.as_ref().filter(|_| job.restarts_for_size()).map(|own| &own.group);
    let is_open = |group: &GroupSpec| group.shape.is_some() && (is_scaling || resized == Some(&group.name));
    let names = spec.groups.iter().filter(|group| is_open(group)).map(|group| &group.name);
    let group = names.filter_map(|name| job.groups.get(name)).find(|group| !job.is_current(group))?;
    let going = group.slots.iter().filter_map(|slot| job.pods.get(slot.pod.as_ref()?)).filter(|pod| pod.is_leaving());
    let room = MAX_AT_ONCE.saturating_sub(going.count());
    let old = group.misshapen.iter().filter_map(|index| group.slot(*index)?.pod.clone());
    let uids: Vec<Uid> = old.take(room).collect();
    (!uids.is_empty()).then(|| vec![Event::PodsDropped { uids }])
}
