//! Gates: which facts go into a record, and why the others are dropped.
//!
//! Owns one rule each for staleness, echoes, adoption, supersession, restored clusters (`lists`) and taken names (`names`).
//! It reads the state and changes nothing: [`State::observe`] folds admitted facts in. It must not read API objects.
//! Tests: `admit/tests.rs`, one row a rule.

mod lists;
mod names;

use model::fact::Adopted;
use model::{
    Fact, JobFact, JobKey, NodeFact, ObjectRef, OwnedFact, Phase, PodFact, ResourceVersion, ServiceFact, Stamp, Term,
    Uid,
};

pub use self::lists::{ListView, Present, absent_waits};
pub use self::names::{NameHolder, Whose};
use crate::job::Job;
use crate::state::{Scope, State};

/// Verdict on a fact or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It goes into a record.
    Admitted,
    /// It changes nothing, for this reason.
    Dropped(DropReason),
    /// Another operator leads by now and wrote a mirror: this one must start again from the objects.
    Superseded {
        /// Stamp of the mirror.
        mirror: Stamp,
    },
    /// It is older than this version, which was seen before: the cluster was restored from a copy.
    Regressed {
        /// Newest version seen.
        known: ResourceVersion,
    },
}

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

impl Admission {
    const STALE: Self = Self::Dropped(DropReason::Stale);
    const UNCHANGED: Self = Self::Dropped(DropReason::Unchanged);
    const UNKNOWN: Self = Self::Dropped(DropReason::Unknown);

    /// Returns `reason` as the verdict unless the fact passed.
    const fn unless(passed: bool, reason: Self) -> Self {
        if passed { Self::Admitted } else { reason }
    }
}

impl Arrival {
    /// Returns true if an unknown object in this version is newer than the newest list, or stands in one.
    fn exists(self, rv: ResourceVersion) -> bool {
        self.list_rv.is_none_or(|list_rv| rv > list_rv)
    }
}

impl State {
    /// Leaves out of a pod what the spec of its job says as well. To be asked directly before [`State::admit`].
    pub fn leave_known_out(&self, key: &JobKey, fact: &mut Fact) {
        if let Fact::Pod(pod) = fact
            && self.jobs.live(key).map_or_else(|| self.jobs.is_finished(key), |job| job.spec().is_some())
        {
            pod.holds = None;
        }
    }

    /// Decides whether a fact goes into a record of that scope. To be asked directly before [`State::observe`]: facts that
    /// came in together are judged one after the other.
    pub fn admit(&self, scope: &Scope, fact: &Fact, arrival: Arrival) -> Admission {
        match scope {
            Scope::Cluster => self.admit_to_cluster(fact, arrival),
            Scope::Queues => Admission::Admitted,
            Scope::Job(key) => self.admit_to_job(key, fact, arrival),
        }
    }

    fn admit_to_cluster(&self, fact: &Fact, arrival: Arrival) -> Admission {
        match fact {
            Fact::Node(node) => match self.nodes.get(&node.name).map(|known| &known.fact) {
                None => Admission::unless(arrival.exists(node.rv), Admission::STALE),
                Some(_) if self.is_stale_node(node) => Admission::STALE,
                Some(known) => Admission::unless(known.judged() != node.judged(), Admission::UNCHANGED),
            },
            Fact::Class(class) => match self.queues.classes.by_name.get(&class.name) {
                None => Admission::unless(arrival.exists(class.rv), Admission::STALE),
                Some(known) if known.rv >= class.rv => Admission::STALE,
                Some(known) => {
                    let changed = (known.value, known.is_default) != (class.value, class.is_default);
                    Admission::unless(changed, Admission::UNCHANGED)
                }
            },
            Fact::ClassGone { name } => {
                Admission::unless(self.queues.classes.by_name.contains_key(name), Admission::UNKNOWN)
            }
            Fact::Quota(quota) => match self.queues.coordinator.quota(&quota.namespace, &quota.name) {
                None => Admission::unless(arrival.exists(quota.rv), Admission::STALE),
                Some(known) if known.rv >= quota.rv => Admission::STALE,
                Some(known) => {
                    let is_same =
                        (&known.hard, &known.used, &known.scopes) == (&quota.hard, &quota.used, &quota.scopes);
                    Admission::unless(!is_same, Admission::UNCHANGED)
                }
            },
            Fact::QuotaGone { namespace, name } => {
                let known = self.queues.coordinator.quota(namespace, name).is_some();
                Admission::unless(known, Admission::UNKNOWN)
            }
            Fact::Namespace(namespace) => match self.queues.namespaces.get(&namespace.name) {
                None => Admission::unless(arrival.exists(namespace.rv), Admission::STALE),
                Some(known) if known.rv >= namespace.rv => Admission::STALE,
                Some(known) => Admission::unless(known.labels != namespace.labels, Admission::UNCHANGED),
            },
            Fact::NamespaceGone { name } => {
                Admission::unless(self.queues.namespaces.contains_key(name), Admission::UNKNOWN)
            }
            Fact::ForeignUse { node, gpus, requests } => {
                let changed = self.foreign.get(node).map_or(!gpus.is_empty(), |known| known != gpus)
                    || self.foreign_requests.get(node).map_or(!requests.is_empty(), |known| known != requests);
                Admission::unless(changed, Admission::UNCHANGED)
            }
            Fact::NodeGone { name } => Admission::unless(self.nodes.contains_key(name), Admission::UNKNOWN),
            Fact::Relisted { kind, of, rv } => lists::after(*rv, self.list_rv(*kind, of.as_ref())),
            Fact::TermBegan { .. }
            | Fact::Configured(_)
            | Fact::Job(_)
            | Fact::Spec(_)
            | Fact::JobGone
            | Fact::Pod(_)
            | Fact::PodGone { .. }
            | Fact::Service(_)
            | Fact::ServiceGone { .. }
            | Fact::Owned(_)
            | Fact::OwnedGone { .. }
            | Fact::NodeChanged { .. }
            | Fact::Answered { .. }
            | Fact::Published { .. }
            | Fact::Due
            | Fact::Adopted(_)
            | Fact::SchedulingCycle { .. }
            | Fact::ShareChanged(_)
            | Fact::WaitReported(_)
            | Fact::Dequeued
            | Fact::Measured { .. }
            | Fact::NodeFound { .. }
            | Fact::QueueReported(_) => Admission::Admitted,
        }
    }

