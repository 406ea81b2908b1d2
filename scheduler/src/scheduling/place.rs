//! Places grants on nodes.
//!
//! Workers that run stay; the last ones of a claim that shrinks go. Only what is new, or has lost its node, is placed, in
//! the order of the queues; a head takes the room it needs before those behind it. Nothing that runs is moved. Tests:
//! through [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;

use crate::job::Grant;
use crate::placement::{Demand, Node, NodeSet, Packing, Placement, PlacementError, Prices, settle};
use crate::scheduling::info::{AvailableNodes, Info, Workloads};
use crate::scheduling::ordering::Head;

/// Nodes of all claims.
#[derive(Debug, Clone, Default)]
pub(super) struct Placed {
    /// The node of each worker of the claims that do not keep theirs.
    pub(super) on: BTreeMap<usize, Vec<Text>>,
    /// GPUs that claims found room for, where that is less than they were granted.
    pub(super) short: Vec<(usize, u32)>,
}

/// Places the grants. What is reserved for `heads` takes room, and is not placed. `left`: nodes that claims behind them are limited to.
pub(super) fn place(
    workloads: &Workloads,
    available: &AvailableNodes,
    grants: &[Grant],
    (heads, left): (&[Head], &BTreeMap<usize, Arc<NodeSet>>),
    packing: Packing,
) -> Result<Placed, PlacementError> {
    let mut placed = Placed::default();
    let mut stays: Vec<(&Info, usize)> = Vec::new();
    let mut demands: Vec<Demand> = Vec::new();
    let mut places: Vec<usize> = Vec::new();
    let mut before = Placement::new();
    let demand = |place: usize, grant: Grant, is_running: bool| {
        let info = workloads.infos.get(place)?;
        let turn = workloads.rank.get(place).copied().unwrap_or_default().saturating_add(1);
        Some(Demand {
            width: info.width,
            turn: if is_running { 0 } else { turn },
            gpu_type: Some(grant.gpu_type),
            among: left.get(&place).or_else(|| workloads.reaches.get(info.reach)?.among.as_ref()).cloned(),
            needs: info.needs.clone(),
            ..Demand::new(info.id.clone(), grant.gpus.checked_div(info.width).unwrap_or_default())
        })
    };
    for (place, (info, &grant)) in workloads.infos.iter().zip(grants).enumerate() {
        if info.placed {
            continue;
        }
        if grant.is_none() {
            if !info.on.is_empty() {
                placed.on.insert(place, Vec::new());
            }
            continue;
        }
        let workers = grant.gpus.checked_div(info.width).and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let is_alike = grant.gpu_type == info.held.gpu_type && !info.lost;
        if is_alike && workers <= info.on.len() {
            if workers < info.on.len() {
                placed.on.insert(place, info.on.iter().take(workers).cloned().collect());
            }
            stays.push((info, workers));
            continue;
        }
        if info.is_running() {
            before.insert(info.id.clone(), info.on.clone());
        }
        demands.extend(demand(place, grant, info.is_running()));
        places.push(place);
    }
    if demands.is_empty() {
        return Ok(placed);
    }
    let known: BTreeSet<usize> = places.iter().copied().collect();
    let heads = heads.iter().filter(|head| !known.contains(&head.place));
    let reserved = |head: &Head| demand(head.place, Grant::of(head.needs.gpu_type, head.reserved), false);
    demands.extend(heads.filter_map(reserved));
    let nodes = room(available, &stays);
    // Indices count the nodes that have room.
    if nodes.len() < available.nodes.len() {
        for demand in &mut demands {
            let open = |among: &Arc<NodeSet>| {
                let open = nodes.iter().enumerate().filter(|(_, (place, _))| among.contains(*place));
                Arc::new(open.map(|(n, _)| n).collect())
            };
            demand.among = demand.among.as_ref().map(open);
        }
    }
    let nodes: Vec<Node> = nodes.into_iter().map(|(_, node)| node).collect();
    let prices = Prices { migration: Prices::NEVER, ..Prices::default() };
    let mut plan = settle(&nodes, &demands, &before, packing, &prices)?;
    for place in places {
        let (Some(info), Some(grant)) = (workloads.infos.get(place), grants.get(place)) else { continue };
        let on = plan.placement.remove(&info.id).unwrap_or_default();
        let found = u32::try_from(on.len()).unwrap_or(u32::MAX).saturating_mul(info.width);
        if found < grant.gpus {
            placed.short.push((place, found));
        }
        placed.on.insert(place, on);
    }
    Ok(placed)
}

/// Returns the nodes that have room beside workers that stay, with their places among all. The others take nothing.
fn room(available: &AvailableNodes, stays: &[(&Info, usize)]) -> Vec<(usize, Node)> {
    let mut slots: Vec<u32> = available.nodes.iter().map(|node| node.slots).collect();
    for (info, workers) in stays {
        for place in info.places.iter().take(*workers) {
            if let Some(left) = slots.get_mut(*place) {
                *left = left.saturating_sub(info.width);
            }
        }
    }
    let open = available.nodes.iter().zip(slots).enumerate().filter(|(_, (_, slots))| *slots > 0);
    let mut open: Vec<(usize, Node)> =
        open.map(|(place, (node, slots))| (place, Node { slots, ..node.clone() })).collect();
    for (info, workers) in stays.iter().filter(|(info, _)| !info.needs.is_empty()) {
        for place in info.places.iter().take(*workers) {
            let found = open.binary_search_by_key(place, |(place, _)| *place);
            if let Some((_, node)) = found.ok().and_then(|found| open.get_mut(found)) {
                node.use_others(&info.needs, 1);
            }
        }
    }
    open
}
