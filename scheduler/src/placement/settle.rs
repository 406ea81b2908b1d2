//! Leaving workers where they are, placing what is new close together, and moving only what is worth its price.
//!
//! 1. Workers that run keep their node.
//! 2. Missing workers, largest job first, go to the job's own nodes, then its racks, then its blocks; a new job goes to one
//!    node, else to the smallest part of the topology that holds it.
//! 3. A job that is spread further than it need be is drawn together when that is worth it (`together`).
//!
//! A heuristic: optimal placement of this kind is bin packing. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::placement::bins::{Bin, Load, best_fit};
use crate::placement::number::{plan, running};
use crate::placement::{Demand, Node, Packing, Placement, PlacementError, Plan, ordered};

/// What distance and change cost, in thousandths of one worker's work until the next change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Lost by each worker of a job spread over several nodes of one rack, several racks of one block, several blocks.
    pub across: [u32; 3],
    /// Each worker moved. [`Prices::NEVER`]: nothing is moved.
    pub migration: u32,
    /// Each worker of a job of which some worker is moved: the whole job stands still meanwhile.
    pub restart: u32,
}

impl Prices {
    /// A price that nothing is worth.
    pub const NEVER: u32 = u32::MAX;
}

impl Default for Prices {
    /// A worker loses a tenth for each level crossed; moving one costs a twentieth, and so does standing still meanwhile.
    fn default() -> Self {
        Self { across: [100, 200, 300], migration: 50, restart: 50 }
    }
}

/// Places what is missing and draws together what is worth it.
///
/// # Errors
/// A node or a job is listed twice.
pub fn settle(
    nodes: &[Node],
    demands: &[Demand],
    before: &Placement,
    packing: Packing,
    prices: &Prices,
) -> Result<Plan, PlacementError> {
    let (nodes, jobs) = ordered(nodes, demands)?;
    let running = running(&nodes, &jobs, before);
    let bins = nodes.iter().map(|node| Bin::new(node.slots, &node.others)).collect();
    let mut occupancy = Occupancy { nodes, jobs, bins, homes: Vec::new(), packing, prices };
    occupancy.homes = vec![BTreeMap::new(); occupancy.jobs.len()];
    occupancy.keep(&running);
    occupancy.place_missing();
    occupancy.draw_together(&running);
    Ok(plan(&occupancy.nodes, &occupancy.jobs, &occupancy.bins, before, &running))
}

/// A part of the topology: a node, a rack (with its block), a block, or all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Domain<'a> {
    Rack(&'a Text, &'a Text),
    Block(&'a Text),
    All,
}

/// How wide a search for room goes, narrowest first.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    Rack,
    Block,
    All,
}

const WIDTHS: [Width; 3] = [Width::Rack, Width::Block, Width::All];

/// The nodes with what is on them, and the jobs with where they are; bins and homes agree at all times.
pub(super) struct Occupancy<'a> {
    pub(super) nodes: Vec<&'a Node>,
    pub(super) jobs: Vec<&'a Demand>,
    pub(super) bins: Vec<Bin>,
    /// Workers by node, for each job.
    pub(super) homes: Vec<BTreeMap<usize, u32>>,
    packing: Packing,
    pub(super) prices: &'a Prices,
}

