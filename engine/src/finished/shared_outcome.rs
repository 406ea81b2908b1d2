//! Holds the outcome of a finished job: what jobs of one template have in common when they ended in the same way.
//!
//! Times, stamps, uids and the message of the ending are each job's own, and stand beside it. Tests: in `finished.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{CauseKind, Decision, Incarnation, Phase, ResourceVersion, SpecFact, Text, Timestamp, Uid};

use super::message::Message;
use crate::group::{Counter, Counters, Group, Slot};
use crate::text::share;

/// Uid of the pod that last left a slot, and the version as of which it was gone.
pub(super) type Gone = (Option<Uid>, ResourceVersion);

/// Members that jobs of one template have alike when they went the same way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SharedOutcome {
    pub(super) spec: Option<Arc<SpecFact>>,
    pub(super) valid: Option<Arc<SpecFact>>,
    pub(super) phase: Phase,
    pub(super) end_annotated: bool,
    /// Without its message.
    pub(super) decision: Option<Decision>,
    pub(super) milestones: Box<[(Phase, Message)]>,
    pub(super) trail: Box<[Message]>,
    pub(super) groups: Box<[(Text, FinishedGroup)]>,
    pub(super) finals: Box<[(Text, (u32, u32))]>,
}

/// A group of a finished job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FinishedGroup {
    slots: Box<[FinishedSlot]>,
    replicas: u32,
    restarts: u32,
    charged: u32,
    counters: Counters,
    missing: Box<[u32]>,
    missing_services: Box<[u32]>,
    done: Box<[u32]>,
    past: Incarnation,
    grown_from: Option<u32>,
    grown: Counters,
    details: Option<Box<GroupDetails>>,
}

/// Members that are empty in the groups of most finished jobs.
#[derive(Debug, Clone, Default, PartialEq)]
struct GroupDetails {
    to_evaluate: BTreeSet<u32>,
    delays: BTreeMap<u32, Timestamp>,
    lost: BTreeSet<u32>,
    outdated: BTreeSet<u32>,
    achieved: Option<Text>,
}

#[derive(Debug, Clone, PartialEq)]
struct FinishedSlot {
    incarnation: Incarnation,
    count: Option<u32>,
    done: bool,
    counter: Option<Counter>,
    details: Option<Box<SlotDetails>>,
}

/// Members that are empty in the slots of most finished jobs.
#[derive(Debug, Clone, Default, PartialEq)]
struct SlotDetails {
    pod: Option<Uid>,
    planned: bool,
    cancelled: bool,
    service: Option<Uid>,
    service_planned: bool,
    failures: BTreeMap<CauseKind, u32>,
    lost: bool,
}

impl SharedOutcome {
    /// Holds the names of the groups once: members read from a record or a checkpoint bring their own.
    pub(super) fn with_shared_names(mut self) -> Self {
        for (name, _) in &self.groups {
            self.finals.iter_mut().for_each(|(known, _)| share(known, name));
            if let Some(Decision::End { cause, .. }) = &mut self.decision {
                cause.slots.iter_mut().for_each(|slot| share(&mut slot.group, name));
            }
        }
        self
    }
}

/// Returns the groups of a job, and apart the pods that last left their slots.
pub(super) fn groups_of(groups: BTreeMap<Text, Box<Group>>) -> (Box<[(Text, FinishedGroup)]>, Vec<Gone>) {
    let mut gone = Vec::new();
    let groups = groups.into_iter().map(|(name, group)| (name, FinishedGroup::of(*group, &mut gone))).collect();
    (groups, gone)
}

/// Returns the groups that [`groups_of`] was called with.
pub(super) fn groups(groups: &[(Text, FinishedGroup)], gone: &[Gone]) -> BTreeMap<Text, Box<Group>> {
    let mut gone = gone.iter();
    groups.iter().map(|(name, group)| (name.clone(), Box::new(group.group(&mut gone)))).collect()
}

impl FinishedGroup {
    fn of(group: Group, gone: &mut Vec<Gone>) -> Self {
        let Group {
            slots,
            replicas,
            restarts,
            charged,
            counters,
            missing,
            missing_services,
            done,
            to_evaluate,
            delays,
            past,
            grown_from,
            grown,
            lost,
            outdated,
            achieved,
        } = group;
        let of_slot = |slot| {
            let Slot {
                incarnation,
                count,
                pod,
                planned,
                cancelled,
                done,
                service,
                service_planned,
                failures,
                last_gone,
                last_gone_rv,
                lost,
                counter,
                planned_on: _,
            } = slot;
            let details = SlotDetails { pod, planned, cancelled, service, service_planned, failures, lost };
            gone.push((last_gone, last_gone_rv));
            FinishedSlot {
                incarnation,
                count,
                done,
                counter,
                details: (details != SlotDetails::default()).then(|| Box::new(details)),
            }
        };
        let [missing, missing_services, done] = [missing, missing_services, done].map(|set| set.into_iter().collect());
        let details = GroupDetails { to_evaluate, delays, lost, outdated, achieved };
        let details = (details != GroupDetails::default()).then(|| Box::new(details));
        Self {
            slots: slots.into_iter().map(of_slot).collect(),
            replicas,
            restarts,
            charged,
            counters,
            missing,
            missing_services,
            done,
            past,
            grown_from,
            grown,
            details,
        }
    }

    fn group<'a>(&self, gone: &mut impl Iterator<Item = &'a Gone>) -> Group {
        let GroupDetails { to_evaluate, delays, lost, outdated, achieved } =
            self.details.as_deref().cloned().unwrap_or_default();
        Group {
            slots: self.slots.iter().map(|slot| slot.slot(gone.next().cloned().unwrap_or_default())).collect(),
            replicas: self.replicas,
            restarts: self.restarts,
            charged: self.charged,
            counters: self.counters,
            missing: self.missing.iter().copied().collect(),
            missing_services: self.missing_services.iter().copied().collect(),
            done: self.done.iter().copied().collect(),
            to_evaluate,
            delays,
            past: self.past,
            grown_from: self.grown_from,
            grown: self.grown,
            lost,
            outdated,
            achieved,
        }
    }
}

impl FinishedSlot {
    fn slot(&self, (last_gone, last_gone_rv): Gone) -> Slot {
        let SlotDetails { pod, planned, cancelled, service, service_planned, failures, lost } =
            self.details.as_deref().cloned().unwrap_or_default();
        Slot {
            incarnation: self.incarnation,
            count: self.count,
            pod,
            planned,
            cancelled,
            done: self.done,
            service,
            service_planned,
            failures,
            last_gone,
            last_gone_rv,
            lost,
            counter: self.counter,
            planned_on: None,
        }
    }
}
