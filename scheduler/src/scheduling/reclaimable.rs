//! Counts reclaimable GPUs: those that a decision may share out, because they are free or because their claims may be changed.
//!
//! A queue may be limited to a part of the nodes. Nodes that are open to the same limited queues are one *group*, and GPUs are counted
//! by group: so what a queue takes or reserves on its own nodes is not missing on others. Without limits there is one group for each
//! GPU type. Which node is taken is decided afterwards (`place`), and what finds no room there limits the next try. Tests: at the
//! end of this file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::placement::{Node, NodeSet};
use crate::units::GpuType;

/// Nodes of one type that are open to the same limited queues.
#[derive(Debug, Clone)]
struct Group {
    gpu_type: GpuType,
    gpus: u32,
    /// Indices of the limited queues that may use it.
    queues: BTreeSet<usize>,
}

/// Reclaimable GPUs, by group.
#[derive(Debug, Clone, Default)]
pub(super) struct ReclaimableGpus {
    /// Those that fewer limited queues may use come first within a type.
    groups: Vec<Group>,
    /// Group of each node, by its place; empty while no queue is limited.
    on: Arc<[usize]>,
    /// Queues that are limited to a part of the nodes.
    limited: BTreeSet<usize>,
    /// GPUs that the running claims of a queue hold in a group.
    held: BTreeMap<(usize, usize), u32>,
    /// GPUs taken for a queue from a group.
    taken: BTreeMap<(usize, usize), u32>,
}

impl ReclaimableGpus {
    /// Counts the GPUs of nodes, which are in the order of their names. `limits`: nodes of the queues that are limited to a part of them, as
    /// index.
    pub(super) fn new(limits: &[(usize, NodeSet)], nodes: &[Node]) -> Self {
        let key = |(place, node): (usize, &Node)| {
            let queues = limits.iter().filter(|(_, nodes)| nodes.contains(place)).map(|(queue, _)| *queue);
            let queues: BTreeSet<usize> = queues.collect();
            (node.gpu_type, queues.len(), queues)
        };
        let mut sums: BTreeMap<(GpuType, usize, BTreeSet<usize>), u32> = BTreeMap::new();
        for (place, node) in nodes.iter().enumerate() {
            let sum = sums.entry(key((place, node))).or_default();
            *sum = sum.saturating_add(node.slots);
        }
        let mut reclaimable = Self { limited: limits.iter().map(|(place, _)| *place).collect(), ..Self::default() };
        if !limits.is_empty() {
            let places: BTreeMap<_, usize> = sums.keys().zip(0..).collect();
            reclaimable.on = nodes.iter().enumerate().filter_map(|node| places.get(&key(node)).copied()).collect();
        }
        reclaimable.groups =
            sums.into_iter().map(|((gpu_type, _, queues), gpus)| Group { gpu_type, gpus, queues }).collect();
        reclaimable
    }

    /// Returns the GPU types with all GPUs of each.
    pub(super) fn types(&self) -> Vec<(GpuType, u32)> {
        let mut types: Vec<(GpuType, u32)> = Vec::new();
        for group in &self.groups {
            match types.last_mut().filter(|(gpu_type, _)| *gpu_type == group.gpu_type) {
                Some((_, sum)) => *sum = sum.saturating_add(group.gpus),
                None => types.push((group.gpu_type, group.gpus)),
            }
        }
        types
    }

    fn is_open(&self, queue: Option<usize>, group: &Group) -> bool {
        queue.is_none_or(|queue| !self.limited.contains(&queue) || group.queues.contains(&queue))
    }

    /// Returns the groups of a type that a queue may use; `None` stands for a claim without a queue.
    pub(super) fn reach(&self, queue: Option<usize>, gpu_type: GpuType) -> BTreeSet<usize> {
        let groups = (0..).zip(&self.groups);
        let open = groups.filter(|(_, group)| group.gpu_type == gpu_type && self.is_open(queue, group));
        open.map(|(place, _)| place).collect()
    }

    /// Returns the number of GPUs in groups.
    pub(super) fn sum(&self, groups: &BTreeSet<usize>) -> u32 {
        let gpus = groups.iter().filter_map(|&place| self.groups.get(place)).map(|group| group.gpus);
        gpus.fold(0, u32::saturating_add)
    }

