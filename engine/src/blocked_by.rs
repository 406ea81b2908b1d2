//! Finds what keeps the pods of a group from being created, in words.
//!
//! Derived from the job, never stored. It must not decide: [`crate::decide`] skips a blocked group and shows what blocks it.
//! Tests: the scenarios of the APIs that have groups in an order, or objects besides pods.

use std::fmt;

use model::{
    Dependency, GpuRequest, GroupSpec, JobSpec, Missing, ObjectRef, Outcome, OwnedRef, Reached, ReadinessGate,
    ShareLoss, Text,
};

use crate::job::Job;
use crate::message::loss_words;

/// Message of a job that waits because its spec says so.
pub(crate) const SUSPENDED: &str = "suspended: spec.suspend is true";

/// Reason for which no pod of a group may be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockedBy<'a> {
    /// An object that the spec references cannot be used.
    Missing(&'a Missing),
    /// The spec asks the job to wait.
    Suspended,
    /// Pods that a halt deletes are not gone yet.
    Halting,
    /// An object that the job owns does not exist yet, or is not ready.
    Owned {
        /// The object.
        object: &'a OwnedRef,
        /// Set if it exists.
        exists: bool,
        /// Why it cannot become ready.
        failed: Option<&'a Text>,
    },
    /// Another system has not admitted the job, or no longer does.
    NotAdmitted {
        /// The object by which it admits the job.
        object: &'a OwnedRef,
        /// Its words.
        why: Option<&'a Text>,
    },
    /// An object by which another system admitted the job is not deleted yet.
    Leaving(&'a OwnedRef),
    /// An object of another system, which pods get something from, was not read yet.
    Unread(&'a OwnedRef),
    /// Another group has not come far enough.
    After(&'a Dependency),
    /// The coordinator has not dequeued the job.
    Enqueued {
        /// Its queue.
        queue: &'a Text,
        /// The quota that has no room for it.
        short: Option<&'a Text>,
    },
    /// The spec says so, in these words.
    Closed(&'a Text),
    /// A node with free storage is searched, or noted on the job's object.
    NodeSought,
    /// No queue granted it places.
    NoShare {
        /// Its queue; `None` is the root.
        queue: Option<&'a Text>,
        /// GPUs that it needs at once.
        gpus: u32,
        /// Set if it may get more.
        elastic: bool,
        /// Reason for which it waits, as the queues last reported it.
        why: Option<&'a Text>,
        /// Why they took places away that it had.
        loss: Option<&'a ShareLoss>,
    },
}

/// The alternate form leaves out why the queues took places away.
impl fmt::Display for BlockedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(Missing { kind, name, problem: None }) => write!(f, "waiting for {kind} {name}: not found"),
            Self::Missing(Missing { kind, name, problem: Some(problem) }) => {
                write!(f, "waiting for {kind} {name}: {problem}")
            }
            Self::Suspended => f.write_str(SUSPENDED),
            Self::Halting => f.write_str("waiting until the deleted pods are gone"),
            Self::Owned { object, failed: Some(why), .. } => write!(f, "{object} cannot be used: {why}"),
            Self::Owned { object, exists: true, failed: None } => write!(f, "waiting until {object} is ready"),
            Self::Owned { object, exists: false, failed: None } => write!(f, "waiting until {object} is created"),
            Self::NotAdmitted { object, why: None } => write!(f, "waiting until {object} is admitted"),
            Self::NotAdmitted { object, why: Some(why) } => write!(f, "waiting until {object} is admitted: {why}"),
            Self::Leaving(object) => write!(f, "waiting until {object} is deleted"),
            Self::Unread(object) => write!(f, "waiting until {object} is read"),
            Self::NoShare { queue, gpus, elastic, why, loss } => {
                if let Some(loss) = loss.filter(|_| !f.alternate()) {
                    write!(f, "{}; ", loss_words(loss, *queue))?;
                }
                match (queue, why) {
                    (None, Some(why)) => return write!(f, "waiting until nodes have room: {why}"),
                    (Some(queue), Some(why)) => return write!(f, "waiting in queue {queue}: {why}"),
                    (None, None) => f.write_str("waiting until nodes have room for ")?,
                    (Some(queue), None) => write!(f, "waiting in queue {queue} for ")?,
                }
                if *elastic { write!(f, "{gpus} GPUs or more") } else { write!(f, "all its GPUs: {gpus}") }
            }
            Self::After(Dependency { group, reached }) => match reached {
                Reached::Scheduled => write!(f, "waiting until all pods of {group} have a node"),
                Reached::Running => write!(f, "waiting until all pods of {group} run"),
                Reached::Succeeded => write!(f, "waiting until all pods of {group} have succeeded"),
                Reached::Started => write!(f, "waiting until all pods of {group} run, or have ended"),
            },
            Self::Enqueued { queue, short: None } => write!(f, "waiting in queue {queue}"),
            Self::Enqueued { queue, short: Some(why) } => write!(f, "waiting in queue {queue}: {why}"),
            Self::Closed(why) => f.write_str(why),
            Self::NodeSought => f.write_str("waiting until a node with free storage is chosen"),
        }
    }
}

impl Job {
    /// Returns the first reason for which no pod of a group may be created.
    pub fn blocked_by<'a>(&'a self, spec: &'a JobSpec, group: &'a GroupSpec) -> Option<BlockedBy<'a>> {
        if spec.suspended && !group.once {
            return Some(BlockedBy::Suspended);
        }
        if self.is_halting() && !group.once {
            return Some(BlockedBy::Halting);
        }
        self.blocked_besides_share(spec, group).or_else(|| {
            let waits = self.is_gated(group) && self.allocation.share.is_empty();
            waits.then(|| self.no_share(spec))
        })
    }

    /// Returns what blocks a job without a share.
    pub(crate) fn no_share<'a>(&'a self, spec: &'a JobSpec) -> BlockedBy<'a> {
        let least = |(group, request): (&GroupSpec, &GpuRequest)| request.count.saturating_mul(group.size_range().min);
        BlockedBy::NoShare {
            queue: spec.demand.as_ref().and_then(|demand| demand.queue.as_ref()),
            gpus: spec.gpu_groups().map(least).fold(0, u32::saturating_add),
            elastic: spec.gpu_groups().any(|(group, _)| group.size_range().min < group.size_range().max),
            why: self.wait_reason.as_ref(),
            loss: self.allocation.loss.as_ref(),
        }
    }

    /// Returns why the queues took its places away, with the job that loses and the job that gains; `None` where it has places, and where
    /// it never lost any.
    pub fn loss_words(&self) -> Option<String> {
        let loss = self.allocation.loss.as_ref().filter(|_| self.allocation.share.is_empty())?;
        Some(loss_words(loss, self.queue()))
    }

    /// Returns the other object or group that blocks the pods of a group.
    pub(crate) fn blocked_besides_share<'a>(
        &'a self,
        spec: &'a JobSpec,
        group: &'a GroupSpec,
    ) -> Option<BlockedBy<'a>> {
        let enqueued = self.enqueued();
        let enqueued = enqueued.map(|of| BlockedBy::Enqueued { queue: &of.queue, short: self.quota_short.as_ref() });
        let owned = || self.blocked_by_owned(spec);
        let gate = || if group.once { None } else { self.blocked_by_gate() };
        let after = || group.after.iter().find(|after| !self.has_reached(spec, after)).map(BlockedBy::After);
        let closed = || group.closed.as_ref().map(BlockedBy::Closed);
        let node = || self.awaits_node(spec, group).then_some(BlockedBy::NodeSought);
        enqueued.or_else(owned).or_else(gate).or_else(after).or_else(closed).or_else(node)
    }

    /// Returns the owned object that blocks every pod of the job: first one that does not exist. One that is not ready may wait for that.
    fn blocked_by_owned<'a>(&'a self, spec: &'a JobSpec) -> Option<BlockedBy<'a>> {
        let blockers = || spec.owned.iter().filter_map(|owned| self.blocked_by_object(owned));
        blockers()
            .find(|blocker| matches!(blocker, BlockedBy::Owned { exists: false, .. }))
            .or_else(|| blockers().next())
    }

    /// Returns an owned object as what blocks every pod of the job; `None` where it does not.
    fn blocked_by_object<'a>(&'a self, owned: &'a model::OwnedSpec) -> Option<BlockedBy<'a>> {
        // A gate blocks other pods than those that run once: see [`Self::blocked_by_gate`].
        if owned.when != model::CreatePhase::Accepted
            || matches!(owned.awaits, ReadinessGate::Nothing | ReadinessGate::Admitted)
        {
            return None;
        }
        let fact = self.owned.get(&owned.object).and_then(|state| state.fact.as_ref()).filter(|fact| !fact.deleting);
        let failed = fact.and_then(|fact| fact.failed.as_ref());
        // Pods that were created without it continue without it.
        let is_optional = owned.awaits == ReadinessGate::ExistsIfServed;
        let is_missed =
            is_optional && (self.does_without(&ObjectRef::Owned(owned.object.clone())) || self.has_lasting_pods());
        let is_met = fact.map_or(is_missed, |fact| match owned.awaits {
            ReadinessGate::Nothing | ReadinessGate::Exists | ReadinessGate::ExistsIfServed => true,
            ReadinessGate::Ready | ReadinessGate::Admitted => fact.ready,
        });
        (!is_met || failed.is_some()).then_some(BlockedBy::Owned {
            object: &owned.object,
            exists: fact.is_some(),
            failed,
        })
    }

    /// Returns what of its gate blocks every pod that does not run once.
    pub fn blocked_by_gate(&self) -> Option<BlockedBy<'_>> {
        if let Some(former) = self.former_gate() {
            return Some(BlockedBy::Leaving(former));
        }
        let gate = self.gate()?;
        if self.is_open(gate) {
            return self.unread().next().map(BlockedBy::Unread);
        }
        let object = &gate.object;
        Some(match self.gate_fact(gate) {
            None => BlockedBy::Owned { object, exists: false, failed: None },
            Some((fact, _)) if fact.failed.is_some() => {
                BlockedBy::Owned { object, exists: true, failed: fact.failed.as_ref() }
            }
            Some((_, state)) => BlockedBy::NotAdmitted { object, why: state.message.as_ref() },
        })
    }

    /// Returns true for an owned object that is given up where the cluster does not serve its type.
    pub(crate) fn is_optional(&self, object: &OwnedRef) -> bool {
        let wanted = self.spec().and_then(|spec| spec.owned.iter().find(|owned| owned.object == *object));
        wanted.is_some_and(|owned| matches!(owned.awaits, ReadinessGate::ExistsIfServed | ReadinessGate::Admitted))
            || self.restarts_pods(object)
    }

    /// Returns true for an owned object that was given up, because the cluster does not serve its type.
    pub fn does_without(&self, object: &ObjectRef) -> bool {
        let ObjectRef::Owned(owned) = object else { return false };
        let attempt = self.attempts.get(object);
        self.is_optional(owned)
            && attempt.is_some_and(|attempt| matches!(attempt.last, Outcome::Refused { code: 404, .. }))
    }

    fn has_reached(&self, spec: &JobSpec, after: &Dependency) -> bool {
        // A group that the job does not have blocks nothing.
        spec.group(&after.group).is_none_or(|wanted| self.is_reached(wanted, after.reached))
    }

    /// Returns true if a group has come to a state.
    pub(crate) fn is_reached(&self, wanted: &GroupSpec, reached: Reached) -> bool {
        let Some(group) = self.groups.get(&wanted.name) else { return true };
        let succeeded = u32::try_from(group.done.len()).unwrap_or(u32::MAX);
        match reached {
            Reached::Scheduled => group.all_scheduled(),
            Reached::Running => group.counters.active.saturating_add(succeeded) >= wanted.replicas,
            Reached::Started => {
                let ended = succeeded.saturating_add(group.counters.failed);
                group.counters.active.saturating_add(ended) >= wanted.replicas
            }
            Reached::Succeeded => group.has_run(wanted) || (!wanted.once && succeeded >= wanted.replicas),
        }
    }
}
