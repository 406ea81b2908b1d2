//! Which bin is which node: the assignment with the largest total overlap, and among those the lexicographically smallest.
//!
//! The optimum comes from a library's Hungarian method, part by part: bins and nodes that share no worker are not its
//! business. To choose among equal optima, node prices are derived from the optimal assignment (linear programming
//! duality); then exactly the assignments along edges without slack are optimal, and the smallest one is found by
//! exchanging along alternating paths. Sources: Kuhn 1955, Munkres 1957; complementary slackness, any textbook.
//! Cost after the library: bins x (bins + overlapping pairs). Tests: at the end of this file.

use std::collections::{BTreeMap, VecDeque};

use pathfinding::kuhn_munkres::kuhn_munkres;
use pathfinding::matrix::Matrix;
use pathfinding::prelude::strongly_connected_components;

/// Overlaps of one bin: node and number of workers that would stay, positive, in node order.
pub(super) type Overlaps = Vec<(usize, u32)>;

/// An assignment, and whether another is as good.
#[derive(Debug)]
pub(super) struct Assignment {
    /// For each bin its node, both counted from 0.
    pub(super) node_of: Vec<usize>,
    /// Groups of bins that can trade nodes without loss; bins in no group have no choice.
    pub(super) exchangeable: Vec<Vec<usize>>,
}

/// Assigns as many nodes as there are bins.
pub(super) fn assign(overlaps: &[Overlaps]) -> Assignment {
    let optimum = optimum(overlaps);
    let tight = Tight::new(overlaps, &optimum);
    let matching = tight.smallest(optimum);
    Assignment { exchangeable: tight.exchangeable(&matching), node_of: matching.node_of }
}

/// Connected parts of the graph of overlaps: bins, nodes.
fn parts(overlaps: &[Overlaps]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut bins_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (bin, edges) in overlaps.iter().enumerate() {
        for &(node, _) in edges {
            bins_of.entry(node).or_default().push(bin);
        }
    }
    let mut seen = vec![false; overlaps.len()];
    let mut parts = Vec::new();
    for start in 0..overlaps.len() {
        let mut part = (Vec::new(), Vec::new());
        let mut queue = vec![start];
        while let Some(bin) = queue.pop() {
            match seen.get_mut(bin) {
                Some(seen) if !*seen => *seen = true,
                Some(_) | None => continue,
            }
            part.0.push(bin);
            for &(node, _) in overlaps.get(bin).into_iter().flatten() {
                if let Some(bins) = bins_of.remove(&node) {
                    part.1.push(node);
                    queue.extend(bins);
                }
            }
        }
        if !part.1.is_empty() {
            part.0.sort_unstable();
            part.1.sort_unstable();
            parts.push(part);
        }
    }
    parts
}

/// Returns an optimal assignment; bins that keep no worker get none.
fn optimum(overlaps: &[Overlaps]) -> Vec<Option<usize>> {
    let mut node_of = vec![None; overlaps.len()];
    for (bins, nodes) in parts(overlaps) {
        let weight = |bin: usize, node: usize| {
            let edges = overlaps.get(bin).map_or(&[][..], Vec::as_slice);
            edges.binary_search_by_key(&node, |&(n, _)| n).ok().and_then(|at| edges.get(at)).map_or(0, |&(_, w)| w)
        };
        let mut set = |bin: usize, node: usize| {
            if let Some(slot) = node_of.get_mut(bin).filter(|_| weight(bin, node) > 0) {
                *slot = Some(node);
            }
        };
        if let ([bin], [node]) = (&bins[..], &nodes[..]) {
            set(*bin, *node);
            continue;
        }
        // The library wants at least as many columns as rows.
        let (rows, columns, flipped) =
            if bins.len() <= nodes.len() { (&bins, &nodes, false) } else { (&nodes, &bins, true) };
        let mut matrix = Matrix::new(rows.len(), columns.len(), 0_i64);
        for (at, &bin) in bins.iter().enumerate() {
            for &(node, weight) in overlaps.get(bin).into_iter().flatten() {
                let node = nodes.binary_search(&node).ok();
                let cell = node.map(|node| if flipped { (node, at) } else { (at, node) });
                if let Some(cell) = cell.and_then(|cell| matrix.get_mut(cell)) {
                    *cell = i64::from(weight);
                }
            }
        }
        for (&row, column) in rows.iter().zip(kuhn_munkres(&matrix).1) {
            if let Some(&column) = columns.get(column) {
                if flipped { set(column, row) } else { set(row, column) }
            }
        }
    }
    node_of
}

/// The edges without slack: positive overlaps whose weight equals the prices of both ends, and all pairs of a bin and a node
/// of price 0.
struct Tight<'a> {
    overlaps: &'a [Overlaps],
    bin_price: Vec<u64>,
    node_price: Vec<u64>,
}

fn at(prices: &[u64], i: usize) -> u64 {
    prices.get(i).copied().unwrap_or_default()
}

