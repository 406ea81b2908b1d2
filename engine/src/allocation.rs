//! Keeps the allocation of a job: its places on nodes from the queues, and those that still count after they were given up.
//!
//! Owns the rule of release. It must not decide: [`crate::queues`] grants, [`crate::decide`] follows. Tests: at the end of this
//! file, and the walks of queues.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use model::{
    Charge, GroupSpec, JobSpec, NodeRefusal, Share, ShareChange, ShareLoss, SizeRange, SlotId, SpecFact, Stamp, Text,
    Timestamp, Usage,
};

use crate::job::Job;

/// Places that a job has from the queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Set if the job's pods are created within a share only.
    pub gated: bool,
    /// Places that the queues granted.
    pub share: Share,
    /// Queue and GPUs that its places count for; absent when none was ever granted.
    pub charge: Option<Box<Charge>>,
    /// Record that changed the share last: no pod is created before the mirror holds it.
    pub stamp: Stamp,
    /// Time of the last change by the queues; absent when they never granted anything.
    pub at: Option<Timestamp>,
    /// Use of GPUs up to that time.
    pub usage: Usage,
    /// Earlier shares. Each counts until the mirror of the record that replaced it, or of a later one, is acknowledged.
    pub released: Vec<(Stamp, Share)>,
    /// Reason for which the queues took places away; absent after a grant.
    pub loss: Option<ShareLoss>,
    /// Set if the queues hold a target for the job that is not its share yet.
    pub has_target: bool,
    /// Set if all its pods ran at once in the present share.
    pub whole: bool,
    /// Starts in a row that did not come whole.
    pub failed_starts: u32,
    /// Time before which the job is granted no share: the back-off after a start that failed.
    pub start_after: Option<Timestamp>,
    /// Nodes on which a pod of the job stayed unschedulable: they are left out for a time.
    pub refused: BTreeMap<Text, NodeRefusal>,
}

impl Allocation {
    /// Replaces the share. The old one counts until a mirror without it is acknowledged.
    fn replace(&mut self, share: Share, stamp: Stamp, at: Timestamp) {
        self.usage = self.used(at);
        if self.share.is_empty() != share.is_empty() {
            self.usage.since = self.usage.since.map(|_| at);
        }
        if self.share.is_empty() {
            self.usage.spell_ms = 0;
        }
        let old = std::mem::replace(&mut self.share, share);
        if !old.is_empty() {
            self.released.push((stamp, old));
        }
        self.stamp = stamp;
    }

    /// Returns the use of GPUs up to a time.
    fn used(&self, now: Timestamp) -> Usage {
        match (self.at, &self.charge) {
            (Some(at), Some(charge)) => self.usage.until(now, charge.gpus_of(&self.share), at),
            _ => self.usage,
        }
    }

    /// Applies a change that the queues made.
    fn change(&mut self, change: &ShareChange, stamp: Stamp, at: Timestamp) {
        self.has_target = change.target.is_some();
        if change.share == self.share {
            return;
        }
        if self.share.is_empty() {
            self.whole = false;
        }
        self.loss.clone_from(&change.why);
        self.replace(change.share.clone(), stamp, at);
        self.at = Some(at);
    }

    /// Gives the share up.
    pub(crate) fn give_up(&mut self, stamp: Stamp, at: Timestamp) {
        self.has_target = false;
        self.whole = false;
        if !self.share.is_empty() {
            self.replace(Share::default(), stamp, at);
        }
    }

    /// Stops counting the shares that an acknowledged mirror no longer shows.
    pub(crate) fn forget_released(&mut self, acked: Stamp) {
        self.released.retain(|(replaced, _)| acked < *replaced);
    }
}

/// Returns the queue and GPUs that new places of a job count for. A job counts with the first resource of its pods.
pub(crate) fn requested(spec: &JobSpec) -> Charge {
    let resource = spec.gpu_groups().next().map(|(_, request)| request.resource.clone());
    Charge {
        queue: spec.demand.as_ref().and_then(|demand| demand.queue.clone()),
        gpus: spec.gpu_groups().map(|(group, request)| (group.name.clone(), request.count)).collect(),
        resource: resource.unwrap_or_default(),
    }
}

