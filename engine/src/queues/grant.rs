//! Grants: targets become shares where every node and every queue has room for the difference.
//!
//! Owns the sums of what counts. Takes places away at once; gives them only once there is room, and a start only whole. A job
//! that finds no room keeps later ones off what it needs. Tests: through [`super`].

use std::collections::{BTreeMap, BTreeSet};

use model::{JobKey, LossKind, Share, ShareChange, ShareLoss, ShareTarget, SlotId, TargetUpdate, Text, Timestamp};
use scheduler::GpuType;
use scheduler::scheduling::{Pools, ResourceUsage};

use super::candidate::Candidate;
use super::filter::{self, NodeFilter};
use super::foreign;
use super::queue_snapshots::QueueSnapshots;
use super::{adopted, cycle};
use crate::state::State;

/// Returns the shares that differ from what the pods of their jobs show: of a job whose pods were bound to other nodes, and of one
/// that had pods before its queue granted anything. A pod on a node without places shows nothing: its place may have moved already.
pub(super) fn seen(state: &State) -> BTreeMap<JobKey, Share> {
    let view = state.node_view();
    let mut all = BTreeMap::new();
    for (key, candidate) in state.queues.candidates.iter().filter(|(_, candidate)| candidate.wants) {
        let mut share = if candidate.found { found(candidate) } else { candidate.share.clone() };
        for (group, nodes) in &mut share.groups {
            let bound_to = |index| {
                let slot = SlotId { group: group.clone(), index };
                candidate.bound.get(&slot).filter(|node| !view.is_without_places(node, state.at))
            };
            let bound: Vec<Option<&Text>> = (0u32..).zip(nodes.iter()).map(|(index, _)| bound_to(index)).collect();
            *nodes = if candidate.interchanges {
                interchanged(nodes, &bound)
            } else {
                nodes.iter().zip(bound).map(|(own, actual)| actual.unwrap_or(own).clone()).collect()
            };
        }
        if share != candidate.share {
            all.insert(key.clone(), share);
        }
    }
    all
}

/// Returns the places of pods any of which may be on any granted node, given the nodes of those that are bound. Where one was bound to
/// the place of another, that one has a place that is left.
fn interchanged(granted: &[Text], bound: &[Option<&Text>]) -> Vec<Text> {
    let mut left: BTreeMap<&Text, usize> = BTreeMap::new();
    for node in granted {
        let count = left.entry(node).or_default();
        *count = count.saturating_add(1);
    }
    let take = |left: &mut BTreeMap<&Text, usize>, node: &Text| match left.get_mut(node) {
        Some(count) if *count > 0 => {
            *count = count.saturating_sub(1);
            true
        }
        _ => false,
    };
    for node in bound.iter().flatten() {
        take(&mut left, node);
    }
    let own = |(own, actual): (&Text, Option<&Text>)| match actual {
        None => take(&mut left, own).then(|| own.clone()),
        Some(actual) => Some(actual.clone()),
    };
    let kept: Vec<Option<Text>> = granted.iter().zip(bound.iter().copied()).map(own).collect();
    let mut others = left.into_iter().flat_map(|(node, count)| std::iter::repeat_n(node, count));
    let places = kept.into_iter().zip(granted);
    places.map(|(kept, own)| kept.unwrap_or_else(|| others.next().unwrap_or(own).clone())).collect()
}

/// A place for each slot, on nodes that are not known. A job whose size may be chosen has the size of its pods.
fn found(candidate: &Candidate) -> Share {
    let mut share = Share::default();
    let is_fixed = candidate.sizes.min == candidate.sizes.max;
    for (slot, _) in candidate.slots.iter().filter(|(slot, _)| is_fixed || candidate.bound.contains_key(slot)) {
        share.groups.entry(slot.group.clone()).or_default().push(Text::from(""));
    }
    share
}

