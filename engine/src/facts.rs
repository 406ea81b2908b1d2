//! Applies facts: first what is known, then the sets kept from it.
//!
//! Nothing is decided here, and every fact is applied: [`crate::handle`] decides which facts come this far.

pub(crate) mod answers;
mod cluster;
mod owned;
mod pods;
mod services;
mod spec;

use model::{JobFact, JobKey, ObjectRef, QueueFact, ScalingStep, SlotId, Text};

use crate::allocation::Allocation;
use crate::job::Job;
use crate::nodes::NodeView;
use crate::queues::speed_samples;
use crate::record_context::RecordContext;
use crate::slots;
use crate::state::State;

/// Pods that came to a node, or left one: the node before, and the node since.
type Moves = Vec<(Option<Text>, Option<Text>)>;

impl State {
    /// Applies a fact about the queues. It changes nothing: what follows from it are the events of the same record.
    pub fn apply_queue_fact(&mut self, fact: &QueueFact) {
        self.format = self.format.max(crate::wire::format::of_queue_fact(fact));
    }

    /// Applies a fact about a job. One that is older than what is known of its object, which older builds recorded, changes nothing.
    pub fn apply_job_fact(&mut self, key: &JobKey, fact: &JobFact) {
        self.format = self.format.max(crate::wire::format::of_job_fact(fact));
        let (at, stamp) = (self.at, self.stamp);
        let collects = self.behaviour.collects_owned();
        let is_end = matches!(
            fact,
            JobFact::Gone | JobFact::PodGone { .. } | JobFact::ServiceGone { .. } | JobFact::OwnedGone { .. }
        ) || matches!(fact, JobFact::Owned(fact) if !collects || !fact.keep.ends_with_job());
        let new = || Job { orphan_since: Some(at), ..Job::default() };
        let job = if is_end { self.jobs.get_mut(key) } else { self.jobs.get_or_insert(key, new) };
        let Some(job) = job.filter(|job| !job.is_stale(fact)) else { return };
        let node_view = NodeView::new(&self.nodes, &self.list_rvs, &self.config);
        let context = RecordContext { at, stamp, behaviour: self.behaviour, node_view };
        let mut moves = Moves::new();
        match fact {
            JobFact::Object(fact) => spec::object(job, fact),
            JobFact::Spec(fact) => context.spec(job, fact),
            JobFact::Gone => {
                // No mirror shows its share any more. Its pods count as long as they are there.
                job.allocation = Allocation { gated: job.allocation.gated, ..Allocation::default() };
                job.object.note_gone();
                job.orphan_since = Some(at);
            }
            JobFact::Pod(fact) => context.pod(job, fact, &mut moves),
            JobFact::PodGone { uid, rv } => context.pod_gone(job, uid, *rv, &mut moves),
            JobFact::Service(fact) => context.service(job, fact),
            JobFact::ServiceGone { uid } => context.service_gone(job, uid),
            JobFact::Owned(fact) => context.owned(job, fact),
            JobFact::OwnedGone { uid } => context.owned_gone(job, uid),
            JobFact::NodeChanged { name } => {
                let here: Vec<SlotId> = job
                    .pods
                    .values()
                    .filter(|p| p.fact.node.as_ref() == Some(name))
                    .filter_map(|p| p.fact.slot.clone())
                    .collect();
                for slot in here {
                    slots::refresh(job, &slot, &context.node_view);
                }
            }
            JobFact::Answered { object, outcome } => {
                answers::answered(job, object, outcome, stamp, at, &self.config);
                // A slot whose creation was given up needs a pod again.
                if let ObjectRef::Pod(id) = object {
                    slots::refresh(job, id, &context.node_view);
                }
            }
            JobFact::Published { stamp, rv } => {
                if job.object.observe_version(*rv) {
                    job.stamps.observe(*stamp);
                } else {
                    job.stamps.acknowledge(*stamp);
                }
                answers::forget(job, &ObjectRef::Status, self.stamp);
            }
            JobFact::Due => {
                let names: Vec<_> = job.groups.keys().cloned().collect();
                for name in names {
                    slots::refresh_group(job, &name, &context.node_view);
                }
            }
            JobFact::Adopted(adopted) => {
                let pods: Vec<_> = job.pods.values().filter_map(|p| p.fact.node.clone()).collect();
                moves.extend(pods.into_iter().map(|node| (Some(node), None)));
                crate::adopt::adopt(job, adopted, stamp, at);
            }
            JobFact::QueueReported(report) => {
                let model::QueueReport { speed_samples, .. } = &**report;
                speed_samples::add_all(&mut job.speed_samples, speed_samples);
                job.report = Some(Box::new(model::QueueReport { speed_samples: Vec::new(), ..(**report).clone() }));
                job.stamps.change(stamp);
            }
            JobFact::WaitReported(why) => {
                job.wait_reason.clone_from(why);
                job.stamps.change(stamp);
            }
            JobFact::Measured { latency_us } => {
                if let Some(own) = job.autoscaler.as_mut().filter(|own| own.next == ScalingStep::ReadLog) {
                    own.next = ScalingStep::Judge { latency_us: *latency_us };
                }
            }
            JobFact::NodeFound { node } => job.storage_found(node, stamp, at),
            JobFact::Dequeued => {
                job.dequeued_at = Some(at);
                job.stamps.change(stamp);
            }
            JobFact::ShareChanged(change) => {
                let loses_all = change.share.is_empty() && !job.allocation.share.is_empty();
                if loses_all && self.behaviour.pauses_limits() && job.pause_limit(at) {
                    self.format = self.format.max(7);
                }
                job.change_share(change, stamp, at);
                if job.allocation.stamp == stamp {
                    job.stamps.change(stamp);
                    slots::leave_share(job, stamp);
                    context.resize(job);
                }
            }
        }
        job.note_unplaced(at);
        let changes_gates = matches!(
            fact,
            JobFact::Spec(_)
                | JobFact::Owned(_)
                | JobFact::OwnedGone { .. }
                | JobFact::Answered { object: ObjectRef::Owned(_), .. }
        );
        if changes_gates {
            self.refresh_gate(key);
            self.show_classes(key);
        }
        for (from, to) in moves {
            self.moved(key, from.as_ref(), to.as_ref());
        }
    }
}
