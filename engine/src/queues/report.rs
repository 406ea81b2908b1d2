//! Reports on queues for their objects, and why a job waits, with numbers.
//!
//! Derived; the part that objects show is recorded when it changes. Tests: through [`super`].

use std::collections::{BTreeMap, BTreeSet};

use model::{JobKey, QueueReport, QueueSpec, QuotaSpec, Share, ShareChange, Text, Timestamp, WaitingJob};
use scheduler::scheduling::Reason;

use super::candidate::Candidate;
use super::cycle::{self, PendingJob, PendingJobs};
use super::forecast::{self, Start, Starts};
use super::grant;
use crate::state::State;

/// Jobs that wait which a report names.
const MAX_NAMED: usize = 100;

/// Maximum number of jobs of a queue whose own status says why they wait: those that come next. Numbers change with each cycle, and each
/// change is a write.
const MAX_REPORTED: usize = 20;

/// Name of the figures of all queues that do not exist; no object can have it.
pub const MISSING: &str = "_missing";

/// State of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Name of the queue; empty for the root queue.
    pub name: Text,
    /// Jobs that hold a share, by key, each with its share.
    pub admitted: Vec<(JobKey, model::Share)>,
    /// Jobs whose places are decided and not free yet, each with these places.
    pub decided: Vec<(JobKey, model::Share)>,
    /// The report of its object.
    pub report: QueueReport,
    /// Expected start of each job that the report names.
    pub starts: Vec<Start>,
}

/// Figures of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs that hold a share.
    pub admitted: u32,
    /// Jobs that want a share and hold none.
    pub pending: u32,
    /// GPUs that count for it, by resource.
    pub usage: BTreeMap<Text, u32>,
    /// Quota of its object, by resource; none for the root queue and for a queue without an object.
    pub quota: BTreeMap<Text, QuotaSpec>,
}

impl Counts {
    /// Returns the GPUs in use beyond the queue's own, by resource.
    pub fn borrowed(&self) -> impl Iterator<Item = (&Text, u32)> {
        self.quota.iter().map(|(resource, quota)| {
            let used = self.usage.get(resource).copied().unwrap_or_default();
            (resource, used.saturating_sub(quota.nominal))
        })
    }
}

/// Returns the figures of every queue that has an object or jobs, by name, in one walk over the jobs that hold or want places.
pub fn counts(state: &State) -> BTreeMap<Text, Counts> {
    counts_by(state, |candidate| Text::from(candidate.queue()))
}

/// Returns the figures of the root queue and of every queue that has an object, by name. Jobs of queues that do not exist count as
/// [`MISSING`]: users write these names, any number of them.
pub fn bounded_counts(state: &State) -> BTreeMap<Text, Counts> {
    let exists = |name: &str| name.is_empty() || state.queues.objects.contains_key(name);
    counts_by(state, |candidate| Text::from(if exists(candidate.queue()) { candidate.queue() } else { MISSING }))
}

fn counts_by(state: &State, name: impl Fn(&Candidate) -> Text) -> BTreeMap<Text, Counts> {
    let queues = &state.queues;
    let own = |(name, (_, spec)): (&Text, &(JobKey, Box<QueueSpec>))| {
        (name.clone(), Counts { quota: spec.quota.clone(), ..Counts::default() })
    };
    let mut all: BTreeMap<Text, Counts> = queues.objects.iter().map(own).collect();
    for candidate in queues.candidates.values() {
        let counts = all.entry(name(candidate)).or_default();
        if !candidate.share.is_empty() {
            counts.admitted = counts.admitted.saturating_add(1);
        } else if candidate.wants {
            counts.pending = counts.pending.saturating_add(1);
        }
        let gpus = candidate.places.keys().map(|slot| candidate.charged(slot)).fold(0u32, u32::saturating_add);
        if gpus > 0 {
            let sum = counts.usage.entry(candidate.resource.clone()).or_default();
            *sum = sum.saturating_add(gpus);
        }
    }
    all
}

