//! Holds a job that has ended and has nothing left to do, in a compact form.
//!
//! Owns which jobs may be finished, the compact form, and the way there and back. It must not lose anything: a job that wakes is the
//! one that was finished, down to what a checkpoint holds of it. Tests: at the end of this file; `snapshots/tests/walks.rs`.

mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::fact::{EndRequest, Milestone};
use model::{
    CauseKind, Decision, Incarnation, JobKey, ObjectRef, Phase, ResourceVersion, SpecFact, Stamp, Text, Timestamp, Uid,
};

use self::words::Words;
use crate::group::{Counter, Counters, Group, Slot};
use crate::job::{Attempt, Job, Pod, Service, Trail};
use crate::jobs::JobSummary;
use crate::text::share;

/// A job that has ended. Its object is there, and what is left of its pods and services stays.
#[derive(Debug, Clone)]
pub(crate) struct FinishedJob {
    rv: ResourceVersion,
    phase: Phase,
    end_annotated: bool,
    spec: Option<Arc<SpecFact>>,
    valid: Option<Arc<SpecFact>>,
    milestones: Box<[(Phase, Timestamp, Words)]>,
    decision: Option<Box<Decision>>,
    decided: Stamp,
    status_stamp: Stamp,
    acked_stamp: Stamp,
    mirror: Stamp,
    fenced_by: Stamp,
    adopted: Stamp,
    groups: Box<[(Text, FinishedGroup)]>,
    finals: Box<[(Text, (u32, u32))]>,
    started_at: Option<Timestamp>,
    running_at: Option<Timestamp>,
    first_running_at: Option<Timestamp>,
    creating_at: Option<Timestamp>,
    admitted_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    deadline: Option<Timestamp>,
    trail: Box<[(Stamp, Timestamp, Words)]>,
    rest: Option<Box<Rest>>,
}

/// Members that are empty in most finished jobs.
#[derive(Debug, Clone, Default, PartialEq)]
struct Rest {
    end_requests: BTreeMap<EndRequest, Text>,
    pods: BTreeMap<Uid, Box<Pod>>,
    services: BTreeMap<Uid, Box<Service>>,
    attempts: BTreeMap<ObjectRef, Attempt>,
    retry_at: Option<Timestamp>,
    unschedulable: Option<(Uid, Text)>,
    stalled: Option<Text>,
    waits_below: BTreeMap<Text, Incarnation>,
    slot_counts: BTreeMap<String, u32>,
    dead: VecDeque<Uid>,
    orphan_since: Option<Timestamp>,
    past_container_restarts: u32,
    container_restarts: u32,
    /// Kept while there are pods: the index of nodes holds it.
    key: Option<Arc<JobKey>>,
}

/// A group of a finished job.
#[derive(Debug, Clone)]
struct FinishedGroup {
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
    rest: Option<Box<GroupRest>>,
}

/// Members that are empty in the groups of most finished jobs.
#[derive(Debug, Clone, Default, PartialEq)]
struct GroupRest {
    to_evaluate: BTreeSet<u32>,
    delays: BTreeMap<u32, Timestamp>,
    lost: BTreeSet<u32>,
    misshapen: BTreeSet<u32>,
}

#[derive(Debug, Clone)]
struct FinishedSlot {
    incarnation: Incarnation,
    count: Option<u32>,
    done: bool,
    counter: Option<Counter>,
    last_gone: Option<Uid>,
    last_gone_rv: ResourceVersion,
    rest: Option<Box<SlotRest>>,
}

/// Members that are empty in the slots of most finished jobs.
#[derive(Debug, Clone, Default, PartialEq)]
struct SlotRest {
    pod: Option<Uid>,
    planned: bool,
    cancelled: bool,
    service: Option<Uid>,
    service_planned: bool,
    failures: BTreeMap<CauseKind, u32>,
    lost: bool,
}

impl Job {
    /// Returns true if it has ended, its object is there, and nothing of it is planned or being deleted. Pods and services that
    /// stay are no obstacle, nor is a deadline.
    pub(crate) fn may_be_finished(&self) -> bool {
        let has_ended = self.known && !self.gone && !self.deleting && self.phase.is_terminal();
        has_ended
            && self.quarantine.is_none()
            && self.planned_pods.is_empty()
            && self.planned_services.is_empty()
            && self.surplus_pods.is_empty()
            && self.surplus_services.is_empty()
            && self.deleting_pods.is_empty()
            && self.services.values().all(|service| service.deletion.is_none())
    }
}

