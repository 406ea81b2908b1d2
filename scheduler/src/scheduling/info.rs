//! Reads the snapshot: of each claim its sizes in GPUs, what it holds, whether it may be changed, and its view for policies.
//!
//! The names are kueue's: `workload.Info` is a job with what its queue needs to know of it. Decides nothing about budgets. Tests: through [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;

use crate::job::{Grant, JobError, JobView};
use crate::placement::{Node, NodeSet};
use crate::scheduling::decision::Reason;
use crate::scheduling::queue::{QueueSettings, QueueSnapshot};
use crate::scheduling::reach::Reaches;
use crate::scheduling::resource_usage::ResourceUsage;
use crate::scheduling::snapshot::{Claim, Fixed, Pools, Sizes, Snapshot, add, count};
use crate::scheduling::steps::{common, view_in_steps};
use crate::units::{GpuType, Micros};

/// A claim with what follows from the snapshot.
#[derive(Debug, Clone)]
pub(super) struct Info {
    pub(super) id: Text,
    /// Index of its queue.
    pub(super) queue: Option<usize>,
    pub(super) width: u32,
    /// Fewest, usual and most GPUs; of a policy that is not elastic all are the usual ones.
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) home: GpuType,
    pub(super) priority: i32,
    pub(super) held: Grant,
    pub(super) on: Vec<Text>,
    /// Places of those nodes that are there, in the order of all names.
    pub(super) places: Vec<usize>,
    /// What each worker needs of its node besides GPUs.
    pub(super) needs: Arc<[u64]>,
    /// Nodes that it can use, as a place among the reaches; `None`: every node of its types.
    pub(super) reach: Option<usize>,
    /// True if a worker's node is gone.
    pub(super) lost: bool,
    /// True if no decision may change its size.
    pub(super) pinned: bool,
    /// True if it stays on its nodes, also where they lack room.
    pub(super) placed: bool,
    /// Reason for which it takes no part.
    pub(super) barred: Option<Reason>,
    /// End of the time for which it is left alone after a change.
    pub(super) protected_until: Option<Micros>,
    /// Its view, in steps of its queue.
    pub(super) view: JobView,
}

impl Info {
    pub(super) const fn is_running(&self) -> bool {
        self.held.gpus > 0
    }

    /// Returns true if it may use GPUs of this type.
    pub(super) fn can_use(&self, gpu_type: GpuType) -> bool {
        self.view.speeds.on(gpu_type).is_some()
    }
}

/// All claims of a snapshot, in their orders.
#[derive(Debug)]
pub(super) struct Workloads {
    /// In the order of the snapshot.
    pub(super) infos: Vec<Info>,
    /// Rank of each in the order of all queues.
    pub(super) rank: Vec<u32>,
    /// Claims of each queue, in the order of the queue.
    pub(super) members: BTreeMap<usize, Vec<usize>>,
    /// Unit in which each queue is decided, in GPUs.
    pub(super) steps: BTreeMap<usize, u32>,
    /// Most GPUs that each queue may ever use.
    pub(super) most: BTreeMap<usize, Pools>,
    /// Nodes that claims can use.
    pub(super) reaches: Reaches,
}

