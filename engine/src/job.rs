//! Holds what is known of one job. Only [`crate::facts`] and [`crate::events`] change it.
//!
//! Counters and index sets are kept as facts come in, so that deciding a large job does not walk its pods. Values in
//! maps are boxed: a map node has room for eleven, and most jobs have fewer groups, pods and services than that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::fact::{Milestone, ReportedEnd};
use model::{
    Config, Decision, GroupSpec, Incarnation, JobKey, JobSpec, Missing, ObjectRef, Outcome, OwnedFact, OwnedRef, Phase,
    PodFact, PodPhase, Progress, QueueReport, ResourceVersion, SlotId, SpecFact, SpeedSample, Stamp, Text, Timestamp,
    Uid, UserCounts,
};

use crate::allocation::Allocation;
use crate::autoscaler::JobAutoscaler;
use crate::group::{Counter, Group, Slot};
use crate::object_state::ObjectState;
use crate::retry_counts::RetryCounts;
use crate::status_stamps::StatusStamps;
use crate::storage::JobStorage;

/// Milestones kept per job; older ones are dropped.
pub const MAX_MILESTONES: usize = 16;
/// Entries of a job's trail kept for `explain` after compaction.
pub const MAX_TRAIL: usize = 24;

/// One job.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// Existence, version and metadata of its object.
    pub object: ObjectState,
    /// Latest spec as seen, valid or not.
    pub spec: Option<Arc<SpecFact>>,
    /// Latest valid spec.
    pub valid: Option<Arc<SpecFact>>,
    /// Phase shown.
    pub phase: Phase,
    /// Changes of phase shown, oldest first, the last is the current one.
    pub milestones: VecDeque<Milestone>,
    /// The restart whose old pods are still going, or the ending.
    pub decision: Option<Decision>,
    /// Record of that decision: its deletions wait until the mirror holds it.
    pub decided: Stamp,
    /// Replica groups by (lower-case) name; a group removed from the spec stays until its pods are gone.
    pub groups: BTreeMap<Text, Box<Group>>,
    /// Its pods.
    pub pods: BTreeMap<Uid, Box<Pod>>,
    /// Its services.
    pub services: BTreeMap<Uid, Box<Service>>,
    /// Pods that no slot of the spec keeps.
    pub surplus_pods: BTreeSet<Uid>,
    /// Services that no slot of the spec keeps.
    pub surplus_services: BTreeSet<Uid>,
    /// Pods with a pending deletion.
    pub deleting_pods: BTreeSet<Uid>,
    /// Calls about its objects that did not succeed, by object.
    pub attempts: BTreeMap<ObjectRef, Attempt>,
    /// Slots with an unresolved creation of a pod.
    pub planned_pods: BTreeSet<SlotId>,
    /// Slots with an unresolved creation of a service.
    pub planned_services: BTreeSet<SlotId>,
    /// No pod is created before this: a back-off that is known for the whole job only, from an older build or a short mirror.
    pub retry_at: Option<Timestamp>,
    /// Stamps of its status: of the next write, acknowledged, and observed.
    pub stamps: StatusStamps,
    /// First time it was pending.
    pub started_at: Option<Timestamp>,
    /// First time every pod ran at once.
    pub running_at: Option<Timestamp>,
    /// First time any pod ran: the time limit counts from here.
    pub first_running_at: Option<Timestamp>,
    /// Since when all pods are scheduled but not all have started, in the present attempt.
    pub creating_at: Option<Timestamp>,
    /// Why a pod cannot be scheduled: the pod and the scheduler's words.
    pub unschedulable: Option<(Uid, Text)>,
    /// Why it can never end as it stands.
    pub stalled: Option<Text>,
    /// Record of its adoption from its object.
    pub adopted: Stamp,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
    /// Succeeded and failed pods per group when the ending was decided.
    pub finals: BTreeMap<Text, (u32, u32)>,
    /// Set by builds that could record a fact of another scope for a job, in a checkpoint of theirs: no commands. This build never sets it.
    pub quarantine: Option<Text>,
    /// Earliest time at which something is to be decided or tried again.
    pub deadline: Option<Timestamp>,
    /// From an adopted mirror: pods of the group with a lower incarnation are to go.
    pub waits_below: BTreeMap<Text, Incarnation>,
    /// From an adopted mirror: restart counts of slots without a pod, by slot.
    pub slot_counts: BTreeMap<String, u32>,
    /// Uids of pods that were gone before they were known, newest last.
    pub dead: VecDeque<Uid>,
    /// Orphans: since when it has pods, services or other objects, but no object of its own.
    pub orphan_since: Option<Timestamp>,
    /// The last decisions and what caused them, oldest first.
    pub trail: VecDeque<Trail>,
    /// Time of its last admission, where its time limit counts from that.
    pub admitted_at: Option<Timestamp>,
    /// Time since which its time limit stands still: it lost its admission, and waits for another one.
    pub limit_paused_at: Option<Timestamp>,
    /// Restarts of containers, and rounds in which failed pods were replaced.
    pub retry_counts: RetryCounts,
    /// Objects it owns besides pods and services of slots: those observed, and those to be created.
    pub owned: BTreeMap<OwnedRef, Box<Owned>>,
    /// Finalizers on its object, where its API has one.
    pub finalizers: Vec<Text>,
    /// Set if its API's finalizer is among them.
    pub finalized: bool,
    /// End that the controller of its pods reports, where that is another one.
    pub reported_end: Option<Box<ReportedEnd>>,
    /// Places that it has from the queues.
    pub allocation: Allocation,
    /// Report of the jobs in it; present for a queue object only.
    pub report: Option<Box<QueueReport>>,
    /// Progress that its program reported last.
    pub progress: Option<Box<Progress>>,
    /// Speed samples of jobs that have ended, by category and resource; of a queue object only.
    pub speed_samples: Vec<SpeedSample>,
    /// Counts of the jobs that reference its object, as that shows them.
    pub users: UserCounts,
    /// Time of its turn, where it waits for one before it begins.
    pub dequeued_at: Option<Timestamp>,
    /// Its autoscaler, once it has one.
    pub autoscaler: Option<Box<JobAutoscaler>>,
    /// The node that was searched for its storage, once it was.
    pub storage: Option<Box<JobStorage>>,
    /// Reason for which it waits in its queue, as last reported; absent where it has places.
    pub wait_reason: Option<Text>,
    /// Why it cannot have its turn yet. Derived from the quotas of its namespace.
    pub quota_short: Option<Text>,
    /// PriorityClasses that it names and that are not there. Derived from its spec and the classes.
    pub unknown_classes: Vec<Text>,
    /// Its own key, shared by the indexes that name it.
    pub key: Option<Arc<JobKey>>,
}