    /// Returns the number of GPUs of a type that a queue may use.
    pub(super) fn count(&self, queue: Option<usize>, gpu_type: GpuType) -> u32 {
        let open = self.groups.iter().filter(|group| group.gpu_type == gpu_type && self.is_open(queue, group));
        let open = open.map(|group| group.gpus).fold(0, u32::saturating_add);
        queue.map_or(open, |queue| open.saturating_add(self.outside(queue, gpu_type)))
    }

    /// Returns the number of GPUs that a queue holds on nodes which take nothing new of it, and that it did not take yet.
    pub(super) fn outside(&self, queue: usize, gpu_type: GpuType) -> u32 {
        let held = self.held.range((queue, 0)..=(queue, usize::MAX)).filter_map(|(&(_, place), _)| {
            let group = self.groups.get(place)?;
            let is_outside = group.gpu_type == gpu_type && !self.is_open(Some(queue), group);
            is_outside.then(|| self.held_in(queue, place).min(group.gpus))
        });
        held.fold(0, u32::saturating_add)
    }

    /// Returns the number of GPUs that a queue holds in a group and did not take yet.
    fn held_in(&self, queue: usize, place: usize) -> u32 {
        let of = |sums: &BTreeMap<(usize, usize), u32>| sums.get(&(queue, place)).copied().unwrap_or_default();
        of(&self.held).saturating_sub(of(&self.taken))
    }

    /// Returns the groups of a type.
    fn of_type(&self, gpu_type: GpuType) -> Vec<usize> {
        let groups = (0..).zip(&self.groups).filter(|(_, group)| group.gpu_type == gpu_type);
        groups.map(|(place, _)| place).collect()
    }

    /// Returns true if two queues may use the same node.
    pub(super) fn overlap(&self, one: Option<usize>, other: Option<usize>) -> bool {
        self.limited.is_empty()
            || self.groups.iter().any(|group| self.is_open(one, group) && self.is_open(other, group))
    }

    /// Notes workers that run and may give way. What their queue takes counts on their nodes first.
    pub(super) fn hold(&mut self, queue: usize, on: &[usize], width: u32) {
        for place in on.iter().filter_map(|node| self.on.get(*node)) {
            let sum = self.held.entry((queue, *place)).or_default();
            *sum = sum.saturating_add(width);
        }
    }

    /// Takes the GPUs of workers that stay on their nodes, as far as there are any; those of nodes that are gone count anywhere.
    pub(super) fn take_on(&mut self, queue: Option<usize>, gpu_type: GpuType, on: &[usize], (width, gpus): (u32, u32)) {
        let mut left = gpus;
        for node in on {
            if let Some(group) = self.on.get(*node).and_then(|&place| self.groups.get_mut(place)) {
                let taken = width.min(left);
                group.gpus = group.gpus.saturating_sub(taken);
                left = left.saturating_sub(taken);
            }
        }
        for place in self.reach(queue, gpu_type) {
            let Some(group) = self.groups.get_mut(place) else { continue };
            let taken = left.min(group.gpus);
            group.gpus = group.gpus.saturating_sub(taken);
            left = left.saturating_sub(taken);
        }
    }

    /// Takes GPUs for a queue, as far as there are any.
    pub(super) fn take(&mut self, queue: usize, gpu_type: GpuType, gpus: u32) {
        let mut left = gpus;
        for place in self.of_type(gpu_type) {
            left = self.take_from(queue, place, left, self.held_in(queue, place));
        }
        for place in self.reach(Some(queue), gpu_type) {
            left = self.take_from(queue, place, left, u32::MAX);
        }
    }

    /// Takes at most `most` GPUs from a group. Returns those that are left to be taken.
    fn take_from(&mut self, queue: usize, place: usize, wanted: u32, most: u32) -> u32 {
        let Some(group) = self.groups.get_mut(place) else { return wanted };
        let gpus = wanted.min(most).min(group.gpus);
        if gpus > 0 {
            group.gpus = group.gpus.saturating_sub(gpus);
            let sum = self.taken.entry((queue, place)).or_default();
            *sum = sum.saturating_add(gpus);
        }
        wanted.saturating_sub(gpus)
    }