impl Workloads {
    pub(super) fn new(snapshot: &Snapshot<'_>, types: &Pools, doubt: u32) -> Self {
        let settings = |claim: &Claim<'_>| {
            let queue = claim.queue?;
            Some((queue, snapshot.queues.get(queue)?.settings.as_ref()?))
        };
        let mut widths: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for claim in snapshot.claims {
            if let Some((queue, _)) = settings(claim) {
                widths.entry(queue).or_default().push(claim.width.max(1));
            }
        }
        let steps: BTreeMap<usize, u32> = widths.into_iter().map(|(queue, all)| (queue, common(all))).collect();
        let empty = ResourceUsage::new(snapshot.queues, types);
        let most = |&queue: &usize| (queue, types.keys().map(|&t| (t, empty.left(queue, t))).collect());
        let most: BTreeMap<usize, Pools> = steps.keys().map(most).collect();
        let nodes: BTreeMap<&str, &Node> = snapshot.nodes.iter().map(|node| (&*node.name, node)).collect();
        let (reaches, of) = Reaches::new(snapshot);
        let mut held_together = HeldTogether::new(&nodes);
        let mut infos: Vec<Info> = (snapshot.claims.iter().zip(of))
            .map(|(claim, reach)| {
                let settings = settings(claim);
                let step = settings.and_then(|(queue, _)| steps.get(&queue)).copied().unwrap_or(1);
                let places = reaches.places(claim.held);
                let mut info = Info { places, reach, ..info(snapshot.now, claim, settings, &nodes, (step, doubt)) };
                if info.barred.is_none() {
                    let most = settings.and_then(|(queue, _)| most.get(&queue));
                    let workers = held_together.workers(&reaches, &info);
                    info.barred = infeasible(&info, most, &workers);
                }
                info.pinned |= info.barred.is_some();
                info
            })
            .collect();
        let order = queue_order(&mut infos, snapshot);
        let mut rank = vec![0_u32; infos.len()];
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (turn, place) in (0..).zip(order) {
            if let Some(slot) = rank.get_mut(place) {
                *slot = turn;
            }
            if let Some(queue) = infos.get(place).and_then(|info| info.queue) {
                members.entry(queue).or_default().push(place);
            }
        }
        Self { infos, rank, members, steps, most, reaches }
    }

    /// Returns the GPUs of a type on all nodes that a claim may use, and on the largest of them.
    pub(super) fn room(&self, info: &Info, gpu_type: GpuType) -> (u32, u32) {
        let rooms = self.reaches.rooms(info.reach).get(&gpu_type);
        let gpus = |(&slots, &number): (&u32, &u32)| slots.saturating_mul(number);
        let all = rooms.into_iter().flatten().map(gpus).fold(0, u32::saturating_add);
        (all, rooms.and_then(|rooms| rooms.last_key_value()).map_or(0, |(&slots, _)| slots))
    }

    /// Returns the nodes of the queues that are limited to a part of them: by their settings, or because none of their claims may use others.
    pub(super) fn limits(&self, queues: &[QueueSnapshot]) -> Vec<(usize, NodeSet)> {
        let limit = |(place, queue): (usize, &QueueSnapshot)| {
            let own = queue.settings.as_ref()?.nodes.as_ref();
            let own_members = self.members.get(&place).map_or(&[][..], Vec::as_slice);
            let reaches: BTreeSet<Option<usize>> =
                own_members.iter().filter_map(|&info| self.infos.get(info)).map(|info| info.reach).collect();
            let among = |reach: &Option<usize>| self.reaches.get(*reach).and_then(|reach| reach.among.as_ref());
            let parts: Option<Vec<&Arc<NodeSet>>> = reaches.iter().map(among).collect();
            let nodes = match parts.as_deref() {
                None | Some([]) => self.reaches.set(own?),
                Some(parts) => parts.iter().fold(NodeSet::default(), |mut all, part| {
                    all.extend(part);
                    all
                }),
            };
            Some((place, nodes))
        };
        queues.iter().enumerate().filter_map(limit).collect()
    }

    /// Counts what no claim holds on the nodes that claims can use.
    pub(super) fn count_free(&mut self, available: &AvailableNodes) {
        self.reaches.count(&self.infos, &available.nodes);
    }

    /// Returns true if a claim could use a node on which another one has workers.
    pub(super) fn could_use(&self, gainer: &Info, victim: &Info) -> bool {
        gainer.reach.is_none() || victim.places.iter().any(|place| self.reaches.uses(gainer.reach, *place))
    }
}

/// Returns the indices of claims by priority where it counts, submission and id. A second claim of one id is barred.
fn queue_order(infos: &mut [Info], snapshot: &Snapshot<'_>) -> Vec<usize> {
    let counts = |queue: Option<usize>| {
        let settings = queue.and_then(|queue| snapshot.queues.get(queue)).and_then(|queue| queue.settings.as_ref());
        settings.is_some_and(|settings| settings.by_priority)
    };
    let mut by_id: Vec<usize> = (0..infos.len()).collect();
    by_id.sort_by(|&a, &b| infos.get(a).map(|info| &info.id).cmp(&infos.get(b).map(|info| &info.id)).then(a.cmp(&b)));
    for (first, second) in by_id.iter().zip(by_id.iter().skip(1)) {
        let twice = infos.get(*first).zip(infos.get(*second)).is_some_and(|(a, b)| a.id == b.id);
        if let Some(info) = infos.get_mut(*second).filter(|_| twice) {
            info.barred = Some(Reason::faulty(&JobError::Duplicate));
            info.pinned = true;
        }
    }
    let key = |&place: &usize| {
        infos.get(place).map(|info| {
            let priority = if counts(info.queue) { info.priority } else { 0 };
            (std::cmp::Reverse(priority), info.view.submitted)
        })
    };
    let mut order = by_id;
    order.sort_by_cached_key(key); // stable: equal ones stay in id order
    order
}