/// Returns the state of every queue that has an object or jobs, as the scheduler sees it at a time. Changes nothing.
pub fn states(state: &State, now: Timestamp) -> Vec<QueueState> {
    let pending = cycle::decide(state, &grant::seen(state), now).pending;
    let starts = forecast::starts(state, now, forecast::ON_DEMAND);
    let queues = &state.queues;
    let counts = counts(state);
    let mut names: Vec<Text> = counts.keys().chain(pending.keys()).cloned().collect();
    names.sort();
    names.dedup();
    let of = |name: Text| {
        let candidates = || queues.candidates.iter().filter(|(_, candidate)| candidate.queue() == &*name);
        let admitted = candidates().filter(|(_, candidate)| !candidate.share.is_empty());
        let admitted = admitted.map(|(key, candidate)| (key.clone(), candidate.share.clone())).collect();
        let decided = candidates().filter(|(_, candidate)| candidate.share.is_empty()).filter_map(|(key, _)| {
            let target = queues.targets.get(key).filter(|target| !target.share.is_empty())?;
            Some((key.clone(), target.share.clone()))
        });
        let pending = pending.get(&name);
        let start = |(key, _): &(JobKey, PendingJob)| starts.get(key).copied().unwrap_or(Start::At(now));
        QueueState {
            decided: decided.collect(),
            report: report(counts.get(&name), pending, &starts),
            starts: pending.into_iter().flatten().take(MAX_NAMED).map(start).collect(),
            name,
            admitted,
        }
    };
    names.into_iter().map(of).collect()
}

/// Returns why a job waits for a share, in words with numbers; `None` when it does not.
pub fn why_waiting(state: &State, key: &JobKey, now: Timestamp) -> Option<String> {
    let resource = &state.queues.candidates.get(key)?.resource;
    let leaving = leaving(state, key, resource);
    if let Some(target) = state.queues.targets.get(key).filter(|target| !target.share.is_empty()) {
        return Some(format!("{}{leaving}", decided_words(&target.share)));
    }
    let pending = cycle::decide(state, &grant::seen(state), now).pending;
    let mut all = pending.iter().flat_map(|(queue, jobs)| jobs.iter().map(move |job| (queue, job)));
    let (queue, (_, waiting)) = all.find(|(_, (job, _))| job == key)?;
    let queue = if queue.is_empty() { String::new() } else { format!(" of queue {queue}") };
    let start = forecast::starts(state, now, forecast::ON_DEMAND).get(key).map(|start| format!("; {start}"));
    Some(format!("place {}{queue}: {waiting}{leaving}{}", waiting.wait.place, start.unwrap_or_default()))
}

/// Returns what a job waits for whose places are decided, in words.
fn decided_words(share: &Share) -> String {
    format!("{share}, once they are free")
}

/// Returns the jobs that wait for another reason than was reported, each with the reason. `pending`: the jobs that a cycle left waiting;
/// `None` without one. `changes`: changes of shares that follow.
pub(super) fn wait_reasons(
    state: &State,
    pending: Option<&PendingJobs>,
    changes: &[(JobKey, ShareChange)],
) -> Vec<(JobKey, Option<Text>)> {
    let next = pending.into_iter().flatten().flat_map(|(_, jobs)| jobs.iter().take(MAX_REPORTED));
    let next: BTreeMap<&JobKey, &PendingJob> = next.map(|(key, waiting)| (key, waiting)).collect();
    let starting = changes.iter().filter(|(_, change)| !change.share.is_empty());
    let starting: BTreeSet<&JobKey> = starting.map(|(key, _)| key).collect();
    let mut reasons = Vec::new();
    for (key, candidate) in
        state.queues.candidates.iter().filter(|(_, candidate)| candidate.wants && candidate.share.is_empty())
    {
        let Some(job) = state.jobs.live(key).filter(|job| job.allocation.gated && !starting.contains(key)) else {
            continue;
        };
        let target = state.queues.targets.get(key).filter(|target| !target.share.is_empty());
        let why = match (target, next.get(key)) {
            // What is decided is granted once the job is fenced: only after that it may wait for room.
            (Some(_), _) if !job.is_fenced(state.stamp.term) => continue,
            (Some(target), _) => Some(decided_words(&target.share)),
            (None, Some(waiting)) => Some(waiting.to_string()),
            (None, None) if pending.is_none() => continue,
            (None, None) => None,
        };
        let why = why.map(|why| Text::from(format!("{why}{}", leaving(state, key, &candidate.resource))));
        if job.wait_reason != why {
            reasons.push((key.clone(), why));
        }
    }
    reasons
}

