//! Pods whose job is not known: it was deleted, its log is lost, and they still end. They count by what they request, on the node on which
//! they are and in the queue that their label names.
//!
//! A tenant may change labels of a pod, so that none but the queue's is read: each pod counts as a slot of its own, by its uid. Tests: at
//! the end of this file, and the scenarios `trainingqueue/leftovers-*`.

use std::collections::{BTreeMap, BTreeSet};

use model::{Charge, PodHolding, SlotId, Text};

use crate::job::Job;

/// Nodes on which each slot counts.
type Places = BTreeMap<SlotId, BTreeSet<Text>>;

/// Returns the queue and GPUs that pods count for, and where they are; `None` where none has to be counted by its own request.
pub(super) fn of(job: &Job) -> Option<(Charge, Places)> {
    if job.spec().is_some() {
        return None;
    }
    let pods = job.pods.values().filter(|pod| !pod.fact.is_finished());
    let allocation: Vec<_> = pods.filter_map(|pod| Some((&pod.fact, pod.fact.holds.as_deref()?))).collect();
    let resource = allocation.iter().find_map(|(_, holds)| holds.gpus.keys().next())?.clone();
    let mut charge = Charge {
        queue: allocation.iter().find_map(|(_, holds)| holds.queue.clone()),
        gpus: BTreeMap::new(),
        resource: resource.clone(),
    };
    let mut places = Places::new();
    for (pod, holds) in allocation {
        let slot = SlotId { group: pod.uid.0.clone(), index: 0 };
        charge.gpus.insert(slot.group.clone(), gpus(holds, &resource));
        // A pod without a node counts in its queue alone.
        places.insert(slot, [pod.node.clone().unwrap_or_default()].into());
    }
    Some((charge, places))
}

/// Returns the GPUs of a pod. One that requests another resource than the first counts with its own.
fn gpus(holds: &PodHolding, resource: &Text) -> u32 {
    holds.gpus.get(resource).or_else(|| holds.gpus.values().next()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use model::{PodFact, PodPhase, ResourceVersion, Timestamp};

    use super::*;
    use crate::job::Pod;

    fn pod(uid: &str, phase: PodPhase, gpus: Option<u32>) -> PodFact {
        let holds = |gpus| PodHolding { queue: Some("team".into()), gpus: [("nvidia.com/gpu".into(), gpus)].into() };
        PodFact {
            phase,
            node: Some("n1".into()),
            deleting: Some(Timestamp(5)),
            holds: gpus.map(holds).map(Box::new),
            ..PodFact::accepted(uid.into(), uid.into(), None, ResourceVersion(1))
        }
    }

    #[test]
    fn pods_of_an_unknown_job_count_until_they_have_ended() {
        let mut job = Job::default();
        assert_eq!(of(&job), None);
        for fact in [
            pod("a", PodPhase::Running, Some(4)),
            pod("b", PodPhase::Pending, Some(2)),
            pod("c", PodPhase::Failed, Some(8)),
            pod("d", PodPhase::Running, None),
        ] {
            let pod = Pod { fact, deletion: None, running_at: None, failed_at: None };
            job.pods.insert(pod.fact.uid.clone(), Box::new(pod));
        }
        let (charge, places) = of(&job).unwrap();
        assert_eq!((charge.queue.as_deref(), &*charge.resource), (Some("team"), "nvidia.com/gpu"));
        assert_eq!(charge.gpus, [("a".into(), 4), ("b".into(), 2)].into());
        let nodes: Vec<&str> = places.values().flatten().map(|node| &**node).collect();
        assert_eq!(nodes, ["n1", "n1"]);
    }
}
