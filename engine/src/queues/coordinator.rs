//! The coordinator: which enqueued job is dequeued next, by the rule of torch-on-k8s. Queues are served in turn, in a queue the job of the
//! highest priority first, and only one that every `ResourceQuota` of its namespace has room for.
//!
//! A dequeued job is never enqueued again. Its request counts against the quotas until it runs and has all of its pods, at most for a
//! minute: the server counts pods only once they exist, and workers come after their master. Priorities are those of
//! [`super::classes`], the turns of queues those of [`scheduler::queues`]. It must not grant places on nodes: that is
//! [`super::grant`], and comes afterwards. Tests: the scenarios `quota-*` and `queues-*`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::coordination::sum;
use model::{Coordination, JobKey, QueueEvent, QuotaFact, ScopedRequest, Text, Timestamp};
use scheduler::queues::{QueueLoad, Turns, Waiting, first_in_line};

use super::Classes;
use super::cycle::micros;
use crate::job::Job;
use crate::message::amount_words;
use crate::state::State;

/// Time in milliseconds for which the request of a dequeued job counts at most.
const ASSUMED_MS: u64 = 60_000;

/// Scope of pods by their PriorityClass.
const PRIORITY_CLASS: &str = "PriorityClass";

/// Amounts in thousandths, by the name under which a quota counts them.
type Amounts = BTreeMap<Text, u64>;

/// Enqueued jobs, and what decides which of them is dequeued.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coordinator {
    /// ResourceQuotas by namespace and name.
    quotas: BTreeMap<(Text, Text), QuotaFact>,
    /// Turns of the queues so far.
    pub(crate) turns: Option<Turns>,
    /// Time at which a job was dequeued last.
    pub(crate) dequeued_at: Option<Timestamp>,
    /// Enqueued jobs.
    enqueued: BTreeMap<JobKey, Coordination>,
    /// Requests of dequeued jobs that do not run, or lack pods, with the time of the dequeue.
    assumed: BTreeMap<JobKey, (Timestamp, Coordination)>,
    /// Set if a job may be dequeued. Derived from what happened in this process.
    asked: bool,
    /// Set if jobs may wait for another reason than they show.
    stale: bool,
    /// Time at which a job may be dequeued if nothing happens before.
    wake: Option<Timestamp>,
}

impl Job {
    /// Returns the request of an enqueued job.
    pub(crate) fn enqueued(&self) -> Option<&Coordination> {
        let coordination = self.spec()?.coordination.as_deref()?;
        let has_begun = self.dequeued_at.is_some() || self.has_lasting_pods() || self.has_planned_pods();
        (!has_begun && self.phase.is_waiting() && self.gate().is_none()).then_some(coordination)
    }

    /// Returns true for a job that does not run, or lacks pods.
    fn is_starting(&self) -> bool {
        let lacks_pods = || self.has_planned_pods() || self.spec_groups().any(|(_, group)| !group.missing.is_empty());
        self.phase.is_waiting() || !self.phase.is_terminal() && lacks_pods()
    }
}

impl Coordinator {
    /// Notes what a record changed of a job; `None` when it is forgotten.
    pub(super) fn note(&mut self, key: &JobKey, job: Option<&Job>) {
        let is_active = |job: &&Job| job.object.is_present() && job.quarantine.is_none() && job.ending().is_none();
        let job = job.filter(is_active);
        let enqueued = job.and_then(Job::enqueued);
        if self.enqueued.get(key) != enqueued {
            self.ask();
            match enqueued {
                Some(enqueued) => self.enqueued.insert(key.clone(), enqueued.clone()),
                None => self.enqueued.remove(key),
            };
        }
        let assumed = job
            .filter(|job| job.is_starting())
            .and_then(|job| Some((job.dequeued_at?, job.spec()?.coordination.as_deref()?.clone())));
        if self.assumed.get(key) != assumed.as_ref() {
            self.ask();
            match assumed {
                Some(assumed) => self.assumed.insert(key.clone(), assumed),
                None => self.assumed.remove(key),
            };
        }
    }

    /// Has everything looked at again.
    pub(super) const fn ask(&mut self) {
        (self.asked, self.stale) = (true, true);
    }

    /// Returns a quota that is known.
    pub(crate) fn quota(&self, namespace: &Text, name: &Text) -> Option<&QuotaFact> {
        self.quotas.get(&(namespace.clone(), name.clone()))
    }

