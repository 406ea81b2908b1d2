//! Folds facts in: first what is known, then the sets kept from it.
//!
//! Nothing is decided here. Stale facts, which older builds recorded, are passed over by the rules of [`crate::admit`].

pub(crate) mod answers;
mod owned;
mod pods;
mod services;

use std::collections::BTreeMap;

use model::command::Outcome;
use model::{
    Awaits, Edits, Fact, JobFact, JobKey, JudgedNode, Kind, NodeFact, ObjectRef, OwnedSpec, Phase, ScalingStep, SlotId,
    SpecFact, Stamp, Text, Timestamp,
};

use crate::allocation::Allocation;
use crate::job::Job;
use crate::nodes::{Node, NodeView};
use crate::queues::speed_samples;
use crate::slots;
use crate::state::{Behaviour, Dirty, Scope, State};

/// A fact that cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fact {fact} does not belong in a {scope} record")]
pub struct FactError {
    /// The kind of fact.
    pub fact: &'static str,
    /// `job` or `cluster`.
    pub scope: &'static str,
}

impl State {
    /// Takes a fact in. Returns the jobs it touched; a job touched by a cluster fact gets its own record with the facts given.
    ///
    /// # Errors
    /// Returns an error if the fact does not belong in a record of that scope.
    pub fn observe(&mut self, scope: &Scope, fact: &Fact) -> Result<Dirty, FactError> {
        match scope {
            Scope::Cluster => self.observe_cluster(fact),
            Scope::Queues if matches!(fact, Fact::SchedulingCycle { .. }) => Ok(Dirty::new()),
            Scope::Queues => Err(FactError { fact: fact.name(), scope: "queues" }),
            Scope::Job(key) => {
                self.observe_job(key, fact)?;
                Ok(Dirty::from([(key.clone(), Vec::new())]))
            }
        }
    }

    fn observe_cluster(&mut self, fact: &Fact) -> Result<Dirty, FactError> {
        match fact {
            Fact::TermBegan { term } => {
                self.terms.push((*term, self.stamp.position));
                // Pods of others and namespaces may have come and gone meanwhile.
                self.list_rvs.retain(|kind, _| !Kind::ON_DEMAND.contains(kind));
                self.queues.begin_term(self.at.plus_ms(self.config.quiet_ms));
                Ok(Dirty::new())
            }
            Fact::Configured(config) => {
                let changed = self.config != **config;
                self.config = (**config).clone();
                self.queues.begin_term(self.at.plus_ms(self.config.quiet_ms));
                self.refresh_gates();
                let again = if changed { vec![Fact::Due] } else { Vec::new() };
                Ok(self.jobs.keys().map(|key| (key.clone(), again.clone())).collect())
            }
            Fact::Node(node) => Ok(self.observe_node(node)),
            Fact::Class(class) => {
                self.queues.classes.by_name.insert(class.name.clone(), (**class).clone());
                Ok(self.classes_changed())
            }
            Fact::ClassGone { name } => {
                self.queues.classes.by_name.remove(name);
                Ok(self.classes_changed())
            }
            Fact::Quota(quota) => {
                self.queues.coordinator.set_quota((**quota).clone());
                Ok(Dirty::new())
            }
            Fact::QuotaGone { namespace, name } => {
                self.queues.coordinator.remove_quota(namespace, name);
                Ok(Dirty::new())
            }
            Fact::Namespace(namespace) => {
                self.queues.set_namespace((**namespace).clone());
                Ok(Dirty::new())
            }
            Fact::NamespaceGone { name } => {
                self.queues.remove_namespace(name);
                Ok(Dirty::new())
            }
            Fact::ForeignUse { node, gpus, requests } => {
                let known = self.foreign_requests.get(node).into_iter().flatten();
                let frees = |(resource, known): (&Text, &u64)| requests.get(resource).is_none_or(|now| now < known);
                let is_room = known.into_iter().any(frees);
                if is_room || self.foreign.get(node).unwrap_or(&BTreeMap::new()) != gpus {
                    self.queues.nodes_changed(None);
                }
                set(&mut self.foreign, node, gpus);
                set(&mut self.foreign_requests, node, requests);
                Ok(Dirty::new())
            }
            Fact::NodeGone { name } => {
                self.nodes.remove(name);
                let mut dirty = self.on_node(name);
                self.capacity_changed(None, &mut dirty);
                Ok(dirty)
            }
            Fact::Relisted { kind, of, rv } => {
                let first = self.list_rv(*kind, None).0 == 0;
                let known = match of {
                    None => self.list_rvs.entry(*kind).or_default(),
                    Some(of) => self.source_list_rvs.entry((*kind, of.clone())).or_default(),
                };
                *known = (*known).max(*rv);
                // Only with the first list is one that is not known known to be missing.
                match kind {
                    Kind::Class if first => return Ok(self.classes_changed()),
                    Kind::Node if first => return Ok(self.nodes_are_listed()),
                    Kind::Foreign | Kind::Namespace => self.queues.nodes_changed(None),
                    Kind::Class | Kind::Quota | Kind::Node | Kind::Job | Kind::Pod | Kind::Service | Kind::Owned => {}
                }
                Ok(Dirty::new())
            }
            Fact::Job(_)
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
            | Fact::WaitReported(_)
            | Fact::Dequeued
            | Fact::Measured { .. }
            | Fact::NodeFound { .. }
            | Fact::SchedulingCycle { .. }
            | Fact::ShareChanged(_)
            | Fact::QueueReported(_) => Err(FactError { fact: fact.name(), scope: "cluster" }),
        }
    }

