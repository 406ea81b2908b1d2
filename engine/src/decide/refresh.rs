//! Replaces pods of an elastic job that are of an older generation, group after group, once its object says that they may be.
//!
//! A replacement counts as no retry. Pods that others delete are none of it: they are let go after a checkpoint ([`crate::notes`]).

use model::{Event, JobSpec, Phase, Uid};

use crate::job::Job;

/// Maximum number of pods of a group that are replaced at once.
const MAX_AT_ONCE: usize = 100;

/// Drops the pods of the first group that has old ones. The next group follows when all of this one are new.
pub(super) fn old_pods(job: &Job, spec: &JobSpec) -> Option<Vec<Event>> {
    let elastic = job.elastic().filter(|elastic| job.phase == Phase::Running && job.is_scaling_open(elastic))?;
    // The annotation is written before any pod is replaced.
    elastic.scaling.filter(|scaling| *scaling)?;
    let names = spec.groups.iter().filter(|group| group.shape.is_some()).map(|group| &group.name);
    let group = names.filter_map(|name| job.groups.get(name)).find(|group| !job.is_current(group))?;
    let going = group.slots.iter().filter_map(|slot| job.pods.get(slot.pod.as_ref()?)).filter(|pod| pod.is_leaving());
    let room = MAX_AT_ONCE.saturating_sub(going.count());
    let old = group.misshapen.iter().filter_map(|index| group.slot(*index)?.pod.clone());
    let uids: Vec<Uid> = old.take(room).collect();
    (!uids.is_empty()).then(|| vec![Event::PodsDropped { uids }])
}