/// An object that a job owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    /// As last observed; `None` while it is not known to exist.
    pub fact: Option<OwnedFact>,
    /// Set if its creation is unresolved.
    pub planned: bool,
    /// Its deletion, if one was decided.
    pub deletion: Option<Box<PendingDeletion>>,
}

/// One entry of a job's trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail {
    /// Record of it.
    pub stamp: Stamp,
    /// When.
    pub at: Timestamp,
    /// In words.
    pub text: Text,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// As last observed.
    pub fact: PodFact,
    /// Its deletion, if one was decided.
    pub deletion: Option<Box<PendingDeletion>>,
    /// Since when it runs.
    pub running_at: Option<Timestamp>,
    /// Since when it is known to have failed.
    pub failed_at: Option<Timestamp>,
}

/// A deletion that was decided and is not yet seen done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingDeletion {
    /// The decision that must be in the mirror before it is deleted; zero for none.
    pub requires: Stamp,
    /// Set if the API accepted a delete.
    pub ordered: bool,
    /// Set if it accepted one without grace.
    pub forced: bool,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: Text,
    /// The slot it serves.
    pub slot: Option<SlotId>,
    /// Its version.
    pub rv: ResourceVersion,
    /// Set if it has a deletionTimestamp.
    pub deleting: bool,
    /// Its deletion, if one was decided.
    pub deletion: Option<Box<PendingDeletion>>,
}