    fn admit_to_job(&self, key: &JobKey, fact: &Fact, arrival: Arrival) -> Admission {
        let job = self.job(key);
        let job = job.as_deref();
        match fact {
            Fact::Pod(pod) => {
                let known = job.and_then(|job| job.pods.get(&pod.uid)).map(|known| &known.fact);
                let is_stale = job.is_some_and(|job| job.is_stale_pod(pod));
                let Some(known) = known else {
                    return Admission::unless(!is_stale && arrival.exists(pod.rv), Admission::STALE);
                };
                if is_stale {
                    return Admission::STALE;
                }
                // The version counts where the pod is to be released: it is the precondition.
                let is_protected = pod.protected.is_some() && pod.deleting.is_some() && pod.rv != known.rv;
                let echo = PodFact { rv: known.rv, ..(**pod).clone() } == *known && !is_protected;
                Admission::unless(!echo, Admission::UNCHANGED)
            }
            Fact::Service(service) => {
                let Some(known) = job.and_then(|job| job.services.get(&service.uid)) else {
                    return Admission::unless(arrival.exists(service.rv), Admission::STALE);
                };
                if job.is_some_and(|job| job.is_stale_service(service)) {
                    return Admission::STALE;
                }
                let changed = known.deleting != service.deleting || known.slot != service.slot;
                Admission::unless(changed, Admission::UNCHANGED)
            }
            Fact::Owned(fact) => {
                let is_there = job.is_some_and(|job| job.known && !job.gone);
                if !is_there && !fact.keep.ends_with_job() {
                    return Admission::UNKNOWN;
                }
                let owned = job.and_then(|job| job.owned.get(&fact.object)?.fact.as_ref());
                let Some((job, known)) = job.zip(owned) else {
                    return Admission::unless(arrival.exists(fact.rv), Admission::STALE);
                };
                if job.is_stale_owned(fact) {
                    return Admission::STALE;
                }
                // The version counts where the object is to be written: it is the precondition.
                let is_reported = || job.gate_report().is_some_and(|(gate, _)| gate.object == fact.object);
                let is_stale_version = job.spec().into_iter().flat_map(|spec| &spec.owned).any(|owned| {
                    owned.object == fact.object
                        && job.owned_digest(owned).is_some_and(|d| known.digest.as_ref() != Some(&d))
                });
                let echo =
                    OwnedFact { rv: known.rv, ..(**fact).clone() } == *known && !is_stale_version && !is_reported();
                Admission::unless(!echo, Admission::UNCHANGED)
            }
            Fact::OwnedGone { uid } => {
                let known = job.is_some_and(|job| job.owned.values().any(|owned| owned.is(uid)));
                Admission::unless(known, Admission::UNKNOWN)
            }
            Fact::Job(fact) => match job {
                Some(job) if job.is_stale_object(fact) => Admission::STALE,
                Some(job) if job.known => {
                    let changed = (fact.rv, fact.deleting, fact.mirror) != (job.rv, job.deleting, job.mirror)
                        || fact.end_requests != job.end_requests
                        || (fact.end_annotated && !job.end_annotated)
                        || (&fact.finalizers, fact.finalized) != (&job.finalizers, job.finalized)
                        || fact.reported_end != job.reported_end
                        || (fact.progress.is_some() && fact.progress != job.progress);
                    Admission::unless(changed, Admission::UNCHANGED)
                }
                Some(_) | None => Admission::unless(arrival.exists(fact.rv), Admission::STALE),
            },
            Fact::Spec(fact) => {
                let echo = job.and_then(|job| job.spec.as_ref()).is_some_and(|known| **known == **fact);
                Admission::unless(!echo, Admission::UNCHANGED)
            }
            Fact::JobGone => match job.filter(|job| job.known) {
                None => Admission::UNKNOWN,
                Some(job) => Admission::unless(!job.gone, Admission::UNCHANGED),
            },
            Fact::PodGone { uid, .. } => {
                Admission::unless(job.is_some_and(|job| job.awaits_end_of(uid)), Admission::UNKNOWN)
            }
            Fact::ServiceGone { uid } => {
                Admission::unless(job.is_some_and(|job| job.services.contains_key(uid)), Admission::UNKNOWN)
            }
            Fact::Published { stamp, rv } => match job {
                None => Admission::UNKNOWN,
                Some(job) => Admission::unless(job.is_changed_by_write(*stamp, *rv), Admission::UNCHANGED),
            },
            Fact::Adopted(adopted) => {
                let leads = !arrival.term_begins && job.is_some_and(|job| job.known);
                Admission::unless(!leads, Admission::Superseded { mirror: adopted.mirror.stamp })
            }
            Fact::TermBegan { .. }
            | Fact::Configured(_)
            | Fact::Node(_)
            | Fact::NodeGone { .. }
            | Fact::ForeignUse { .. }
            | Fact::Class(_)
            | Fact::ClassGone { .. }
            | Fact::Quota(_)
            | Fact::QuotaGone { .. }
            | Fact::Namespace(_)
            | Fact::NamespaceGone { .. }
            | Fact::Relisted { .. }
            | Fact::NodeChanged { .. }
            | Fact::Answered { .. }
            | Fact::SchedulingCycle { .. }
            | Fact::ShareChanged(_)
            | Fact::WaitReported(_)
            | Fact::Dequeued
            | Fact::Measured { .. }
            | Fact::NodeFound { .. }
            | Fact::QueueReported(_)
            | Fact::Due => Admission::unless(job.is_some(), Admission::UNKNOWN),
        }
    }