impl Job {
    /// Returns true if a group's pods are created within a share only.
    pub(crate) fn is_gated(&self, group: &model::GroupSpec) -> bool {
        self.allocation.gated && !group.once
    }

    /// Notes that every pod of its share has a node, or has ended.
    pub(crate) fn note_whole(&mut self) {
        if self.allocation.whole || self.allocation.share.is_empty() {
            return;
        }
        let has_node = |id: &SlotId| {
            let Some(slot) = self.slot(id) else { return true };
            let pod = slot.pod.as_ref().and_then(|uid| self.pods.get(uid));
            slot.done || slot.lost || pod.is_some_and(|pod| pod.fact.node.is_some() && !pod.is_leaving())
        };
        if self.allocation.share.cells().all(|(id, _)| has_node(&id)) {
            self.allocation.whole = true;
            self.allocation.failed_starts = 0;
            self.allocation.start_after = None;
            self.allocation.refused.clear();
        }
    }

    /// Applies a change that the queues made. The first places are charged to the queue that the spec names now, with the GPUs that
    /// it requests now.
    pub(crate) fn change_share(&mut self, change: &ShareChange, stamp: Stamp, at: Timestamp) {
        if let Some(spec) = self.spec()
            && !change.share.is_empty()
        {
            let requested = requested(spec);
            let mut charge = self.kept_charge().unwrap_or(&requested).clone();
            for (group, gpus) in requested.gpus {
                charge.gpus.entry(group).or_insert(gpus);
            }
            self.allocation.charge = Some(Box::new(charge));
        }
        self.allocation.change(change, stamp, at);
        if !self.allocation.share.is_empty() {
            self.wait_reason = None;
        }
    }

    /// Returns the queue and GPUs that its places count for; `None` when it has none, or its queue never granted any.
    pub(crate) fn kept_charge(&self) -> Option<&Charge> {
        let allocation = &self.allocation;
        let has_places = || {
            !allocation.share.is_empty()
                || !allocation.released.is_empty()
                || self.has_planned_pods()
                || self.live_pods().any(|pod| pod.fact.slot.is_some())
        };
        allocation.charge.as_deref().filter(|_| has_places())
    }

    /// Returns the queue to which its places count; that which its spec names when it has none. `None` is the root queue.
    pub fn queue(&self) -> Option<&Text> {
        match self.kept_charge() {
            Some(charge) => charge.queue.as_ref(),
            None => self.spec()?.demand.as_ref()?.queue.as_ref(),
        }
    }

    /// Returns true if its pods request other numbers of GPUs than those it was granted places for.
    pub(crate) fn requests_otherwise(&self, spec: &JobSpec) -> bool {
        let requested = requested(spec).gpus;
        let kept = self.kept_charge().map(|charge| &charge.gpus);
        kept.into_iter().flatten().any(|(group, gpus)| requested.get(group).is_some_and(|requested| requested != gpus))
    }

    /// Returns true if the mirror holds the share, so that pods may be created in it.
    pub(crate) fn has_acked_share(&self) -> bool {
        self.stamps.acknowledged() >= self.allocation.stamp
    }

