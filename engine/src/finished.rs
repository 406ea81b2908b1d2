//! Holds a job that has ended and has nothing left to do, in a compact form.
//!
//! Owns which jobs may be finished, the compact form, and the way there and back. It must not lose anything: a job that wakes is the
//! one that was finished, down to what a checkpoint holds of it. Tests: at the end of this file; `snapshots/tests/walks.rs`.

mod message;
mod shared_outcome;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::fact::{EndRequest, Milestone, ReportedEnd};
use model::{
    Decision, Incarnation, JobKey, ObjectRef, OwnedRef, ResourceVersion, SpecFact, Stamp, Text, Timestamp, Uid,
};

use self::message::Message;
use self::shared_outcome::{Gone, SharedOutcome};
use crate::allocation::Allocation;
use crate::autoscaler::JobAutoscaler;
use crate::job::{Attempt, Job, Owned, Pod, Service, Trail};
use crate::jobs::JobSummary;
use crate::object_state::ObjectState;
use crate::retry_counts::RetryCounts;
use crate::status_stamps::StatusStamps;
use crate::storage::JobStorage;

/// A job that has ended. Its object is there, and what is left of its pods and services stays.
#[derive(Debug, Clone)]
pub(crate) struct FinishedJob {
    outcome: Arc<SharedOutcome>,
    rv: ResourceVersion,
    decided: Stamp,
    stamps: StatusStamps,
    adopted: Stamp,
    /// Message of the decision that the outcome holds.
    message: Text,
    /// Times of the outcome's milestones.
    milestones: Box<[Timestamp]>,
    /// Places of the outcome's trail.
    trail: Box<[(Stamp, Timestamp)]>,
    /// Pods that last left the slots of the outcome's groups.
    gone: Box<[Gone]>,
    started_at: Option<Timestamp>,
    running_at: Option<Timestamp>,
    first_running_at: Option<Timestamp>,
    creating_at: Option<Timestamp>,
    admitted_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    deadline: Option<Timestamp>,
    details: Option<Box<Details>>,
}

/// Members that are empty in most finished jobs.
#[derive(Debug, Clone, Default, PartialEq)]
struct Details {
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
    retry_counts: RetryCounts,
    /// Kept while there are pods: the index of nodes holds it.
    key: Option<Arc<JobKey>>,
    owned: BTreeMap<OwnedRef, Box<Owned>>,
    finalizers: Vec<Text>,
    finalized: bool,
    reported_end: Option<Box<ReportedEnd>>,
    allocation: Allocation,
    report: Option<Box<model::QueueReport>>,
    progress: Option<Box<model::Progress>>,
    speed_samples: Vec<model::SpeedSample>,
    users: model::UserCounts,
    dequeued_at: Option<Timestamp>,
    autoscaler: Option<Box<JobAutoscaler>>,
    storage: Option<Box<JobStorage>>,
}

impl Job {
    /// Returns true if it has ended, its object is there, and nothing of it is planned or being deleted. Pods and services that
    /// stay are no obstacle, nor is a deadline.
    pub(crate) fn may_be_finished(&self) -> bool {
        let has_ended = self.object.is_present() && self.phase.is_terminal();
        has_ended
            && self.quarantine.is_none()
            && self.planned_pods.is_empty()
            && self.planned_services.is_empty()
            && self.surplus_pods.is_empty()
            && self.surplus_services.is_empty()
            && self.deleting_pods.is_empty()
            && self.allocation.released.is_empty()
            && self.allocation.share.is_empty()
            && self.services.values().all(|service| service.deletion.is_none())
            && self.owned.values().all(|owned| !owned.planned && owned.deletion.is_none())
    }
}

impl FinishedJob {
    /// Takes over a job that [may be finished](Job::may_be_finished).
    pub(crate) fn of(job: Job) -> Self {
        let Job {
            object,
            spec,
            valid,
            phase,
            milestones,
            mut decision,
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
            stamps,
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
            limit_paused_at: _,
            retry_counts,
            owned,
            finalizers,
            finalized,
            reported_end,
            allocation,
            report,
            progress,
            speed_samples,
            users,
            dequeued_at,
            autoscaler,
            storage,
            wait_reason: _,
            quota_short: _,
            unknown_classes: _,
            key,
        } = job;
        let key = key.filter(|_| !pods.is_empty());
        let (rv, end_requests, end_annotated) = object.into_metadata();
        let details = Details {
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
            retry_counts,
            key,
            owned,
            finalizers,
            finalized,
            reported_end,
            allocation,
            report,
            progress,
            speed_samples,
            users,
            dequeued_at,
            autoscaler,
            storage,
        };
        let message = decision.as_mut().map(|decision| std::mem::take(message_of(decision))).unwrap_or_default();
        let (milestones, phases): (Vec<_>, Vec<_>) = milestones
            .into_iter()
            .map(|Milestone { phase, at, message: text }| (at, (phase, Message::of(text, &message))))
            .unzip();
        let (trail, notes): (Vec<_>, Vec<_>) =
            trail.into_iter().map(|Trail { stamp, at, text }| ((stamp, at), Message::of(text, &message))).unzip();
        let (groups, gone) = shared_outcome::groups_of(groups);
        let outcome = SharedOutcome {
            spec,
            valid,
            phase,
            end_annotated,
            decision,
            milestones: phases.into(),
            trail: notes.into(),
            groups,
            finals: finals.into_iter().collect(),
        };
        Self {
            outcome: Arc::new(outcome.with_shared_names()),
            rv,
            decided,
            stamps,
            adopted,
            message,
            milestones: milestones.into(),
            trail: trail.into(),
            gone: gone.into(),
            started_at,
            running_at,
            first_running_at,
            creating_at,
            admitted_at,
            ended_at,
            deadline,
            details: (details != Details::default()).then(|| Box::new(details)),
        }
    }

