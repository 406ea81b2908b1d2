//! Adds up the GPUs in use of each queue and cohort, and what is left to each within all limits up to the root.
//!
//! One sum per queue or cohort and GPU type. Each first uses what it does not lend; what it uses beyond counts in its cohort,
//! which holds what its members lend. So these sums keep all limits at once. Decides nothing. Tests: at the end of
//! this file.

use std::collections::BTreeMap;

use crate::scheduling::queue::QueueSnapshot;
use crate::scheduling::snapshot::Pools;
use crate::units::GpuType;

/// Quota of a queue without one: more GPUs than any snapshot has.
const UNLIMITED: u64 = u32::MAX as u64;

/// GPUs of one type in use by one queue or cohort.
#[derive(Debug, Clone, Copy, Default)]
struct QueueUsage {
    parent: Option<usize>,
    /// GPUs of its own, with what its members lend.
    quota: u64,
    /// The part that it does not lend.
    kept: u64,
    /// Most that it may use beyond its quota.
    borrowing: u64,
    used: u64,
}

impl QueueUsage {
    /// Returns the GPUs that count in the cohort.
    fn beyond(&self) -> u64 {
        self.used.saturating_sub(self.kept)
    }
}

/// GPUs in use by queue and type, with the limits of each queue.
#[derive(Debug, Clone, Default)]
pub struct ResourceUsage {
    queues: BTreeMap<GpuType, Vec<QueueUsage>>,
}

impl ResourceUsage {
    /// Returns the usage of queues that use nothing, for the types of `pools`.
    pub fn new(queues: &[QueueSnapshot], pools: &Pools) -> Self {
        let order = members_first(queues);
        let open = |gpu_type: GpuType| {
            let mut usages: Vec<QueueUsage> = vec![QueueUsage::default(); queues.len()];
            let mut lent = vec![0_u64; queues.len()];
            for &(place, parent) in &order {
                let Some(queue) = queues.get(place) else { continue };
                let own = queue.quota(gpu_type);
                let members = lent.get(place).copied().unwrap_or_default();
                // A queue without a quota has all there is, and shares none of it.
                let quota = own.map_or(UNLIMITED, |own| u64::from(own.nominal).saturating_add(members));
                let lends = own.map_or(0, |own| own.lending.map_or(quota, |lending| quota.min(lending.into())));
                let lends = if parent.is_some() { lends } else { quota };
                let borrowing = own.map_or(0, |own| own.borrowing.into());
                if let Some(queue) = usages.get_mut(place) {
                    *queue = QueueUsage { parent, quota, kept: quota.saturating_sub(lends), borrowing, used: 0 };
                }
                if let Some(sum) = parent.and_then(|parent| lent.get_mut(parent)) {
                    *sum = sum.saturating_add(lends);
                }
            }
            usages
        };
        Self { queues: pools.keys().map(|&gpu_type| (gpu_type, open(gpu_type))).collect() }
    }

    fn usage_of(&self, queue: usize, gpu_type: GpuType) -> Option<&QueueUsage> {
        self.queues.get(&gpu_type)?.get(queue)
    }

    /// Returns the GPUs that a queue uses; of a cohort, those that its members use beyond what they keep.
    pub(super) fn used(&self, queue: usize, gpu_type: GpuType) -> u64 {
        self.usage_of(queue, gpu_type).map_or(0, |queue| queue.used)
    }