    /// Touches the jobs with pods on nodes that are missing.
    fn nodes_are_listed(&self) -> Dirty {
        let missing = self.on_node.keys().filter(|name| !self.nodes.contains_key(*name));
        let mut dirty = Dirty::new();
        for (key, facts) in missing.flat_map(|name| self.on_node(name)) {
            dirty.entry(key).or_default().extend(facts);
        }
        dirty
    }

    fn observe_node(&mut self, fact: &NodeFact) -> Dirty {
        let since = if fact.ready { None } else { Some(self.at) };
        if self.is_stale_node(fact) {
            return Dirty::new();
        }
        // Labels matter to queues alone.
        let is_relabelled = self.nodes.get(&fact.name).is_some_and(|node| {
            let known = node.fact.judged();
            known != fact.judged() && JudgedNode { labels: known.labels, ..fact.judged() } == known
        });
        match self.nodes.get_mut(&fact.name) {
            Some(node) => {
                node.not_ready_since = if fact.ready { None } else { node.not_ready_since.or(since) };
                node.fact = fact.clone();
            }
            None => {
                self.nodes.insert(fact.name.clone(), Node { fact: fact.clone(), not_ready_since: since });
            }
        }
        let mut dirty = if is_relabelled { Dirty::new() } else { self.on_node(&fact.name) };
        let since = self.nodes.get(&fact.name).and_then(|node| node.not_ready_since);
        self.capacity_changed(since.map(|since| since.plus_ms(self.config.node_grace_ms)), &mut dirty);
        dirty
    }

    /// Notes that nodes changed, for the queues: now, and at the time at which one counts as lost.
    fn capacity_changed(&mut self, lost_at: Option<Timestamp>, dirty: &mut Dirty) {
        self.queues.nodes_changed(lost_at);
        if self.queues.offer(&self.nodes) {
            for key in self.refresh_gates() {
                dirty.entry(key).or_default().push(Fact::Due);
            }
        }
    }

    /// Touches the live jobs with pods on a node, or with places there that wait for it. Nothing follows from it for a finished one.
    fn on_node(&self, name: &model::Text) -> Dirty {
        let with_pods = self.on_node.get(name).into_iter().flat_map(|jobs| jobs.keys()).map(|key| &**key);
        let jobs = with_pods.chain(self.queues.jobs_with_places_on(name)).filter(|key| self.jobs.live(key).is_some());
        jobs.map(|key| (key.clone(), vec![Fact::NodeChanged { name: name.clone() }])).collect()
    }

