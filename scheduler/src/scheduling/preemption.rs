//! Checks preemption: every claim that loses workers is matched with one that gains as many and may take them.
//!
//! A loss without a match is not made: the claim is protected, and another attempt made. So every GPU that is taken away is
//! used. Tests: through
//! [`super::decide`].

use std::collections::{BTreeMap, BTreeSet};

use crate::job::Grant;
use crate::scheduling::info::{Info, Workloads};
use crate::scheduling::ordering::Limits;
use crate::scheduling::queue::{QueueSettings, QueueSnapshot, Reclaim, WithinQueue};
use crate::scheduling::snapshot::{Pools, add, count};
use crate::units::GpuType;

/// Matches of a decision.
#[derive(Debug, Clone, Default)]
pub(super) struct Matches {
    /// The claim that gains, by the claim that loses.
    pub(super) beneficiaries: BTreeMap<usize, usize>,
    /// Claims that lose without a match.
    pub(super) unmatched: Vec<usize>,
    /// Claims from which a gainer might take, but which are on nodes that it cannot use.
    pub(super) misplaced: BTreeSet<usize>,
}

/// GPUs that a claim gains.
struct Gain {
    place: usize,
    all: u32,
    /// The part that is of its queue's own quota, and may be taken back from others.
    entitled: u32,
}

/// Gains by GPU type, in the order of the queues.
type Gains = BTreeMap<GpuType, Vec<Gain>>;

/// Returns the GPUs that a claim has both before and after.
fn kept(info: &Info, grant: Grant) -> u32 {
    if grant.gpu_type == info.held.gpu_type { grant.gpus.min(info.held.gpus) } else { 0 }
}

/// Checks which claim may take GPUs from which, by the use of GPUs before a decision.
pub(super) struct PreemptionChecker<'a> {
    queues: &'a [QueueSnapshot],
    workloads: &'a Workloads,
    before: BTreeMap<usize, Pools>,
    /// Highest priority in each queue.
    highest: BTreeMap<usize, i32>,
}

impl<'a> PreemptionChecker<'a> {
    pub(super) fn new(queues: &'a [QueueSnapshot], workloads: &'a Workloads) -> Self {
        let mut before: BTreeMap<usize, Pools> = BTreeMap::new();
        let mut highest: BTreeMap<usize, i32> = BTreeMap::new();
        for info in &workloads.infos {
            if let Some(queue) = info.queue {
                add(before.entry(queue).or_default(), info.held.gpu_type, info.held.gpus);
                let highest = highest.entry(queue).or_insert(info.priority);
                *highest = info.priority.max(*highest);
            }
        }
        Self { queues, workloads, before, highest }
    }

    /// Matches losses with gains: the last claim in the order loses first, the first one gains first.
    pub(super) fn matches(&self, grants: &[Grant], limits: &Limits) -> Matches {
        let (mut gains, losses) = self.differences(grants, limits);
        let mut matches = Matches::default();
        for (victim, loss) in losses.into_iter().rev() {
            let Some(info) = self.workloads.infos.get(victim) else { continue };
            let halted = grants.get(victim).is_none_or(|grant| grant.is_none());
            let gains = gains.entry(info.held.gpu_type).or_default();
            let mut left = loss;
            let mut first = None;
            for gain in gains.iter_mut() {
                let Some(gainer) = self.workloads.infos.get(gain.place) else { continue };
                let is_own = gainer.queue == info.queue;
                let most = if is_own { gain.all } else { gain.entitled }.min(left);
                let is_allowed = most > 0 && self.may_take(gainer, info, halted);
                if is_allowed && !self.helps(gainer, gain.all, info) {
                    matches.misplaced.insert(victim);
                    continue;
                }
                if is_allowed {
                    left = left.saturating_sub(most);
                    gain.all = gain.all.saturating_sub(most);
                    gain.entitled = gain.entitled.min(gain.all);
                    first = first.or(Some(gain.place));
                }
                if left == 0 {
                    break;
                }
            }
            gains.retain(|gain| gain.all > 0);
            match first {
                Some(gainer) => {
                    matches.beneficiaries.insert(victim, gainer);
                }
                None => matches.unmatched.push(victim),
            }
        }
        matches
    }

