//! Packs all jobs again, then moves as few workers as that allows: Voda's placement with corrected rules.
//!
//! 1. One empty bin per node, in node-name order.
//! 2. Best fit, largest job first; a job that fits nowhere whole fills the emptiest bin and continues with the rest.
//! 3. Bins become nodes of the same size and GPU type so that most workers stay.
//!
//! It defragments fully each time, whatever that costs in migrations; see [`super::settle`] for the other way.

use std::collections::BTreeMap;

use crate::placement::bind::{Overlaps, assign};
use crate::placement::bins::{Bin, Load, best_fit};
use crate::placement::number::{plan, running};
use crate::placement::{Demand, Node, Packing, Placement, PlacementError, Plan, ordered};

/// Places all jobs again.
///
/// # Errors
/// A node or a job is listed twice.
pub fn repack(
    nodes: &[Node],
    demands: &[Demand],
    before: &Placement,
    packing: Packing,
) -> Result<Plan, PlacementError> {
    let (nodes, jobs) = ordered(nodes, demands)?;
    let mut bins: Vec<Bin> = nodes.iter().map(|node| Bin::new(node.slots, &[])).collect();
    for (job, demand) in jobs.iter().enumerate() {
        let eligible: Vec<usize> =
            (0..).zip(&nodes).filter(|&(i, node)| demand.accepts(i, node)).map(|(i, _)| i).collect();
        let load = Load { job, width: demand.width, needs: &[] };
        best_fit(&mut bins, &eligible, load, demand.workers, packing);
    }
    let running = running(&nodes, &jobs, before);
    let (bins, unique) = bind(&nodes, bins, &running);
    Ok(Plan { unique, ..plan(&nodes, &jobs, &bins, before, &running) })
}

/// Bins in node order: each bin goes to a node like the one it was made for. Also whether there was only one way to do that.
fn bind(nodes: &[&Node], mut bins: Vec<Bin>, running: &[BTreeMap<usize, u32>]) -> (Vec<Bin>, bool) {
    let mut classes: BTreeMap<(u32, u16), Vec<usize>> = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        classes.entry((node.slots, node.gpu_type.0)).or_default().push(i);
    }
    let mut bound: Vec<Bin> = bins.iter().map(|_| Bin::default()).collect();
    let mut unique = true;
    for class in classes.values() {
        let assignment = assign(&overlaps(class, &bins, running));
        let content = |&place: &usize| class.get(place).and_then(|&bin| bins.get(bin)).map(|bin| &bin.jobs);
        let alike = |group: &Vec<usize>| group.iter().all(|place| content(place) == group.first().and_then(content));
        unique &= assignment.exchangeable.iter().all(alike);
        for (&bin, node) in class.iter().zip(assignment.node_of) {
            if let (Some(from), Some(to)) = (bins.get_mut(bin), class.get(node).and_then(|&node| bound.get_mut(node))) {
                *to = std::mem::take(from);
            }
        }
    }
    (bound, unique)
}

/// Who would stay, for each bin of a class on each node of it.
fn overlaps(class: &[usize], bins: &[Bin], running: &[BTreeMap<usize, u32>]) -> Vec<Overlaps> {
    // Nodes of the class by the jobs that run there, so that only pairs with a common job are looked at.
    let mut nodes_of: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    for (place, on) in class.iter().enumerate().filter_map(|(place, &node)| Some((place, running.get(node)?))) {
        for (&job, &count) in on {
            nodes_of.entry(job).or_default().push((place, count));
        }
    }
    let overlap = |bin: &Bin| {
        let mut stay: BTreeMap<usize, u32> = BTreeMap::new();
        for (job, &count) in &bin.jobs {
            for &(node, now) in nodes_of.get(job).into_iter().flatten() {
                let sum = stay.entry(node).or_default();
                *sum = sum.saturating_add(count.min(now));
            }
        }
        stay.into_iter().collect()
    };
    class.iter().map(|&i| bins.get(i).map(overlap).unwrap_or_default()).collect()
}
