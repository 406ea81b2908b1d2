//! Queues: which jobs may hold which places on nodes. Decided after the jobs of a turn, as records of their own.
//!
//! | module | subject |
//! |---|---|
//! | [`candidate`] | the part of a job that queues decide by |
//! | [`leftovers`] | pods whose job is not known, which count by what they request |
//! | [`speed_samples`] | speeds that jobs report, and what follows for others of their category |
//! | [`coordinator`] | enqueued jobs, which wait for no other object |
//! | [`classes`] | priorities of jobs that set none themselves |
//! | [`filter`] | which nodes could take a worker of a job |
//! | [`cycle`] | targets: a snapshot of the cluster, and the decision of `scheduler::scheduling` on it |
//! | [`namespaces`] | labels of namespaces, while a queue selects by them |
//! | [`queue_snapshots`] | queues and cohorts in the form of `scheduler::scheduling` |
//! | [`grant`] | targets become shares where there is room |
//! | [`report`] | reports on queues and on jobs that wait |
//! | [`forecast`] | when jobs that wait are expected to start |
//!
//! A *target* is what a job shall hold; a *share* is what it may hold now, and stands in the job's mirror before any of its pods
//! is created. Places that were given up count until a mirror without them is acknowledged and their pods are seen gone. So no
//! node and no quota is exceeded at any moment, whatever is lost or late. The scheduler sees targets, never what still counts.
//!
//! It must not create or delete anything: a job follows from its share ([`crate::decide`]). Folding a record needs no policy;
//! deciding it again does. Tests: the scenarios with GPUs, and the walks of queues (`snapshots/tests/walks/queues.rs`), with the audit
//! of `simulator` after every call.

mod adopted;
mod candidate;
mod classes;
pub(crate) mod coordinator;
mod cycle;
mod filter;
pub mod forecast;
mod foreign;
mod grant;
mod leftovers;
mod namespaces;
mod queue_snapshots;
pub mod report;
pub(crate) mod speed_samples;

use std::collections::{BTreeMap, BTreeSet};

use model::{
    JobFact, JobKey, Kind, LabelSelector, NamespaceFact, QueueEvent, QueueFact, QueueSpec, ShareTarget, TargetUpdate,
    Text, Timestamp,
};
use scheduler::MemoryChange;
use scheduler::scheduling::History;

use self::candidate::Candidate;
pub use self::classes::Classes;
use self::coordinator::Coordinator;
pub use self::queue_snapshots::{QueueSnapshots, ROOT_POLICY};
use self::speed_samples::Learning;
use crate::job::Job;
use crate::nodes::Node;
use crate::state::State;

/// Name of the queue of jobs that name none.
pub const ROOT: &str = "";

/// State of the queues: memory of the policies, targets, and the resources that count as GPUs.
#[derive(Debug, Clone, Default)]
pub struct Queues {
    /// Memory of the policies, and measurements of jobs.
    pub history: History,
    /// Targets that are not shares yet.
    pub targets: BTreeMap<JobKey, ShareTarget>,
    /// Resources that count as GPUs, in the order in which nodes offered them. Their index is the scheduler's GPU type.
    pub resources: Vec<Text>,
    /// Resources that some node offers now.
    pub(crate) offered: BTreeSet<Text>,
    /// Priority classes.
    pub classes: Classes,
    /// Namespaces by name, while a queue selects them by labels.
    pub(crate) namespaces: BTreeMap<Text, NamespaceFact>,
    /// Objects that are queues, by name.
    pub(crate) objects: BTreeMap<Text, (JobKey, Box<QueueSpec>)>,
    /// Jobs that hold places or ask for some.
    pub(crate) candidates: BTreeMap<JobKey, Candidate>,
    pub(crate) learning: Learning,
    pub(crate) trigger: CycleTrigger,
    /// Enqueued jobs.
    pub(crate) coordinator: Coordinator,
}

/// Decides when the next scheduling cycle begins. Derived from events of this process: after a start a whole cycle runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct CycleTrigger {
    /// Something changed that targets follow from.
    cycle: bool,
    /// Something changed that grants follow from.
    grants: bool,
    /// Time of the next cycle if nothing happens before.
    wake: Option<Timestamp>,
    /// Time before which no share grows.
    quiet_until: Option<Timestamp>,
    /// Time of the last cycle.
    last_cycle: Option<Timestamp>,
    /// Time of the last idle cycle that changed something. An idle cycle follows from the passing of time alone.
    woken: Option<Timestamp>,
}

