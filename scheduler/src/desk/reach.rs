//! Reaches: the nodes that could take a claim's workers, and what is free on them.
//!
//! A claim reaches the nodes of its queue that fit it and do not refuse it. It can *use* those of them that have the GPUs of one worker
//! when they are empty. Claims of one queue, one set of fitting nodes and one width share a reach, so a decision walks the nodes once for each.
//! Most claims reach every node of their GPU types: they have no reach here, and everything is judged by sums. Decides nothing.
//! Tests: at the end of this file, and `tests/desk/nodes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;

use crate::desk::question::{Claim, Fixed, Pools, Question, add};
use crate::desk::seat::Seat;
use crate::placement::Node;
use crate::units::GpuType;

/// Numbers of nodes by their GPUs, by type.
pub(super) type Rooms = BTreeMap<GpuType, BTreeMap<u32, u32>>;

/// A set of node names.
pub(super) type Names = Arc<BTreeSet<Text>>;

/// The nodes that some claims reach.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    /// Those that may take a worker; `None`: all nodes.
    pub(super) among: Option<Names>,
    /// Those of them that have the GPUs of a worker when they are empty.
    pub(super) usable: Names,
    /// All GPUs of the usable ones.
    capacity: Pools,
    /// GPUs that no claim holds on the usable ones.
    free: Pools,
    /// All GPUs of those that may take a worker.
    rooms: Rooms,
}

/// Reaches of the claims of a question.
#[derive(Debug, Clone, Default)]
pub(super) struct Reaches {
    /// Those that leave nodes out.
    limited: Vec<Reach>,
    /// All nodes of each type that take new workers.
    by_type: BTreeMap<GpuType, Names>,
    /// All nodes.
    rooms: Rooms,
    /// GPUs that no claim holds on each node, where there are any.
    free_on: BTreeMap<Text, u32>,
}

/// What a reach follows from: set of the queue, fitting set, width, GPU types, nodes that are avoided.
type Key<'a> = (Option<usize>, Option<usize>, u32, Vec<GpuType>, &'a [Text]);

impl Reaches {
    /// Returns the reaches, and that of each claim; `None` of a claim that can use every node of its types.
    pub(super) fn new(question: &Question<'_>) -> (Self, Vec<Option<usize>>) {
        let mut reaches = Self { rooms: rooms(question.nodes.iter()), ..Self::default() };
        let mut by_type: BTreeMap<GpuType, BTreeSet<Text>> = BTreeMap::new();
        for node in question.nodes.iter().filter(|node| !question.closed.contains(&node.name)) {
            by_type.entry(node.gpu_type).or_default().insert(node.name.clone());
        }
        reaches.by_type = by_type.into_iter().map(|(gpu_type, names)| (gpu_type, Arc::new(names))).collect();
        let mut known: BTreeMap<Key<'_>, Option<usize>> = BTreeMap::new();
        let mut of = Vec::with_capacity(question.claims.len());
        for claim in question.claims {
            if claim.fixed == Fixed::Place {
                of.push(None);
                continue;
            }
            let queue = claim.tenant.and_then(|tenant| question.tenants.get(tenant)?.queue.as_ref()?.nodes.as_ref());
            let address = |names: Option<&Names>| names.map(|names| Arc::as_ptr(names).addr());
            let types = claim.belief.speeds.iter().map(|(gpu_type, _)| *gpu_type).collect();
            let key = (address(queue), address(claim.fits), claim.width.max(1), types, claim.avoid);
            let reach = if let Some(reach) = known.get(&key) {
                *reach
            } else {
                let reach = reaches.push(question, claim, queue);
                known.insert(key, reach);
                reach
            };
            of.push(reach);
        }
        (reaches, of)
    }

    /// Adds the reach of a claim; `None` where it can use every node of its types.
    fn push(&mut self, question: &Question<'_>, claim: &Claim<'_>, queue: Option<&Names>) -> Option<usize> {
        let is_in = |names: Option<&Names>, node: &Node| names.is_none_or(|names| names.contains(&node.name));
        let takes = |node: &&Node| is_in(queue, node) && is_in(claim.fits, node) && !claim.avoid.contains(&node.name);
        let can_use = |node: &&Node| claim.belief.speeds.on(node.gpu_type).is_some();
        let nodes: Vec<&Node> = question.nodes.iter().filter(takes).collect();
        let is_wide = |node: &&&Node| node.slots >= claim.width.max(1);
        let mut capacity = Pools::new();
        let mut usable = BTreeSet::new();
        for node in nodes.iter().filter(|node| can_use(node)).filter(is_wide) {
            add(&mut capacity, node.gpu_type, node.slots);
            usable.insert(node.name.clone());
        }
        if usable.len() == question.nodes.iter().filter(can_use).count() {
            return None;
        }
        let among = (nodes.len() < question.nodes.len())
            .then(|| Arc::new(nodes.iter().map(|node| node.name.clone()).collect()));
        let rooms = rooms(nodes.into_iter());
        self.limited.push(Reach { among, usable: Arc::new(usable), capacity, free: Pools::new(), rooms });
        Some(self.limited.len().saturating_sub(1))
    }

    pub(super) fn get(&self, reach: Option<usize>) -> Option<&Reach> {
        self.limited.get(reach?)
    }