impl FinishedJob {
    /// Takes over a job that [may be finished](Job::may_be_finished).
    pub(crate) fn of(job: Job) -> Self {
        let Job {
            known: _,
            gone: _,
            deleting: _,
            rv,
            end_requests,
            end_annotated,
            spec,
            valid,
            phase,
            milestones,
            decision,
            decided,
            groups,
            pods,
            services,
            surplus_pods: _,
            surplus_services: _,
            deleting_pods: _,
            attempts,
            planned_pods: _,
            planned_services: _,
            retry_at,
            status_stamp,
            acked_stamp,
            mirror,
            fenced_by,
            started_at,
            running_at,
            first_running_at,
            creating_at,
            unschedulable,
            stalled,
            adopted,
            ended_at,
            finals,
            quarantine: _,
            deadline,
            waits_below,
            slot_counts,
            dead,
            orphan_since,
            trail,
            admitted_at,
            past_container_restarts,
            container_restarts,
            key,
        } = job;
        let key = key.filter(|_| !pods.is_empty());
        let rest = Rest {
            end_requests,
            pods,
            services,
            attempts,
            retry_at,
            unschedulable,
            stalled,
            waits_below,
            slot_counts,
            dead,
            orphan_since,
            past_container_restarts,
            container_restarts,
            key,
        };
        let message = decision.as_ref().map_or("", |decision| &decision.cause().message);
        let milestones =
            milestones.into_iter().map(|Milestone { phase, at, message: text }| (phase, at, Words::of(text, message)));
        let trail = trail.into_iter().map(|Trail { stamp, at, text }| (stamp, at, Words::of(text, message)));
        let (milestones, trail) = (milestones.collect(), trail.collect());
        let mut finished = Self {
            rv,
            phase,
            end_annotated,
            spec,
            valid,
            milestones,
            decision: decision.map(Box::new),
            decided,
            status_stamp,
            acked_stamp,
            mirror,
            fenced_by,
            adopted,
            groups: groups.into_iter().map(|(name, group)| (name, FinishedGroup::of(*group))).collect(),
            finals: finals.into_iter().collect(),
            started_at,
            running_at,
            first_running_at,
            creating_at,
            admitted_at,
            ended_at,
            deadline,
            trail,
            rest: (rest != Rest::default()).then(|| Box::new(rest)),
        };
        finished.share_names();
        finished
    }

    /// Returns the job that was finished.
    pub(crate) fn job(&self) -> Job {
        let Rest {
            end_requests,
            pods,
            services,
            attempts,
            retry_at,
            unschedulable,
            stalled,
            waits_below,
            slot_counts,
            dead,
            orphan_since,
            past_container_restarts,
            container_restarts,
            key,
        } = self.rest.as_deref().cloned().unwrap_or_default();
        let message = self.decision.as_ref().map_or("", |decision| &decision.cause().message);
        let milestone = |(phase, at, words): &(Phase, Timestamp, Words)| Milestone {
            phase: *phase,
            at: *at,
            message: words.text(message),
        };
        let entry = |(stamp, at, words): &(Stamp, Timestamp, Words)| Trail {
            stamp: *stamp,
            at: *at,
            text: words.text(message),
        };
        Job {
            known: true,
            gone: false,
            deleting: false,
            rv: self.rv,
            end_requests,
            end_annotated: self.end_annotated,
            spec: self.spec.clone(),
            valid: self.valid.clone(),
            phase: self.phase,
            milestones: self.milestones.iter().map(milestone).collect(),
            decision: self.decision.as_deref().cloned(),
            decided: self.decided,
            groups: self.groups.iter().map(|(name, group)| (name.clone(), Box::new(group.group()))).collect(),
            pods,
            services,
            surplus_pods: BTreeSet::new(),
            surplus_services: BTreeSet::new(),
            deleting_pods: BTreeSet::new(),
            attempts,
            planned_pods: BTreeSet::new(),
            planned_services: BTreeSet::new(),
            retry_at,
            status_stamp: self.status_stamp,
            acked_stamp: self.acked_stamp,
            mirror: self.mirror,
            fenced_by: self.fenced_by,
            started_at: self.started_at,
            running_at: self.running_at,
            first_running_at: self.first_running_at,
            creating_at: self.creating_at,
            unschedulable,
            stalled,
            adopted: self.adopted,
            ended_at: self.ended_at,
            finals: self.finals.iter().cloned().collect(),
            quarantine: None,
            deadline: self.deadline,
            waits_below,
            slot_counts,
            dead,
            orphan_since,
            trail: self.trail.iter().map(entry).collect(),
            admitted_at: self.admitted_at,
            past_container_restarts,
            container_restarts,
            key,
        }
    }