/// Number of jobs up to which a change of any job begins a cycle at once. With more, cycles have the interval of the queues.
const MAX_JOBS_FOR_IMMEDIATE_CYCLE: usize = 500;

/// Least time in milliseconds between idle cycles. The first after news may follow it at once, so that the GPUs that one job gave up
/// go to the next. Without this a queue whose jobs are not protected (`minRunSeconds: 0`) might change its targets each millisecond.
const MIN_IDLE_CYCLE_INTERVAL_MS: u64 = 1000;

impl Queues {
    /// Returns true if there is anything to be kept.
    pub(crate) fn is_used(&self) -> bool {
        !self.targets.is_empty() || !self.resources.is_empty() || self.history != History::default()
    }

    /// Notes what a record changed of a job; `None` when it is forgotten.
    pub(crate) fn note(&mut self, key: &JobKey, job: Option<&Job>) {
        self.note_object(key, job);
        let objects = &self.objects;
        let news = self.learning.note(key, job, |queue| objects.contains_key(queue));
        self.trigger.cycle |= news.speeds;
        self.trigger.grants |= news.sample;
        let new = job.and_then(|job| Candidate::of(key, job, &self.classes));
        self.coordinator.note(key, job);
        let wants = new.as_ref().is_some_and(|candidate| candidate.wants);
        match self.targets.get(key) {
            Some(target) if !wants || job.is_some_and(|job| job.allocation.share == target.share) => {
                self.targets.remove(key);
            }
            Some(_) | None => {}
        }
        if self.candidates.get(key) == new.as_ref() {
            return;
        }
        self.trigger.grants = true;
        self.trigger.cycle |= match (self.candidates.get(key), &new) {
            (Some(old), Some(new)) => !old.asks_alike(new),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        };
        match new {
            Some(new) => self.candidates.insert(key.clone(), new),
            None => self.candidates.remove(key),
        };
    }

    /// Notes an object that is a queue. One that cannot be accepted, or is being deleted, admits nothing.
    fn note_object(&mut self, key: &JobKey, job: Option<&Job>) {
        let is_there = |job: &&Job| job.object.is_present() && job.quarantine.is_none();
        let spec = job.filter(is_there).and_then(|job| job.spec()?.queue.clone());
        let known = self.objects.get(&key.name).filter(|(known, _)| known == key);
        match (known, spec) {
            (None, None) => {}
            (Some((_, known)), Some(spec)) if *known == spec => {}
            (_, Some(spec)) => {
                self.objects.insert(key.name.clone(), (key.clone(), spec));
                self.trigger.cycle = true;
            }
            (Some(_), None) => {
                self.objects.remove(&key.name);
                self.trigger.cycle = true;
            }
        }
    }

    /// Returns the time before which no cycle begins.
    fn next_cycle(&self) -> Timestamp {
        let interval = self
            .objects
            .values()
            .map(|(_, spec)| spec.round_ms)
            .min()
            .filter(|_| self.candidates.len() > MAX_JOBS_FOR_IMMEDIATE_CYCLE);
        self.trigger.last_cycle.zip(interval).map_or_else(Timestamp::default, |(last, interval)| last.plus_ms(interval))
    }

    /// Notes the resources that nodes offer. Returns true if they are others than before.
    pub(crate) fn offer(&mut self, nodes: &BTreeMap<Text, Node>) -> bool {
        let offered: BTreeSet<Text> = nodes.values().flat_map(|node| node.fact.gpus.keys().cloned()).collect();
        for resource in &offered {
            if !self.resources.contains(resource) {
                self.resources.push(resource.clone());
            }
        }
        let changed = self.offered != offered;
        self.offered = offered;
        changed
    }

    /// Returns the jobs whose shares have places on a node, with or without pods there.
    pub(crate) fn jobs_with_places_on(&self, node: &Text) -> impl Iterator<Item = &JobKey> {
        let has_place =
            move |candidate: &Candidate| candidate.share.groups.values().flatten().any(|place| place == node);
        self.candidates.iter().filter(move |(_, candidate)| has_place(candidate)).map(|(key, _)| key)
    }

