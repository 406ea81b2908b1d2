//! Computes reaches: the nodes that could take a claim's workers, and what is free on them.
//!
//! A claim reaches the nodes of its queue that fit it and do not refuse it. It can *use* those of them that have the GPUs of one worker
//! when they are empty. Claims of one queue, one set of fitting nodes and one width share a reach, so a decision walks the nodes once for each.
//! Most claims reach every node of their GPU types: they have no reach here, and everything is judged by sums. Decides nothing.
//! Tests: at the end of this file, and `tests/scheduling_nodes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;

use crate::placement::{Node, NodeSet};
use crate::scheduling::info::Info;
use crate::scheduling::snapshot::{Claim, Fixed, Pools, Snapshot, add};
use crate::units::GpuType;

/// Numbers of nodes by their GPUs, by type.
pub(super) type Rooms = BTreeMap<GpuType, BTreeMap<u32, u32>>;

/// The nodes that some claims reach.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    /// Those that may take a worker; `None`: all nodes.
    pub(super) among: Option<Arc<NodeSet>>,
    /// Those of them that have the GPUs of a worker when they are empty.
    usable: NodeSet,
    /// All GPUs of the usable ones.
    capacity: Pools,
    /// GPUs that no claim holds on the usable ones.
    free: Pools,
    /// All GPUs of those that may take a worker.
    rooms: Rooms,
}

/// Reaches of the claims of a snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct Reaches {
    /// Those that leave nodes out.
    limited: Vec<Reach>,
    /// All nodes of each type that take new workers.
    by_type: BTreeMap<GpuType, NodeSet>,
    /// All nodes.
    rooms: Rooms,
    /// Names of all nodes, in order: the place of a node is its place here.
    names: Vec<Text>,
    /// GPUs that no claim holds on each node.
    free_on: Vec<u32>,
}

/// What a reach follows from: set of the queue, fitting set, width, GPU types, nodes that are avoided.
type Key<'a> = (Option<usize>, Option<usize>, u32, Vec<GpuType>, &'a [Text]);

/// A set of names as places, by the address of the names: claims share a few of them.
type Sets = BTreeMap<usize, NodeSet>;

impl Reaches {
    /// Returns the reaches, and that of each claim; `None` of a claim that can use every node of its types.
    pub(super) fn new(snapshot: &Snapshot<'_>) -> (Self, Vec<Option<usize>>) {
        let mut nodes: Vec<&Node> = snapshot.nodes.iter().collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        let mut reaches = Self { rooms: rooms(nodes.iter().copied()), names, ..Self::default() };
        for (place, node) in nodes.iter().enumerate().filter(|(_, node)| !snapshot.closed.contains(&node.name)) {
            reaches.by_type.entry(node.gpu_type).or_default().insert(place);
        }
        let mut sets = Sets::new();
        let mut known: BTreeMap<Key<'_>, Option<usize>> = BTreeMap::new();
        let mut of = Vec::with_capacity(snapshot.claims.len());
        for claim in snapshot.claims {
            if claim.fixed == Fixed::Place {
                of.push(None);
                continue;
            }
            let settings = claim.queue.and_then(|queue| snapshot.queues.get(queue)?.settings.as_ref()?.nodes.as_ref());
            let types = claim.estimate.speeds.iter().map(|(gpu_type, _)| *gpu_type).collect();
            let key = (settings.map(address), claim.fits.map(address), claim.width.max(1), types, claim.avoid);
            let reach = if let Some(reach) = known.get(&key) {
                *reach
            } else {
                for names in [settings, claim.fits].into_iter().flatten() {
                    sets.entry(address(names)).or_insert_with(|| reaches.set(names));
                }
                let reach = reaches.push(&nodes, claim, [settings, claim.fits], &sets);
                known.insert(key, reach);
                reach
            };
            of.push(reach);
        }
        (reaches, of)
    }

    /// Adds the reach of a claim, which is limited to these sets; `None` where it can use every node of its types.
    fn push(
        &mut self,
        nodes: &[&Node],
        claim: &Claim<'_>,
        limits: [Option<&Arc<BTreeSet<Text>>>; 2],
        sets: &Sets,
    ) -> Option<usize> {
        let limits: Vec<&NodeSet> =
            limits.into_iter().flatten().filter_map(|names| sets.get(&address(names))).collect();
        let takes = |(place, node): &(usize, &Node)| {
            limits.iter().all(|set| set.contains(*place)) && !claim.avoid.contains(&node.name)
        };
        let can_use = |node: &Node| claim.estimate.speeds.on(node.gpu_type).is_some();
        let all = || nodes.iter().copied().enumerate();
        let mut among = NodeSet::default();
        let mut capacity = Pools::new();
        let mut usable = NodeSet::default();
        for (place, node) in all().filter(takes) {
            among.insert(place);
            if can_use(node) && node.slots >= claim.width.max(1) {
                add(&mut capacity, node.gpu_type, node.slots);
                usable.insert(place);
            }
        }
        if usable.len() == all().filter(|(_, node)| can_use(node)).count() {
            return None;
        }
        let rooms = rooms(among.iter().filter_map(|place| nodes.get(place).copied()));
        let among = (among.len() < nodes.len()).then(|| Arc::new(among));
        self.limited.push(Reach { among, usable, capacity, free: Pools::new(), rooms });
        Some(self.limited.len().saturating_sub(1))
    }

    pub(super) fn get(&self, reach: Option<usize>) -> Option<&Reach> {
        self.limited.get(reach?)
    }