    /// Returns each slot with the nodes on which it counts: those of its share and of released ones, of a pod that has not ended,
    /// and of a creation that may have happened. An empty name stands for a node that is not known.
    pub(crate) fn places(&self) -> BTreeMap<SlotId, BTreeSet<Text>> {
        let mut places: BTreeMap<SlotId, BTreeSet<Text>> = BTreeMap::new();
        let allocation = &self.allocation;
        for share in std::iter::once(&allocation.share).chain(allocation.released.iter().map(|(_, share)| share)) {
            for (slot, node) in share.cells() {
                places.entry(slot).or_default().insert(node.clone());
            }
        }
        for pod in self.pods.values().filter(|pod| !pod.fact.is_finished()) {
            let Some(slot) = &pod.fact.slot else { continue };
            let nodes = places.entry(slot.clone()).or_default();
            match &pod.fact.node {
                Some(node) => {
                    nodes.insert(node.clone());
                }
                // A pod without a node counts where it may come to be.
                None if nodes.is_empty() => {
                    nodes.insert(Text::from(""));
                }
                None => {}
            }
        }
        for slot in &self.planned_pods {
            let nodes = places.entry(slot.clone()).or_default();
            match self.slot(slot).and_then(|slot| slot.planned_on.as_ref()) {
                Some(node) => {
                    nodes.insert(node.clone());
                }
                None if nodes.is_empty() => {
                    nodes.insert(Text::from(""));
                }
                None => {}
            }
        }
        places
    }

    /// Returns the numbers of a group's pods that the queues may choose. A group whose first pods have succeeded keeps its number: with
    /// fewer it would count as complete.
    pub(crate) fn size_range(&self, group: &GroupSpec) -> SizeRange {
        let state = self.groups.get(&group.name).filter(|state| group.sizes.is_some() && !state.done.is_empty());
        state.map_or_else(|| group.size_range(), |state| SizeRange::fixed(state.replicas))
    }

    /// Returns a spec with the numbers of pods that the queues chose: those of the share, or the last ones while there is none.
    pub(crate) fn sized(&self, fact: Arc<SpecFact>) -> Arc<SpecFact> {
        let Ok(spec) = &fact.spec else { return fact };
        let chosen = |group: &GroupSpec| {
            let sizes = group.sizes.filter(|_| !spec.externally_managed)?;
            let granted = self.allocation.share.groups.get(&group.name).map(|nodes| u32::try_from(nodes.len()));
            let last = || self.groups.get(&group.name).map(|group| group.replicas).filter(|replicas| *replicas > 0);
            granted.and_then(Result::ok).or_else(|| Some(last()?.clamp(sizes.min, sizes.max)))
        };
        if spec.groups.iter().all(|group| chosen(group).is_none_or(|chosen| chosen == group.replicas)) {
            return fact;
        }
        let groups = spec
            .groups
            .iter()
            .map(|group| GroupSpec { replicas: chosen(group).unwrap_or(group.replicas), ..group.clone() });
        let spec = JobSpec { groups: groups.collect(), ..spec.clone() };
        Arc::new(SpecFact { spec: Ok(spec), ..(*fact).clone() })
    }

