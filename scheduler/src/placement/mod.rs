//! Places workers on nodes. One slot is one GPU; a worker takes as many of one node as it is wide.
//!
//! Two ways: [`repack`] packs all jobs again into empty bins and then binds bins to nodes so that the fewest workers move
//! (Voda's way, with corrected rules); [`settle`] leaves workers where they are, places what is new close together, and
//! moves a worker only where that is worth the price of a migration. Both know GPU types, and both number workers alike
//! ([`number`]). The state between calls is the [`Placement`] itself. Tests: beside each file; vectors in
//! `tests/placement.rs`.

mod bind;
mod bins;
mod nodes;
mod number;
mod repack;
mod settle;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;
use serde::{Deserialize, Serialize};

pub use nodes::NodeSet;
pub use repack::repack;
pub use settle::{Prices, settle};

use crate::units::GpuType;

/// A node with its place in the topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, unique.
    pub name: Text,
    /// GPUs for workers.
    pub slots: u32,
    /// Their type.
    pub gpu_type: GpuType,
    /// The rack it is in; empty: not known, which counts as one rack.
    pub rack: Text,
    /// The block of racks it is in; empty: not known, which counts as one block.
    pub block: Text,
    /// Room in other resources than GPUs, in an order that all nodes and demands share. `u64::MAX`, and one beyond the end of the list, is
    /// not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<u64>,
}

impl Node {
    /// A node of GPU type 0, of unknown rack and block.
    pub fn new(name: impl Into<Text>, slots: u32) -> Self {
        Self { name: name.into(), slots, gpu_type: GpuType(0), rack: "".into(), block: "".into(), others: Vec::new() }
    }
}

impl Node {
    /// Returns how many workers of so many GPUs and other needs there is room for.
    pub fn workers(&self, width: u32, needs: &[u64]) -> u32 {
        workers_in(self.slots, &self.others, width, needs)
    }

    /// Takes what workers need of its other resources, as far as there is any.
    pub(crate) fn use_others(&mut self, needs: &[u64], workers: u32) {
        for (left, need) in self.others.iter_mut().zip(needs).filter(|(left, _)| **left < u64::MAX) {
            *left = left.saturating_sub(need.saturating_mul(workers.into()));
        }
    }
}

/// Returns how many workers of so many slots and other needs there is room for.
fn workers_in(slots: u32, others: &[u64], width: u32, needs: &[u64]) -> u32 {
    let by_slots = slots.checked_div(width).unwrap_or_default();
    let by_others = others.iter().zip(needs).filter_map(|(left, need)| left.checked_div(*need)).min();
    by_slots.min(u32::try_from(by_others.unwrap_or(u64::MAX)).unwrap_or(u32::MAX))
}

/// A job that wants to run with so many workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The job, unique.
    pub job: Text,
    /// Its workers; with 0 the job is halted and forgotten.
    pub workers: u32,
    /// On which GPU type; `None`: any, also several.
    pub gpu_type: Option<GpuType>,
    /// GPUs of each worker, all on one node; at least 1.
    #[serde(default = "one")]
    pub width: u32,
    /// Turn in which missing workers are placed by [`settle`], lowest first; equal ones by size.
    #[serde(default)]
    pub turn: u32,
    /// Nodes that take none of its workers but those that are there.
    #[serde(default)]
    pub avoid: Vec<Text>,
    /// Nodes that take its workers, beside those that have some, by their places in the order of all names; `None`: all.
    #[serde(skip)]
    pub among: Option<Arc<NodeSet>>,
    /// What each worker needs of the other resources of its node, in the order of [`Node::others`].
    #[serde(skip)]
    pub needs: Arc<[u64]>,
}

const fn one() -> u32 {
    1
}

impl Demand {
    /// `workers` workers on whatever there is.
    pub fn new(job: impl Into<Text>, workers: u32) -> Self {
        Self {
            job: job.into(),
            workers,
            gpu_type: None,
            width: 1,
            turn: 0,
            avoid: Vec::new(),
            among: None,
            needs: Arc::default(),
        }
    }