    /// Returns the known quotas.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = &QuotaFact> {
        self.quotas.values()
    }

    /// Takes a quota in.
    pub(crate) fn set_quota(&mut self, quota: QuotaFact) {
        self.quotas.insert((quota.namespace.clone(), quota.name.clone()), quota);
        self.ask();
    }

    /// Notes that a quota is gone.
    pub(crate) fn remove_quota(&mut self, namespace: &Text, name: &Text) {
        self.quotas.remove(&(namespace.clone(), name.clone()));
        self.ask();
    }

    fn next_dequeue(&self, period_ms: u64) -> Timestamp {
        self.dequeued_at.map_or_else(Timestamp::default, |last| last.plus_ms(period_ms))
    }

    /// Returns the time at which a job may be dequeued if nothing happens before.
    pub(super) fn due_at(&self, period_ms: u64, now: Timestamp) -> Option<Timestamp> {
        let asked = self.asked.then(|| self.next_dequeue(period_ms).max(now));
        asked.into_iter().chain(self.wake).min().filter(|_| !self.enqueued.is_empty())
    }

    /// Returns the quotas of a namespace, or of all, as they limit jobs.
    fn limits<'a>(&'a self, classes: &'a Classes, namespace: Option<&Text>, now: Timestamp) -> Vec<Limit<'a>> {
        let mut assumed: BTreeMap<&Text, Vec<&Coordination>> = BTreeMap::new();
        for (key, (_, request)) in self.assumed.iter().filter(|(_, (at, _))| now.since_ms(*at) <= ASSUMED_MS) {
            assumed.entry(&key.namespace).or_default().push(request);
        }
        let quotas = self.quotas.values().filter(|quota| namespace.is_none_or(|name| *name == quota.namespace));
        let limit = |quota: &'a QuotaFact| {
            let promised = Amounts::new();
            let mut limit = Limit { quota, classes, promised };
            let requests = assumed.get(&quota.namespace).into_iter().flatten();
            limit.promised = sum(requests.filter_map(|request| limit.counted(request)).map(Cow::into_owned));
            limit
        };
        quotas.map(limit).collect()
    }
}

/// Returns which quota has no room for an enqueued job, in words; `None` when all have.
fn short(limits: &[Limit<'_>], key: &JobKey, request: &Coordination) -> Option<Text> {
    let mut of_namespace = limits.iter().filter(|limit| limit.quota.namespace == key.namespace);
    of_namespace.find_map(|limit| limit.short_of(&*limit.counted(request)?))
}

/// A quota, and the classes of pods that it may count by.
struct Limit<'a> {
    quota: &'a QuotaFact,
    classes: &'a Classes,
    /// Amounts of dequeued jobs whose pods do not exist yet.
    promised: Amounts,
}

impl Limit<'_> {
    /// Returns the amounts of a job's pods that count; `None` where no pod does.
    fn counted<'a>(&self, of: &'a Coordination) -> Option<Cow<'a, Amounts>> {
        let scopes = &self.quota.scopes;
        if scopes.requirements.is_empty() {
            return Some(Cow::Borrowed(&of.request));
        }
        let counts = |part: &&ScopedRequest| scopes.selects(&self.scopes_of(part));
        let mut counted = of.scoped.iter().filter(counts).map(|part| part.request.clone()).peekable();
        counted.peek()?;
        Some(Cow::Owned(sum(counted)))
    }

    /// Returns the scopes of pods as the API server creates them: one that names no class gets the default class.
    fn scopes_of(&self, part: &ScopedRequest) -> BTreeMap<Text, Text> {
        let mut scopes = part.scopes.clone();
        if let Some(class) = self.classes.default_name() {
            scopes.entry(Text::from(PRIORITY_CLASS)).or_insert_with(|| class.clone());
        }
        scopes
    }

    /// Returns what there is too little of for a request, in words.
    fn short_of(&self, request: &Amounts) -> Option<Text> {
        let quota = self.quota;
        let of = |amounts: &Amounts, name: &Text| amounts.get(name).copied().unwrap_or_default();
        let words = |(name, hard): (&Text, &u64), left: u64| {
            let [needs, left, hard] = [of(request, name), left, *hard].map(|milli| amount_words(name, milli));
            let quota = &quota.name;
            Text::from(format!("ResourceQuota {quota}: {name}: the job requests {needs}, {left} of {hard} are left"))
        };
        if let Some(limit) = quota.hard.iter().find(|(name, hard)| **hard < of(&quota.used, name)) {
            return Some(words(limit, 0));
        }
        quota.hard.iter().find_map(|(name, hard)| {
            let left = hard.saturating_sub(of(&quota.used, name)).saturating_sub(of(&self.promised, name));
            (of(request, name) > left).then(|| words((name, hard), left))
        })
    }
}

/// Returns the priority of an enqueued job. The default class of the cluster does not count.
fn priority(classes: &Classes, enqueued: &Coordination) -> i64 {
    let of_class = || enqueued.class.as_ref().and_then(|class| classes.value(class)).unwrap_or_default();
    i64::from(enqueued.priority.unwrap_or_else(of_class))
}

