//! The conditions that a job waits for, as text. Reads state; decides nothing. Tests: at the end of this file, and
//! `snapshots/tests/failures.rs`.

use std::collections::BTreeMap;

use engine::queues::report::why_waiting;
use engine::{BlockedBy, Job, State, creation_trouble, unplaced_pod};
use model::command::Outcome;
use model::{JobKey, Phase, Timestamp};

use crate::events::named_list;
use crate::facts::answer_words;

/// Returns the calls for a job that were refused for good, as text.
pub fn refusals(job: &Job) -> Vec<String> {
    let refused = job.refusals().filter(|(_, outcome)| matches!(outcome, Outcome::Refused { .. }));
    refused.map(|(object, outcome)| answer_words(object, outcome)).collect()
}

/// Returns the conditions that a job waits for, as text; empty when nothing is due.
pub fn waits_for(state: &State, key: &JobKey) -> Vec<String> {
    let Some(job) = state.job(key) else { return vec!["the job is not known".to_owned()] };
    let mut out = Vec::new();
    if let Some(why) = &job.quarantine {
        out.push(format!("quarantined: {why}"));
    }
    if let Some(errors) = job.invalid() {
        out.push(format!(
            "an edit of its spec: {}",
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        ));
    }
    if job.object.is_going() {
        out.push("garbage collection of its pods and services: the job object is deleted".to_owned());
    } else if job.stamps.is_behind() {
        out.push(format!("its status with mirror {} to be acknowledged", job.stamps.wanted()));
    }
    if !job.deleting_pods.is_empty() {
        let names: Vec<&str> =
            job.deleting_pods.iter().take(6).map(|uid| job.pods.get(uid).map_or(&*uid.0, |p| &*p.fact.name)).collect();
        out.push(format!("{} pods to be gone: {}", job.deleting_pods.len(), names.join(", ")));
    }
    if let Some(spec) = job.spec().filter(|_| !job.phase.is_terminal()) {
        let words = |blocker: BlockedBy<'_>| {
            let waits = matches!(blocker, BlockedBy::NoShare { .. });
            let why = waits.then(|| why_waiting(state, key, state.at)).flatten();
            let lost = || job.loss_words().map_or_else(String::new, |loss| format!("{loss}; "));
            why.map_or_else(|| blocker.to_string(), |why| format!("{}{why}", lost()))
        };
        let held = spec.groups.iter().filter_map(|group| job.blocked_by(spec, group));
        for blocker in held.map(words) {
            if !out.contains(&blocker) {
                out.push(blocker);
            }
        }
    }
    out.extend(job.missing().iter().map(|missing| BlockedBy::Missing(missing).to_string()));
    out.extend(backing_off(&job, state.at));
    for (object, attempt) in job.attempts.iter().filter(|(object, _)| !job.does_without(object)) {
        let when = attempt.retry_at.map_or_else(|| "after an edit of the spec".to_owned(), Timestamp::to_rfc3339);
        out.push(format!("next try {when}: {}", answer_words(object, &attempt.last)));
    }
    if !job.planned_pods.is_empty() {
        out.push(format!("creation of {} pods", job.planned_pods.len()));
    }
    if job.decision.is_none() && !job.phase.is_terminal() && !matches!(job.phase, Phase::New | Phase::Suspended) {
        out.extend(starting(&job));
    }
    if let Some(at) = job.time_limit_at().filter(|_| job.ending().is_none()) {
        out.push(format!("its time limit, at {}", at.to_rfc3339()));
    }
    out
}

/// Returns the back-offs that delay pods, those that end at the same time together.
fn backing_off(job: &Job, now: Timestamp) -> Vec<String> {
    if job.phase.is_terminal() {
        return Vec::new();
    }
    let mut held: BTreeMap<Timestamp, Vec<String>> = BTreeMap::new();
    for (slot, until) in job.delays().filter(|(_, until)| *until > now) {
        held.entry(until).or_default().push(slot.to_string());
    }
    let whole = job.retry_at.filter(|until| *until > now).map(|until| (until, "every pod of the job".to_owned()));
    let slots = held.into_iter().map(|(until, slots)| (until, named_list(&slots)));
    whole
        .into_iter()
        .chain(slots)
        .map(|(until, who)| format!("back-off of {who}, until {}", until.to_rfc3339()))
        .collect()
}

fn starting(job: &Job) -> Vec<String> {
    let mut out = Vec::new();
    for (name, group) in &job.groups {
        let c = group.counters;
        if c.pending > 0 {
            out.push(format!("{} pods of {name} to be scheduled", c.pending));
        }
        if c.scheduled > 0 {
            out.push(format!("{} pods of {name} to start", c.scheduled));
        }
    }
    out.extend(unplaced_pod(job));
    let trouble = creation_trouble(job);
    if !trouble.is_empty() {
        out.push(format!("containers to be created: {trouble}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use engine::Group;

    use super::*;

    #[test]
    fn back_offs_name_their_slots_and_their_end() {
        let mut group = Group::default();
        for (index, until) in [(0, 9_000), (1, 9_000), (2, 30_000), (3, 500)] {
            group.delays.insert(index, Timestamp(until));
        }
        let mut job = Job { phase: Phase::Restarting, ..Job::default() };
        job.groups.insert("trainer".into(), Box::new(group));
        let shown = |job: &Job| backing_off(job, Timestamp(1000));
        assert_eq!(
            shown(&job),
            [
                "back-off of trainer-0, trainer-1, until 1970-01-01T00:00:09Z",
                "back-off of trainer-2, until 1970-01-01T00:00:30Z",
            ]
        );
        job.retry_at = Some(Timestamp(5000));
        assert_eq!(shown(&job)[0], "back-off of every pod of the job, until 1970-01-01T00:00:05Z");
        job.phase = Phase::Failed;
        assert_eq!(shown(&job), [""; 0]);
    }
}