/// Numbers of workers that all nodes of a reach could hold together if they were empty, by GPU type. Counts once for all claims of
/// one reach, width and needs.
#[derive(Debug)]
struct HeldTogether<'a> {
    /// All nodes, in the order of their names.
    nodes: Vec<&'a Node>,
    known: BTreeMap<ReachAndNeeds, Arc<Workers>>,
}

/// A reach, with the GPUs and the other needs of a worker.
type ReachAndNeeds = (Option<usize>, u32, Arc<[u64]>);

/// Numbers of workers by GPU type.
type Workers = BTreeMap<GpuType, u64>;

impl<'a> HeldTogether<'a> {
    fn new(nodes: &BTreeMap<&str, &'a Node>) -> Self {
        Self { nodes: nodes.values().copied().collect(), known: BTreeMap::new() }
    }

    fn workers(&mut self, reaches: &Reaches, info: &Info) -> Arc<Workers> {
        let key = (info.reach, info.width, info.needs.clone());
        let count = || {
            let among = reaches.get(info.reach).and_then(|reach| reach.among.as_ref());
            let is_among = |(place, _): &(usize, &&Node)| among.is_none_or(|places| places.contains(*place));
            let mut workers = Workers::new();
            for (_, node) in self.nodes.iter().enumerate().filter(is_among) {
                let sum = workers.entry(node.gpu_type).or_default();
                *sum = sum.saturating_add(node.workers(info.width, &info.needs).into());
            }
            Arc::new(workers)
        };
        self.known.entry(key).or_insert_with(count).clone()
    }
}

/// Returns the reason why a claim could not even start alone; `None`: it could. `workers`: those that all its nodes hold when empty.
fn infeasible(info: &Info, most: Option<&Pools>, workers: &Workers) -> Option<Reason> {
    let fits = |gpu_type: GpuType| {
        let workers = workers.get(&gpu_type).copied().unwrap_or_default();
        workers.saturating_mul(info.width.into()) >= info.min.into()
    };
    let allowed = |gpu_type: GpuType| most.is_none_or(|most| count(most, gpu_type) >= info.min);
    let mut types = info.view.speeds.iter().map(|(gpu_type, _)| *gpu_type);
    let (mut room, mut quota) = (false, false);
    if types.any(|gpu_type| {
        room |= fits(gpu_type);
        quota |= allowed(gpu_type);
        fits(gpu_type) && allowed(gpu_type)
    }) {
        return None;
    }
    Some(if room && !quota { Reason::NeverQuota } else { Reason::NeverNodes })
}

