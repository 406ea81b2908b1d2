//! Assigns workers to nodes, given the number of a job's workers on each node, and finds those that move.
//!
//! Workers that run keep their node if it still has room for them in the new counts, lowest index first; the other indexes
//! are filled from what remains, larger shares first, then by node name.

use std::collections::BTreeMap;

use model::Text;

use crate::placement::bins::Bin;
use crate::placement::{Demand, Node, Placement, Plan};

/// The plan for these bins; bin `i` is node `i`.
pub(super) fn plan(
    nodes: &[&Node],
    jobs: &[&Demand],
    bins: &[Bin],
    before: &Placement,
    running: &[BTreeMap<usize, u32>],
) -> Plan {
    let mut shares: Vec<BTreeMap<&Text, u32>> = vec![BTreeMap::new(); jobs.len()];
    for (node, bin) in nodes.iter().zip(bins) {
        for (&job, &count) in &bin.jobs {
            if let Some(share) = shares.get_mut(job) {
                share.insert(&node.name, count);
            }
        }
    }
    let stay = |(bin, on): (&Bin, &BTreeMap<usize, u32>)| {
        let both = bin.jobs.iter().filter_map(|(job, &count)| on.get(job).map(|&now| u64::from(count.min(now))));
        both.fold(0, u64::saturating_add)
    };
    let overlap = bins.iter().zip(running).map(stay).fold(0, u64::saturating_add);
    let mut plan = Plan { overlap, ..Plan::default() };
    for (demand, share) in jobs.iter().zip(shares) {
        number(demand, share, before.get(&demand.job).map_or(&[], Vec::as_slice), &mut plan);
    }
    plan.migrated.sort();
    plan.restarted.sort();
    plan
}

fn number(demand: &Demand, mut share: BTreeMap<&Text, u32>, before: &[Text], plan: &mut Plan) {
    let job = &demand.job;
    let placed = share.values().fold(0_u32, |sum, &count| sum.saturating_add(count));
    if let left @ 1.. = demand.workers.saturating_sub(placed) {
        plan.unplaced.insert(job.clone(), left);
    }
    if placed == 0 {
        return;
    }
    // Shares are compared as they are before anybody is kept.
    let mut by_size: Vec<(u32, &Text)> = share.iter().map(|(&node, &count)| (count, node)).collect();
    by_size.sort_by(|(a, m), (b, n)| b.cmp(a).then(m.cmp(n)));
    let kept = |node: &Text, share: &mut BTreeMap<&Text, u32>| match share.get_mut(node) {
        Some(room @ 1..) => {
            *room = room.saturating_sub(1);
            true
        }
        Some(0) | None => false,
    };
    let known = before.iter().map(Some).chain(std::iter::repeat(None));
    let mut workers: Vec<Option<&Text>> = (0..placed).zip(known).map(|(_, old)| old).collect();
    for worker in &mut workers {
        *worker = worker.filter(|node| kept(node, &mut share));
    }
    let mut rest = by_size.into_iter().flat_map(|(_, node)| {
        let left = share.get(node).copied().unwrap_or_default();
        (0..left).map(move |_| node)
    });
    let mut moved = 0_usize;
    let mut placement = Vec::with_capacity(workers.len());
    for (index, worker) in (0_u32..).zip(&workers) {
        if worker.is_none() && usize::try_from(index).is_ok_and(|index| index < before.len()) {
            plan.migrated.push((job.clone(), index));
            moved = moved.saturating_add(1);
        }
        placement.extend(worker.or_else(|| rest.next()).cloned());
    }
    if moved == placement.len() {
        plan.restarted.push(job.clone());
    }
    plan.placement.insert(job.clone(), placement);
}

/// Workers now running by node and job, as places, of the jobs wanted and the nodes there are; those above the new number
/// of workers are gone.
pub(super) fn running(nodes: &[&Node], jobs: &[&Demand], before: &Placement) -> Vec<BTreeMap<usize, u32>> {
    let places: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(i, node)| (&*node.name, i)).collect();
    let mut running = vec![BTreeMap::new(); nodes.len()];
    for (job, demand) in jobs.iter().enumerate() {
        let workers = before.get(&demand.job).map_or(&[][..], Vec::as_slice);
        for (node, _) in workers.iter().zip(0..demand.workers) {
            if let Some(on) = places.get(&**node).and_then(|&i| running.get_mut(i)) {
                let count: &mut u32 = on.entry(job).or_default();
                *count = count.saturating_add(1);
            }
        }
    }
    running
}