    /// Returns the state that a job takes from its object before the fact is admitted: its mirror is newer than what is known
    /// of the job and not covered by the log, or it has no mirror, is new here and its status shows a phase. `read` reads the
    /// object.
    pub fn adoption(
        &self,
        key: &JobKey,
        fact: &JobFact,
        term_begins: bool,
        read: impl FnOnce() -> Adopted,
    ) -> Option<Adopted> {
        if term_begins && self.has_void_share(key, fact) {
            return Some(read());
        }
        let known = self.jobs.summary(key).filter(|job| job.known);
        if fact.mirror == Stamp::default() {
            return known.is_none().then(read).filter(|adopted| adopted.mirror.phase != Phase::New);
        }
        let is_newer = known.is_none_or(|job| fact.mirror > job.acked_stamp && fact.rv > job.rv);
        (is_newer && !self.covers(fact.mirror)).then(read)
    }

    /// Returns true if this operator or an earlier one may have written a mirror that users may write as well. `begins`: the term that begins
    /// with this turn. No other operator writes while this one leads. One that was adopted is written again until a record changes the job.
    pub fn is_own_mirror(&self, key: &JobKey, mirror: Stamp, begins: Option<Term>) -> bool {
        self.covers(mirror)
            || begins.is_some_and(|term| mirror.term <= term)
            || self.jobs.summary(key).is_some_and(|job| mirror <= job.acked_stamp)
    }

    /// Returns true if a share was decided in an earlier term and never acknowledged: whether its write still comes is not known.
    fn has_void_share(&self, key: &JobKey, fact: &JobFact) -> bool {
        self.jobs.live(key).is_some_and(|job| {
            let is_shown = fact.mirror >= job.allocation.stamp || job.acked_stamp >= job.allocation.stamp;
            job.known && !is_shown && !job.allocation.share.is_empty()
        })
    }

    /// Returns true if the job is not known and was deleted before the newest list. To be asked before [`State::adoption`].
    pub fn is_deleted_job(&self, key: &JobKey, fact: &JobFact, arrival: Arrival) -> bool {
        !self.jobs.summary(key).is_some_and(|job| job.known) && !arrival.exists(fact.rv)
    }

