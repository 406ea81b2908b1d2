//! Holdings: the places on nodes that a job has from the queues, and which of them still count after they were given up.
//!
//! Owns the rule of release. It must not decide: [`crate::queues`] grants, [`crate::decide`] follows. Tests: at the end of this
//! file, and the walks of queues.

use std::collections::{BTreeMap, BTreeSet};

use model::{Charge, JobSpec, Share, ShareChange, ShareLoss, SlotId, Stamp, Text, Timestamp};

use crate::job::Job;

/// Places that a job has from the queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
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
}

impl Holding {
    /// Replaces the share. The old one counts on until a mirror without it is acknowledged.
    pub(crate) fn replace(&mut self, share: Share, stamp: Stamp) {
        let old = std::mem::replace(&mut self.share, share);
        if !old.is_empty() {
            self.released.push((stamp, old));
        }
        self.stamp = stamp;
    }

    /// Takes in a change that the queues made.
    pub(crate) fn change(&mut self, change: &ShareChange, stamp: Stamp, at: Timestamp) {
        self.has_target = change.target.is_some();
        if change.share == self.share {
            return;
        }
        if self.share.is_empty() {
            self.whole = false;
        }
        self.loss.clone_from(&change.why);
        self.at = Some(at);
        self.replace(change.share.clone(), stamp);
    }

    /// Gives the share up.
    pub(crate) fn give_up(&mut self, stamp: Stamp) {
        self.has_target = false;
        self.whole = false;
        if !self.share.is_empty() {
            self.replace(Share::default(), stamp);
        }
    }

    /// Stops counting the shares that an acknowledged mirror no longer shows.
    pub(crate) fn forget_released(&mut self, acked: Stamp) {
        self.released.retain(|(replaced, _)| acked < *replaced);
    }
}

/// Returns the queue and GPUs that new places of a job count for.
pub(crate) fn asked(spec: &JobSpec) -> Charge {
    let groups = spec.groups.iter().filter(|group| !group.once);
    Charge {
        queue: spec.demand.as_ref().and_then(|demand| demand.queue.clone()),
        gpus: groups.filter_map(|group| Some((group.name.clone(), group.gpu_request.as_ref()?.count))).collect(),
    }
}

impl Job {
    /// Returns true if a group's pods are created within a share only.
    pub(crate) fn is_gated(&self, group: &model::GroupSpec) -> bool {
        self.holding.gated && !group.once
    }

    /// Notes that every pod of its share has a node, or has ended.
    pub(crate) fn note_whole(&mut self) {
        if self.holding.whole || self.holding.share.is_empty() {
            return;
        }
        let has_node = |id: &SlotId| {
            let Some(slot) = self.slot(id) else { return true };
            let pod = slot.pod.as_ref().and_then(|uid| self.pods.get(uid));
            slot.done || slot.lost || pod.is_some_and(|pod| pod.fact.node.is_some() && !pod.is_leaving())
        };
        if self.holding.share.cells().all(|(id, _)| has_node(&id)) {
            self.holding.whole = true;
            self.holding.failed_starts = 0;
            self.holding.start_after = None;
        }
    }

    /// Takes in a change that the queues made. The first places are charged to the queue that the spec names now, with the GPUs that
    /// it requests now.
    pub(crate) fn change_share(&mut self, change: &ShareChange, stamp: Stamp, at: Timestamp) {
        if let Some(spec) = self.spec()
            && !change.share.is_empty()
        {
            let asked = asked(spec);
            let mut charge = self.kept_charge().unwrap_or(&asked).clone();
            for (group, gpus) in asked.gpus {
                charge.gpus.entry(group).or_insert(gpus);
            }
            self.holding.charge = Some(Box::new(charge));
        }
        self.holding.change(change, stamp, at);
    }

    /// Returns the queue and GPUs that its places count for; `None` when it has none, or its queue never granted any.
    pub(crate) fn kept_charge(&self) -> Option<&Charge> {
        let holding = &self.holding;
        let lasts = |slot: &SlotId| !self.runs_once(&slot.group);
        let live = || self.pods.values().filter(|pod| !pod.fact.phase.is_terminal());
        let has_places = || {
            !holding.share.is_empty()
                || !holding.released.is_empty()
                || self.planned_pods.iter().any(lasts)
                || live().any(|pod| pod.fact.slot.as_ref().is_some_and(lasts))
        };
        holding.charge.as_deref().filter(|_| has_places())
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
        let asked = asked(spec).gpus;
        let kept = self.kept_charge().map(|charge| &charge.gpus);
        kept.into_iter().flatten().any(|(group, gpus)| asked.get(group).is_some_and(|asked| asked != gpus))
    }

    /// Returns true if the mirror holds the share, so that pods may be created in it.
    pub(crate) fn has_acked_share(&self) -> bool {
        self.acked_stamp >= self.holding.stamp
    }

    /// Returns each slot with the nodes on which it counts: those of its share and of released ones, of a pod that has not ended,
    /// and of a creation that may have happened. An empty name stands for a node that is not known.
    pub(crate) fn places(&self) -> BTreeMap<SlotId, BTreeSet<Text>> {
        let mut places: BTreeMap<SlotId, BTreeSet<Text>> = BTreeMap::new();
        let holding = &self.holding;
        for share in std::iter::once(&holding.share).chain(holding.released.iter().map(|(_, share)| share)) {
            for (slot, node) in share.cells() {
                places.entry(slot).or_default().insert(node.clone());
            }
        }
        for pod in self.pods.values().filter(|pod| !pod.fact.phase.is_terminal()) {
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

    /// Returns the slots that need GPUs, in the order of groups and indices, each with their number.
    pub(crate) fn gpu_slots(spec: &JobSpec) -> impl Iterator<Item = (SlotId, u32)> {
        let groups = spec.groups.iter().filter(|group| !group.once);
        groups.filter_map(|group| Some((group, group.gpu_request.as_ref()?))).flat_map(|(group, request)| {
            let slot = |index| (SlotId { group: group.name.clone(), index }, request.count);
            (0..group.replicas).map(slot)
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
        job.holding.change(&changed(share(&["a"])), stamp(3), Timestamp(0));
        job.holding.change(&changed(share(&["b"])), stamp(5), Timestamp(0));
        job.holding.change(&changed(share(&["c"])), stamp(7), Timestamp(0));
        assert_eq!(nodes(&job), "a b c");
        job.holding.forget_released(stamp(4));
        assert_eq!(nodes(&job), "a b c", "the mirror tells a");
        job.holding.forget_released(stamp(5));
        assert_eq!(nodes(&job), "b c");
        job.holding.give_up(stamp(9));
        job.holding.forget_released(stamp(8));
        assert_eq!(nodes(&job), "c");
        job.holding.forget_released(stamp(9));
        assert_eq!(nodes(&job), "");
    }
}