    /// Gives back GPUs of a queue: those taken last from the groups that most queues may use. More than were taken are added.
    pub(super) fn give(&mut self, queue: usize, gpu_type: GpuType, gpus: u32) {
        let mut left = gpus;
        for place in self.of_type(gpu_type).into_iter().rev() {
            let (Some(group), Some(taken)) = (self.groups.get_mut(place), self.taken.get_mut(&(queue, place))) else {
                continue;
            };
            let back = left.min(*taken);
            group.gpus = group.gpus.saturating_add(back);
            *taken = taken.saturating_sub(back);
            left = left.saturating_sub(back);
        }
        let first = self.reach(Some(queue), gpu_type).first().copied();
        if let Some(group) = first.and_then(|place| self.groups.get_mut(place)) {
            group.gpus = group.gpus.saturating_add(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: GpuType = GpuType(0);

    /// Queues that are limited to the nodes of these numbers; no numbers: not limited.
    fn limits(limits: &[&[usize]]) -> Vec<(usize, NodeSet)> {
        let set = |nodes: &&[usize]| nodes.iter().map(|node| node - 1).collect();
        limits.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()).map(|(n, nodes)| (n, set(nodes))).collect()
    }

    fn nodes(all: &[(&str, u32)]) -> Vec<Node> {
        all.iter().map(|&(name, slots)| Node::new(name, slots)).collect()
    }

    fn counts(reclaimable: &ReclaimableGpus) -> [u32; 3] {
        [0, 1, 2].map(|queue| reclaimable.count(Some(queue), TYPE))
    }

    #[test]
    fn without_limits_there_is_one_number() {
        let mut reclaimable = ReclaimableGpus::new(&limits(&[&[], &[], &[]]), &nodes(&[("n1", 4), ("n2", 4)]));
        reclaimable.take(0, TYPE, 3);
        reclaimable.take_on(Some(1), TYPE, &[0], (1, 2));
        assert_eq!((reclaimable.types(), counts(&reclaimable)), (vec![(TYPE, 3)], [3; 3]));
        reclaimable.take(2, TYPE, 5);
        reclaimable.give(2, TYPE, 5);
        assert_eq!(counts(&reclaimable), [5; 3], "what was taken beyond comes back as well");
    }

    #[test]
    fn what_one_queue_takes_is_not_missing_elsewhere() {
        let mut reclaimable =
            ReclaimableGpus::new(&limits(&[&[1], &[2, 3], &[]]), &nodes(&[("n1", 4), ("n2", 4), ("n3", 2)]));
        assert_eq!(counts(&reclaimable), [4, 6, 10]);
        reclaimable.take(0, TYPE, 9);
        assert_eq!(counts(&reclaimable), [0, 6, 6], "its nodes have four");
        reclaimable.give(0, TYPE, 4);
        reclaimable.take_on(Some(2), TYPE, &[2, 2], (1, 2));
        assert_eq!(counts(&reclaimable), [4, 4, 8]);
        assert!(reclaimable.overlap(Some(0), Some(2)) && !reclaimable.overlap(Some(0), Some(1)));
    }

    #[test]
    fn a_queue_takes_what_it_holds_and_then_what_fewest_may_use() {
        let mut reclaimable = ReclaimableGpus::new(&limits(&[&[1], &[1], &[]]), &nodes(&[("n1", 4), ("n2", 4)]));
        let untouched = reclaimable.clone();
        reclaimable.take(2, TYPE, 3);
        assert_eq!(counts(&reclaimable), [4, 4, 5], "n2 is open to no limited queue");
        reclaimable = untouched;
        reclaimable.hold(2, &[0], 2);
        reclaimable.take(2, TYPE, 3);
        assert_eq!(counts(&reclaimable), [2, 2, 5], "two that it holds on n1, and one on n2");
        reclaimable.give(2, TYPE, 3);
        assert_eq!(counts(&reclaimable), [4, 4, 8]);
        // What runs on a node that left the queue still counts for it.
        reclaimable.hold(0, &[1], 3);
        assert_eq!(counts(&reclaimable), [7, 4, 8]);
        reclaimable.take(0, TYPE, 5);
        assert_eq!(counts(&reclaimable), [2, 2, 3]);
        reclaimable.give(0, TYPE, 5);
        assert_eq!(counts(&reclaimable), [7, 4, 8]);
    }
}