impl<'a> Tight<'a> {
    /// Prices that prove the assignment optimal: each overlap is at most the sum of its ends' prices, each edge taken equal
    /// to it, and a side without a partner has price 0. They are the largest fixed point of the bounds on node prices.
    fn new(overlaps: &'a [Overlaps], node_of: &[Option<usize>]) -> Self {
        let n = overlaps.len();
        let mut bin_of = vec![None; n];
        let mut taken = vec![0_u64; n]; // overlap taken by the node's own bin
        for (bin, (edges, node)) in overlaps.iter().zip(node_of).enumerate() {
            if let Some(&(node, weight)) = node.and_then(|node| edges.iter().find(|(n, _)| *n == node))
                && let (Some(owner), Some(slot)) = (bin_of.get_mut(node), taken.get_mut(node))
            {
                (*owner, *slot) = (Some(bin), weight.into());
            }
        }
        // price(node) <= taken(node) + price(other) - overlap(bin of node, other), for every other node the bin overlaps;
        // price(node) <= taken(node). Nodes without a bin have price 0. Lowering one price may lower others: a work list.
        let mut price: Vec<u64> = taken.clone();
        let mut rivals: Vec<Vec<(usize, u64)>> = vec![Vec::new(); n]; // other -> (node, overlap of node's bin with other)
        for (node, owner) in bin_of.iter().enumerate() {
            for &(other, weight) in owner.and_then(|bin| overlaps.get(bin)).into_iter().flatten() {
                if let Some(list) = rivals.get_mut(other).filter(|_| other != node) {
                    list.push((node, weight.into()));
                }
            }
        }
        let mut queue: VecDeque<usize> = (0..n).collect();
        while let Some(other) = queue.pop_front() {
            for &(node, weight) in rivals.get(other).into_iter().flatten() {
                let bound = at(&taken, node).saturating_add(at(&price, other)).saturating_sub(weight);
                if let Some(price) = price.get_mut(node).filter(|price| **price > bound) {
                    *price = bound;
                    queue.push_back(node);
                }
            }
        }
        let mut bin_price = vec![0; n];
        for (node, owner) in bin_of.iter().enumerate() {
            if let Some(slot) = owner.and_then(|bin| bin_price.get_mut(bin)) {
                *slot = at(&taken, node).saturating_sub(at(&price, node));
            }
        }
        Self { overlaps, bin_price, node_price: price }
    }

    fn is_tight(&self, bin: usize, node: usize, weight: u32) -> bool {
        at(&self.bin_price, bin).saturating_add(at(&self.node_price, node)) == u64::from(weight)
    }

    /// The smallest complete assignment along tight edges, starting from one of them.
    fn smallest(&self, node_of: Vec<Option<usize>>) -> Matching {
        let n = node_of.len();
        let mut matching = Matching::complete(node_of);
        // Bins by the nodes they reach along positive tight edges.
        let mut reached_by: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (bin, edges) in self.overlaps.iter().enumerate() {
            for &(node, _) in edges.iter().filter(|&&(node, weight)| self.is_tight(bin, node, weight)) {
                if let Some(bins) = reached_by.get_mut(node) {
                    bins.push(bin);
                }
            }
        }
        let free_nodes: Vec<usize> = (0..n).filter(|&node| at(&self.node_price, node) == 0).collect();
        let free_bins: Vec<usize> = (0..n).filter(|&bin| at(&self.bin_price, bin) == 0).collect();
        for bin in 0..n {
            let target = matching.node(bin);
            let positive = self.overlaps.get(bin).into_iter().flatten();
            let mut wanted: Vec<usize> =
                positive.filter(|&&(node, w)| self.is_tight(bin, node, w)).map(|&(node, _)| node).collect();
            if at(&self.bin_price, bin) == 0 {
                wanted.extend(&free_nodes);
                wanted.sort_unstable();
            }
            wanted.retain(|&node| node < target && matching.owner(node) > bin);
            if wanted.is_empty() {
                continue; // nothing smaller is even possible
            }
            // Which bins can move on so that in the end one takes the target, and to which node each would go.
            let mut goes_to: Vec<Option<usize>> = vec![None; n];
            let mut queue = VecDeque::from([target]);
            let mut hub_used = false;
            while let Some(node) = queue.pop_front() {
                let zero = at(&self.node_price, node) == 0 && !hub_used;
                hub_used |= zero;
                let hub = if zero { free_bins.as_slice() } else { &[] };
                for &other in reached_by.get(node).into_iter().flatten().chain(hub) {
                    if let Some(slot) = goes_to.get_mut(other).filter(|slot| slot.is_none() && other > bin) {
                        *slot = Some(node);
                        queue.push_back(matching.node(other));
                    }
                }
            }
            let can_go = |node: &&usize| goes_to.get(matching.owner(**node)).is_some_and(Option::is_some);
            if let Some(&node) = wanted.iter().find(can_go) {
                matching.exchange(bin, node, &goes_to);
            }
        }
        matching
    }