    /// Counts what is free, given what each claim holds. `nodes`: those of the ground, without the room of claims that stay.
    pub(super) fn count(&mut self, seats: &[Seat], nodes: &[Node]) {
        if self.limited.is_empty() {
            return;
        }
        let mut held: BTreeMap<&str, u32> = BTreeMap::new();
        for seat in seats.iter().filter(|seat| !seat.placed) {
            for node in &seat.on {
                let sum = held.entry(node).or_default();
                *sum = sum.saturating_add(seat.width);
            }
        }
        let left = |node: &Node| node.slots.saturating_sub(held.get(&*node.name).copied().unwrap_or_default());
        let left: Vec<(&Node, u32)> = nodes.iter().map(|node| (node, left(node))).collect();
        self.free_on =
            left.iter().filter(|(_, left)| *left > 0).map(|(node, left)| (node.name.clone(), *left)).collect();
        for reach in &mut self.limited {
            reach.free = Pools::new();
            for (node, left) in left.iter().filter(|(node, left)| *left > 0 && reach.usable.contains(&node.name)) {
                add(&mut reach.free, node.gpu_type, *left);
            }
        }
    }

    /// Returns the GPUs of a type that no claim holds on the nodes that a claim can use; `None`: it can use every node.
    pub(super) fn free(&self, reach: Option<usize>, gpu_type: GpuType) -> Option<u32> {
        self.get(reach).map(|reach| reach.free.get(&gpu_type).copied().unwrap_or_default())
    }

    /// Returns the GPUs of a type on the nodes that a claim can use; `None`: it can use every node.
    pub(super) fn capacity(&self, reach: Option<usize>, gpu_type: GpuType) -> Option<u32> {
        self.get(reach).map(|reach| reach.capacity.get(&gpu_type).copied().unwrap_or_default())
    }

    /// Returns the GPUs that no claim holds on some nodes.
    pub(super) fn free_on(&self, names: &BTreeSet<Text>) -> u32 {
        names.iter().filter_map(|name| self.free_on.get(name)).copied().fold(0, u32::saturating_add)
    }

    /// Returns all nodes that a claim may use, by their GPUs.
    pub(super) fn rooms(&self, reach: Option<usize>) -> &Rooms {
        self.get(reach).map_or(&self.rooms, |reach| &reach.rooms)
    }

    /// Returns true if a claim can use a node.
    pub(super) fn uses(&self, reach: Option<usize>, node: &Text) -> bool {
        self.get(reach).is_none_or(|reach| reach.usable.contains(node))
    }

    /// Returns true if two claims can use the same node.
    pub(super) fn overlap(&self, one: Option<usize>, other: Option<usize>) -> bool {
        match (self.get(one), self.get(other)) {
            (Some(one), Some(other)) => !one.usable.is_disjoint(&other.usable),
            _ => true,
        }
    }

    /// Returns the nodes of a type that a claim can use.
    fn usable(&self, reach: Option<usize>, gpu_type: GpuType) -> Option<&Names> {
        self.get(reach).map(|reach| &reach.usable).or_else(|| self.by_type.get(&gpu_type))
    }
}

fn rooms<'a>(nodes: impl Iterator<Item = &'a Node>) -> Rooms {
    let mut rooms = Rooms::new();
    for node in nodes {
        let number = rooms.entry(node.gpu_type).or_default().entry(node.slots).or_default();
        *number = number.saturating_add(1);
    }
    rooms
}

/// Nodes that claims which wait keep from those behind them.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocked {
    /// Types of which every node is kept.
    types: BTreeSet<GpuType>,
    /// Reaches that are kept.
    reaches: BTreeSet<usize>,
    /// What is left of reaches, as far as it was asked for.
    left: BTreeMap<(Option<usize>, GpuType), Names>,
}

impl Blocked {
    /// Keeps the nodes that a waiting claim can use.
    pub(super) fn block(&mut self, seat: &Seat) {
        match seat.reach {
            Some(reach) => drop(self.reaches.insert(reach)),
            None => self.types.extend(seat.view.speeds.iter().map(|(gpu_type, _)| *gpu_type)),
        }
        self.left.clear();
    }

    /// Returns true if a claim that waits can use some nodes alone.
    pub(super) fn is_partial(&self) -> bool {
        !self.reaches.is_empty()
    }

    /// Returns the nodes of a type that are left to a claim; `None`: all that it may use.
    pub(super) fn left(&mut self, reaches: &Reaches, seat: &Seat, gpu_type: GpuType) -> Option<Names> {
        if self.types.contains(&gpu_type) {
            return Some(Names::default());
        }
        if self.reaches.is_empty() {
            return None;
        }
        let key = (seat.reach, gpu_type);
        if let Some(left) = self.left.get(&key) {
            return Some(left.clone());
        }
        let kept: Vec<&Names> =
            self.reaches.iter().filter_map(|reach| reaches.get(Some(*reach))).map(|reach| &reach.usable).collect();
        let own = reaches.usable(seat.reach, gpu_type).into_iter().flat_map(|names| names.iter());
        let left: BTreeSet<Text> = own.filter(|node| kept.iter().all(|kept| !kept.contains(*node))).cloned().collect();
        let left = Arc::new(left);
        self.left.insert(key, left.clone());
        Some(left)
    }

    /// Returns true if nothing of a type is left to a claim.
    pub(super) fn blocks(&mut self, reaches: &Reaches, seat: &Seat, gpu_type: GpuType) -> bool {
        self.left(reaches, seat, gpu_type).is_some_and(|left| left.is_empty())
    }
}