/// Calls about one object that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Number of them in a row.
    pub failures: u32,
    /// Time of the next try; `None`: not before the spec changes.
    pub retry_at: Option<Timestamp>,
    /// The last answer.
    pub last: Outcome,
}

impl Owned {
    /// Returns true if it is known and has this uid.
    pub(crate) fn is(&self, uid: &Uid) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.uid == *uid)
    }
}

impl Job {
    /// The valid spec in force.
    pub fn spec(&self) -> Option<&JobSpec> {
        self.valid.as_ref().and_then(|s| s.spec.as_ref().ok())
    }

    /// Why the latest spec cannot be accepted.
    pub fn invalid(&self) -> Option<&[model::FieldError]> {
        let errors = self.spec.as_ref().and_then(|s| s.spec.as_ref().err()).map(Vec::as_slice);
        errors.filter(|errors| !errors.is_empty())
    }

    /// Returns the objects that the latest spec references and that cannot be used.
    pub fn missing(&self) -> &[Missing] {
        self.spec.as_ref().map_or(&[], |spec| &spec.missing)
    }

    /// Returns true if what its objects are rendered from is older than its latest spec, because it has pods.
    pub fn renders_older_spec(&self) -> bool {
        let latest = self.spec.as_ref().filter(|fact| fact.spec.is_ok());
        latest.zip(self.valid.as_ref()).is_some_and(|(latest, valid)| latest.manifest != valid.manifest)
    }

    /// Returns true if the pods of a group run once.
    pub(crate) fn runs_once(&self, group: &str) -> bool {
        self.spec().and_then(|spec| spec.group(group)).is_some_and(|group| group.once)
    }

    /// Returns true if the pods of a slot are other than those that run once.
    fn lasts(&self, id: &SlotId) -> bool {
        !self.runs_once(&id.group)
    }

    /// Returns true for another pod than those that run once. One without a slot counts.
    pub(crate) fn is_lasting(&self, pod: &Pod) -> bool {
        pod.fact.slot.as_ref().is_none_or(|id| self.lasts(id))
    }

    /// Returns the pods that have not ended, but those that run once.
    pub(crate) fn live_pods(&self) -> impl Iterator<Item = &Pod> {
        let is_live = |pod: &&Pod| !pod.fact.is_finished() && self.is_lasting(pod);
        self.pods.values().map(Box::as_ref).filter(is_live)
    }

    /// Returns true if creations of other pods than those that run once are unresolved.
    pub(crate) fn has_planned_pods(&self) -> bool {
        self.planned_pods.iter().any(|id| self.lasts(id))
    }

    /// Returns true if pods of other groups than those that run once exist, or may be created.
    pub(crate) fn has_lasting_pods(&self) -> bool {
        let lasts = |pod: &Pod| pod.fact.slot.as_ref().is_some_and(|id| self.lasts(id));
        self.has_planned_pods() || self.pods.values().any(|pod| lasts(pod))
    }

    /// Returns true if pods have not ended, or may be created, but those that run once.
    pub(crate) fn has_unended_pods(&self) -> bool {
        self.has_planned_pods() || self.live_pods().next().is_some()
    }

    /// Remarks on the spec in force.
    pub fn warnings(&self) -> &[model::FieldError] {
        self.valid.as_ref().map_or(&[], |s| &s.warnings)
    }

    /// The slot of that id.
    pub fn slot(&self, id: &SlotId) -> Option<&Slot> {
        self.groups.get(&id.group)?.slots.get(usize::try_from(id.index).ok()?)
    }

    pub(crate) fn slot_mut(&mut self, id: &SlotId) -> Option<&mut Slot> {
        self.groups.get_mut(&id.group)?.slots.get_mut(usize::try_from(id.index).ok()?)
    }

    /// The restart whose old pods are still going.
    pub fn restart(&self) -> Option<&Decision> {
        self.decision.as_ref().filter(|d| matches!(d, Decision::Restart { .. }))
    }

