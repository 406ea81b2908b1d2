//! Reports: what queue objects tell of their jobs, and why a job waits, with numbers.
//!
//! Derived; the part that objects show is recorded when it changes. Tests: through [`super`].

use std::collections::BTreeMap;

use model::{JobKey, QueueReport, Text, Timestamp, WaitingJob};
use scheduler::desk::{Reason, Wait};

use super::grant;
use super::round::{self, Waits};
use crate::state::State;

/// Jobs that wait which a report names.
const MAX_NAMED: usize = 100;

/// State of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Name of the queue; empty for the root queue.
    pub name: Text,
    /// Jobs that hold a share, by key, each with its share.
    pub admitted: Vec<(JobKey, model::Share)>,
    /// The report of its object.
    pub report: QueueReport,
}

/// Returns the state of every queue that has an object or jobs, as the desk sees it at a time. Changes nothing.
pub fn states(state: &State, now: Timestamp) -> Vec<QueueState> {
    let waits = round::decide(state, &grant::seen(state), now).waits;
    let queues = &state.queues;
    let mut names: Vec<Text> = queues.objects.keys().cloned().chain(waits.keys().cloned()).collect();
    names.extend(queues.holders.values().map(|holder| Text::from(holder.queue())));
    names.sort();
    names.dedup();
    let of = |name: Text| {
        let holders = queues.holders.iter().filter(|(_, holder)| holder.queue() == &*name);
        let admitted = holders.filter(|(_, holder)| !holder.share.is_empty());
        let admitted = admitted.map(|(key, holder)| (key.clone(), holder.share.clone())).collect();
        QueueState { report: report(state, &name, waits.get(&name)), name, admitted }
    };
    names.into_iter().map(of).collect()
}

/// Returns why a job waits for a share, in words with numbers; `None` when it does not.
pub fn why_waiting(state: &State, key: &JobKey, now: Timestamp) -> Option<String> {
    let resource = &state.queues.holders.get(key)?.resource;
    let leaving = leaving(state, key, resource);
    if let Some(target) = state.queues.targets.get(key).filter(|target| !target.share.is_empty()) {
        return Some(format!("{} once there is room{leaving}", target.share));
    }
    let waits = round::decide(state, &grant::seen(state), now).waits;
    let of_job = |(queue, jobs): (&Text, &Vec<(JobKey, Wait)>)| {
        jobs.iter().find(|(job, _)| job == key).map(|(_, wait)| (queue.clone(), wait.clone()))
    };
    let (queue, wait) = waits.iter().find_map(of_job)?;
    let queue = if queue.is_empty() { String::new() } else { format!(" of queue {queue}") };
    Some(format!("place {}{queue}: {wait}{leaving}", wait.place))
}

/// Returns in words the GPUs that come back when pods of other jobs are gone; empty when there are none.
fn leaving(state: &State, key: &JobKey, resource: &Text) -> String {
    let mut total: u32 = 0;
    let mut jobs: Vec<String> = Vec::new();
    for (job, holder) in state.queues.holders.iter().filter(|(job, holder)| *job != key && holder.resource == *resource)
    {
        let gone = holder.places.keys().filter(|slot| holder.share.node(slot).is_none());
        let gpus = gone.map(|slot| holder.charged(slot)).fold(0u32, u32::saturating_add);
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

fn report(state: &State, name: &Text, waits: Option<&Vec<(JobKey, Wait)>>) -> QueueReport {
    let mut report = QueueReport::default();
    for holder in state.queues.holders.values() {
        if holder.queue() != &**name {
            continue;
        }
        if !holder.share.is_empty() {
            report.admitted = report.admitted.saturating_add(1);
        }
        let gpus = holder.places.keys().map(|slot| holder.charged(slot)).fold(0u32, u32::saturating_add);
        if gpus > 0 {
            let sum = report.usage.entry(holder.resource.clone()).or_default();
            *sum = sum.saturating_add(gpus);
        }
    }
    let waits = waits.map_or(&[][..], Vec::as_slice);
    report.pending = u32::try_from(waits.len()).unwrap_or(u32::MAX);
    report.waiting = waits.iter().take(MAX_NAMED).map(waiting).collect();
    report
}

fn waiting((key, wait): &(JobKey, Wait)) -> WaitingJob {
    let reason = match &wait.reason {
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
        message: Text::from(wait.to_string()),
    }
}

/// Returns the reports of queue objects that differ from those told. `waits`: the jobs that wait, where a round found them.
pub(super) fn changed(state: &State, waits: Option<&Waits>) -> Vec<(JobKey, QueueReport)> {
    let mut changed = Vec::new();
    let by_queue: &BTreeMap<_, _> = waits.unwrap_or(const { &BTreeMap::new() });
    for (name, (key, _)) in &state.queues.objects {
        let Some(job) = state.jobs.live(key) else { continue };
        let told = job.report.as_deref();
        let mut report = report(state, name, by_queue.get(name));
        if waits.is_none() {
            report.pending = told.map_or(0, |told| told.pending);
            report.waiting = told.map_or_else(Vec::new, |told| told.waiting.clone());
        }
        if told != Some(&report) {
            changed.push((key.clone(), report));
        }
    }
    changed
}
