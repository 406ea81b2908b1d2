//! Replica groups of a job: their slots, the counters of pods by phase, and the index sets that [`crate::slots`] keeps.

use std::collections::{BTreeMap, BTreeSet};

use model::{GroupSpec, Incarnation, ResourceVersion, Text, Timestamp, Uid};

/// One replica group.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Slots by index. A slot past the number of replicas holds surplus.
    pub slots: Vec<Slot>,
    /// Number of replicas wanted.
    pub replicas: u32,
    /// Restarts shown: every restart that took the group along.
    pub restarts: u32,
    /// Restarts its own failures caused: what its limit counts.
    pub charged: u32,
    /// Pods in wanted slots by phase.
    pub counters: Counters,
    /// Wanted slots without pod, plan or success.
    pub missing: BTreeSet<u32>,
    /// Wanted slots without service or plan of one.
    pub missing_services: BTreeSet<u32>,
    /// Wanted slots that succeeded.
    pub done: BTreeSet<u32>,
    /// Wanted slots whose pod is to be evaluated: failed, on a bad node, or stuck in creation.
    pub to_evaluate: BTreeSet<u32>,
    /// Slots whose next pod is not created before this time: back-off of a restart.
    pub delays: BTreeMap<u32, Timestamp>,
    /// Greatest incarnation of the slots that were scaled away. New slots continue from it.
    pub past: Incarnation,
    /// Slots from this index on were added after the group's last restart. Forgotten once the job runs.
    pub grown_from: Option<u32>,
    /// Pods in those slots by phase.
    pub grown: Counters,
    /// Wanted slots whose pods failed for good.
    pub lost: BTreeSet<u32>,
    /// Wanted slots whose pod was made in another shape than the group's present one.
    pub outdated: BTreeSet<u32>,
    /// Last completed run of a group whose pods run once: the shape of the pods that succeeded.
    pub achieved: Option<Text>,
}

/// Pods by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pending without a node.
    pub pending: u32,
    /// Pending on a node.
    pub scheduled: u32,
    /// Running.
    pub active: u32,
    /// Succeeded.
    pub succeeded: u32,
    /// Failed or unknown.
    pub failed: u32,
}

/// Which counter a pod is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// [`Counters::pending`].
    Pending,
    /// [`Counters::scheduled`].
    Scheduled,
    /// [`Counters::active`].
    Active,
    /// [`Counters::succeeded`].
    Succeeded,
    /// [`Counters::failed`].
    Failed,
}

impl Counters {
    /// Moves one pod from a counter to another.
    pub(crate) fn shift(&mut self, from: Option<Counter>, to: Option<Counter>) {
        if let Some(from) = from {
            let n = self.get_mut(from);
            *n = n.saturating_sub(1);
        }
        if let Some(to) = to {
            let n = self.get_mut(to);
            *n = n.saturating_add(1);
        }
    }

    /// The counter of that name.
    pub fn get_mut(&mut self, counter: Counter) -> &mut u32 {
        match counter {
            Counter::Pending => &mut self.pending,
            Counter::Scheduled => &mut self.scheduled,
            Counter::Active => &mut self.active,
            Counter::Succeeded => &mut self.succeeded,
            Counter::Failed => &mut self.failed,
        }
    }
}

/// One place for a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    /// Incarnation of the newest pod decided or seen.
    pub incarnation: Incarnation,
    /// Restart count the next pod shows, where a restart set it; otherwise it shows its group's.
    pub count: Option<u32>,
    /// The pod that holds it.
    pub pod: Option<Uid>,
    /// Set if a creation is unresolved.
    pub planned: bool,
    /// Set if that creation was given up, so that it only needs to be found out whether it happened.
    pub cancelled: bool,
    /// Set if its pod succeeded; stays when the pod is collected afterwards.
    pub done: bool,
    /// The service that serves it.
    pub service: Option<Uid>,
    /// Set if the creation of a service is unresolved.
    pub service_planned: bool,
    /// Failures so far per kind of cause, for the back-off.
    pub failures: BTreeMap<model::CauseKind, u32>,
    /// Uid of the pod that last left it, so that late news of it is distinguished from a new pod.
    pub last_gone: Option<Uid>,
    /// Version as of which that pod was not shown any more; zero where that is not known. Later news of it is not late.
    pub last_gone_rv: ResourceVersion,
    /// Set if its pod failed for good; stays when the pod is collected afterwards.
    pub lost: bool,
    /// Which counter its pod is in.
    pub counter: Option<Counter>,
    /// Node of the share that the unresolved creation is for.
    pub planned_on: Option<Text>,
}

impl Group {
    /// The sets of indices of its slots.
    pub(crate) fn sets_mut(&mut self) -> [&mut BTreeSet<u32>; 6] {
        let Self { missing, missing_services, done, to_evaluate, lost, outdated, .. } = self;
        [missing, missing_services, done, to_evaluate, lost, outdated]
    }

    /// Holds the next pod of a slot back. A longer back-off that it waits for already stays.
    pub(crate) fn delay(&mut self, index: u32, until: Timestamp) {
        let at = self.delays.entry(index).or_default();
        *at = until.max(*at);
    }

    /// Returns true if its pods run once and have completed the present run.
    pub fn has_run(&self, spec: &GroupSpec) -> bool {
        spec.once && self.achieved.is_some() && self.achieved == spec.shape
    }

    /// The slot at an index.
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(index).ok()?)
    }

    /// Returns the pods that wait for a node and those that wait to start, without those of a restart.
    pub const fn starting(&self) -> (u32, u32) {
        let of = if self.restarts > 0 { &self.grown } else { &self.counters };
        (of.pending, of.scheduled)
    }

    /// Pods waiting to run after a restart, as users see them.
    pub fn restarting(&self) -> u32 {
        let (pending, scheduled) = self.starting();
        let c = self.counters;
        c.pending.saturating_sub(pending).saturating_add(c.scheduled.saturating_sub(scheduled))
    }

    /// The slots it has been given since its last restart are like any other.
    pub(crate) fn forget_growth(&mut self) {
        self.grown_from = None;
        self.grown = Counters::default();
    }

    /// Returns true if every wanted slot has a pod on a node, or one that ended.
    pub fn all_scheduled(&self) -> bool {
        let c = self.counters;
        let restarting = c.pending.saturating_sub(self.starting().0);
        let placed =
            [c.scheduled, c.active, c.succeeded, c.failed, restarting].iter().fold(0u32, |a, b| a.saturating_add(*b));
        placed == self.replicas
    }
}