    pub(crate) const fn summary(&self) -> JobSummary {
        JobSummary { known: true, gone: false, phase: self.phase, rv: self.rv, acked_stamp: self.acked_stamp }
    }

    /// The pods that stay.
    pub(crate) fn pods(&self) -> Option<&BTreeMap<Uid, Box<Pod>>> {
        self.rest.as_ref().map(|rest| &rest.pods)
    }

    /// The services that stay.
    pub(crate) fn services(&self) -> Option<&BTreeMap<Uid, Box<Service>>> {
        self.rest.as_ref().map(|rest| &rest.services)
    }

    /// Holds once what equals the same of another job.
    pub(crate) fn share(&mut self, near: &Self) {
        near.spec.iter().for_each(|spec| self.share_spec(spec));
        for ((.., words), (.., known)) in self.milestones.iter_mut().zip(&near.milestones) {
            words.share(known);
        }
        for ((.., words), (.., known)) in self.trail.iter_mut().zip(&near.trail) {
            words.share(known);
        }
    }

    /// Holds a spec once that equals another job's.
    pub(crate) fn share_spec(&mut self, known: &Arc<SpecFact>) {
        for spec in [&mut self.spec, &mut self.valid].into_iter().flatten() {
            if spec == known {
                *spec = Arc::clone(known);
            }
        }
    }

    /// Holds the names of the groups once: members read from a record or a checkpoint bring their own.
    fn share_names(&mut self) {
        for (name, _) in &self.groups {
            self.finals.iter_mut().for_each(|(known, _)| share(known, name));
            if let Some(Decision::End { cause, .. }) = self.decision.as_deref_mut() {
                cause.slots.iter_mut().for_each(|slot| share(&mut slot.group, name));
            }
        }
    }
}

impl FinishedGroup {
    fn of(group: Group) -> Self {
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
            misshapen,
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
            } = slot;
            let rest = SlotRest { pod, planned, cancelled, service, service_planned, failures, lost };
            FinishedSlot {
                incarnation,
                count,
                done,
                counter,
                last_gone,
                last_gone_rv,
                rest: (rest != SlotRest::default()).then(|| Box::new(rest)),
            }
        };
        let [missing, missing_services, done] = [missing, missing_services, done].map(|set| set.into_iter().collect());
        let rest = GroupRest { to_evaluate, delays, lost, misshapen };
        let rest = (rest != GroupRest::default()).then(|| Box::new(rest));
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
            rest,
        }
    }

    fn group(&self) -> Group {
        let GroupRest { to_evaluate, delays, lost, misshapen } = self.rest.as_deref().cloned().unwrap_or_default();
        Group {
            slots: self.slots.iter().map(FinishedSlot::slot).collect(),
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
            misshapen,
        }
    }
}

impl FinishedSlot {
    fn slot(&self) -> Slot {
        let SlotRest { pod, planned, cancelled, service, service_planned, failures, lost } =
            self.rest.as_deref().cloned().unwrap_or_default();
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
            last_gone: self.last_gone.clone(),
            last_gone_rv: self.last_gone_rv,
            lost,
            counter: self.counter,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::wire::job_value;
    use crate::wire::tests::{values, values2};

    #[test]
    fn a_job_that_wakes_is_the_one_that_was_finished() {
        for state in [values::state(), values2::state()] {
            let full = state.job(&values::key()).unwrap().into_owned();
            // What stands in the way is done; every other member is set.
            let mut job =
                Job { known: true, gone: false, deleting: false, quarantine: None, phase: Phase::Failed, ..full };
            for set in [&mut job.planned_pods, &mut job.planned_services] {
                set.clear();
            }
            for set in [&mut job.surplus_pods, &mut job.surplus_services, &mut job.deleting_pods] {
                set.clear();
            }
            job.services.values_mut().for_each(|service| service.deletion = None);
            assert!(job.may_be_finished());
            let finished = FinishedJob::of(job.clone());
            assert_eq!(job_value(&finished.job()), job_value(&job));
            assert_eq!(finished.pods().map(BTreeMap::len), Some(job.pods.len()));
        }
    }
}