    fn observe_job(&mut self, key: &JobKey, fact: &Fact) -> Result<(), FactError> {
        let (at, stamp) = (self.at, self.stamp);
        let collects = self.behaviour.collects_owned();
        let tells_of_an_end =
            matches!(fact, Fact::JobGone | Fact::PodGone { .. } | Fact::ServiceGone { .. } | Fact::OwnedGone { .. })
                || matches!(fact, Fact::Owned(fact) if !collects || !fact.keep.ends_with_job());
        let new = || Job { orphan_since: Some(at), ..Job::default() };
        let job = if tells_of_an_end { self.jobs.get_mut(key) } else { self.jobs.get_or_insert(key, new) };
        let Some(job) = job.filter(|job| !job.is_stale(fact)) else { return Ok(()) };
        let node_view = NodeView::new(&self.nodes, &self.list_rvs, &self.config);
        let turn = Turn { at, stamp, behaviour: self.behaviour, node_view };
        let mut moves = Vec::new();
        match fact {
            Fact::Job(fact) => Turn::job(job, fact),
            Fact::Spec(fact) => turn.spec(job, fact),
            Fact::JobGone => {
                // No mirror tells its share any more. Its pods count as long as they are there.
                job.allocation = Allocation { gated: job.allocation.gated, ..Allocation::default() };
                job.gone = true;
                job.orphan_since = Some(at);
            }
            Fact::Pod(fact) => turn.pod(job, fact, &mut moves),
            Fact::PodGone { uid, rv } => turn.pod_gone(job, uid, *rv, &mut moves),
            Fact::Service(fact) => turn.service(job, fact),
            Fact::ServiceGone { uid } => turn.service_gone(job, uid),
            Fact::Owned(fact) => turn.owned(job, fact),
            Fact::OwnedGone { uid } => turn.owned_gone(job, uid),
            Fact::NodeChanged { name } => {
                let here: Vec<SlotId> = job
                    .pods
                    .values()
                    .filter(|p| p.fact.node.as_ref() == Some(name))
                    .filter_map(|p| p.fact.slot.clone())
                    .collect();
                for slot in here {
                    slots::refresh(job, &slot, &turn.node_view);
                }
            }
            Fact::Answered { object, outcome } => {
                answers::answered(job, object, outcome, stamp, at, &self.config);
                // A slot whose creation was given up needs a pod again.
                if let ObjectRef::Pod(id) = object {
                    slots::refresh(job, id, &turn.node_view);
                }
            }
            Fact::Published { stamp, rv } => {
                job.acked_stamp = job.acked_stamp.max(*stamp);
                answers::forget(job, &ObjectRef::Status, self.stamp);
                if *rv > job.rv {
                    job.rv = *rv;
                    job.mirror = *stamp;
                }
            }
            Fact::Due => {
                let names: Vec<_> = job.groups.keys().cloned().collect();
                for name in names {
                    slots::refresh_group(job, &name, &turn.node_view);
                }
            }
            Fact::Adopted(adopted) => {
                let pods: Vec<_> = job.pods.values().filter_map(|p| p.fact.node.clone()).collect();
                moves.extend(pods.into_iter().map(|node| (Some(node), None)));
                crate::adopt::adopt(job, adopted, stamp, at);
            }
            Fact::QueueReported(report) => {
                let model::QueueReport { speed_samples, .. } = &**report;
                speed_samples::add_all(&mut job.speed_samples, speed_samples);
                job.report = Some(Box::new(model::QueueReport { speed_samples: Vec::new(), ..(**report).clone() }));
                job.status_stamp = stamp;
            }
            Fact::WaitReported(why) => {
                job.wait_reason.clone_from(why);
                job.status_stamp = stamp;
            }
            Fact::Measured { latency_us } => {
                if let Some(own) = job.autoscaler.as_mut().filter(|own| own.next == ScalingStep::ReadLog) {
                    own.next = ScalingStep::Judge { latency_us: *latency_us };
                }
            }
            Fact::NodeFound { node } => job.storage_found(node, stamp, at),
            Fact::Dequeued => {
                job.dequeued_at = Some(at);
                job.status_stamp = stamp;
            }
            Fact::ShareChanged(change) => {
                let loses_all = change.share.is_empty() && !job.allocation.share.is_empty();
                if loses_all && self.behaviour.pauses_limits() && job.pause_limit(at) {
                    self.format = self.format.max(7);
                }
                job.change_share(change, stamp, at);
                if job.allocation.stamp == stamp {
                    job.status_stamp = stamp;
                    slots::leave_share(job, stamp);
                    turn.resize(job);
                }
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
            | Fact::SchedulingCycle { .. } => return Err(FactError { fact: fact.name(), scope: "job" }),
        }
        job.note_unplaced(at);
        let tells_of_gates = matches!(
            fact,
            Fact::Spec(_)
                | Fact::Owned(_)
                | Fact::OwnedGone { .. }
                | Fact::Answered { object: ObjectRef::Owned(_), .. }
        );
        if tells_of_gates {
            self.refresh_gate(key);
            self.show_classes(key);
        }
        for (from, to) in moves {
            self.moved(key, from.as_ref(), to.as_ref());
        }
        Ok(())
    }
}

type Moves = Vec<(Option<model::Text>, Option<model::Text>)>;

/// The record that is observed, and what is known besides the job.
pub(crate) struct Turn<'a> {
    at: Timestamp,
    pub(crate) stamp: Stamp,
    pub(crate) behaviour: Behaviour,
    pub(crate) node_view: NodeView<'a>,
}