    /// Returns the slots that may be granted GPUs, each with their number, in the order in which they are: the least number of every
    /// group, what each prefers, and what it may have beyond.
    pub(crate) fn gpu_slots<'a>(&'a self, spec: &'a JobSpec) -> impl Iterator<Item = (SlotId, u32)> + 'a {
        let parts: [fn(SizeRange) -> Range<u32>; 3] =
            [|sizes| 0..sizes.min, |sizes| sizes.min..sizes.preferred, |sizes| sizes.preferred..sizes.max];
        parts.into_iter().flat_map(move |part| {
            spec.gpu_groups().flat_map(move |(group, request)| {
                let slot = |index| (SlotId { group: group.name.clone(), index }, request.count);
                part(self.size_range(group)).map(slot)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use model::{Position, Term};

    use super::*;

    fn share(nodes: &[&str]) -> Share {
        Share { groups: [(Text::from("w"), nodes.iter().map(|node| Text::from(*node)).collect())].into() }
    }

    fn stamp(position: u64) -> Stamp {
        Stamp { term: Term(1), position: Position(position) }
    }

    fn changed(share: Share) -> ShareChange {
        ShareChange { share, target: None, why: None }
    }

    #[test]
    fn a_share_counts_until_a_mirror_without_it_is_acknowledged() {
        let mut job = Job::default();
        let nodes = |job: &Job| {
            let places = job.places();
            let first = places.get(&SlotId { group: "w".into(), index: 0 }).cloned().unwrap_or_default();
            first.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        job.allocation.change(&changed(share(&["a"])), stamp(3), Timestamp(0));
        job.allocation.change(&changed(share(&["b"])), stamp(5), Timestamp(0));
        job.allocation.change(&changed(share(&["c"])), stamp(7), Timestamp(0));
        assert_eq!(nodes(&job), "a b c");
        job.allocation.forget_released(stamp(4));
        assert_eq!(nodes(&job), "a b c", "the mirror shows a");
        job.allocation.forget_released(stamp(5));
        assert_eq!(nodes(&job), "b c");
        job.allocation.give_up(stamp(9), Timestamp(0));
        job.allocation.forget_released(stamp(8));
        assert_eq!(nodes(&job), "c");
        job.allocation.forget_released(stamp(9));
        assert_eq!(nodes(&job), "");
    }

    #[test]
    fn use_of_gpus_counts_from_change_to_change() {
        let charge = Charge { gpus: [(Text::from("w"), 2)].into(), ..Charge::default() };
        let mut allocation = Allocation { charge: Some(Box::new(charge)), ..Allocation::default() };
        allocation.change(&changed(share(&["a", "b"])), stamp(1), Timestamp(1000));
        assert_eq!(allocation.usage, Usage::default(), "the first start is the last change");
        allocation.change(&changed(share(&["a"])), stamp(2), Timestamp(2000));
        let first_start = Some(Timestamp(1000));
        let halted = Usage {
            gpu_ms: 4 * 1000 + 2 * 500,
            held_ms: 1500,
            spell_ms: 1500,
            first_start,
            since: Some(Timestamp(2500)),
        };
        assert_eq!(allocation.used(Timestamp(2500)), Usage { since: first_start, ..halted });
        allocation.give_up(stamp(3), Timestamp(2500));
        assert_eq!(allocation.used(Timestamp(9000)), halted, "nothing counts without places");
        allocation.change(&changed(share(&["b"])), stamp(4), Timestamp(9000));
        let running = Usage {
            gpu_ms: halted.gpu_ms + 20,
            held_ms: 1510,
            spell_ms: 10,
            since: Some(Timestamp(9000)),
            first_start,
        };
        assert_eq!(allocation.used(Timestamp(9010)), running);
    }

    #[test]
    fn sizes_are_those_of_the_share_and_of_pods_that_have_succeeded() {
        let sizes = SizeRange { min: 1, preferred: 2, max: 4, resize: model::Resize::InPlace };
        let request = model::GpuRequest { resource: "nvidia.com/gpu".into(), count: 1 };
        let group = |name: &str, sizes| GroupSpec {
            name: name.into(),
            replicas: 2,
            sizes,
            gpu_request: Some(request.clone()),
            ..GroupSpec::default()
        };
        let spec = JobSpec { groups: vec![group("w", Some(sizes)), group("r", None)], ..JobSpec::default() };
        let slots = |job: &Job| {
            let slots: Vec<String> = job.gpu_slots(&spec).map(|(slot, _)| slot.to_string()).collect();
            slots.join(" ")
        };
        let mut job = Job::default();
        assert_eq!(slots(&job), "w-0 r-0 r-1 w-1 w-2 w-3", "what each group needs comes first");
        let fact = Arc::new(SpecFact::of(Ok(spec.clone()), Text::from("{}")));
        assert!(Arc::ptr_eq(&job.sized(fact.clone()), &fact), "nothing is chosen yet");
        job.allocation.share = share(&["a", "a", "b"]);
        let replicas = |job: &Job| job.sized(fact.clone()).spec.as_ref().map(|spec| spec.groups[0].replicas).ok();
        assert_eq!(replicas(&job), Some(3));
        job.groups.entry("w".into()).or_default().replicas = 3;
        job.allocation.share = Share::default();
        assert_eq!(replicas(&job), Some(3), "the number stays until another is chosen");
        job.groups.entry("w".into()).or_default().done.insert(0);
        assert_eq!(slots(&job), "w-0 w-1 w-2 r-0 r-1", "a group with results keeps its number");
    }
}