    /// Bins on common alternating cycles: the strong components of "could have the node of". All bins of price 0 could have
    /// every node of price 0, which is one hub in place of all pairs.
    fn exchangeable(&self, matching: &Matching) -> Vec<Vec<usize>> {
        let n = matching.node_of.len();
        let hub = n;
        let free: Vec<usize> = (0..n).filter(|&node| at(&self.node_price, node) == 0).collect();
        let successors = |&vertex: &usize| -> Vec<usize> {
            if vertex == hub {
                return free.iter().map(|&node| matching.owner(node)).collect();
            }
            let positive = self.overlaps.get(vertex).into_iter().flatten();
            let tight = positive.filter(|&&(node, weight)| self.is_tight(vertex, node, weight));
            let joins = (at(&self.bin_price, vertex) == 0).then_some(hub);
            tight.map(|&(node, _)| matching.owner(node)).chain(joins).collect()
        };
        let vertices: Vec<usize> = (0..=n).collect();
        let mut groups = strongly_connected_components(&vertices, successors);
        for group in &mut groups {
            group.retain(|&vertex| vertex != hub);
            group.sort_unstable();
        }
        groups.retain(|group| group.len() > 1);
        groups.sort_unstable();
        groups
    }
}

/// A complete assignment, both ways.
struct Matching {
    node_of: Vec<usize>,
    owner_of: Vec<usize>,
}

impl Matching {
    /// Gives bins without a node the nodes that are left, in order.
    fn complete(node_of: Vec<Option<usize>>) -> Self {
        let n = node_of.len();
        let mut used = vec![false; n];
        for &node in node_of.iter().flatten() {
            if let Some(used) = used.get_mut(node) {
                *used = true;
            }
        }
        let mut left = (0..n).filter(|&node| used.get(node) == Some(&false));
        let node_of: Vec<usize> = node_of.into_iter().filter_map(|node| node.or_else(|| left.next())).collect();
        let mut owner_of = vec![0; n];
        for (bin, &node) in node_of.iter().enumerate() {
            if let Some(owner) = owner_of.get_mut(node) {
                *owner = bin;
            }
        }
        Self { node_of, owner_of }
    }

    fn node(&self, bin: usize) -> usize {
        self.node_of.get(bin).copied().unwrap_or_default()
    }

    fn owner(&self, node: usize) -> usize {
        self.owner_of.get(node).copied().unwrap_or_default()
    }

    fn set(&mut self, bin: usize, node: usize) {
        if let (Some(slot), Some(owner)) = (self.node_of.get_mut(bin), self.owner_of.get_mut(node)) {
            (*slot, *owner) = (node, bin);
        }
    }

    /// Gives `node` to `bin`; the bin that had it moves where `goes_to` says, and so on until the node that `bin` had is taken.
    fn exchange(&mut self, bin: usize, node: usize, goes_to: &[Option<usize>]) {
        let target = self.node(bin);
        let (mut mover, mut to) = (bin, node);
        loop {
            let displaced = self.owner(to);
            self.set(mover, to);
            if to == target {
                return;
            }
            let Some(next) = goes_to.get(displaced).copied().flatten() else { return };
            (mover, to) = (displaced, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The best assignment, and how many are as good.
    fn exhaustive(overlaps: &[Overlaps]) -> (Vec<usize>, u32) {
        type Best = Option<(u32, Vec<usize>, u32)>;
        fn walk(overlaps: &[Overlaps], chosen: &mut Vec<usize>, total: u32, best: &mut Best) {
            let bin = chosen.len();
            if bin == overlaps.len() {
                // Sequences come in lexicographic order: only a larger total replaces.
                match best {
                    Some((most, _, ways)) if total == *most => *ways += 1,
                    Some((most, _, _)) if total < *most => {}
                    _ => *best = Some((total, chosen.clone(), 1)),
                }
                return;
            }
            for node in 0..overlaps.len() {
                if !chosen.contains(&node) {
                    let gain = overlaps[bin].iter().find(|(n, _)| *n == node).map_or(0, |(_, w)| *w);
                    chosen.push(node);
                    walk(overlaps, chosen, total + gain, best);
                    chosen.pop();
                }
            }
        }
        let mut best = None;
        walk(overlaps, &mut Vec::new(), 0, &mut best);
        let (_, chosen, ways) = best.unwrap();
        (chosen, ways)
    }

    fn sparse(rows: &[Vec<u32>]) -> Vec<Overlaps> {
        let positive = |row: &Vec<u32>| (0..).zip(row.iter().copied()).filter(|(_, w)| *w > 0).collect();
        rows.iter().map(positive).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn optimal_and_smallest(
            rows in (0_usize..6).prop_flat_map(|n| {
                let weight = prop_oneof![3 => Just(0_u32), 2 => 1_u32..4];
                prop::collection::vec(prop::collection::vec(weight, n), n)
            }),
        ) {
            let overlaps = sparse(&rows);
            let assignment = assign(&overlaps);
            let (best, ways) = exhaustive(&overlaps);
            prop_assert_eq!(&assignment.node_of, &best);
            prop_assert_eq!(assignment.exchangeable.is_empty(), ways == 1);
        }
    }
}
