//! Turns: which of the jobs that wait for one may begin next. The rule of torch-on-k8s' coordinator: tenants take turns, a job of the
//! highest priority first, and only one that every ResourceQuota of its namespace has room for.
//!
//! A job that had its turn waits never again. What it asked for counts against the quotas until it runs, at most for a minute: its
//! pods may not be there yet. Priorities are those of [`super::classes`], whose turn it is says [`scheduler::queues`]. It must not grant
//! places on nodes: that is [`super::grant`], and comes afterwards. Tests: the scenarios `to24-*` to `to27-*`.

use std::collections::BTreeMap;

use model::{Coordination, Event, JobKey, Phase, QuotaFact, Text, Timestamp};
use scheduler::queues::{QueueLoad, Selector, Turns, Waiting, first_in_line};

use super::Classes;
use super::round::micros;
use crate::job::Job;
use crate::state::State;

/// Time in milliseconds for which the request of a job counts that had its turn and does not run yet.
const ASSUMED_MS: u64 = 60_000;

/// Jobs that wait for their turn, and what decides it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coordinator {
    /// ResourceQuotas by namespace and name.
    pub(crate) quotas: BTreeMap<(Text, Text), QuotaFact>,
    /// Turns so far.
    pub(crate) turns: Option<Turns>,
    /// Time of the last turn.
    pub(crate) turn_at: Option<Timestamp>,
    /// Jobs that wait.
    waiting: BTreeMap<JobKey, Coordination>,
    /// Jobs that had their turn and do not run yet, with its time.
    assumed: BTreeMap<JobKey, (Timestamp, BTreeMap<Text, u64>)>,
    /// Set if somebody may be served. Derived from what happened in this process.
    asked: bool,
    /// Set if jobs may wait for another reason than they show.
    stale: bool,
    /// Time at which somebody may be served if nothing happens before.
    wake: Option<Timestamp>,
}

impl Job {
    /// Returns the request of a job that waits for its turn.
    pub(crate) fn awaited_turn(&self) -> Option<&Coordination> {
        let coordination = self.spec()?.coordination.as_deref()?;
        let has_begun = self.dequeued_at.is_some() || self.has_lasting_pods() || self.has_planned_pods();
        (!has_begun && !has_run(self.phase) && self.gate().is_none()).then_some(coordination)
    }
}

/// Returns true for a job that runs, did, or has ended.
const fn has_run(phase: Phase) -> bool {
    match phase {
        Phase::New | Phase::Pending | Phase::Preparing | Phase::Queued | Phase::Creating | Phase::Suspended => false,
        Phase::Running
        | Phase::Restarting
        | Phase::Terminating
        | Phase::Succeeded
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed => true,
    }
}