/// Decides which job is dequeued, if one may be.
pub(super) fn decide(state: &State, now: Timestamp) -> Option<QueueEvent> {
    let coordinator = &state.queues.coordinator;
    if coordinator.enqueued.is_empty() || now < coordinator.next_dequeue(state.config.dequeue_period_ms) {
        return None;
    }
    let limits = coordinator.limits(&state.queues.classes, None, now);
    let mut in_line: Vec<(&JobKey, &Coordination)> = coordinator.enqueued.iter().collect();
    in_line.sort_by_key(|(key, enqueued)| (enqueued.submitted, *key));
    // A queue none of whose jobs has room does not get a turn.
    let mut loads: Vec<QueueLoad> = Vec::new();
    let mut with_room: BTreeMap<&Text, Vec<(&JobKey, &Coordination)>> = BTreeMap::new();
    for (key, enqueued) in in_line {
        let tasks = u64::from(enqueued.tasks.max(1));
        match loads.iter_mut().find(|load| load.name == enqueued.queue) {
            Some(load) => load.weight = load.weight.saturating_add(tasks),
            None => loads.push(QueueLoad { name: enqueued.queue.clone(), weight: tasks }),
        }
        if short(&limits, key, enqueued).is_none() {
            with_room.entry(&enqueued.queue).or_default().push((key, enqueued));
        }
    }
    for load in loads.iter_mut().filter(|load| !with_room.contains_key(&load.name)) {
        load.weight = 0;
    }
    let rule = state.config.queue_selector;
    let mut turns = coordinator.turns.clone().filter(|turns| turns.is_by(rule)).unwrap_or_else(|| Turns::new(rule));
    let queue = turns.take(&loads)?;
    let served = with_room.get(&queue)?;
    let waiting = |(key, enqueued): &(&JobKey, &Coordination)| Waiting {
        id: Text::from(format!("{}/{}", key.namespace, key.name)),
        priority: priority(&state.queues.classes, enqueued),
        enqueued: micros(enqueued.submitted),
    };
    let first = first_in_line(&served.iter().map(waiting).collect::<Vec<_>>())?;
    let (job, _) = served.get(first)?;
    Some(QueueEvent::Dequeued { job: (*job).clone(), turns: Text::from(serde_json::to_string(&turns).ok()?) })
}

impl State {
    /// Notes that it was decided which job is dequeued, so that the next one is in time.
    pub(super) fn dequeue_decided(&mut self, is_dequeued: bool, now: Timestamp) {
        let period_ms = self.config.dequeue_period_ms;
        let coordinator = &mut self.queues.coordinator;
        if !is_dequeued && now < coordinator.next_dequeue(period_ms) {
            return;
        }
        (coordinator.asked, coordinator.stale) = (is_dequeued, true);
        let expires = coordinator.assumed.values().map(|(at, _)| at.plus_ms(ASSUMED_MS.saturating_add(1)));
        coordinator.wake = expires.filter(|at| *at > now).min();
    }

    /// Applies that a job was dequeued.
    pub(crate) fn apply_dequeue(&mut self, turns: &str) {
        let at = self.at;
        let coordinator = &mut self.queues.coordinator;
        if let Ok(turns) = serde_json::from_str(turns) {
            coordinator.turns = Some(turns);
        }
        coordinator.dequeued_at = Some(at);
    }

    /// Returns the enqueued jobs that wait for another reason than they show. Asked again, there are none until something happens.
    pub fn take_stale_waits(&mut self) -> Vec<JobKey> {
        if !std::mem::take(&mut self.queues.coordinator.stale) {
            return Vec::new();
        }
        let coordinator = &self.queues.coordinator;
        let limits = coordinator.limits(&self.queues.classes, None, self.at);
        let is_stale = |(key, enqueued): &(&JobKey, &Coordination)| {
            let shown = self.jobs.live(key).and_then(|job| job.quota_short.as_ref());
            short(&limits, key, enqueued).as_ref() != shown
        };
        coordinator.enqueued.iter().filter(is_stale).map(|(key, _)| key.clone()).collect()
    }

    /// Brings the reason for which a job is not dequeued in step with the quotas. Called before it is decided.
    pub(crate) fn refresh_quota(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.live(key) else { return };
        let (coordinator, classes) = (&self.queues.coordinator, &self.queues.classes);
        let limits = || coordinator.limits(classes, Some(&key.namespace), self.at);
        let short = job.enqueued().and_then(|enqueued| short(&limits(), key, enqueued));
        if job.quota_short != short
            && let Some(job) = self.jobs.get_mut(key)
        {
            job.quota_short = short;
        }
    }
}