fn info(
    now: Micros,
    claim: &Claim<'_>,
    settings: Option<(usize, &QueueSettings)>,
    nodes: &BTreeMap<&str, &Node>,
    (step, doubt): (u32, u32),
) -> Info {
    let width = claim.width.max(1);
    let gpus = |workers: u32| workers.saturating_mul(width);
    let sizes = claim.sizes;
    let elastic = settings.is_some_and(|(_, settings)| settings.policy.is_elastic());
    let (min, num, max) = if elastic { (sizes.min, sizes.num, sizes.max) } else { (sizes.num, sizes.num, sizes.num) };
    let estimate = claim.estimate;
    let home = estimate.speeds.home().map_or(GpuType(0), |(home, _)| *home);
    let on_type = claim.held.iter().find_map(|node| nodes.get(&**node)).map_or(home, |node| node.gpu_type);
    let here = |name: &Text| nodes.get(&**name).is_some_and(|node| node.gpu_type == on_type);
    let workers = u32::try_from(claim.held.len()).unwrap_or(u32::MAX);
    let held = Grant::of(on_type, gpus(workers));
    let view = JobView {
        min: gpus(min),
        num: gpus(num),
        max: gpus(max),
        level: claim.level,
        submitted: claim.submitted,
        first_start: claim.usage.first_start,
        since: claim.usage.since,
        remaining: estimate.remaining,
        doubt: if estimate.expected.is_some() { doubt } else { 0 },
        expected: estimate.expected,
        done: estimate.done,
        tried: estimate.tried,
        attained: claim.usage.attained,
        ran: claim.usage.ran,
        spell: claim.usage.spell,
        restart_cost: estimate.restart_cost,
        held,
        changed: claim.usage.changed,
        speeds: estimate.speeds.clone(),
        ..JobView::waiting(claim.id.clone(), 1, 1, 1, claim.submitted)
    };
    let barred = match settings {
        None => Some(Reason::NoQueue),
        Some((_, settings)) => match view.check() {
            Err(error) => Some(Reason::faulty(&error)),
            Ok(()) if sizes.min == 0 || sizes.num < sizes.min || sizes.num > sizes.max => {
                let Sizes { min, num, max } = sizes;
                Some(Reason::faulty(&JobError::Sizes { min, num, max }))
            }
            Ok(()) if held.is_none() && claim.not_before > now => Some(Reason::BackOff(claim.not_before)),
            Ok(()) => settings.paused.then_some(Reason::Paused),
        },
    };
    // A decision is never reverted at the time it was made; a running claim is protected for longer.
    let least = Micros(1);
    let alone = match settings {
        Some((_, settings)) if !held.is_none() => settings.min_run.max(least),
        Some(_) | None => least,
    };
    let protected_until = claim.usage.changed.map(|changed| changed.plus(alone)).filter(|&until| until > now);
    Info {
        id: claim.id.clone(),
        queue: settings.map(|(queue, _)| queue),
        width,
        min: gpus(min),
        max: gpus(max),
        home,
        priority: claim.priority,
        held,
        on: claim.held.to_vec(),
        needs: claim.needs.into(),
        places: Vec::new(),
        reach: None,
        lost: !claim.held.iter().all(here),
        // A claim that holds nothing may start; it is fixed from then on.
        pinned: (claim.fixed != Fixed::No && !held.is_none()) || protected_until.is_some() || barred.is_some(),
        placed: claim.fixed == Fixed::Place,
        barred,
        protected_until,
        view: view_in_steps(view, step),
    }
}

/// Nodes by name with the room that can be used: without that of claims that stay, and of closed nodes without what is free.
#[derive(Debug, Clone)]
pub(super) struct AvailableNodes {
    pub(super) nodes: Vec<Node>,
    /// GPUs by type.
    pub(super) pools: Pools,
}

impl AvailableNodes {
    pub(super) fn new(snapshot: &Snapshot<'_>) -> Self {
        let mut fixed: BTreeMap<&str, u32> = BTreeMap::new();
        let mut held: BTreeMap<&str, u32> = BTreeMap::new();
        for claim in snapshot.claims {
            let map = if claim.fixed == Fixed::Place { &mut fixed } else { &mut held };
            for node in claim.held {
                let sum = map.entry(&**node).or_default();
                *sum = sum.saturating_add(claim.width.max(1));
            }
        }
        let on = |map: &BTreeMap<&str, u32>, node: &Node| map.get(&*node.name).copied().unwrap_or_default();
        let without_claim = snapshot.taken.iter().map(|(node, sums)| (&**node, sums.clone()));
        let mut taken: BTreeMap<&str, Vec<u64>> = without_claim.collect();
        for claim in snapshot.claims.iter().filter(|claim| claim.fixed == Fixed::Place && !claim.needs.is_empty()) {
            for node in claim.held {
                let sums = taken.entry(&**node).or_insert_with(|| vec![0; claim.needs.len()]);
                sums.iter_mut().zip(claim.needs).for_each(|(sum, need)| *sum = sum.saturating_add(*need));
            }
        }
        let usable = |node: &Node| {
            let slots = node.slots.saturating_sub(on(&fixed, node));
            let most = if snapshot.closed.contains(&node.name) { on(&held, node) } else { u32::MAX };
            let mut node = Node { slots: slots.min(most), ..node.clone() };
            node.use_others(taken.get(&*node.name).map_or(&[], Vec::as_slice), 1);
            node
        };
        let mut nodes: Vec<Node> = snapshot.nodes.iter().map(usable).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut pools = Pools::new();
        for node in &nodes {
            add(&mut pools, node.gpu_type, node.slots);
        }
        Self { nodes, pools }
    }
}