impl Coordinator {
    /// Notes what a record changed of a job; `None` when it is forgotten.
    pub(super) fn note(&mut self, key: &JobKey, job: Option<&Job>) {
        let is_active =
            |job: &&Job| job.known && !job.gone && !job.deleting && job.quarantine.is_none() && job.ending().is_none();
        let job = job.filter(is_active);
        let waiting = job.and_then(Job::awaited_turn);
        if self.waiting.get(key) != waiting {
            self.ask();
            match waiting {
                Some(waiting) => self.waiting.insert(key.clone(), waiting.clone()),
                None => self.waiting.remove(key),
            };
        }
        let assumed = job
            .filter(|job| !has_run(job.phase))
            .and_then(|job| Some((job.dequeued_at?, job.spec()?.coordination.as_ref()?.request.clone())));
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

    fn next_turn(&self, turn_ms: u64) -> Timestamp {
        self.turn_at.map_or_else(Timestamp::default, |last| last.plus_ms(turn_ms))
    }

    /// Returns the time at which a turn is to be decided if nothing happens before.
    pub(super) fn due_at(&self, turn_ms: u64, now: Timestamp) -> Option<Timestamp> {
        let asked = self.asked.then(|| self.next_turn(turn_ms).max(now));
        asked.into_iter().chain(self.wake).min().filter(|_| !self.waiting.is_empty())
    }

    /// Returns why a quota has no room for a job; `None` when all have.
    fn short(&self, key: &JobKey, request: &BTreeMap<Text, u64>, now: Timestamp) -> Option<Text> {
        let of_namespace = self.quotas.range((key.namespace.clone(), Text::from(""))..);
        let mut quotas = of_namespace.take_while(|((namespace, _), _)| *namespace == key.namespace).map(|(_, q)| q);
        quotas.find_map(|quota| self.short_of(quota, key, request, now))
    }

    fn short_of(&self, quota: &QuotaFact, key: &JobKey, request: &BTreeMap<Text, u64>, now: Timestamp) -> Option<Text> {
        let is_assumed = |(other, (at, _)): &(&JobKey, &(Timestamp, BTreeMap<Text, u64>))| {
            other.namespace == key.namespace && *other != key && now.since_ms(*at) <= ASSUMED_MS
        };
        let assumed = |name: &Text| {
            let others = self.assumed.iter().filter(is_assumed);
            others
                .filter_map(|(_, (_, request))| request.get(name))
                .fold(0u64, |sum, amount| sum.saturating_add(*amount))
        };
        let used = |name: &Text| quota.used.get(name).copied().unwrap_or_default();
        let words = |name: &Text, hard: u64, needs: u64, left: u64| {
            let amount = |milli| amount(name, milli);
            let (needs, left, hard) = (amount(needs), amount(left), amount(hard));
            Text::from(format!(
                "ResourceQuota {}: {name}: the job requests {needs}, {left} of {hard} are left",
                quota.name
            ))
        };
        let needs = |name: &Text| request.get(name).copied().unwrap_or_default();
        if let Some((name, hard)) = quota.hard.iter().find(|(name, hard)| **hard < used(name)) {
            return Some(words(name, *hard, needs(name), 0));
        }
        quota.hard.iter().find_map(|(name, hard)| {
            let left = hard.saturating_sub(used(name)).saturating_sub(assumed(name));
            (needs(name) > left).then(|| words(name, *hard, needs(name), left))
        })
    }
}

/// Writes an amount in thousandths as Kubernetes does. Whole bytes have the largest unit that leaves no fraction.
fn amount(name: &str, milli: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let (Some(whole), Some(0)) = (milli.checked_div(1000), milli.checked_rem(1000)) else { return format!("{milli}m") };
    let is_bytes = name.ends_with("memory") || name.ends_with("storage");
    let in_unit = |(unit, bytes): &(&str, u64)| {
        let count = whole.checked_div(*bytes).filter(|count| *count > 0)?;
        (whole.checked_rem(*bytes) == Some(0)).then(|| format!("{count}{unit}"))
    };
    UNITS.iter().filter(|_| is_bytes).find_map(in_unit).unwrap_or_else(|| whole.to_string())
}

/// Returns the priority of a job that waits. The default class of the cluster does not count.
fn priority(classes: &Classes, waiting: &Coordination) -> i64 {
    let of_class = || waiting.class.as_ref().and_then(|class| classes.value(class)).unwrap_or_default();
    i64::from(waiting.priority.unwrap_or_else(of_class))
}

/// Decides whose turn it is, if one is due.
pub(super) fn decide(state: &State, now: Timestamp) -> Option<Event> {
    let coordinator = &state.queues.coordinator;
    if coordinator.waiting.is_empty() || now < coordinator.next_turn(state.config.turn_ms) {
        return None;
    }
    let has_room = |(key, waiting): &(&JobKey, &Coordination)| coordinator.short(key, &waiting.request, now).is_none();
    let mut in_line: Vec<(&JobKey, &Coordination)> = coordinator.waiting.iter().collect();
    in_line.sort_by_key(|(key, waiting)| (waiting.submitted, *key));
    let mut loads: Vec<QueueLoad> = Vec::new();
    for (_, waiting) in &in_line {
        let served = in_line.iter().any(|each| each.1.tenant == waiting.tenant && has_room(each));
        let weight = if served { u64::from(waiting.tasks.max(1)) } else { 0 };
        match loads.iter_mut().find(|load| load.name == waiting.tenant) {
            Some(load) => load.weight = load.weight.saturating_add(weight),
            None => loads.push(QueueLoad { name: waiting.tenant.clone(), weight }),
        }
    }
    let selector = Selector::by_name(state.config.queue_selector.name()).ok()?;
    let mut turns =
        coordinator.turns.clone().filter(|turns| turns.is_of(&selector)).unwrap_or_else(|| Turns::new(selector));
    let tenant = turns.take(&loads)?;
    let served: Vec<&(&JobKey, &Coordination)> =
        in_line.iter().filter(|each| each.1.tenant == tenant && has_room(each)).collect();
    let waiting = |(key, waiting): &&(&JobKey, &Coordination)| Waiting {
        id: Text::from(format!("{}/{}", key.namespace, key.name)),
        priority: priority(&state.queues.classes, waiting),
        enqueued: micros(waiting.submitted),
    };
    let first = first_in_line(&served.iter().map(waiting).collect::<Vec<_>>())?;
    let (job, _) = served.get(first)?;
    Some(Event::Dequeued { job: (*job).clone(), turns: Text::from(serde_json::to_string(&turns).ok()?) })
}

impl State {
    /// Notes that a decision of turns was made, so that the next one is due in time.
    pub(super) fn turn_decided(&mut self, is_taken: bool, now: Timestamp) {
        let turn_ms = self.config.turn_ms;
        let coordinator = &mut self.queues.coordinator;
        if !is_taken && now < coordinator.next_turn(turn_ms) {
            return;
        }
        (coordinator.asked, coordinator.stale) = (is_taken, true);
        let expires = coordinator.assumed.values().map(|(at, _)| at.plus_ms(ASSUMED_MS.saturating_add(1)));
        coordinator.wake = expires.filter(|at| *at > now).min();
    }

