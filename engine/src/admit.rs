//! Admission: which facts go into a record, and why the others are dropped.
//!
//! Owns one rule each for staleness ([`stale`]), echoes, adoption and supersession ([`objects`]), restored clusters ([`lists`]) and taken
//! names ([`names`]). It reads the state and changes nothing: [`crate::handle`] asks it and applies what is admitted. It must not read
//! API objects. Tests: `admit/tests.rs`, one row a rule.

mod lists;
mod names;
mod objects;
mod stale;

use model::{ClusterFact, JobFact, JobKey, OwnedFact, PodFact, ResourceVersion};

pub use self::lists::{Absent, Admission, ListView, Present, absent_waits};
pub use self::names::{NameHolder, Ownership};
pub use self::objects::{MirrorWriter, ObjectReading};
use crate::state::State;

/// Reason for dropping a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Older than what is known of the object.
    Stale,
    /// An echo or a heartbeat: it says what is known already.
    Unchanged,
    /// It is about an object that is not known and that nothing waits for.
    Unknown,
}

/// Circumstances under which a fact came in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Version of the newest list of the object's source. An unknown object that is not newer was deleted before that list.
    /// `None` for an item of a list itself, and for a fact that no object was read for.
    pub list_rv: Option<ResourceVersion>,
    /// A term begins with this turn. Jobs may be adopted that the log knows.
    pub term_begins: bool,
}

const STALE: DropReason = DropReason::Stale;
const UNCHANGED: DropReason = DropReason::Unchanged;
const UNKNOWN: DropReason = DropReason::Unknown;

/// Returns `reason` as the verdict unless the fact passed.
const fn unless(passed: bool, reason: DropReason) -> Result<(), DropReason> {
    if passed { Ok(()) } else { Err(reason) }
}

impl Arrival {
    /// Returns true if an unknown object in this version is newer than the newest list, or stands in one.
    fn exists(self, rv: ResourceVersion) -> bool {
        self.list_rv.is_none_or(|list_rv| rv > list_rv)
    }
}

impl State {
    /// Returns whether a fact about the cluster goes into a record.
    pub(crate) fn admit_cluster_fact(&self, fact: &ClusterFact, arrival: Arrival) -> Result<(), DropReason> {
        match fact {
            ClusterFact::Node(node) => match self.nodes.get(&node.name).map(|known| &known.fact) {
                None => unless(arrival.exists(node.rv), STALE),
                Some(_) if self.is_stale_node(node) => Err(STALE),
                Some(known) => unless(known.judged() != node.judged(), UNCHANGED),
            },
            ClusterFact::Class(class) => match self.queues.classes.by_name.get(&class.name) {
                None => unless(arrival.exists(class.rv), STALE),
                Some(known) if known.rv >= class.rv => Err(STALE),
                Some(known) => {
                    let changed = (known.value, known.is_default) != (class.value, class.is_default);
                    unless(changed, UNCHANGED)
                }
            },
            ClusterFact::ClassGone { name } => unless(self.queues.classes.by_name.contains_key(name), UNKNOWN),
            ClusterFact::Quota(quota) => match self.queues.coordinator.quota(&quota.namespace, &quota.name) {
                None => unless(arrival.exists(quota.rv), STALE),
                Some(known) if known.rv >= quota.rv => Err(STALE),
                Some(known) => {
                    let is_same =
                        (&known.hard, &known.used, &known.scopes) == (&quota.hard, &quota.used, &quota.scopes);
                    unless(!is_same, UNCHANGED)
                }
            },
            ClusterFact::QuotaGone { namespace, name } => {
                let known = self.queues.coordinator.quota(namespace, name).is_some();
                unless(known, UNKNOWN)
            }
            ClusterFact::Namespace(namespace) => match self.queues.namespaces.get(&namespace.name) {
                None => unless(arrival.exists(namespace.rv), STALE),
                Some(known) if known.rv >= namespace.rv => Err(STALE),
                Some(known) => unless(known.labels != namespace.labels, UNCHANGED),
            },
            ClusterFact::NamespaceGone { name } => unless(self.queues.namespaces.contains_key(name), UNKNOWN),
            ClusterFact::ForeignUse { node, gpus, requests } => {
                let changed = self.foreign.get(node).map_or(!gpus.is_empty(), |known| known != gpus)
                    || self.foreign_requests.get(node).map_or(!requests.is_empty(), |known| known != requests);
                unless(changed, UNCHANGED)
            }
            ClusterFact::NodeGone { name } => unless(self.nodes.contains_key(name), UNKNOWN),
            ClusterFact::Relisted { kind, of, rv } => lists::after(*rv, self.list_rv(*kind, of.as_ref())),
            ClusterFact::TermBegan { .. } | ClusterFact::Configured(_) => Ok(()),
        }
    }