    /// Returns the job of a name, `namespace/name`, that holds or wants places.
    pub fn job_named(&self, name: &str) -> Option<&JobKey> {
        let (namespace, name) = name.split_once('/')?;
        let named = |key: &&JobKey| &*key.namespace == namespace && &*key.name == name;
        self.candidates.keys().filter(named).max_by_key(|key| self.targets.contains_key(*key))
    }

    /// Triggers a cycle, because nodes changed. `at`: the time at which they count as changed.
    pub(crate) fn nodes_changed(&mut self, at: Option<Timestamp>) {
        self.trigger.cycle = true;
        self.wake_at(at);
    }

    /// Triggers a whole cycle, at the start of a term.
    pub(crate) fn begin_term(&mut self, quiet_until: Timestamp) {
        self.coordinator.ask();
        self.trigger = CycleTrigger {
            cycle: true,
            grants: true,
            wake: Some(quiet_until),
            quiet_until: Some(quiet_until),
            last_cycle: None,
            woken: None,
        };
    }

    /// Notes that the samples of speeds that were pending are in reports.
    pub(crate) fn mark_reported(&mut self) {
        self.learning.mark_reported();
    }

    /// Returns true if a queue says that pods of other owners use its nodes.
    fn shares_nodes(&self) -> bool {
        self.objects.values().any(|(_, spec)| spec.shares_nodes)
    }

    /// Returns true if there is neither a job to decide on nor a queue to report about.
    fn is_idle(&self) -> bool {
        self.candidates.is_empty() && self.objects.is_empty()
    }

    fn wake_at(&mut self, at: Option<Timestamp>) {
        self.trigger.wake = self.trigger.wake.into_iter().chain(at).min();
    }
}

impl State {
    /// Returns the selector of the nodes of a queue; `None`: it takes all.
    pub fn nodes_of_queue(&self, name: &str) -> Option<&LabelSelector> {
        self.queues.objects.get(name)?.1.nodes.as_ref()
    }

    /// Returns true if objects of a kind of [`Kind::ON_DEMAND`] are to be watched: pods of other owners while a queue counts their GPUs,
    /// namespaces while a queue selects them by labels.
    pub fn watches(&self, kind: Kind) -> bool {
        match kind {
            Kind::Foreign => self.queues.shares_nodes(),
            Kind::Namespace => self.queues.reads_namespaces(),
            Kind::Job | Kind::Pod | Kind::Service | Kind::Node | Kind::Owned | Kind::Class | Kind::Quota => false,
        }
    }

    /// Returns true if GPUs of pods of other owners are counted.
    pub fn counts_foreign_pods(&self) -> bool {
        self.watches(Kind::Foreign)
    }

    /// Returns true if objects of a kind are to be watched and were not listed in this term.
    fn awaits_watched(&self) -> bool {
        Kind::ON_DEMAND.into_iter().any(|kind| self.watches(kind) && self.list_rv(kind, None).0 == 0)
    }

    /// Forgets the objects of a kind that is watched no longer.
    pub(crate) fn forget_watched(&mut self, kind: Kind) {
        self.list_rvs.remove(&kind);
        match kind {
            Kind::Foreign => {
                self.foreign.clear();
                self.foreign_requests.clear();
            }
            Kind::Namespace => self.queues.namespaces.clear(),
            Kind::Job | Kind::Pod | Kind::Service | Kind::Node | Kind::Owned | Kind::Class | Kind::Quota => {}
        }
    }

    /// Returns the time of the next decision of the queues if nothing happens before.
    pub fn queues_wake(&self) -> Option<Timestamp> {
        let trigger = &self.queues.trigger;
        let round = trigger.cycle.then(|| self.queues.next_cycle().max(self.at));
        let grants = trigger.grants.then_some(self.at);
        let at = round.into_iter().chain(grants).chain(trigger.wake).min();
        let dequeue = self.queues.coordinator.due_at(self.config.dequeue_period_ms, self.at);
        at.filter(|_| !self.queues.is_idle()).into_iter().chain(dequeue).min()
    }