    /// Returns true if it may have new workers on a node. `place`: that of the node in the order of all names.
    fn accepts(&self, place: usize, node: &Node) -> bool {
        let is_among = self.among.as_ref().is_none_or(|nodes| nodes.contains(place));
        is_among && self.gpu_type.is_none_or(|wanted| wanted == node.gpu_type) && !self.avoid.contains(&node.name)
    }
}

/// Where the workers are: for each job the node of worker 0, 1, 2, ... Names of nodes that are gone mean lost workers.
pub type Placement = BTreeMap<Text, Vec<Text>>;

/// Whether nodes are filled up or kept evenly loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packing {
    /// The fullest node that has room: large free nodes are kept for large jobs.
    #[default]
    Pack,
    /// The emptiest node: less contention between neighbours.
    Spread,
}

/// A plan: the new placement, and what it takes to get there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Where every worker goes; of a job with unplaced workers, those of the lowest indexes are placed.
    pub placement: Placement,
    /// Workers for which there is no slot, by job.
    pub unplaced: BTreeMap<Text, u32>,
    /// Workers that were running and change their node, or lost it: (job, index), in order.
    pub migrated: Vec<(Text, u32)>,
    /// Jobs all of whose workers are migrated ones: their launcher restarts too.
    pub restarted: Vec<Text>,
    /// Workers that need not move: by node and job, the smaller of how many run there and how many will.
    pub overlap: u64,
    /// Whether no other way to assign these shares to nodes of the same size keeps as many workers. Only [`repack`] sets it;
    /// otherwise false.
    pub unique: bool,
}

impl Plan {
    /// Workers by node and job; every node is listed.
    pub fn by_node(&self, nodes: &[Node]) -> BTreeMap<Text, BTreeMap<Text, u32>> {
        let mut by_node: BTreeMap<Text, BTreeMap<Text, u32>> =
            nodes.iter().map(|node| (node.name.clone(), BTreeMap::new())).collect();
        for (job, workers) in &self.placement {
            for node in workers {
                let count = by_node.entry(node.clone()).or_default().entry(job.clone()).or_default();
                *count = count.saturating_add(1);
            }
        }
        by_node
    }

    /// Jobs with workers on two or more nodes.
    pub fn cross_node(&self) -> usize {
        let spans = |workers: &&Vec<Text>| workers.iter().collect::<BTreeSet<_>>().len() > 1;
        self.placement.values().filter(spans).count()
    }
}

/// The input is faulty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Two nodes have one name.
    #[error("node {0} is listed twice")]
    NodeTwice(Text),
    /// Two demands name one job.
    #[error("job {0} is listed twice")]
    JobTwice(Text),
}

/// Nodes by name, demands with workers by (turn, GPUs descending, name): the orders both ways work in.
fn ordered<'a>(nodes: &'a [Node], demands: &'a [Demand]) -> Result<(Vec<&'a Node>, Vec<&'a Demand>), PlacementError> {
    let mut nodes: Vec<&Node> = nodes.iter().collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut jobs: Vec<&Demand> = demands.iter().collect();
    jobs.sort_by(|a, b| a.job.cmp(&b.job));
    if let Some((twice, _)) = nodes.iter().zip(nodes.iter().skip(1)).find(|(a, b)| a.name == b.name) {
        return Err(PlacementError::NodeTwice(twice.name.clone()));
    }
    if let Some((twice, _)) = jobs.iter().zip(jobs.iter().skip(1)).find(|(a, b)| a.job == b.job) {
        return Err(PlacementError::JobTwice(twice.job.clone()));
    }
    jobs.retain(|demand| demand.workers > 0);
    // Stable: equal sizes stay in name order.
    jobs.sort_by_key(|demand| (demand.turn, std::cmp::Reverse(demand.workers.saturating_mul(demand.width))));
    Ok((nodes, jobs))
}