impl Turn<'_> {
    fn job(job: &mut Job, fact: &JobFact) {
        job.known = true;
        job.orphan_since = None;
        job.rv = fact.rv;
        job.deleting = fact.deleting;
        job.end_requests.clone_from(&fact.end_requests);
        // Once written it is not written again: taking it away is the user's business.
        job.end_annotated |= fact.end_annotated;
        job.finalizers.clone_from(&fact.finalizers);
        job.finalized = fact.finalized;
        job.reported_end.clone_from(&fact.reported_end);
        // A report stands until there is another.
        if fact.progress.is_some() {
            job.progress.clone_from(&fact.progress);
        }
        job.mirror = fact.mirror;
        job.acked_stamp = job.acked_stamp.max(fact.mirror);
    }

    fn spec(&self, job: &mut Job, fact: &SpecFact) {
        let fact = std::sync::Arc::new(fact.clone());
        // An edit after the ending was decided changes nothing any more.
        let too_late = job.valid.is_some() && job.ending().is_some();
        if fact.spec.is_ok() && !too_late {
            let edited = job.valid.is_some();
            let before = job.spec().and_then(crate::autoscaler::settings).map(|(_, replicas)| replicas);
            job.valid = Some(job.sized(in_force(job, &fact)));
            // What was refused may be accepted now.
            job.attempts.retain(|_, attempt| !matches!(attempt.last, Outcome::Refused { .. }));
            slots::rebuild_slots(job, edited, self);
            job.follow_edit(before);
            let waits = matches!(job.phase, Phase::New | Phase::Suspended)
                || job.phase.is_terminal()
                || (matches!(job.phase, Phase::Pending | Phase::Preparing)
                    && (job.spec().is_some_and(|spec| spec.phase_rules.queued)
                        || self.behaviour.pauses_limits() && job.mirror != Stamp::default()));
            if !waits {
                // The object of another operator, or one whose clock counted from elsewhere before.
                job.admit(job.started_at.unwrap_or(self.at));
            }
        }
        if job.spec.is_some() || fact.spec.is_err() || !fact.warnings.is_empty() {
            job.status_stamp = self.stamp;
        }
        job.spec = Some(fact);
    }

    /// Brings the numbers of pods in step with the share, where the queues choose them.
    fn resize(&self, job: &mut Job) {
        let Some(valid) = &job.valid else { return };
        let sized = job.sized(valid.clone());
        if !std::sync::Arc::ptr_eq(&sized, valid) {
            job.valid = Some(sized);
            slots::rebuild_slots(job, true, self);
        }
    }
}

/// Returns the spec that is in force after an edit: with what objects are rendered from as it was, where that cannot change
/// under the job's pods.
fn in_force(job: &Job, edit: &std::sync::Arc<SpecFact>) -> std::sync::Arc<SpecFact> {
    let Some(valid) = job.valid.as_ref().filter(|_| job.has_lasting_pods()) else { return edit.clone() };
    match edit.spec.as_ref().map(|spec| spec.edits).unwrap_or_default() {
        Edits::BeforePods => return valid.clone(),
        Edits::Numbers if valid.manifest != edit.manifest => {}
        Edits::Numbers | Edits::All => return edit.clone(),
    }
    let mut kept = SpecFact { manifest: valid.manifest.clone(), ..(**edit).clone() };
    // What the job owns is rendered from the same manifest, and its digests are those of it. A gate counts the pods that are asked
    // for: with others the job is halted, and the edit takes effect.
    if let (Ok(spec), Ok(before)) = (&mut kept.spec, &valid.spec) {
        let is_gate = |owned: &OwnedSpec| owned.awaits == Awaits::Admitted;
        spec.owned.retain(is_gate);
        spec.owned.extend(before.owned.iter().filter(|owned| !is_gate(owned)).cloned());
    }
    kept.into()
}

/// Sets what is known of a name; nothing is held of one without amounts.
fn set<V: Clone>(of: &mut BTreeMap<Text, BTreeMap<Text, V>>, name: &Text, amounts: &BTreeMap<Text, V>) {
    if amounts.is_empty() {
        of.remove(name);
    } else {
        of.insert(name.clone(), amounts.clone());
    }
}