    /// The ending that was decided, and whether it cleans up.
    pub fn ending(&self) -> Option<(Phase, bool, &model::Cause)> {
        match self.decision.as_ref()? {
            Decision::End { phase, cause, clean, .. } => Some((*phase, *clean, cause)),
            Decision::Restart { .. } | Decision::Halt { .. } => None,
        }
    }

    /// Returns true if its pods are going because it is to wait.
    pub fn is_halting(&self) -> bool {
        matches!(self.decision, Some(Decision::Halt { .. }))
    }

    /// Returns true if its ending deletes this pod: all of them, or those that have not ended.
    pub(crate) fn end_deletes(&self, pod: &Pod) -> bool {
        match &self.decision {
            Some(Decision::End { clean, live_only, .. }) => *clean && !(*live_only && pod.fact.is_finished()),
            Some(Decision::Restart { .. } | Decision::Halt { .. }) | None => false,
        }
    }

    /// Returns true if its ending deletes this service: all of them, or those whose pod does not stay.
    pub(crate) fn end_deletes_service(&self, service: &Service) -> bool {
        let pod =
            || service.slot.as_ref().and_then(|id| self.slot(id)?.pod.as_ref()).and_then(|uid| self.pods.get(uid));
        match &self.decision {
            Some(Decision::End { clean, live_only, .. }) => {
                *clean && !(*live_only && pod().is_some_and(|pod| pod.deletion.is_none() && !self.end_deletes(pod)))
            }
            Some(Decision::Restart { .. } | Decision::Halt { .. }) | None => false,
        }
    }

    /// Returns the number of retries that its budget counts: pods replaced, and where the budget says so restarts of
    /// containers.
    pub fn retries(&self) -> u32 {
        let counts_rounds = self.spec().and_then(|spec| spec.budget).is_some_and(|budget| budget.rounds);
        let lasting = self.groups.iter().filter(|(name, _)| !self.runs_once(name));
        let each = || lasting.fold(0u32, |sum, (_, group)| sum.saturating_add(group.charged));
        let replaced = if counts_rounds { self.retry_counts.rounds() } else { each() };
        let containers = self.spec().and_then(|spec| spec.budget).is_some_and(|budget| budget.containers);
        if containers { replaced.saturating_add(self.restarted_containers()) } else { replaced }
    }

    /// Returns the number of restarts: pods replaced and containers restarted, whatever its budget counts.
    pub fn restarts(&self) -> u32 {
        self.replaced_pods().saturating_add(self.restarted_containers())
    }

    /// Returns the number of pods that were replaced and charged to their groups.
    pub fn replaced_pods(&self) -> u32 {
        self.groups.values().fold(0, |sum: u32, group| sum.saturating_add(group.charged))
    }

    /// Returns the number of restarts of containers in their pods, pods that are gone included.
    pub const fn restarted_containers(&self) -> u32 {
        self.retry_counts.all_container_restarts()
    }

    /// Returns the limit of a group's restarts: its own, or else the operator's where the job has no budget.
    pub fn restart_limit(&self, group: &GroupSpec, config: &Config) -> Option<u32> {
        let has_budget = self.spec().is_some_and(|spec| spec.budget.is_some());
        group.restart_limit.or_else(|| config.restart_limit.filter(|_| !has_budget))
    }

    /// Returns the restarts of containers in the pods that run now, of the groups that count them.
    pub fn running_restarts(&self) -> u32 {
        let counted = self.spec_groups().filter(|(spec, _)| spec.counts_restarts);
        let pods = counted.flat_map(|(_, group)| &group.slots).filter_map(|slot| self.pods.get(slot.pod.as_ref()?));
        let running = pods.filter(|pod| pod.fact.phase == PodPhase::Running);
        running.fold(0, |sum: u32, pod| sum.saturating_add(pod.fact.restarts))
    }