    /// Returns the gains by GPU type, and the losses, in the order of the queues.
    fn differences(&self, grants: &[Grant], limits: &Limits) -> (Gains, Vec<(usize, u32)>) {
        let mut gains = Gains::new();
        let mut losses: Vec<(usize, u32)> = Vec::new();
        let mut own = self.own(grants);
        let mut order: Vec<usize> = (0..grants.len()).collect();
        order.sort_by_key(|&place| self.workloads.rank.get(place).copied());
        for place in order {
            let (Some(info), Some(&grant)) = (self.workloads.infos.get(place), grants.get(place)) else { continue };
            let kept = kept(info, grant);
            if grant.gpus > kept {
                let all = grant.gpus.saturating_sub(kept);
                let room = own.entry((info.queue, grant.gpu_type)).or_default();
                // A gang that has to borrow in order to start takes nothing back from other queues, which may do the same.
                let entitled = if kept == 0 && info.min > *room { 0 } else { all.min(*room) };
                *room = room.saturating_sub(entitled);
                gains.entry(grant.gpu_type).or_default().push(Gain { place, all, entitled });
            }
            let is_alike = grant.gpu_type == info.held.gpu_type || grant.is_none();
            let is_lost = info.lost && (limits.out.contains(&place) || limits.loose.contains(&place));
            if is_alike && grant.gpus < info.held.gpus && !is_lost {
                losses.push((place, info.held.gpus.saturating_sub(grant.gpus)));
            }
        }
        (gains, losses)
    }

    /// Returns the GPUs of each queue's own quota that its claims leave before any of them gains.
    fn own(&self, grants: &[Grant]) -> BTreeMap<(Option<usize>, GpuType), u32> {
        let mut kept_by: BTreeMap<(Option<usize>, GpuType), u32> = BTreeMap::new();
        for (info, &grant) in self.workloads.infos.iter().zip(grants) {
            let sum = kept_by.entry((info.queue, grant.gpu_type)).or_default();
            *sum = sum.saturating_add(kept(info, grant));
        }
        let left = |((queue, gpu_type), kept): ((Option<usize>, GpuType), u32)| {
            let quota = queue.and_then(|queue| self.queues.get(queue)).map(|queue| queue.quota(gpu_type));
            let nominal = quota.map_or(0, |quota| quota.map_or(u32::MAX, |quota| quota.nominal));
            ((queue, gpu_type), nominal.saturating_sub(kept))
        };
        kept_by.into_iter().map(left).collect()
    }

    fn settings(&self, info: &Info) -> Option<(usize, &QueueSnapshot, &QueueSettings)> {
        let place = info.queue?;
        let queue = self.queues.get(place)?;
        Some((place, queue, queue.settings.as_ref()?))
    }

    /// Returns true if no claim may halt this one.
    pub(super) fn is_safe(&self, info: &Info) -> bool {
        let Some((own, queue, settings)) = self.settings(info) else { return true };
        let is_highest = self.highest.get(&own).is_none_or(|&highest| highest <= info.priority);
        let within = match settings.within {
            WithinQueue::Any => false,
            WithinQueue::LowerPriority => is_highest,
            WithinQueue::Never => true,
        };
        let gpu_type = info.held.gpu_type;
        let held = self.before.get(&own).map_or(0, |pools| count(pools, gpu_type));
        let borrows = queue.quota(gpu_type).is_some_and(|quota| held > quota.nominal);
        let reclaims = |(place, other): (usize, &QueueSnapshot)| {
            let asks = other.settings.as_ref().is_some_and(|settings| settings.reclaim != Reclaim::Never);
            place != own && asks && self.root(place) == self.root(own)
        };
        within && !(borrows && self.queues.iter().enumerate().any(reclaims))
    }

    /// Returns true if the settings let `gainer` have GPUs of `victim`.
    fn may_take(&self, gainer: &Info, victim: &Info, halted: bool) -> bool {
        let (Some((own, _, settings)), Some((other, lender, _))) = (self.settings(gainer), self.settings(victim))
        else {
            return false;
        };
        let is_higher = gainer.priority > victim.priority;
        if own == other {
            return match settings.within {
                WithinQueue::Any => true,
                WithinQueue::LowerPriority => is_higher || !halted,
                WithinQueue::Never => !halted,
            };
        }
        let gpu_type = victim.held.gpu_type;
        let held = |place: usize| self.before.get(&place).map_or(0, |pools| count(pools, gpu_type));
        let nominal = lender.quota(gpu_type).map_or(u32::MAX, |quota| quota.nominal);
        let is_reclaim = self.root(own) == self.root(other) && held(other) > nominal;
        is_reclaim
            && match settings.reclaim {
                Reclaim::Any => true,
                Reclaim::LowerPriority => is_higher,
                Reclaim::Never => false,
            }
    }

    /// Returns true if what a victim has is of use to a claim that gains GPUs: it can use a node of the victim, or has room without it and
    /// lacks quota alone.
    fn helps(&self, gainer: &Info, gpus: u32, victim: &Info) -> bool {
        let has_room =
            || self.workloads.reaches.free(gainer.reach, victim.held.gpu_type).is_some_and(|free| free >= gpus);
        self.workloads.could_use(gainer, victim) || has_room()
    }

    fn root(&self, place: usize) -> usize {
        let mut at = place;
        for _ in 0..self.queues.len() {
            match self.queues.get(at).and_then(|queue| queue.parent) {
                Some(parent) if parent < self.queues.len() => at = parent,
                Some(_) | None => break,
            }
        }
        at
    }
}
