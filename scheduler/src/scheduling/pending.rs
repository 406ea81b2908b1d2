//! Describes pending claims: their position in the queue, and the reason why they wait.
//!
//! Derived from a decision; changes nothing. Tests: through [`super::decide`].

use std::collections::BTreeMap;

use crate::job::Grant;
use crate::scheduling::budgets::Budgets;
use crate::scheduling::decision::{PendingClaim, Reason};
use crate::scheduling::info::{Info, Workloads};
use crate::scheduling::ordering::{Head, Limits};
use crate::scheduling::snapshot::{Pools, count};

/// Returns the claims that hold nothing, in the order of their queues; those without a queue come last.
pub(super) fn pending(
    workloads: &Workloads,
    budgets: &Budgets<'_>,
    limits: &Limits,
    grants: &[Grant],
    heads: &BTreeMap<usize, Vec<Head>>,
) -> Vec<PendingClaim> {
    let is_waiting = |place: &usize| grants.get(*place).is_some_and(|grant| grant.is_none());
    let mut pending = Vec::new();
    for (&queue, members) in &workloads.members {
        let heads = heads.get(&queue).map_or(&[][..], Vec::as_slice);
        for (turn, place) in (1..).zip(members.iter().copied().filter(is_waiting)) {
            pending.extend(pending_claim(workloads, budgets, limits, heads, place, turn));
        }
    }
    let without =
        (0..grants.len()).filter(|place| workloads.infos.get(*place).is_some_and(|info| info.queue.is_none()));
    let mut without: Vec<usize> = without.filter(is_waiting).collect();
    without.sort_by_key(|&place| workloads.rank.get(place).copied());
    for (turn, place) in (1..).zip(without) {
        pending.extend(pending_claim(workloads, budgets, limits, &[], place, turn));
    }
    pending
}

fn pending_claim(
    workloads: &Workloads,
    budgets: &Budgets<'_>,
    limits: &Limits,
    heads: &[Head],
    place: usize,
    turn: u32,
) -> Option<PendingClaim> {
    let info = workloads.infos.get(place)?;
    let of = |pools: Option<&Pools>| pools.map_or(0, |pools| count(pools, info.home));
    // GPUs reserved for a claim are still there for it.
    let reserved = heads.iter().find(|head| head.place == place).map_or(0, |head| head.reserved);
    let quota = of(info.queue.and_then(|queue| workloads.most.get(&queue)));
    let left = info.queue.map_or(0, |queue| budgets.usage.left(queue, info.home));
    let quota_left = left.saturating_add(reserved).min(quota);
    let open = budgets.reclaimable.count(info.queue, info.home).saturating_add(reserved);
    let nodes_left = workloads.reaches.free(info.reach, info.home).map_or(open, |free| free.min(open));
    let reason = reason(info, limits, heads, (place, workloads), (quota_left, nodes_left));
    let (id, queue, needs, width) = (info.id.clone(), info.queue, info.min, info.width);
    let (nodes, widest) = workloads.room(info, info.home);
    Some(PendingClaim { id, queue, place: turn, needs, width, quota_left, quota, nodes_left, nodes, widest, reason })
}

fn reason(
    info: &Info,
    limits: &Limits,
    heads: &[Head],
    (place, workloads): (usize, &Workloads),
    (quota_left, nodes_left): (u32, u32),
) -> Reason {
    if let Some(reason) = &info.barred {
        return reason.clone();
    }
    let before = |head: &&Head| {
        let is_earlier = workloads.rank.get(head.place) < workloads.rank.get(place);
        is_earlier
            && workloads
                .infos
                .get(head.place)
                .is_some_and(|first| first.can_use(info.home) && workloads.reaches.overlap(first.reach, info.reach))
    };
    if limits.out.contains(&place) {
        Reason::Nodes
    } else if let Some(first) = heads.iter().find(before).and_then(|head| workloads.infos.get(head.place)) {
        Reason::Behind(first.id.clone())
    } else if quota_left < info.min {
        Reason::Quota
    } else if nodes_left < info.min {
        Reason::Nodes
    } else {
        Reason::Policy
    }
}