/// Returns the targets that follow pods to the nodes on which they are seen.
pub(super) fn followed(state: &State, seen: &BTreeMap<JobKey, Share>) -> TargetUpdate {
    let mut targets = Vec::new();
    for (key, share) in seen {
        if let (Some(target), Some(candidate)) = (state.queues.targets.get(key), state.queues.candidates.get(key)) {
            let followed = cycle::decided(&state.queues, key, candidate, Some(share));
            if followed != target.share {
                targets.push((key.clone(), ShareTarget { share: followed, why: target.why.clone() }));
            }
        }
    }
    TargetUpdate { targets, ..TargetUpdate::default() }
}

/// Answer to whether there is room for a target.
pub(super) struct Fit {
    /// Its queue has the quota, and no node that is known has fewer GPUs.
    pub(super) in_amounts: bool,
    /// Its nodes are known, take new pods of it, and have its other resources.
    pub(super) on_nodes: bool,
}

/// Room on nodes and in queues, as far as nothing counts there.
pub(super) struct Room<'a> {
    nodes: BTreeMap<Text, u32>,
    /// Amounts of other resources than GPUs that are left on nodes.
    others: BTreeMap<Text, Vec<u64>>,
    /// Nodes that take nothing new.
    closed: BTreeSet<Text>,
    filter: NodeFilter<'a>,
    usage: ResourceUsage,
    snapshots: QueueSnapshots,
}

impl<'a> Room<'a> {
    /// Returns the room beside what counts of all jobs but `left_out`.
    pub(super) fn new(state: &'a State, now: Timestamp, left_out: &BTreeSet<JobKey>) -> Self {
        let filter = NodeFilter::new(state, now);
        let (nodes, closed) = cycle::nodes(state, now);
        let snapshots = QueueSnapshots::new(state);
        let mut pools = Pools::new();
        for node in &nodes {
            let sum = pools.entry(node.gpu_type).or_default();
            *sum = sum.saturating_add(node.slots);
        }
        let mut room = Self {
            nodes: nodes.iter().map(|node| (node.name.clone(), node.slots)).collect(),
            others: filter.others(state),
            closed,
            filter,
            usage: ResourceUsage::new(&snapshots.all, &pools),
            snapshots,
        };
        if state.config.ignores_capacity {
            room.nodes.insert(Text::from(""), u32::MAX);
        }
        for (node, gpus) in foreign::gpus(state) {
            room.take_node(node, gpus);
        }
        for (node, amounts) in room.filter.taken(state) {
            filter::take(&mut room.others, &node, &amounts);
        }
        for (_, candidate) in state.queues.candidates.iter().filter(|(key, _)| !left_out.contains(*key)) {
            let gpu_type = state.queues.gpu_type(&candidate.resource);
            for (slot, nodes) in &candidate.places {
                let gpus = candidate.charged(slot);
                room.take_quota(candidate, gpu_type, gpus);
                let needs = room.filter.needs(candidate, &slot.group);
                for node in nodes {
                    room.take_node(node, gpus);
                    filter::take(&mut room.others, node, &needs);
                }
            }
        }
        room
    }

    fn take_quota(&mut self, candidate: &Candidate, gpu_type: GpuType, gpus: u32) {
        if let Some(queue) = self.snapshots.charged(candidate) {
            self.usage.charge(queue, gpu_type, gpus);
        }
    }

    fn take_node(&mut self, node: &Text, gpus: u32) {
        if let Some(left) = self.nodes.get_mut(node) {
            *left = left.saturating_sub(gpus);
        }
    }

