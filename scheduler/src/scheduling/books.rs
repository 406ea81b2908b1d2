//! Use of each queue and cohort, and what is left to each within all limits up to the root.
//!
//! One account per queue or cohort and GPU type. Each first uses what it does not lend; what it uses beyond counts in its cohort,
//! which holds what its members lend. So one sum per account keeps all limits at once. Decides nothing. Tests: at the end of
//! this file.

use std::collections::BTreeMap;

use crate::scheduling::queue::QueueSnapshot;
use crate::scheduling::snapshot::Pools;
use crate::units::GpuType;

/// Quota of a queue without one: more GPUs than any snapshot has.
const UNLIMITED: u64 = u32::MAX as u64;

/// Account of one queue or cohort for one GPU type.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    parent: Option<usize>,
    /// GPUs of its own, with what its members lend.
    quota: u64,
    /// The part that it does not lend.
    kept: u64,
    /// Most that it may use beyond its quota.
    borrowing: u64,
    used: u64,
}

impl Account {
    /// Use that counts in the cohort.
    fn beyond(&self) -> u64 {
        self.used.saturating_sub(self.kept)
    }
}

/// The accounts.
#[derive(Debug, Clone, Default)]
pub struct Books {
    accounts: BTreeMap<GpuType, Vec<Account>>,
}

impl Books {
    /// Opens accounts for the types of `pools`.
    pub fn new(queues: &[QueueSnapshot], pools: &Pools) -> Self {
        let order = members_first(queues);
        let open = |gpu_type: GpuType| {
            let mut accounts: Vec<Account> = vec![Account::default(); queues.len()];
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
                if let Some(account) = accounts.get_mut(place) {
                    *account = Account { parent, quota, kept: quota.saturating_sub(lends), borrowing, used: 0 };
                }
                if let Some(sum) = parent.and_then(|parent| lent.get_mut(parent)) {
                    *sum = sum.saturating_add(lends);
                }
            }
            accounts
        };
        Self { accounts: pools.keys().map(|&gpu_type| (gpu_type, open(gpu_type))).collect() }
    }

    fn account(&self, queue: usize, gpu_type: GpuType) -> Option<&Account> {
        self.accounts.get(&gpu_type)?.get(queue)
    }

    /// Returns the GPUs that a queue uses; of a cohort, those that its members use beyond what they keep.
    pub(super) fn used(&self, queue: usize, gpu_type: GpuType) -> u64 {
        self.account(queue, gpu_type).map_or(0, |account| account.used)
    }

    /// Returns the number of GPUs that a queue may use more, within all limits.
    pub fn left(&self, queue: usize, gpu_type: GpuType) -> u32 {
        let left = self.account(queue, gpu_type).map_or(0, |account| self.left_of(account, gpu_type));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn left_of(&self, account: &Account, gpu_type: GpuType) -> u64 {
        let parent = account.parent.and_then(|parent| self.account(parent, gpu_type));
        let Some(parent) = parent else { return account.quota.saturating_sub(account.used) };
        let own = account.kept.saturating_sub(account.used);
        // Of what the cohort holds a member may use what it lent itself, and what it may borrow.
        let most = account.quota.saturating_sub(account.kept).saturating_add(account.borrowing);
        let more = most.saturating_sub(account.beyond());
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
        let Some(accounts) = self.accounts.get_mut(&gpu_type) else { return };
        let Some(account) = accounts.get_mut(queue) else { return };
        let before = account.beyond();
        account.used = change(account.used);
        let (mut before, mut after, mut next) = (before, account.beyond(), account.parent);
        // Members stand before their cohorts, so this ends at the root.
        while let Some(account) = next.and_then(|place| accounts.get_mut(place))
            && before != after
        {
            let was = account.beyond();
            account.used = account.used.saturating_add(after).saturating_sub(before);
            (before, after, next) = (was, account.beyond(), account.parent);
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

    fn books(queues: &[QueueSnapshot]) -> Books {
        Books::new(queues, &[(TYPE, 100)].into())
    }

    #[test]
    fn a_queue_borrows_what_is_lent_within_its_limit() {
        let quota = |nominal, borrowing, lending| Quota { nominal, borrowing, lending };
        let queues = [
            queue("cohort", None, Quota::default()),
            queue("a", Some(0), quota(10, 6, None)),
            queue("b", Some(0), quota(10, 0, Some(4))),
        ];
        let mut books = books(&queues);
        assert_eq!([1, 2].map(|q| books.left(q, TYPE)), [14, 10]);
        books.charge(1, TYPE, 14);
        assert_eq!([1, 2].map(|q| books.left(q, TYPE)), [0, 6], "four of b are out");
        books.release(1, TYPE, 4);
        books.charge(2, TYPE, 8);
        assert_eq!([1, 2].map(|q| books.left(q, TYPE)), [2, 2]);
        books.release(2, TYPE, 8);
        books.charge(1, TYPE, 90);
        assert_eq!([1, 2].map(|q| books.left(q, TYPE)), [0, 6], "beyond all limits: b keeps what it does not lend");
    }

    #[test]
    fn limits_hold_up_to_the_root() {
        let queues = [
            queue("all", None, Quota::of(5)),
            queue("left", Some(0), Quota { nominal: 0, borrowing: 3, lending: Some(2) }),
            queue("l1", Some(1), Quota { nominal: 4, borrowing: 99, lending: None }),
            queue("r1", Some(0), Quota { nominal: 8, borrowing: 99, lending: None }),
        ];
        let mut books = books(&queues);
        // Four of its own, and three that its cohort may borrow.
        assert_eq!(books.left(2, TYPE), 7);
        // Eight of its own, five of the root's, two that the other cohort lends.
        assert_eq!(books.left(3, TYPE), 15);
        books.charge(3, TYPE, 14);
        assert_eq!(books.left(2, TYPE), 3);
    }

    #[test]
    fn without_a_quota_there_is_no_limit_and_nothing_is_lent() {
        let queues = [
            QueueSnapshot { quota: None, ..queue("root", None, Quota::default()) },
            queue("loop", Some(2), Quota::of(3)),
            queue("loop2", Some(1), Quota::of(4)),
        ];
        let books = books(&queues);
        assert_eq!([0, 1, 2].map(|q| books.left(q, TYPE)), [u32::MAX, 3, 4]);
    }
}