    /// Returns the fact that begins a record of the queues, if one is due.
    pub fn queues_due(&self, now: Timestamp) -> Option<QueueFact> {
        let trigger = &self.queues.trigger;
        let wakes = trigger.wake.is_some_and(|at| at <= now);
        let is_idle = self.queues.is_idle();
        let round = (trigger.cycle || wakes) && self.queues.next_cycle() <= now && !is_idle;
        let dequeue = self.queues.coordinator.due_at(self.config.dequeue_period_ms, now).is_some_and(|at| at <= now);
        (round || dequeue || trigger.grants && !is_idle).then_some(QueueFact::SchedulingCycle { round })
    }

    /// Returns true if the pods of a job are created within a share only: it needs GPUs that some node offers, or names a queue. A
    /// job that another system admits has that gate alone, and so has one whose pods another scheduler starts together, unless it
    /// names a queue.
    pub(crate) fn is_gated(&self, job: &Job) -> bool {
        let Some(spec) = job.spec() else { return job.allocation.gated };
        let Some(demand) = spec.demand.as_ref().filter(|_| job.gate().is_none()) else { return false };
        let mut groups = spec.gpu_groups().filter(|(group, _)| group.replicas > 0).peekable();
        let has_gpus = groups.peek().is_some();
        let mut is_offered = || groups.all(|(_, request)| self.queues.offered.contains(&request.resource));
        let by_capacity = !self.config.ignores_capacity && !job.has_gang() && is_offered();
        has_gpus && (demand.queue.is_some() || by_capacity)
    }

    /// Brings the gates in step with what nodes offer. Returns the jobs that changed.
    pub(crate) fn refresh_gates(&mut self) -> Vec<JobKey> {
        let differs = |(key, job): (&JobKey, &Job)| (self.is_gated(job) != job.allocation.gated).then(|| key.clone());
        let changed: Vec<JobKey> = self.jobs.live_from(None).filter_map(differs).collect();
        for key in &changed {
            self.refresh_gate(key);
        }
        changed
    }

    pub(crate) fn refresh_gate(&mut self, key: &JobKey) {
        let gated = self.jobs.live(key).map(|job| self.is_gated(job));
        if let Some((gated, job)) = gated.zip(self.jobs.get_mut(key)) {
            job.allocation.gated = gated;
        }
    }

    /// Brings priorities and remarks in step with the priority classes. Returns the jobs that changed.
    pub(crate) fn classes_changed(&mut self) -> crate::state::Dirty {
        let names_class = |(key, job): (&JobKey, &Job)| {
            let demand = job.spec()?.demand.as_ref()?;
            demand.priority.is_none().then(|| key.clone())
        };
        let named: Vec<JobKey> = self.jobs.live_from(None).filter_map(names_class).collect();
        self.queues.coordinator.ask();
        let mut dirty = crate::state::Dirty::new();
        for key in named {
            if self.show_classes(&key) {
                dirty.insert(key.clone(), vec![JobFact::Due]);
            }
            self.queues.note(&key, self.jobs.live(&key));
        }
        dirty
    }

    /// Brings the classes that a job names and that are not there in step, and has its status written where they changed. Returns true
    /// then.
    pub(crate) fn show_classes(&mut self, key: &JobKey) -> bool {
        let changed = self.refresh_classes(key);
        if let Some(job) = self.jobs.get_mut(key).filter(|_| changed) {
            job.stamps.change(self.stamp);
        }
        changed
    }

    /// Brings the classes that a job names and that are not there in step. Returns true if they are others than before.
    pub(crate) fn refresh_classes(&mut self, key: &JobKey) -> bool {
        let is_listed = self.list_rv(model::Kind::Class, None).0 > 0;
        let demand = self.jobs.live(key).and_then(|job| job.spec()?.demand.as_ref()).filter(|_| is_listed);
        let unknown = demand.map(|demand| self.queues.classes.unknown(demand)).unwrap_or_default();
        let job = self.jobs.get_mut(key).filter(|job| job.unknown_classes != unknown);
        job.map(|job| job.unknown_classes = unknown).is_some()
    }

    /// Applies targets that a cycle changed.
    pub(crate) fn apply_targets(&mut self, update: &TargetUpdate) {
        for (key, target) in &update.targets {
            let share = self.jobs.live(key).map(|job| &job.allocation.share);
            if share.is_none_or(|share| *share == target.share) {
                self.queues.targets.remove(key);
            } else {
                self.queues.targets.insert(key.clone(), target.clone());
            }
        }
        if let Ok(change) = serde_json::from_str::<MemoryChange>(&update.memory) {
            self.queues.history.apply(&change);
        }
    }
}