/// Returns in words the GPUs that come back when pods of other jobs are gone; empty when there are none.
fn leaving(state: &State, key: &JobKey, resource: &Text) -> String {
    let mut total: u32 = 0;
    let mut jobs: Vec<String> = Vec::new();
    for (job, candidate) in
        state.queues.candidates.iter().filter(|(job, candidate)| *job != key && candidate.resource == *resource)
    {
        let gone = candidate.places.keys().filter(|slot| candidate.share.node(slot).is_none());
        let gpus = gone.map(|slot| candidate.charged(slot)).fold(0u32, u32::saturating_add);
        if gpus > 0 {
            total = total.saturating_add(gpus);
            jobs.push(format!("{}/{}", job.namespace, job.name));
        }
    }
    match (total, jobs.as_slice()) {
        (0, _) | (_, []) => String::new(),
        (_, [job]) => format!("; {total} come back when the pods of {job} are gone"),
        (_, [job, ..]) => format!("; {total} come back when the pods of {job} and others are gone"),
    }
}

/// The report of a queue: its figures, and the jobs that wait.
fn report(counts: Option<&Counts>, pending: Option<&Vec<(JobKey, PendingJob)>>, starts: &Starts) -> QueueReport {
    let pending = pending.map_or(&[][..], Vec::as_slice);
    QueueReport {
        admitted: counts.map_or(0, |counts| counts.admitted),
        usage: counts.map(|counts| counts.usage.clone()).unwrap_or_default(),
        pending: u32::try_from(pending.len()).unwrap_or(u32::MAX),
        waiting: pending.iter().take(MAX_NAMED).map(|(key, wait)| waiting(key, wait, starts.get(key))).collect(),
        speed_samples: Vec::new(),
    }
}

fn waiting(key: &JobKey, waiting: &PendingJob, start: Option<&Start>) -> WaitingJob {
    let reason = match &waiting.wait.reason {
        Reason::NoQueue => "NoQueue",
        Reason::Paused => "Paused",
        Reason::BackOff(_) => "BackOff",
        Reason::Faulty(_) => "Faulty",
        Reason::NeverQuota | Reason::NeverNodes => "Infeasible",
        Reason::Quota => "Quota",
        Reason::Nodes => "Nodes",
        Reason::Behind(_) => "Behind",
        Reason::Policy => "Policy",
    };
    WaitingJob {
        name: Text::from(format!("{}/{}", key.namespace, key.name)),
        reason: Text::from(reason),
        message: Text::from(waiting.to_string()),
        expected_start: start.and_then(|start| start.at()),
    }
}

/// Returns the reports of queue objects that differ from those reported. `pending`: the jobs that wait, where a cycle found them.
pub(super) fn changed(state: &State, pending: Option<&PendingJobs>) -> Vec<(JobKey, QueueReport)> {
    let mut changed = Vec::new();
    if state.queues.objects.is_empty() {
        return changed;
    }
    let by_queue: &BTreeMap<_, _> = pending.unwrap_or(const { &BTreeMap::new() });
    let counts = counts(state);
    let is_waited = by_queue.keys().any(|name| state.queues.objects.contains_key(name));
    let starts = if is_waited { forecast::starts(state, state.at, forecast::IN_STATUS) } else { Starts::new() };
    for (name, (key, _)) in &state.queues.objects {
        let Some(job) = state.jobs.live(key) else { continue };
        let shown = job.report.as_deref();
        let mut report = report(counts.get(name), by_queue.get(name), &starts);
        if pending.is_none() {
            report.pending = shown.map_or(0, |shown| shown.pending);
            report.waiting = shown.map_or_else(Vec::new, |shown| shown.waiting.clone());
        }
        report.speed_samples = state.queues.learning.pending_samples(name, state.at);
        if shown != Some(&report) {
            changed.push((key.clone(), report));
        }
    }
    changed
}