    /// Returns the version of a job's object that is known, zero for an unknown job.
    pub fn known_version(&self, key: &JobKey) -> ResourceVersion {
        self.jobs.summary(key).map_or_else(ResourceVersion::default, |job| job.rv)
    }

    /// Returns the verdict on an object that was read at a version: a read shows at least what was `known` when it was sent.
    /// What was observed while it was under way may be newer.
    pub fn admit_read(known: ResourceVersion, rv: ResourceVersion) -> Admission {
        if rv < known { Admission::Regressed { known } } else { Admission::Admitted }
    }

    /// Returns true if the fact is not newer than what is known of the node.
    pub(crate) fn is_stale_node(&self, fact: &NodeFact) -> bool {
        self.nodes.get(&fact.name).is_some_and(|known| known.fact.rv >= fact.rv)
    }
}

impl Job {
    /// Returns true if the fact is about an object and older than what is known of it. Such facts stand in records of builds
    /// that admitted them; folding passes them over.
    pub(crate) fn is_stale(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Job(fact) => self.is_stale_object(fact),
            Fact::Pod(fact) => self.is_stale_pod(fact),
            Fact::Service(fact) => self.is_stale_service(fact),
            Fact::Owned(fact) => self.is_stale_owned(fact),
            Fact::TermBegan { .. }
            | Fact::Configured(_)
            | Fact::Spec(_)
            | Fact::JobGone
            | Fact::PodGone { .. }
            | Fact::ServiceGone { .. }
            | Fact::OwnedGone { .. }
            | Fact::Node(_)
            | Fact::NodeGone { .. }
            | Fact::ForeignUse { .. }
            | Fact::Class(_)
            | Fact::ClassGone { .. }
            | Fact::Quota(_)
            | Fact::QuotaGone { .. }
            | Fact::Namespace(_)
            | Fact::NamespaceGone { .. }
            | Fact::NodeChanged { .. }
            | Fact::Relisted { .. }
            | Fact::Answered { .. }
            | Fact::Published { .. }
            | Fact::Due
            | Fact::Adopted(_)
            | Fact::SchedulingCycle { .. }
            | Fact::ShareChanged(_)
            | Fact::WaitReported(_)
            | Fact::Dequeued
            | Fact::Measured { .. }
            | Fact::NodeFound { .. }
            | Fact::QueueReported(_) => false,
        }
    }

    fn is_stale_object(&self, fact: &JobFact) -> bool {
        self.known && fact.rv < self.rv
    }

    fn is_stale_service(&self, fact: &ServiceFact) -> bool {
        self.services.get(&fact.uid).is_some_and(|known| known.rv >= fact.rv)
    }

    fn is_stale_owned(&self, fact: &OwnedFact) -> bool {
        let known = self.owned.get(&fact.object).and_then(|owned| owned.fact.as_ref());
        known.is_some_and(|known| known.rv >= fact.rv)
    }

    /// Returns true if the pod is known in this version or a newer one, was reported deleted, or had its name before the pod
    /// that has it now.
    fn is_stale_pod(&self, fact: &PodFact) -> bool {
        let uid = &fact.uid;
        if self.pods.get(uid).is_some_and(|known| known.fact.rv >= fact.rv) || self.dead.contains(uid) {
            return true;
        }
        let Some(slot) = fact.slot.as_ref().and_then(|id| self.slot(id)) else { return false };
        let came_back = slot.last_gone_rv.0 > 0 && fact.rv > slot.last_gone_rv;
        let is_late = slot.last_gone.as_ref() == Some(uid) && !came_back;
        is_late || self.namesake(slot.pod.as_ref(), fact).is_some_and(|(_, known)| known.rv > fact.rv)
    }

    /// Returns the pod that holds the slot, if it is another one of the same name.
    pub(crate) fn namesake<'a>(&'a self, holder: Option<&'a Uid>, fact: &PodFact) -> Option<(&'a Uid, &'a PodFact)> {
        let holder = holder.filter(|holder| **holder != fact.uid)?;
        let known = self.pods.get(holder).map(|pod| &pod.fact)?;
        (known.name == fact.name).then_some((holder, known))
    }

    /// Returns true if the end of a pod matters. Of a pod that was never seen it does while a creation is unresolved, or while
    /// an adopted mirror waits for it.
    fn awaits_end_of(&self, uid: &Uid) -> bool {
        self.pods.contains_key(uid) || self.deleting_pods.contains(uid) || !self.planned_pods.is_empty()
    }

    /// Returns true if an acknowledged status write changes anything. What a watch has shown already still ends the attempts
    /// to write it.
    fn is_changed_by_write(&self, stamp: Stamp, rv: ResourceVersion) -> bool {
        stamp > self.acked_stamp || rv > self.rv || self.attempts.contains_key(&ObjectRef::Status)
    }
}

#[cfg(test)]
mod tests;