    /// Takes the difference between what counts for a job and a target, and returns whether there is room for it. A job that finds none
    /// takes all that there is.
    pub(super) fn take(&mut self, key: &JobKey, candidate: &Candidate, gpu_type: GpuType, target: &Share) -> Fit {
        let mut on: BTreeMap<&Text, u32> = BTreeMap::new();
        let mut quota: u32 = 0;
        let mut has_others = true;
        for (slot, node) in target.cells() {
            let gpus = candidate.gpus(&slot);
            let counted = candidate.places.get(&slot);
            if counted.is_none() {
                quota = quota.saturating_add(gpus);
            }
            if counted.is_none_or(|nodes| !nodes.contains(node)) {
                let sum = on.entry(node).or_default();
                *sum = sum.saturating_add(gpus);
                let needs = self.filter.needs(candidate, &slot.group);
                let left = self.others.get(node).map_or(&[][..], Vec::as_slice);
                has_others &= left.iter().zip(&needs).all(|(left, need)| left >= need);
                filter::take(&mut self.others, node, &needs);
            }
        }
        let queue = self.snapshots.place(key, candidate);
        let in_quota = queue.is_some_and(|queue| self.usage.left(queue, gpu_type) >= quota);
        // A node may have left the queue's selection, or have been closed, since the target was decided.
        let fits = self.filter.shape(candidate).and_then(|shape| shape.fits.as_ref());
        let fits = |node: &Text| node.is_empty() || fits.is_none_or(|fits| fits.contains(node));
        let fits = |node: &Text| fits(node) && !self.closed.contains(node);
        let is_open = |node: &Text| fits(node) && queue.is_some_and(|queue| self.snapshots.takes(queue, node));
        let has_room = |(node, gpus): (&&Text, &u32)| self.nodes.get(*node).is_none_or(|left| left >= gpus);
        let fit = Fit {
            in_amounts: in_quota && on.iter().all(has_room),
            on_nodes: has_others && on.keys().all(|node| self.nodes.contains_key(*node) && is_open(node)),
        };
        self.take_quota(candidate, gpu_type, quota);
        for (node, gpus) in on {
            self.take_node(node, gpus);
        }
        fit
    }
}

/// Returns the changes of shares that targets lead to now.
pub(super) fn decide(state: &State, seen: &BTreeMap<JobKey, Share>, now: Timestamp) -> Vec<(JobKey, ShareChange)> {
    let queues = &state.queues;
    let mut changes: BTreeMap<JobKey, ShareChange> = BTreeMap::new();
    let mut grows: Vec<(&JobKey, &Candidate, &ShareTarget)> = Vec::new();
    let nothing = ShareTarget { share: Share::default(), why: Some(ShareLoss::of(LossKind::Resized)) };
    // The kind of loss whose message says that the nodes have no room.
    let no_room = ShareTarget { share: Share::default(), why: Some(ShareLoss::of(LossKind::NodesLost)) };
    let unfit = adopted::without_room(state, now);
    for (key, candidate) in queues.candidates.iter().filter(|(_, candidate)| candidate.wants || candidate.is_idle()) {
        let share = seen.get(key).unwrap_or(&candidate.share);
        let target = match (candidate.is_idle(), unfit.contains(key)) {
            (true, _) => Some(&nothing),
            (false, true) => Some(&no_room),
            (false, false) => queues.targets.get(key),
        };
        let target = target.filter(|target| target.share != *share);
        let job = state.jobs.live(key);
        let is_reported = job.is_some_and(|job| job.allocation.has_target == target.is_some());
        let mut change = ShareChange { share: share.clone(), target: target.map(|t| t.share.clone()), why: None };
        if let Some(target) = target
            && (unfit.contains(key) || job.is_some_and(|job| job.is_fenced(state.stamp.term)))
        {
            if let Some((kept, why)) = taken_away(state, candidate, share, target, now) {
                change.share = kept;
                change.why = Some(ShareLoss { job: Some(cycle::named(key)), ..why });
            }
            if change.share != target.share {
                grows.push((key, candidate, target));
            }
        }
        if change.share == target.map_or(&change.share, |target| &target.share).clone() {
            change.target = None;
        }
        if change.share != candidate.share || !is_reported {
            changes.insert(key.clone(), change);
        }
    }
    let is_quiet = queues.trigger.quiet_until.is_some_and(|until| now < until) || state.awaits_watched();
    if is_quiet || grows.is_empty() {
        return changes.into_iter().collect();
    }
    grows.sort_by_key(|(key, candidate, _)| candidate.order(key));
    let mut room = Room::new(state, now, &BTreeSet::new());
    for (key, candidate, target) in grows {
        let fit = room.take(key, candidate, queues.gpu_type(&candidate.resource), &target.share);
        if !(fit.in_amounts && fit.on_nodes) {
            continue;
        }
        let share = changes.get(key).map_or(&candidate.share, |change| &change.share);
        let change = if share.is_empty() {
            // Pods of the share before must be gone, and creations resolved, before the job starts again.
            let is_free = !candidate.leaving && candidate.share.is_empty();
            is_free.then(|| granted(target))
        } else if candidate.restarts_to_resize() && share.len() < target.share.len() {
            Some(ShareChange {
                share: Share::default(),
                target: Some(target.share.clone()),
                why: Some(ShareLoss { job: Some(cycle::named(key)), ..resized(target) }),
            })
        } else {
            Some(granted(target))
        };
        changes.extend(change.map(|change| (key.clone(), change)));
    }
    changes.into_iter().collect()
}

