//! Drawing a job together that is spread further than it need be, when what its workers gain ([`Prices::across`]) exceeds
//! what the migrations cost. If a node lacks room for that, small neighbours that fit elsewhere are moved away, at the same
//! price. The third step of `settle`, where its tests are.

use std::collections::BTreeMap;

use crate::placement::bins::Load;
use crate::placement::settle::{Occupancy, Prices, Width};

/// A job each worker of which takes one slot and nothing else: others are left where they are.
const fn plain(job: usize) -> Load<'static> {
    Load { job, width: 1, needs: &[] }
}

impl Occupancy<'_> {
    /// What each worker of a job on these nodes loses.
    fn loss(&self, nodes: &BTreeMap<usize, u32>) -> u32 {
        let one = |width| {
            let mut domains = nodes.keys().map(|&node| self.domain(node, width));
            let first = domains.next();
            domains.all(|domain| Some(domain) == first)
        };
        let [rack, block, beyond] = self.prices.across;
        if nodes.len() < 2 {
            0
        } else if one(Width::Rack) {
            rack
        } else if one(Width::Block) {
            block
        } else {
            beyond
        }
    }

    /// Jobs whose running workers would gain, largest first.
    pub(super) fn draw_together(&mut self, running: &[BTreeMap<usize, u32>]) {
        if self.prices.migration == Prices::NEVER {
            return;
        }
        for job in 0..self.jobs.len() {
            let loss = self.homes.get(job).map_or(0, |home| self.loss(home));
            // A wide worker needs its slots on one node: it is not drawn together, and not sent away below.
            if loss == 0 || !self.is_plain(job) {
                continue;
            }
            let gather = self.gather(job, loss, running);
            let room = self.make_room(job, loss, running);
            match (gather, room) {
                (Some(plain), Some(room)) if room.net > plain.net => self.carry_out(job, &room),
                (Some(plain), _) => self.carry_out(job, &plain),
                (None, Some(room)) => self.carry_out(job, &room),
                (None, None) => {}
            }
        }
    }

    /// Running workers of a job that a new share of a node keeps there.
    fn stays(job: usize, node: usize, count: u32, running: &[BTreeMap<usize, u32>]) -> u32 {
        running.get(node).and_then(|on| on.get(&job)).map_or(0, |&now| now.min(count))
    }

    /// Net gain of giving `job` these shares, in thousandths of a worker; `None` when it is not positive.
    fn net(
        &self,
        job: usize,
        loss: u32,
        shares: &BTreeMap<usize, u32>,
        running: &[BTreeMap<usize, u32>],
        evicted: (u32, u32),
    ) -> Option<u64> {
        let workers = u64::from(self.wanted(job));
        let gain = u64::from(loss.checked_sub(self.loss(shares))?).saturating_mul(workers);
        let stay = |shares: &BTreeMap<usize, u32>| {
            let each = shares.iter().map(|(&node, &count)| u64::from(Self::stays(job, node, count, running)));
            each.fold(0_u64, u64::saturating_add)
        };
        // Against the placement as it is now: workers placed in this very round move for free.
        let moved = self.homes.get(job).map_or(0, stay).saturating_sub(stay(shares));
        let (others_moved, others_restarted) = evicted;
        let moves = moved.saturating_add(others_moved.into()).saturating_mul(self.prices.migration.into());
        let stopped = if moved > 0 { workers } else { 0 }.saturating_add(others_restarted.into());
        let price = moves.saturating_add(stopped.saturating_mul(self.prices.restart.into()));
        gain.checked_sub(price).filter(|&net| net > 0)
    }

    /// All of the job into a smaller part of the topology, in the room there is.
    fn gather(&self, job: usize, loss: u32, running: &[BTreeMap<usize, u32>]) -> Option<Relocation> {
        let workers = self.homes.get(job)?.values().fold(0_u32, |sum, &c| sum.saturating_add(c));
        let eligible = self.eligible(job);
        let room = |occupancy: &Self, node: usize| occupancy.free(node).saturating_add(occupancy.on(job, node));
        // One node: the one that keeps most of the job, then the fullest.
        let mut whole: Vec<usize> = eligible.iter().copied().filter(|&node| room(self, node) >= workers).collect();
        whole.sort_by_key(|&node| (std::cmp::Reverse(self.on(job, node)), self.free(node), node));
        let shares = if let Some(&node) = whole.first() {
            BTreeMap::from([(node, workers)])
        } else {
            let nodes = self.tightest(workers, &eligible, room)?;
            self.spread_over(job, workers, nodes)
        };
        let net = self.net(job, loss, &shares, running, (0, 0))?;
        Some(Relocation { net, shares, evictions: Vec::new() })
    }

    /// Shares on these nodes: those that keep most of the job first, so that few nodes are used and few workers move.
    fn spread_over(&self, job: usize, workers: u32, mut nodes: Vec<usize>) -> BTreeMap<usize, u32> {
        nodes.sort_by_key(|&node| (std::cmp::Reverse(self.on(job, node)), std::cmp::Reverse(self.free(node)), node));
        let mut left = workers;
        let mut shares = BTreeMap::new();
        for node in nodes {
            let share = self.free(node).saturating_add(self.on(job, node)).min(left);
            if share > 0 {
                shares.insert(node, share);
                left = left.saturating_sub(share);
            }
        }
        shares
    }

    /// All of the job onto one node that is large enough but not free enough: small neighbours make room.
    fn make_room(&self, job: usize, loss: u32, running: &[BTreeMap<usize, u32>]) -> Option<Relocation> {
        const TRIED: usize = 8; // nodes that lack least; more would cost time and rarely help
        let workers = self.homes.get(job)?.values().fold(0_u32, |sum, &c| sum.saturating_add(c));
        let lacking = |&node: &usize| workers.saturating_sub(self.free(node)).saturating_sub(self.on(job, node));
        let large = |&node: &usize| self.nodes.get(node).is_some_and(|n| n.slots >= workers);
        let mut candidates: Vec<usize> = self.eligible(job).into_iter().filter(large).collect();
        candidates.retain(|node| lacking(node) > 0);
        candidates.sort_by_key(|node| (lacking(node), std::cmp::Reverse(self.on(job, *node)), *node));
        let change = |&node: &usize| {
            let evictions = self.evict(job, node, lacking(&node))?;
            let moved = |e: &Eviction| Self::stays(e.job, e.from, e.count, running);
            let sum = |of: &dyn Fn(&Eviction) -> u32| evictions.iter().fold(0_u32, |sum, e| sum.saturating_add(of(e)));
            let stopped = |e: &Eviction| if moved(e) > 0 { self.wanted(e.job) } else { 0 };
            let shares = BTreeMap::from([(node, workers)]);
            let net = self.net(job, loss, &shares, running, (sum(&moved), sum(&stopped)))?;
            Some(Relocation { net, shares, evictions })
        };
        let changes = candidates.iter().take(TRIED).filter_map(change);
        changes.reduce(|best, next| if next.net > best.net { next } else { best })
    }

    /// Whole jobs of at most so many workers that leave a node for others where they fit; the smallest first.
    fn evict(&self, job: usize, node: usize, lacking: u32) -> Option<Vec<Eviction>> {
        let here = &self.bins.get(node)?.jobs;
        let alone = |other: usize| self.is_plain(other) && self.homes.get(other).is_some_and(|home| home.len() == 1);
        let mut small: Vec<(u32, usize)> = here
            .iter()
            .filter(|&(&other, _)| other != job && alone(other))
            .map(|(&other, &count)| (count, other))
            .collect();
        small.sort_unstable();
        let mut room: BTreeMap<usize, u32> = BTreeMap::new(); // of the nodes used, as it shrinks
        // What the job gives up elsewhere is room, too.
        let free = |room: &BTreeMap<usize, u32>, at: usize| {
            room.get(&at).copied().unwrap_or_else(|| self.free(at).saturating_add(self.on(job, at)))
        };
        let mut evictions = Vec::new();
        let mut left = lacking;
        for (count, other) in small {
            if left == 0 {
                break;
            }
            let fits = |&at: &usize| at != node && free(&room, at) >= count;
            let to = self.eligible(other).into_iter().filter(fits).min_by_key(|&at| (free(&room, at), at))?;
            room.insert(to, free(&room, to).saturating_sub(count));
            evictions.push(Eviction { job: other, from: node, to, count });
            left = left.saturating_sub(count);
        }
        (left == 0).then_some(evictions)
    }

    fn carry_out(&mut self, job: usize, change: &Relocation) {
        let old = self.homes.get(job).cloned().unwrap_or_default();
        for (&node, &count) in &old {
            if let Some(bin) = self.bins.get_mut(node) {
                bin.give_back(plain(job), count);
            }
        }
        for eviction in &change.evictions {
            if let Some(bin) = self.bins.get_mut(eviction.from) {
                bin.give_back(plain(eviction.job), eviction.count);
            }
            if let Some(bin) = self.bins.get_mut(eviction.to) {
                bin.take(plain(eviction.job), eviction.count);
            }
            self.refresh(eviction.job, &[eviction.from, eviction.to]);
        }
        for (&node, &count) in &change.shares {
            if let Some(bin) = self.bins.get_mut(node) {
                bin.take(plain(job), count);
            }
        }
        let touched: Vec<usize> = old.keys().chain(change.shares.keys()).copied().collect();
        self.refresh(job, &touched);
    }
}

/// Move of one job to nodes that suit it better.
struct Relocation {
    /// Gain after all prices.
    net: u64,
    /// Workers by node.
    shares: BTreeMap<usize, u32>,
    /// Jobs that make room.
    evictions: Vec<Eviction>,
}

/// A whole small job that moves from one node to another.
struct Eviction {
    job: usize,
    from: usize,
    to: usize,
    count: u32,
}
