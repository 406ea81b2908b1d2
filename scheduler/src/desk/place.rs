//! Nodes for what was granted.
//!
//! Workers that run stay; the last ones of a claim that shrinks go. Only what is new, or has lost its node, is placed, in
//! line order; a claim that waits first takes the room it needs before those behind it. Nothing that runs is moved. Tests:
//! through [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};

use model::Text;

use crate::desk::line::Head;
use crate::desk::reach::Names;
use crate::desk::seat::{Board, Ground};
use crate::job::Grant;
use crate::placement::{Demand, Node, Packing, Placement, PlacementError, Prices, settle};

/// Nodes of all claims.
#[derive(Debug, Clone, Default)]
pub(super) struct Placed {
    /// The node of each worker, by claim.
    pub(super) on: Vec<Vec<Text>>,
    /// GPUs that claims found room for, where that is less than they were granted.
    pub(super) short: Vec<(usize, u32)>,
}

/// Places the grants. What is reserved for `heads` takes room, and is not placed. `left`: nodes that claims behind them are limited to.
pub(super) fn place(
    board: &Board,
    ground: &Ground,
    grants: &[Grant],
    (heads, left): (&[Head], &BTreeMap<usize, Names>),
    packing: Packing,
) -> Result<Placed, PlacementError> {
    let mut placed = Placed { on: vec![Vec::new(); grants.len()], short: Vec::new() };
    let mut stays: BTreeMap<&str, u32> = BTreeMap::new();
    let mut needed: Vec<(&str, &[u64])> = Vec::new();
    let mut demands: Vec<Demand> = Vec::new();
    let mut places: Vec<usize> = Vec::new();
    let mut before = Placement::new();
    let demand = |place: usize, grant: Grant, is_running: bool| {
        let seat = board.seats.get(place)?;
        let turn = board.rank.get(place).copied().unwrap_or_default().saturating_add(1);
        Some(Demand {
            width: seat.width,
            turn: if is_running { 0 } else { turn },
            gpu_type: Some(grant.gpu_type),
            among: left.get(&place).or_else(|| board.reaches.get(seat.reach)?.among.as_ref()).cloned(),
            needs: seat.needs.clone(),
            ..Demand::new(seat.id.clone(), grant.gpus.checked_div(seat.width).unwrap_or_default())
        })
    };
    for (place, (seat, &grant)) in board.seats.iter().zip(grants).enumerate() {
        if grant.is_none() && !seat.placed {
            continue;
        }
        let workers = grant.gpus.checked_div(seat.width).and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let is_alike = grant.gpu_type == seat.held.gpu_type && !seat.lost;
        if seat.placed || (is_alike && workers <= seat.on.len()) {
            let on: Vec<Text> = seat.on.iter().take(workers.max(1)).cloned().collect();
            if !seat.placed {
                for node in seat.on.iter().take(workers) {
                    let sum = stays.entry(node).or_default();
                    *sum = sum.saturating_add(seat.width);
                    if !seat.needs.is_empty() {
                        needed.push((node, &seat.needs));
                    }
                }
            }
            if let Some(slot) = placed.on.get_mut(place) {
                *slot = if seat.placed { seat.on.clone() } else { on };
            }
            continue;
        }
        if seat.is_running() {
            before.insert(seat.id.clone(), seat.on.clone());
        }
        demands.extend(demand(place, grant, seat.is_running()));
        places.push(place);
    }
    if demands.is_empty() {
        return Ok(placed);
    }
    let known: BTreeSet<usize> = places.iter().copied().collect();
    let heads = heads.iter().filter(|head| !known.contains(&head.place));
    let reserved = |head: &Head| demand(head.place, Grant::of(head.needs.gpu_type, head.reserved), false);
    demands.extend(heads.filter_map(reserved));
    let free = |node: &Node| {
        let taken = stays.get(&*node.name).copied().unwrap_or_default();
        Node { slots: node.slots.saturating_sub(taken), ..node.clone() }
    };
    let mut nodes: Vec<Node> = ground.nodes.iter().map(free).collect();
    if !needed.is_empty() {
        let mut by_name: BTreeMap<Text, &mut Node> = nodes.iter_mut().map(|node| (node.name.clone(), node)).collect();
        for (name, needs) in needed {
            if let Some(node) = by_name.get_mut(name) {
                node.use_others(needs, 1);
            }
        }
    }
    let prices = Prices { migration: Prices::NEVER, ..Prices::default() };
    let mut plan = settle(&nodes, &demands, &before, packing, &prices)?;
    for place in places {
        let (Some(seat), Some(grant)) = (board.seats.get(place), grants.get(place)) else { continue };
        let on = plan.placement.remove(&seat.id).unwrap_or_default();
        let found = u32::try_from(on.len()).unwrap_or(u32::MAX).saturating_mul(seat.width);
        if found < grant.gpus {
            placed.short.push((place, found));
        }
        if let Some(slot) = placed.on.get_mut(place) {
            *slot = on;
        }
    }
    Ok(placed)
}