    /// Returns the number of retries that the budget of a group counts: its pods replaced, and where the budget says so restarts
    /// of containers in its present pods.
    pub fn group_retries(&self, spec: &GroupSpec) -> u32 {
        let Some(group) = self.groups.get(&spec.name) else { return 0 };
        if !spec.budget.is_some_and(|budget| budget.containers) {
            return group.charged;
        }
        let pods = group.slots.iter().filter_map(|slot| self.pods.get(slot.pod.as_ref()?));
        pods.fold(group.charged, |sum, pod| sum.saturating_add(pod.fact.restarts))
    }

    /// Returns the time at which its object is deleted, because the time that it stays after its end has passed.
    /// An edit after the end counts: it says how long the object is kept, not what becomes of the job.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let latest = self.spec.as_ref().and_then(|fact| fact.spec.as_ref().ok());
        Some(self.ended_at?.plus_ms(latest.or_else(|| self.spec())?.ttl_ms?))
    }

    /// Returns the back-offs that hold pods back, by slot. Some may have passed.
    pub fn delays(&self) -> impl Iterator<Item = (SlotId, Timestamp)> {
        self.groups.iter().flat_map(|(name, group)| {
            group.delays.iter().map(|(index, at)| (SlotId { group: name.clone(), index: *index }, *at))
        })
    }

    /// Returns the time at which the last of its back-offs ends.
    pub fn last_delay(&self) -> Option<Timestamp> {
        self.groups.values().flat_map(|group| group.delays.values().copied()).chain(self.retry_at).max()
    }

    pub(crate) fn drop_delay(&mut self, id: &SlotId) {
        if let Some(group) = self.groups.get_mut(&id.group) {
            group.delays.remove(&id.index);
        }
    }

    /// Groups of the spec with their state, in spec order.
    pub fn spec_groups(&self) -> impl Iterator<Item = (&GroupSpec, &Group)> {
        self.spec().into_iter().flat_map(|s| &s.groups).filter_map(|g| Some((g, &**self.groups.get(&g.name)?)))
    }

    /// Returns true if everything its ending has to remove is gone.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.planned_pods.is_empty()
    }

    /// Frees the memory that emptied maps and sets hold. Most jobs have nothing planned or being deleted for most of their life.
    pub(crate) fn let_go_of_empty(&mut self) {
        fn release<C: Default>(all: &mut C, is_empty: impl Fn(&C) -> bool) {
            if is_empty(all) {
                *all = C::default();
            }
        }
        release(&mut self.pods, BTreeMap::is_empty);
        release(&mut self.services, BTreeMap::is_empty);
        release(&mut self.planned_pods, BTreeSet::is_empty);
        release(&mut self.planned_services, BTreeSet::is_empty);
        release(&mut self.deleting_pods, BTreeSet::is_empty);
        for group in self.groups.values_mut() {
            for set in group.sets_mut() {
                release(set, BTreeSet::is_empty);
            }
        }
    }

    /// Holds the spec once where the latest one is the valid one, after it was read from JSON.
    pub(crate) fn share_specs(&mut self) {
        if self.spec == self.valid {
            self.valid.clone_from(&self.spec);
        }
    }

    pub(crate) fn note(&mut self, stamp: Stamp, at: Timestamp, text: impl Into<Text>) {
        if self.trail.len() >= MAX_TRAIL {
            self.trail.pop_front();
        }
        self.trail.push_back(Trail { stamp, at, text: text.into() });
    }
}

impl Pod {
    /// Returns true if it is being deleted, so that its state has no consequence.
    pub const fn is_leaving(&self) -> bool {
        self.deletion.is_some() || self.fact.deleting.is_some()
    }

    /// The counter it belongs in.
    pub const fn counter(&self) -> Counter {
        match self.fact.phase {
            PodPhase::Pending if self.fact.node.is_some() => Counter::Scheduled,
            PodPhase::Pending => Counter::Pending,
            PodPhase::Running => Counter::Active,
            PodPhase::Succeeded => Counter::Succeeded,
            PodPhase::Failed | PodPhase::Unknown => Counter::Failed,
        }
    }
}