    /// Returns the number of GPUs that a queue may use more, within all limits.
    pub fn left(&self, queue: usize, gpu_type: GpuType) -> u32 {
        let left = self.usage_of(queue, gpu_type).map_or(0, |queue| self.left_of(queue, gpu_type));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn left_of(&self, queue: &QueueUsage, gpu_type: GpuType) -> u64 {
        let parent = queue.parent.and_then(|parent| self.usage_of(parent, gpu_type));
        let Some(parent) = parent else { return queue.quota.saturating_sub(queue.used) };
        let own = queue.kept.saturating_sub(queue.used);
        // Of what the cohort holds a member may use what it lent itself, and what it may borrow.
        let most = queue.quota.saturating_sub(queue.kept).saturating_add(queue.borrowing);
        let more = most.saturating_sub(queue.beyond());
        own.saturating_add(more.min(self.left_of(parent, gpu_type)))
    }

    /// Adds GPUs to the use of a queue, also beyond a limit.
    pub fn charge(&mut self, queue: usize, gpu_type: GpuType, gpus: u32) {
        self.change(queue, gpu_type, |used| used.saturating_add(gpus.into()));
    }

    /// Subtracts GPUs from the use of a queue.
    pub(super) fn release(&mut self, queue: usize, gpu_type: GpuType, gpus: u32) {
        self.change(queue, gpu_type, |used| used.saturating_sub(gpus.into()));
    }

    fn change(&mut self, queue: usize, gpu_type: GpuType, change: impl Fn(u64) -> u64) {
        let Some(usages) = self.queues.get_mut(&gpu_type) else { return };
        let Some(queue) = usages.get_mut(queue) else { return };
        let before = queue.beyond();
        queue.used = change(queue.used);
        let (mut before, mut after, mut next) = (before, queue.beyond(), queue.parent);
        // Members stand before their cohorts, so this ends at the root.
        while let Some(queue) = next.and_then(|place| usages.get_mut(place))
            && before != after
        {
            let was = queue.beyond();
            queue.used = queue.used.saturating_add(after).saturating_sub(before);
            (before, after, next) = (was, queue.beyond(), queue.parent);
        }
    }
}

/// Returns the indices of queues and cohorts, members first, each with its cohort. A cohort inside itself counts as none.
fn members_first(queues: &[QueueSnapshot]) -> Vec<(usize, Option<usize>)> {
    let above = |place: usize| queues.get(place).and_then(|queue| queue.parent).filter(|&p| p < queues.len());
    let depth = |place: usize| {
        let mut depth = 0_usize;
        let mut at = place;
        while let Some(parent) = above(at) {
            depth = depth.saturating_add(1);
            at = parent;
            if depth > queues.len() {
                return None;
            }
        }
        Some(depth)
    };
    let mut order: Vec<(usize, usize, Option<usize>)> = (0..queues.len())
        .map(|place| depth(place).map_or((0, place, None), |depth| (depth, place, above(place))))
        .collect();
    order.sort_by_key(|&(depth, place, _)| (std::cmp::Reverse(depth), place));
    order.into_iter().map(|(_, place, parent)| (place, parent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::queue::Quota;

    const TYPE: GpuType = GpuType(0);

    fn queue(name: &str, parent: Option<usize>, quota: Quota) -> QueueSnapshot {
        let quota = Some([(TYPE, quota)].into());
        QueueSnapshot { name: name.into(), parent, quota, weight: 1, priority: 0, settings: None }
    }

    fn usage(queues: &[QueueSnapshot]) -> ResourceUsage {
        ResourceUsage::new(queues, &[(TYPE, 100)].into())
    }

    #[test]
    fn a_queue_borrows_what_is_lent_within_its_limit() {
        let quota = |nominal, borrowing, lending| Quota { nominal, borrowing, lending };
        let queues = [
            queue("cohort", None, Quota::default()),
            queue("a", Some(0), quota(10, 6, None)),
            queue("b", Some(0), quota(10, 0, Some(4))),
        ];
        let mut usage = usage(&queues);
        assert_eq!([1, 2].map(|q| usage.left(q, TYPE)), [14, 10]);
        usage.charge(1, TYPE, 14);
        assert_eq!([1, 2].map(|q| usage.left(q, TYPE)), [0, 6], "four of b are out");
        usage.release(1, TYPE, 4);
        usage.charge(2, TYPE, 8);
        assert_eq!([1, 2].map(|q| usage.left(q, TYPE)), [2, 2]);
        usage.release(2, TYPE, 8);
        usage.charge(1, TYPE, 90);
        assert_eq!([1, 2].map(|q| usage.left(q, TYPE)), [0, 6], "beyond all limits: b keeps what it does not lend");
    }

    #[test]
    fn limits_hold_up_to_the_root() {
        let queues = [
            queue("all", None, Quota::of(5)),
            queue("left", Some(0), Quota { nominal: 0, borrowing: 3, lending: Some(2) }),
            queue("l1", Some(1), Quota { nominal: 4, borrowing: 99, lending: None }),
            queue("r1", Some(0), Quota { nominal: 8, borrowing: 99, lending: None }),
        ];
        let mut usage = usage(&queues);
        // Four of its own, and three that its cohort may borrow.
        assert_eq!(usage.left(2, TYPE), 7);
        // Eight of its own, five of the root's, two that the other cohort lends.
        assert_eq!(usage.left(3, TYPE), 15);
        usage.charge(3, TYPE, 14);
        assert_eq!(usage.left(2, TYPE), 3);
    }

    #[test]
    fn without_a_quota_there_is_no_limit_and_nothing_is_lent() {
        let queues = [
            QueueSnapshot { quota: None, ..queue("root", None, Quota::default()) },
            queue("loop", Some(2), Quota::of(3)),
            queue("loop2", Some(1), Quota::of(4)),
        ];
        let usage = usage(&queues);
        assert_eq!([0, 1, 2].map(|q| usage.left(q, TYPE)), [u32::MAX, 3, 4]);
    }
}