impl<'a> Occupancy<'a> {
    pub(super) fn domain(&self, node: usize, width: Width) -> Option<Domain<'a>> {
        let node = self.nodes.get(node)?;
        Some(match width {
            Width::Rack => Domain::Rack(&node.block, &node.rack),
            Width::Block => Domain::Block(&node.block),
            Width::All => Domain::All,
        })
    }

    pub(super) fn eligible(&self, job: usize) -> Vec<usize> {
        let Some(demand) = self.jobs.get(job) else { return Vec::new() };
        (0..).zip(&self.nodes).filter(|&(i, node)| demand.accepts(i, node)).map(|(i, _)| i).collect()
    }

    pub(super) fn free(&self, node: usize) -> u32 {
        self.bins.get(node).map_or(0, |bin| bin.free)
    }

    pub(super) fn width(&self, job: usize) -> u32 {
        self.jobs.get(job).map_or(1, |demand| demand.width.max(1))
    }

    /// What each worker of a job takes.
    pub(super) fn load(&self, job: usize) -> Load<'a> {
        Load { job, width: self.width(job), needs: self.jobs.get(job).map_or(&[], |demand| &*demand.needs) }
    }

    /// Returns true if each worker takes one slot and nothing else.
    pub(super) fn is_plain(&self, job: usize) -> bool {
        self.jobs.get(job).is_none_or(|demand| demand.width <= 1 && demand.needs.is_empty())
    }

    pub(super) fn on(&self, job: usize, node: usize) -> u32 {
        self.homes.get(job).and_then(|home| home.get(&node)).copied().unwrap_or_default()
    }

    pub(super) fn wanted(&self, job: usize) -> u32 {
        self.jobs.get(job).map_or(0, |demand| demand.workers)
    }

    /// Reads a job's places back from the bins after these were filled.
    pub(super) fn refresh(&mut self, job: usize, touched: &[usize]) {
        if let Some(home) = self.homes.get_mut(job) {
            for &node in touched {
                match self.bins.get(node).and_then(|bin| bin.jobs.get(&job)) {
                    Some(&count) => home.insert(node, count),
                    None => home.remove(&node),
                };
            }
        }
    }

    /// Step 1. Largest jobs first, should a node have fewer slots than it had.
    fn keep(&mut self, running: &[BTreeMap<usize, u32>]) {
        let mut stays: Vec<(usize, usize, u32)> = Vec::new();
        for (node, on) in running.iter().enumerate() {
            stays.extend(on.iter().map(|(&job, &count)| (job, node, count)));
        }
        stays.sort_unstable();
        for (job, node, count) in stays {
            let stays =
                |(node, demand): (&&Node, &&Demand)| demand.gpu_type.is_none_or(|wanted| wanted == node.gpu_type);
            let accepts = self.nodes.get(node).zip(self.jobs.get(job)).is_some_and(stays);
            let load = self.load(job);
            if let Some(bin) = self.bins.get_mut(node).filter(|_| accepts) {
                bin.keep(load, count);
                self.refresh(job, &[node]);
            }
        }
    }

    /// Step 2.
    fn place_missing(&mut self) {
        for job in 0..self.jobs.len() {
            let here =
                self.homes.get(job).map_or(0, |home| home.values().fold(0, |sum: u32, &c| sum.saturating_add(c)));
            let missing = self.wanted(job).saturating_sub(here);
            if missing > 0 {
                let eligible = self.eligible(job);
                if here > 0 { self.extend(job, missing, &eligible) } else { self.start(job, missing, &eligible) }
            }
        }
    }

    /// More workers for a job that has some: near those.
    fn extend(&mut self, job: usize, mut missing: u32, eligible: &[usize]) {
        let own: Vec<usize> = self.homes.get(job).map(|home| home.keys().copied().collect()).unwrap_or_default();
        let open: Vec<usize> = own.iter().copied().filter(|node| eligible.binary_search(node).is_ok()).collect();
        missing = self.fill(job, missing, &open);
        for width in WIDTHS {
            let near: Vec<Option<Domain<'_>>> = own.iter().map(|&node| self.domain(node, width)).collect();
            let reach: Vec<usize> =
                eligible.iter().copied().filter(|&node| near.contains(&self.domain(node, width))).collect();
            if missing > 0 {
                missing = self.fill(job, missing, &reach);
            }
        }
    }

    fn fill(&mut self, job: usize, missing: u32, nodes: &[usize]) -> u32 {
        let load = self.load(job);
        let left = best_fit(&mut self.bins, nodes, load, missing, self.packing);
        self.refresh(job, nodes);
        left
    }

    /// A new job: on one node, else in the smallest part of the topology that holds it, else wherever there is room.
    fn start(&mut self, job: usize, workers: u32, eligible: &[usize]) {
        let load = self.load(job);
        let room = |occupancy: &Self, node: usize| occupancy.bins.get(node).map_or(0, |bin| bin.room(load));
        let one_node = eligible.iter().any(|&node| room(self, node) >= workers);
        let reach = if one_node { None } else { self.tightest(workers, eligible, room) };
        self.fill(job, workers, reach.as_deref().unwrap_or(eligible));
    }

    /// The nodes of the smallest domain with `room` for so many workers; among equals the fullest (packing) or emptiest.
    pub(super) fn tightest(
        &self,
        workers: u32,
        eligible: &[usize],
        room: impl Fn(&Self, usize) -> u32,
    ) -> Option<Vec<usize>> {
        for width in WIDTHS {
            let mut domains: BTreeMap<Option<Domain<'_>>, (u32, Vec<usize>)> = BTreeMap::new();
            for &node in eligible {
                let domain = domains.entry(self.domain(node, width)).or_default();
                domain.0 = domain.0.saturating_add(room(self, node));
                domain.1.push(node);
            }
            let holding = domains.into_values().filter(|(room, _)| *room >= workers);
            let best = match self.packing {
                Packing::Pack => holding.min_by_key(|(room, _)| *room),
                Packing::Spread => holding.min_by_key(|(room, _)| std::cmp::Reverse(*room)),
            };
            if let Some((_, nodes)) = best {
                return Some(nodes);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GpuType;

    fn nodes(slots: &[u32]) -> Vec<Node> {
        slots.iter().zip(1..).map(|(&slots, n)| Node::new(format!("n{n}"), slots)).collect()
    }

    fn racked(racks: &[(&str, u32)]) -> Vec<Node> {
        let node =
            |(&(rack, slots), n): (&(&str, u32), u32)| Node { rack: rack.into(), ..Node::new(format!("n{n}"), slots) };
        racks.iter().zip(1..).map(node).collect()
    }

    fn before(jobs: &[(&str, &[&str])]) -> Placement {
        let workers = |nodes: &[&str]| nodes.iter().map(|&node| Text::from(node)).collect();
        jobs.iter().map(|(job, nodes)| (Text::from(*job), workers(nodes))).collect()
    }

    fn demands(jobs: &[(&str, u32)]) -> Vec<Demand> {
        jobs.iter().map(|&(job, workers)| Demand::new(job, workers)).collect()
    }

    fn shown(plan: &Plan) -> Vec<String> {
        plan.placement.iter().map(|(job, workers)| format!("{job}: {}", workers.join(" "))).collect()
    }

    fn settled(nodes: &[Node], jobs: &[(&str, u32)], old: &[(&str, &[&str])], prices: &Prices) -> Plan {
        settle(nodes, &demands(jobs), &before(old), Packing::Pack, prices).unwrap()
    }

    const FIXED: Prices = Prices { across: [100, 200, 300], migration: Prices::NEVER, restart: 0 };

    #[test]
    fn no_worker_moves_without_need() {
        let old: &[(&str, &[&str])] = &[("a", &["n1", "n2"]), ("b", &["n1", "n1", "n1"])];
        let plan = settled(&nodes(&[4, 4]), &[("a", 2), ("b", 4)], old, &FIXED);
        assert_eq!(shown(&plan), ["a: n1 n2", "b: n1 n1 n1 n2"]);
        assert!(plan.migrated.is_empty());
    }

    #[test]
    fn drawing_together_has_its_price() {
        let old: &[(&str, &[&str])] = &[("a", &["n1", "n2"]), ("b", &["n1", "n1", "n1"])];
        // Two workers gain 100 each; one moves (50) and two stand still (50 each): 200 - 150 > 0.
        let plan = settled(&nodes(&[4, 4]), &[("a", 2), ("b", 3)], old, &Prices::default());
        assert_eq!(shown(&plan), ["a: n1 n1", "b: n1 n1 n1"].map(|s| s.replace("a: n1 n1", "a: n2 n2")));
        let dear = Prices { migration: 100, ..Prices::default() };
        let plan = settled(&nodes(&[4, 4]), &[("a", 2), ("b", 3)], old, &dear);
        assert_eq!(shown(&plan), ["a: n1 n2", "b: n1 n1 n1"]);
    }

    #[test]
    fn small_neighbours_make_room() {
        // c could be whole on n1 (3 of its 4 are there) if b's single worker went to n2.
        let old: &[(&str, &[&str])] = &[("b", &["n1"]), ("c", &["n1", "n1", "n1", "n2"])];
        let plan = settled(&nodes(&[4, 4]), &[("b", 1), ("c", 4)], old, &Prices { restart: 0, ..Prices::default() });
        // Moving c's three to n2 costs more than moving b and c's fourth.
        assert_eq!(shown(&plan), ["b: n2", "c: n1 n1 n1 n1"]);
        assert_eq!(plan.migrated, [("b".into(), 0), ("c".into(), 3)]);
        assert_eq!(plan.restarted, ["b".into()]);
    }

    #[test]
    fn a_large_job_starts_in_one_rack() {
        let nodes = racked(&[("r1", 4), ("r2", 4), ("r1", 2), ("r2", 4)]);
        let plan = settled(&nodes, &[("a", 8)], &[], &FIXED);
        assert_eq!(shown(&plan), ["a: n2 n2 n2 n2 n4 n4 n4 n4"]);
        let plan = settled(&nodes, &[("a", 6)], &[], &FIXED);
        assert_eq!(shown(&plan), ["a: n1 n1 n1 n1 n3 n3"], "the rack that it just fills");
        let plan = settled(&nodes, &[("a", 9)], &[], &FIXED);
        assert_eq!(plan.unplaced.len(), 0);
    }

    #[test]
    fn growth_stays_near() {
        let nodes = racked(&[("r1", 4), ("r2", 4), ("r2", 4)]);
        let old: &[(&str, &[&str])] = &[("a", &["n2", "n2"])];
        let plan = settled(&nodes, &[("a", 6)], old, &FIXED);
        assert_eq!(shown(&plan), ["a: n2 n2 n2 n2 n3 n3"]);
    }

    #[test]
    fn gpu_types_and_lost_nodes() {
        let mut nodes = nodes(&[4, 4]);
        nodes[1].gpu_type = GpuType(1);
        let demand = Demand { gpu_type: Some(GpuType(1)), ..Demand::new("a", 5) };
        let plan = settle(&nodes, &[demand], &before(&[("a", &["n9"])]), Packing::Pack, &FIXED).unwrap();
        assert_eq!(shown(&plan), ["a: n2 n2 n2 n2"]);
        assert_eq!((plan.unplaced["a"], &plan.migrated[..]), (1, &[("a".into(), 0)][..]));
    }

    #[test]
    fn a_wide_worker_stays_on_one_node() {
        let wide = |job: &str, workers, turn| Demand { width: 3, turn, ..Demand::new(job, workers) };
        let place = |demands: &[Demand]| {
            settle(&nodes(&[4, 7]), demands, &before(&[("b", &["n2"])]), Packing::Pack, &FIXED).unwrap()
        };
        let plan = place(&[wide("a", 3, 0)]);
        assert_eq!(shown(&plan), ["a: n2 n2 n1"]);
        // Eleven slots are free in all, but only three places of three.
        assert_eq!(place(&[wide("a", 4, 0)]).unplaced["a"], 1);
        let plan = place(&[wide("a", 3, 2), wide("b", 1, 9), Demand { turn: 1, ..Demand::new("c", 4) }]);
        assert_eq!(shown(&plan), ["a: n2", "b: n2", "c: n1 n1 n1 n1"]);
        assert_eq!(plan.unplaced["a"], 2, "c had its turn before");
    }

    #[test]
    fn spreading_takes_the_emptiest() {
        let jobs = demands(&[("a", 2), ("b", 1), ("c", 1)]);
        let plan = settle(&nodes(&[4, 4]), &jobs, &Placement::new(), Packing::Spread, &FIXED).unwrap();
        assert_eq!(shown(&plan), ["a: n1 n1", "b: n2", "c: n2"]);
        let plan = settle(&nodes(&[4, 4]), &jobs, &Placement::new(), Packing::Pack, &FIXED).unwrap();
        assert_eq!(shown(&plan), ["a: n1 n1", "b: n1", "c: n1"]);
    }
}