/// Runs one scheduling cycle and returns its events. The caller stages a record for each job whose share changed. `round`: targets are
/// decided; else only free places are granted.
pub fn step(state: &mut State, round: bool) -> Vec<QueueEvent> {
    let mut events = Vec::new();
    let now = state.at;
    let mut pending = None;
    let seen = grant::seen(state);
    let mut update = grant::followed(state, &seen);
    if round {
        let decided = cycle::decide(state, &seen, now);
        // A policy's clock stands still for a job whose places are not free yet, so that it would trigger cycles without end.
        let is_woken = !state.queues.trigger.cycle;
        let is_vain = is_woken && decided.update == TargetUpdate::default();
        let trigger = &mut state.queues.trigger;
        if is_woken && !is_vain {
            trigger.woken = Some(now);
        }
        let rests_until = trigger.woken.map(|at| at.plus_ms(MIN_IDLE_CYCLE_INTERVAL_MS)).unwrap_or_default();
        let earliest = now.plus_ms(if is_vain { MIN_IDLE_CYCLE_INTERVAL_MS } else { 1 }).max(rests_until);
        trigger.wake = decided.wake.map(|at| at.max(earliest));
        (trigger.cycle, trigger.last_cycle) = (false, Some(now));
        pending = Some(decided.pending);
        let quiet_until = state.queues.trigger.quiet_until.filter(|until| *until > now);
        state.queues.wake_at(quiet_until);
        let waiting =
            state.queues.candidates.values().filter(|candidate| candidate.wants && candidate.share.is_empty());
        let ends = waiting.flat_map(|candidate| candidate.refused.values()).filter(|until| **until > now);
        let refused_until = ends.min().copied();
        state.queues.wake_at(refused_until);
        // The decision replaces earlier targets.
        update.targets.retain(|(key, _)| decided.update.targets.iter().all(|(other, _)| other != key));
        update.targets.extend(decided.update.targets);
        update.memory = decided.update.memory;
    }
    if update != TargetUpdate::default() {
        let event = QueueEvent::Allocated(Box::new(update));
        state.apply_queue_event(&event);
        events.push(event);
    }
    state.queues.trigger.grants = false;
    let changes = grant::decide(state, &seen, now);
    let reasons = report::wait_reasons(state, pending.as_ref(), &changes);
    if !reasons.is_empty() {
        events.push(QueueEvent::WaitsReported { jobs: reasons });
    }
    if !changes.is_empty() {
        events.push(QueueEvent::Shared { changes });
    }
    let dequeued = coordinator::decide(state, now);
    if let Some(event) = &dequeued {
        state.apply_queue_event(event);
    }
    state.dequeue_decided(dequeued.is_some(), now);
    events.extend(dequeued);
    let queues = report::changed(state, pending.as_ref());
    state.queues.mark_reported();
    if !queues.is_empty() {
        events.push(QueueEvent::Reported { queues });
    }
    events
}

/// Returns the facts that a record of the queues leads to, by job.
pub fn follow_ups(events: &[QueueEvent]) -> impl Iterator<Item = (&JobKey, JobFact)> {
    let changes =
        events.iter().filter_map(|event| if let QueueEvent::Shared { changes } = event { Some(changes) } else { None });
    let reports =
        events.iter().filter_map(|event| if let QueueEvent::Reported { queues } = event { Some(queues) } else { None });
    let dequeued =
        events.iter().filter_map(|event| if let QueueEvent::Dequeued { job, .. } = event { Some(job) } else { None });
    let reasons = events
        .iter()
        .filter_map(|event| if let QueueEvent::WaitsReported { jobs } = event { Some(jobs) } else { None });
    let reasons = reasons.flatten().map(|(key, why)| (key, JobFact::WaitReported(why.clone())));
    let changes = changes.flatten().map(|(key, change)| (key, JobFact::ShareChanged(Box::new(change.clone()))));
    let dequeued = dequeued.map(|job| (job, JobFact::Dequeued));
    dequeued
        .chain(reasons)
        .chain(changes)
        .chain(reports.flatten().map(|(key, report)| (key, JobFact::QueueReported(Box::new(report.clone())))))
}