    /// Folds a turn in.
    pub(super) fn apply_turn(&mut self, turns: &str) {
        let at = self.at;
        let coordinator = &mut self.queues.coordinator;
        if let Ok(turns) = serde_json::from_str(turns) {
            coordinator.turns = Some(turns);
        }
        coordinator.turn_at = Some(at);
    }

    /// Takes a quota in.
    pub(crate) fn observe_quota(&mut self, quota: &QuotaFact) {
        let key = (quota.namespace.clone(), quota.name.clone());
        self.queues.coordinator.quotas.insert(key, quota.clone());
        self.queues.coordinator.ask();
    }

    /// Notes that a quota is gone.
    pub(crate) fn quota_gone(&mut self, namespace: &Text, name: &Text) {
        self.queues.coordinator.quotas.remove(&(namespace.clone(), name.clone()));
        self.queues.coordinator.ask();
    }

    /// Returns the jobs that wait for their turn for another reason than they show. Asked again, there are none until something
    /// happens.
    pub fn take_stale_waits(&mut self) -> Vec<JobKey> {
        if !std::mem::take(&mut self.queues.coordinator.stale) {
            return Vec::new();
        }
        let coordinator = &self.queues.coordinator;
        let is_stale = |(key, waiting): &(&JobKey, &Coordination)| {
            let shown = self.jobs.live(key).and_then(|job| job.quota_short.as_ref());
            coordinator.short(key, &waiting.request, self.at).as_ref() != shown
        };
        coordinator.waiting.iter().filter(is_stale).map(|(key, _)| key.clone()).collect()
    }

    /// Brings the reason for which a job cannot have its turn in step with the quotas. Called before it is decided.
    pub(crate) fn refresh_quota(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.live(key) else { return };
        let coordinator = &self.queues.coordinator;
        let short = job.awaited_turn().and_then(|waiting| coordinator.short(key, &waiting.request, self.at));
        if job.quota_short != short
            && let Some(job) = self.jobs.get_mut(key)
        {
            job.quota_short = short;
        }
    }

    /// Returns the number of jobs that wait for their turn, by tenant.
    pub fn waiting_by_tenant(&self) -> BTreeMap<&Text, u32> {
        let mut counts: BTreeMap<&Text, u32> = BTreeMap::new();
        for waiting in self.queues.coordinator.waiting.values() {
            let count = counts.entry(&waiting.tenant).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }
}