    /// Returns the job that was finished.
    pub(crate) fn job(&self) -> Job {
        let Details {
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
            retry_counts,
            key,
            owned,
            finalizers,
            finalized,
            reported_end,
            allocation,
            report,
            progress,
            speed_samples,
            users,
            dequeued_at,
            autoscaler,
            storage,
        } = self.details.as_deref().cloned().unwrap_or_default();
        let SharedOutcome { spec, valid, phase, end_annotated, decision, milestones, trail, groups, finals } =
            &*self.outcome;
        let mut decision = decision.clone();
        if let Some(decision) = &mut decision {
            *message_of(decision) = self.message.clone();
        }
        let milestone = |(at, (phase, held)): (&Timestamp, &(_, Message))| Milestone {
            phase: *phase,
            at: *at,
            message: held.text(&self.message),
        };
        let note = |((stamp, at), held): (&(Stamp, Timestamp), &Message)| Trail {
            stamp: *stamp,
            at: *at,
            text: held.text(&self.message),
        };
        Job {
            object: ObjectState::present(self.rv).with_metadata(end_requests, *end_annotated),
            spec: spec.clone(),
            valid: valid.clone(),
            phase: *phase,
            milestones: self.milestones.iter().zip(milestones).map(milestone).collect(),
            decision,
            decided: self.decided,
            groups: shared_outcome::groups(groups, &self.gone),
            pods,
            services,
            surplus_pods: BTreeSet::new(),
            surplus_services: BTreeSet::new(),
            deleting_pods: BTreeSet::new(),
            attempts,
            planned_pods: BTreeSet::new(),
            planned_services: BTreeSet::new(),
            retry_at,
            stamps: self.stamps,
            started_at: self.started_at,
            running_at: self.running_at,
            first_running_at: self.first_running_at,
            creating_at: self.creating_at,
            unschedulable,
            stalled,
            adopted: self.adopted,
            ended_at: self.ended_at,
            finals: finals.iter().cloned().collect(),
            quarantine: None,
            deadline: self.deadline,
            waits_below,
            slot_counts,
            dead,
            orphan_since,
            trail: self.trail.iter().zip(trail).map(note).collect(),
            admitted_at: self.admitted_at,
            limit_paused_at: None,
            retry_counts,
            owned,
            finalizers,
            finalized,
            reported_end,
            allocation,
            report,
            progress,
            speed_samples,
            users,
            dequeued_at,
            autoscaler,
            storage,
            wait_reason: None,
            quota_short: None,
            unknown_classes: Vec::new(),
            key,
        }
    }

    pub(crate) fn summary(&self) -> JobSummary {
        JobSummary {
            known: true,
            gone: false,
            phase: self.outcome.phase,
            rv: self.rv,
            acked_stamp: self.stamps.acknowledged(),
        }
    }

    /// The pods that stay.
    pub(crate) fn pods(&self) -> Option<&BTreeMap<Uid, Box<Pod>>> {
        self.details.as_ref().map(|details| &details.pods)
    }

    /// The services that stay.
    pub(crate) fn services(&self) -> Option<&BTreeMap<Uid, Box<Service>>> {
        self.details.as_ref().map(|details| &details.services)
    }

    /// The objects besides pods and services that stay.
    pub(crate) fn owned(&self) -> Option<&BTreeMap<OwnedRef, Box<Owned>>> {
        self.details.as_ref().map(|details| &details.owned)
    }

    /// Shares the outcome of another job if it is equal, or else its spec.
    pub(crate) fn share(&mut self, near: &Self) {
        near.outcome.spec.iter().for_each(|spec| self.share_spec(spec));
        if self.outcome == near.outcome {
            self.outcome = Arc::clone(&near.outcome);
        }
    }

    /// Shares a spec of another job if it is equal.
    pub(crate) fn share_spec(&mut self, known: &Arc<SpecFact>) {
        if let Some(outcome) = Arc::get_mut(&mut self.outcome) {
            for spec in [&mut outcome.spec, &mut outcome.valid].into_iter().flatten().filter(|spec| *spec == known) {
                *spec = Arc::clone(known);
            }
        }
    }
}

fn message_of(decision: &mut Decision) -> &mut Text {
    match decision {
        Decision::Restart { cause, .. } | Decision::Halt { cause, .. } | Decision::End { cause, .. } => {
            &mut cause.message
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::Phase;

    use super::*;
    use crate::wire::job_value;
    use crate::wire::tests::{values, values2, values3, values5, values6};

    #[test]
    fn a_job_that_wakes_is_the_one_that_was_finished() {
        for state in [values::state(), values2::state(), values3::state(), values5::state(), values6::state()] {
            let full = state.job(&values::key()).unwrap().into_owned();
            // What stands in the way is done; every other member is set.
            let object = full.object.clone().with_flags(true, false, false);
            let mut job = Job { object, quarantine: None, phase: Phase::Failed, ..full };
            for set in [&mut job.planned_pods, &mut job.planned_services] {
                set.clear();
            }
            for set in [&mut job.surplus_pods, &mut job.surplus_services, &mut job.deleting_pods] {
                set.clear();
            }
            job.services.values_mut().for_each(|service| service.deletion = None);
            job.owned.values_mut().for_each(|owned| (owned.planned, owned.deletion) = (false, None));
            assert!(job.may_be_finished());
            let finished = FinishedJob::of(job.clone());
            assert_eq!(job_value(&finished.job()), job_value(&job));
            assert_eq!(finished.pods().map_or(0, BTreeMap::len), job.pods.len());
            assert_eq!(finished.owned().map_or(0, BTreeMap::len), job.owned.len());
        }
    }
}
