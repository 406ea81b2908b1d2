//! The reason for which each claim waits, and its place in line.
//!
//! Derived from a decision; changes nothing. Tests: through [`super::decide`].

use std::collections::BTreeMap;

use crate::job::Grant;
use crate::scheduling::decision::{Reason, Wait};
use crate::scheduling::line::{Head, Limits};
use crate::scheduling::seat::{Board, Seat};
use crate::scheduling::snapshot::{Pools, count};
use crate::scheduling::tenancy::Share;

/// Describes the claims that hold nothing, in the order of their lines; those without a queue come last.
pub(super) fn waits(
    board: &Board,
    share: &Share<'_>,
    limits: &Limits,
    grants: &[Grant],
    heads: &BTreeMap<usize, Vec<Head>>,
) -> Vec<Wait> {
    let is_waiting = |place: &usize| grants.get(*place).is_some_and(|grant| grant.is_none());
    let mut waits = Vec::new();
    for (&tenant, line) in &board.lines {
        let heads = heads.get(&tenant).map_or(&[][..], Vec::as_slice);
        for (turn, place) in (1..).zip(line.iter().copied().filter(is_waiting)) {
            waits.extend(wait(board, share, limits, heads, place, turn));
        }
    }
    let without = (0..grants.len()).filter(|place| board.seats.get(*place).is_some_and(|seat| seat.tenant.is_none()));
    let mut without: Vec<usize> = without.filter(is_waiting).collect();
    without.sort_by_key(|&place| board.rank.get(place).copied());
    for (turn, place) in (1..).zip(without) {
        waits.extend(wait(board, share, limits, &[], place, turn));
    }
    waits
}

fn wait(board: &Board, share: &Share<'_>, limits: &Limits, heads: &[Head], place: usize, turn: u32) -> Option<Wait> {
    let seat = board.seats.get(place)?;
    let of = |pools: Option<&Pools>| pools.map_or(0, |pools| count(pools, seat.home));
    // GPUs reserved for a claim are still there for it.
    let reserved = heads.iter().find(|head| head.place == place).map_or(0, |head| head.reserved);
    let quota = of(seat.tenant.and_then(|tenant| board.most.get(&tenant)));
    let left = seat.tenant.map_or(0, |tenant| share.books.left(tenant, seat.home));
    let quota_left = left.saturating_add(reserved).min(quota);
    let open = share.free.count(seat.tenant, seat.home).saturating_add(reserved);
    let nodes_left = board.reaches.free(seat.reach, seat.home).map_or(open, |free| free.min(open));
    let reason = reason(seat, limits, heads, (place, board), (quota_left, nodes_left));
    let (id, tenant, needs, width) = (seat.id.clone(), seat.tenant, seat.min, seat.width);
    let (nodes, widest) = board.room(seat, seat.home);
    Some(Wait { id, tenant, place: turn, needs, width, quota_left, quota, nodes_left, nodes, widest, reason })
}

fn reason(
    seat: &Seat,
    limits: &Limits,
    heads: &[Head],
    (place, board): (usize, &Board),
    (quota_left, nodes_left): (u32, u32),
) -> Reason {
    if let Some(reason) = &seat.barred {
        return reason.clone();
    }
    let before = |head: &&Head| {
        let is_earlier = board.rank.get(head.place) < board.rank.get(place);
        is_earlier
            && board
                .seats
                .get(head.place)
                .is_some_and(|first| first.can_use(seat.home) && board.reaches.overlap(first.reach, seat.reach))
    };
    if limits.out.contains(&place) {
        Reason::Nodes
    } else if let Some(first) = heads.iter().find(before).and_then(|head| board.seats.get(head.place)) {
        Reason::Behind(first.id.clone())
    } else if quota_left < seat.min {
        Reason::Quota
    } else if nodes_left < seat.min {
        Reason::Nodes
    } else {
        Reason::Policy
    }
}