/// Returns the change by which a target becomes the share.
fn granted(target: &ShareTarget) -> ShareChange {
    ShareChange { share: target.share.clone(), target: None, why: None }
}

/// Returns what is left of a share on the way to a target, with the reason, where places are taken away.
fn taken_away(
    state: &State,
    candidate: &Candidate,
    share: &Share,
    target: &ShareTarget,
    now: Timestamp,
) -> Option<(Share, ShareLoss)> {
    let view = state.node_view();
    let stays = |node: &Text| !node.is_empty() && !view.is_without_places(node, now);
    let moves = share.cells().any(|(slot, node)| target.share.node(&slot).is_some_and(|to| to != node) && stays(node));
    let why = |kind| target.why.clone().unwrap_or_else(|| ShareLoss::of(kind));
    if share.is_empty() {
        return None;
    }
    if target.share.is_empty() {
        return Some((Share::default(), why(LossKind::Preempted)));
    }
    if moves {
        return Some((Share::default(), why(LossKind::Moved)));
    }
    let gone: BTreeSet<SlotId> =
        share.cells().map(|(slot, _)| slot).filter(|slot| target.share.node(slot).is_none()).collect();
    if gone.is_empty() {
        return None;
    }
    if candidate.restarts_to_resize() {
        return Some((Share::default(), resized(target)));
    }
    let mut kept = Share::default();
    for (slot, node) in share.cells().filter(|(slot, _)| !gone.contains(slot)) {
        kept.groups.entry(slot.group).or_default().push(node.clone());
    }
    Some((kept, why(LossKind::Resized)))
}

/// Returns the reason for which all pods of a job go to get another number of them.
fn resized(target: &ShareTarget) -> ShareLoss {
    let beneficiary = target.why.as_ref().and_then(|why| why.beneficiary.clone());
    ShareLoss { beneficiary, ..ShareLoss::of(LossKind::Resized) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_one_template_exchange_their_places() {
        let texts = |nodes: &str| nodes.split(' ').map(Text::from).collect::<Vec<_>>();
        // `-`: a pod that is not bound.
        for (granted, bound, want) in [
            ("a b", "- -", "a b"),
            ("a b", "b -", "b a"),
            ("a b", "- a", "b a"),
            ("a a b b", "b - b -", "b a b a"),
            ("a b c", "c - -", "c b a"),
            // Bound to a node that was not granted: the place counts there, and the others keep theirs.
            ("a b", "c -", "c b"),
            ("a b", "b b", "b b"),
        ] {
            let bound = texts(bound);
            let bound: Vec<Option<&Text>> =
                bound.iter().map(|node| Some(node).filter(|node| &***node != "-")).collect();
            assert_eq!(interchanged(&texts(granted), &bound), texts(want), "{granted} {bound:?}");
        }
    }
}