    /// Returns the nodes of these names. Both are in order, so they are walked side by side.
    pub(super) fn set(&self, names: &BTreeSet<Text>) -> NodeSet {
        let mut wanted = names.iter().peekable();
        let is_wanted = |(_, name): &(usize, &Text)| {
            while wanted.next_if(|wanted| wanted < name).is_some() {}
            wanted.peek() == Some(name)
        };
        self.names.iter().enumerate().filter(is_wanted).map(|(place, _)| place).collect()
    }

    /// Returns the places of nodes. Those that are gone have none.
    pub(super) fn places(&self, on: &[Text]) -> Vec<usize> {
        on.iter().filter_map(|node| self.names.binary_search(node).ok()).collect()
    }

    /// Counts what is free, given what each claim holds. `nodes`: the available ones, without the room of claims that stay.
    pub(super) fn count(&mut self, infos: &[Info], nodes: &[Node]) {
        if self.limited.is_empty() {
            return;
        }
        self.free_on = nodes.iter().map(|node| node.slots).collect();
        for info in infos.iter().filter(|info| !info.placed) {
            for place in &info.places {
                if let Some(left) = self.free_on.get_mut(*place) {
                    *left = left.saturating_sub(info.width);
                }
            }
        }
        for reach in &mut self.limited {
            reach.free = Pools::new();
            for place in reach.usable.iter() {
                if let (Some(node), Some(left @ 1..)) = (nodes.get(place), self.free_on.get(place)) {
                    add(&mut reach.free, node.gpu_type, *left);
                }
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
    fn free_on(&self, nodes: &NodeSet) -> u32 {
        nodes.iter().filter_map(|place| self.free_on.get(place)).copied().fold(0, u32::saturating_add)
    }

    /// Returns all nodes that a claim may use, by their GPUs.
    pub(super) fn rooms(&self, reach: Option<usize>) -> &Rooms {
        self.get(reach).map_or(&self.rooms, |reach| &reach.rooms)
    }

    /// Returns true if a claim can use the node at a place.
    pub(super) fn uses(&self, reach: Option<usize>, place: usize) -> bool {
        self.get(reach).is_none_or(|reach| reach.usable.contains(place))
    }

    /// Returns true if two claims can use the same node.
    pub(super) fn overlap(&self, one: Option<usize>, other: Option<usize>) -> bool {
        match (self.get(one), self.get(other)) {
            (Some(one), Some(other)) => !one.usable.is_disjoint(&other.usable),
            _ => true,
        }
    }

    /// Returns the nodes of a type that a claim can use.
    fn usable(&self, reach: Option<usize>, gpu_type: GpuType) -> Option<&NodeSet> {
        self.get(reach).map(|reach| &reach.usable).or_else(|| self.by_type.get(&gpu_type))
    }
}

/// Returns the identity of a set of names that claims share.
fn address(names: &Arc<BTreeSet<Text>>) -> usize {
    Arc::as_ptr(names).addr()
}

fn rooms<'a>(nodes: impl Iterator<Item = &'a Node>) -> Rooms {
    let mut rooms = Rooms::new();
    for node in nodes {
        let number = rooms.entry(node.gpu_type).or_default().entry(node.slots).or_default();
        *number = number.saturating_add(1);
    }
    rooms
}

/// Nodes of a type that are left to a claim, with the GPUs there that no claim holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Left {
    pub(super) nodes: Arc<NodeSet>,
    pub(super) free: u32,
}

/// Nodes that claims which wait keep from those behind them.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocked {
    /// Types of which every node is kept.
    types: BTreeSet<GpuType>,
    /// Nodes that claims keep which can use some nodes alone; `None`: there is no such claim.
    kept: Option<NodeSet>,
    /// What is left of reaches, as far as it was asked for.
    left: BTreeMap<(Option<usize>, GpuType), Left>,
}

impl Blocked {
    /// Keeps the nodes that a waiting claim can use.
    pub(super) fn block(&mut self, reaches: &Reaches, info: &Info) {
        match reaches.get(info.reach) {
            Some(reach) => {
                self.kept.get_or_insert_default().extend(&reach.usable);
                self.left.retain(|_, left| left.nodes.is_disjoint(&reach.usable));
            }
            None => self.types.extend(info.view.speeds.iter().map(|(gpu_type, _)| *gpu_type)),
        }
    }

    /// Returns true if a claim that waits can use some nodes alone.
    pub(super) const fn is_partial(&self) -> bool {
        self.kept.is_some()
    }

    /// Returns what is left of a type to a claim; `None`: all that it may use.
    pub(super) fn left(&mut self, reaches: &Reaches, info: &Info, gpu_type: GpuType) -> Option<Left> {
        if self.types.contains(&gpu_type) {
            return Some(Left::default());
        }
        let kept = self.kept.as_ref()?;
        let left = self.left.entry((info.reach, gpu_type)).or_insert_with(|| {
            let nodes = reaches.usable(info.reach, gpu_type).map(|own| own.without(kept)).unwrap_or_default();
            Left { free: reaches.free_on(&nodes), nodes: Arc::new(nodes) }
        });
        Some(left.clone())
    }

    /// Returns true if nothing of a type is left to a claim.
    pub(super) fn blocks(&mut self, reaches: &Reaches, info: &Info, gpu_type: GpuType) -> bool {
        self.left(reaches, info, gpu_type).is_some_and(|left| left.nodes.is_empty())
    }
}