    /// Returns whether a fact about a job goes into a record.
    pub(crate) fn admit_job_fact(&self, key: &JobKey, fact: &JobFact, arrival: Arrival) -> Result<(), DropReason> {
        let job = self.job(key);
        let job = job.as_deref();
        match fact {
            JobFact::Pod(pod) => {
                let known = job.and_then(|job| job.pods.get(&pod.uid)).map(|known| &known.fact);
                let is_stale = job.is_some_and(|job| job.is_stale_pod(pod));
                let Some(known) = known else {
                    return unless(!is_stale && arrival.exists(pod.rv), STALE);
                };
                if is_stale {
                    return Err(STALE);
                }
                // The version counts where the pod is to be released: it is the precondition.
                let is_protected = pod.protected.is_some() && pod.deleting.is_some() && pod.rv != known.rv;
                let echo = PodFact { rv: known.rv, ..(**pod).clone() } == *known && !is_protected;
                unless(!echo, UNCHANGED)
            }
            JobFact::Service(service) => {
                let Some(known) = job.and_then(|job| job.services.get(&service.uid)) else {
                    return unless(arrival.exists(service.rv), STALE);
                };
                if job.is_some_and(|job| job.is_stale_service(service)) {
                    return Err(STALE);
                }
                let changed = known.deleting != service.deleting || known.slot != service.slot;
                unless(changed, UNCHANGED)
            }
            JobFact::Owned(fact) => {
                let is_there = job.is_some_and(|job| job.object.exists());
                if !is_there && !fact.keep.ends_with_job() {
                    return Err(UNKNOWN);
                }
                let owned = job.and_then(|job| job.owned.get(&fact.object)?.fact.as_ref());
                let Some((job, known)) = job.zip(owned) else {
                    return unless(arrival.exists(fact.rv), STALE);
                };
                if job.is_stale_owned(fact) {
                    return Err(STALE);
                }
                // The version counts where the object is to be written: it is the precondition.
                let is_reported = || job.gate_report().is_some_and(|(gate, _)| gate.object == fact.object);
                let is_stale_version = job.spec().into_iter().flat_map(|spec| &spec.owned).any(|owned| {
                    owned.object == fact.object
                        && job.owned_digest(owned).is_some_and(|d| known.digest.as_ref() != Some(&d))
                });
                let echo =
                    OwnedFact { rv: known.rv, ..(**fact).clone() } == *known && !is_stale_version && !is_reported();
                unless(!echo, UNCHANGED)
            }
            JobFact::OwnedGone { uid } => {
                let known = job.is_some_and(|job| job.owned.values().any(|owned| owned.is(uid)));
                unless(known, UNKNOWN)
            }
            JobFact::Object(fact) => match job {
                Some(job) if job.is_stale_object(fact) => Err(STALE),
                Some(job) if job.object.is_known() => {
                    let changed = !job.object.shows(fact)
                        || fact.mirror != job.stamps.observed()
                        || (&fact.finalizers, fact.finalized) != (&job.finalizers, job.finalized)
                        || fact.reported_end != job.reported_end
                        || (fact.progress.is_some() && fact.progress != job.progress);
                    unless(changed, UNCHANGED)
                }
                Some(_) | None => unless(arrival.exists(fact.rv), STALE),
            },
            JobFact::Spec(fact) => {
                let echo = job.and_then(|job| job.spec.as_ref()).is_some_and(|known| **known == **fact);
                unless(!echo, UNCHANGED)
            }
            JobFact::Gone => match job.filter(|job| job.object.is_known()) {
                None => Err(UNKNOWN),
                Some(job) => unless(!job.object.is_gone(), UNCHANGED),
            },
            JobFact::PodGone { uid, .. } => unless(job.is_some_and(|job| job.awaits_end_of(uid)), UNKNOWN),
            JobFact::ServiceGone { uid } => unless(job.is_some_and(|job| job.services.contains_key(uid)), UNKNOWN),
            JobFact::Published { stamp, rv } => match job {
                None => Err(UNKNOWN),
                Some(job) => unless(job.is_changed_by_write(*stamp, *rv), UNCHANGED),
            },
            JobFact::Adopted(_) => Ok(()),
            JobFact::NodeChanged { .. }
            | JobFact::Answered { .. }
            | JobFact::ShareChanged(_)
            | JobFact::WaitReported(_)
            | JobFact::Dequeued
            | JobFact::Measured { .. }
            | JobFact::NodeFound { .. }
            | JobFact::QueueReported(_)
            | JobFact::Due => unless(job.is_some(), UNKNOWN),
        }
    }
}

#[cfg(test)]
mod tests;
