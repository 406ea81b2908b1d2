//! A job's life in words: what came in, what was decided from it, why it is where it is, and what it waits for.
//!
//! Reads records and state; decides nothing. `cli` prints what is made here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::command::Outcome;
use model::{ContainerState, Decision, Event, Fact, JobKey, ObjectRef, Phase, PodFact, PodPhase, Position, Timestamp};
use serde_json::{Value, json};

use crate::job::Job;
use crate::state::{Scope, State};
use crate::wire::{self, Record};
use crate::words::with_message;

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The record it comes from.
    pub position: Position,
    /// When.
    pub at: Timestamp,
    /// Set if it was decided (rather than seen).
    pub decided: bool,
    /// In words.
    pub text: String,
}

/// The lines of one record: first what came in, then what was decided. `before` is the state it came upon: it knows names.
pub fn lines(record: &Record, before: &State) -> Vec<Line> {
    let line = |decided: bool, text: String| Line { position: record.position, at: record.at, decided, text };
    let job = match &record.scope {
        Scope::Job(key) => before.job(key),
        Scope::Cluster => None,
    };
    let seen = record.facts.iter().filter_map(|fact| named(job.as_deref(), fact).or_else(|| fact_words(fact)));
    let seen = seen.map(|text| line(false, text));
    let decided = record.events.iter().filter_map(event_words).map(|text| line(true, text));
    seen.chain(decided).collect()
}

/// Facts that name an object by its uid, told with its name.
fn named(job: Option<&Job>, fact: &Fact) -> Option<String> {
    let job = job?;
    let pod = |uid| job.pods.get(uid).map(|p| format!("pod {}", p.fact.name));
    let service = |uid| job.services.get(uid).map(|s| format!("service {}", s.name));
    match fact {
        Fact::PodGone { uid, .. } => Some(format!("{} is gone", pod(uid)?)),
        Fact::ServiceGone { uid } => Some(format!("{} is gone", service(uid)?)),
        Fact::Answered { object: ObjectRef::PodUid(uid), outcome } => {
            Some(outcome_words(&format!("delete of {}", pod(uid)?), outcome))
        }
        Fact::Answered { object: ObjectRef::ServiceUid(uid), outcome } => {
            Some(outcome_words(&format!("delete of {}", service(uid)?), outcome))
        }
        Fact::TermBegan { .. }
        | Fact::Configured(_)
        | Fact::Job(_)
        | Fact::Spec(_)
        | Fact::JobGone
        | Fact::Pod(_)
        | Fact::Service(_)
        | Fact::Owned(_)
        | Fact::OwnedGone { .. }
        | Fact::Node(_)
        | Fact::NodeGone { .. }
        | Fact::NodeChanged { .. }
        | Fact::Relisted { .. }
        | Fact::Answered { .. }
        | Fact::Published { .. }
        | Fact::Due
        | Fact::Adopted(_) => None,
    }
}

/// A fact in words; `None` for those that matter to bookkeeping only.
pub fn fact_words(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::TermBegan { term } => format!("term {term} began"),
        Fact::Configured(_) => "configuration recorded".to_owned(),
        Fact::Job(job) if job.deleting => "the job object is being deleted".to_owned(),
        Fact::Job(job) if !job.end_requests.is_empty() => {
            let end_requests: Vec<String> =
                job.end_requests.iter().map(|(request, value)| format!("{request:?}={value}")).collect();
            format!("the job object carries marks: {}", end_requests.join(", "))
        }
        Fact::Job(_) | Fact::Published { .. } | Fact::Due | Fact::Relisted { .. } => return None,
        Fact::Spec(spec) => match &spec.spec {
            Ok(spec) => {
                let groups: Vec<String> =
                    spec.groups.iter().map(|g| format!("{} x{}", g.display(), g.replicas)).collect();
                format!("spec seen: {}", groups.join(", "))
            }
            Err(_) if !spec.missing.is_empty() => {
                let missing: Vec<String> =
                    spec.missing.iter().map(|missing| crate::Hold::Missing(missing).to_string()).collect();
                missing.join("; ")
            }
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!("spec cannot be accepted: {}", errors.join("; "))
            }
        },
        Fact::JobGone => "the job object is gone".to_owned(),
        Fact::Pod(pod) => pod_words(pod),
        Fact::PodGone { uid, .. } => format!("pod with uid {uid} is gone"),
        Fact::Service(service) => format!("service {} seen", service.name),
        Fact::ServiceGone { uid } => format!("service with uid {uid} is gone"),
        Fact::Owned(owned) => {
            let state = match (&owned.failed, owned.deleting, owned.ready) {
                (Some(why), ..) => format!("cannot be used: {why}"),
                (None, true, _) => "is being deleted".to_owned(),
                (None, false, true) => "is ready".to_owned(),
                (None, false, false) => "exists".to_owned(),
            };
            format!("{} {state}", owned.object)
        }
        Fact::OwnedGone { uid } => format!("an object of the job, with uid {uid}, is gone"),
        Fact::Node(node) => format!("node {} is {}", node.name, if node.ready { "ready" } else { "not ready" }),
        Fact::NodeGone { name } => format!("node {name} is gone"),
        Fact::NodeChanged { name } => format!("node {name} changed"),
        Fact::Answered { object, outcome } => answer_words(object, outcome),
        Fact::Adopted(adopted) => format!("adopted from its object, mirror {}", adopted.mirror.stamp),
    })
}

fn answer_words(object: &ObjectRef, outcome: &Outcome) -> String {
    outcome_words(&object.to_string(), outcome)
}

fn outcome_words(object: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done | Outcome::Forced => format!("{object}: done"),
        Outcome::Gone => format!("{object}: not there"),
        Outcome::Taken { waiting: true, .. } => {
            format!("{object}: the name is still held by an object that is going away")
        }
        Outcome::Taken { unseen: true, .. } => {
            format!("{object}: it is there, but its labels were changed so that it is not watched")
        }
        Outcome::Taken { .. } => format!("{object}: the name belongs to something else"),
        Outcome::Refused { code, message } => format!("{object}: refused ({code} {message})"),
        Outcome::Unknown { code } => format!("{object}: no clear answer ({code})"),
    }
}

fn pod_words(pod: &PodFact) -> String {
    let mut text = format!("pod {} is {:?}", pod.name, pod.phase);
    if let Some(node) = &pod.node {
        {
            let _ = write!(text, " on {node}");
        };
    }
    for container in &pod.containers {
        match &container.state {
            ContainerState::Waiting { reason, message } => {
                let reason = with_message(reason, message.as_ref());
                let _ = write!(text, ", {} waits: {reason}", container.name);
            }
            ContainerState::Terminated { code, message, .. } => {
                let code = with_message(&code.to_string(), message.as_ref());
                let _ = write!(text, ", {} exited {code}", container.name);
            }
            ContainerState::Running => {}
        }
    }
    if let Some(reason) = &pod.reason {
        {
            let _ = write!(text, ", {reason}");
        };
    }
    if pod.deleting.is_some() {
        text.push_str(", being deleted");
    }
    text
}

/// An event in words; `None` for those that a phase change beside them says better.
pub fn event_words(event: &Event) -> Option<String> {
    Some(match event {
        Event::Fenced => "this term takes the job over: its mirror is written first".to_owned(),
        Event::PodsPlanned { slots } => {
            format!("create pods {}", named_list(&slots.iter().map(|(s, _)| s.to_string()).collect::<Vec<_>>()))
        }
        Event::ServicesPlanned { slots } => {
            format!("create services {}", named_list(&slots.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        Event::OwnedPlanned { objects } => {
            format!("create {}", named_list(&objects.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        Event::OwnedDropped { objects } => {
            format!("delete {}", named_list(&objects.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        Event::Achieved { group, run } => format!("{group} completed run {run}"),
        Event::PodsDropped { uids } => format!("delete {} surplus pods", uids.len()),
        Event::ServicesDropped { uids } => format!("delete {} services", uids.len()),
        Event::Decided(decision) => match &**decision {
            Decision::Restart { group, scope, cause, retry_at, .. } => {
                let wait = retry_at.map(|at| format!(", not before {}", at.to_rfc3339())).unwrap_or_default();
                format!("restart (scope {scope:?}, charged to {group}{wait}): {}", cause.message)
            }
            Decision::End { phase, cause, clean, live_only } => {
                let pods = match (clean, live_only) {
                    (true, false) => "pods deleted",
                    (true, true) => "pods that have not ended deleted",
                    (false, _) => "pods kept",
                };
                format!("end as {phase:?}, {pods}: {}", cause.message)
            }
            Decision::Halt { cause } => format!("halt: {}", cause.message),
        },
        Event::Replaced { group, slots } => {
            let names: Vec<String> = slots.iter().map(|each| format!("{group}-{}", each.index)).collect();
            let last = slots.iter().filter_map(|each| each.retry_at).max();
            let wait = last.map(|at| format!(", not before {}", at.to_rfc3339())).unwrap_or_default();
            format!("replace pods {} (charged to {group}{wait})", named_list(&names))
        }
        Event::Lost { slots } => {
            let names: Vec<String> = slots.iter().map(|(slot, _)| slot.to_string()).collect();
            format!("pods {} failed for good: not created again", named_list(&names))
        }
        Event::RestartCleared => "the old pods are gone".to_owned(),
        Event::Ended { phase } => format!("phase {phase:?}: ended"),
        Event::PhaseChanged { to, message } if message.is_empty() => format!("phase {to:?}"),
        Event::PhaseChanged { to, message } => format!("phase {to:?}: {message}"),
        Event::Stalled { message: Some(message) } => message.to_string(),
        Event::Stalled { message: None } | Event::MessageChanged { .. } => return None,
    })
}

/// Why a job is in the state it is in: the records that matter, cause before effect.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    lines: Vec<Line>,
    /// Record that first showed the failure, loss or end of each pod.
    ends: BTreeMap<String, Line>,
}

/// Lines kept while a chain is built: enough for every restart and phase of a present attempt.
const MAX_CHAIN: usize = 64;

impl Chain {
    /// Takes one more record of the job in.
    pub fn take(&mut self, record: &Record) {
        for fact in &record.facts {
            if let Fact::Pod(pod) = fact
                && (pod.phase.is_terminal() || pod.phase == PodPhase::Unknown)
            {
                let line = Line { position: record.position, at: record.at, decided: false, text: pod_words(pod) };
                self.ends.insert(pod.slot.as_ref().map_or_else(|| pod.name.to_string(), ToString::to_string), line);
            }
        }
        let notable = |fact: &&Fact| {
            matches!(fact, Fact::Adopted(_) | Fact::NodeChanged { .. } | Fact::Spec(_) | Fact::JobGone)
                || matches!(fact, Fact::Job(job) if job.deleting || !job.end_requests.is_empty())
                || matches!(fact, Fact::Answered { outcome: Outcome::Refused { .. } | Outcome::Taken { .. }, .. })
        };
        for text in record.facts.iter().filter(notable).filter_map(fact_words) {
            self.push(Line { position: record.position, at: record.at, decided: false, text });
        }
        for event in &record.events {
            if let Event::Decided(decision) = event {
                let seen: Vec<Line> =
                    decision.cause().slots.iter().filter_map(|slot| self.ends.remove(&slot.to_string())).collect();
                for line in seen {
                    self.push(line);
                }
            }
            let tells = matches!(
                event,
                Event::Decided(_) | Event::RestartCleared | Event::Ended { .. } | Event::PhaseChanged { .. }
            );
            if let Some(text) = event_words(event).filter(|_| tells) {
                self.push(Line { position: record.position, at: record.at, decided: true, text });
            }
        }
    }

    fn push(&mut self, line: Line) {
        if self.lines.len() >= MAX_CHAIN {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }

    /// The chain, oldest first.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// Calls for a job that were refused for good, in words.
pub fn refusals(job: &Job) -> Vec<String> {
    let refused = |attempt: &crate::job::Attempt| matches!(attempt.last, Outcome::Refused { .. });
    let attempts = job.attempts.iter().filter(|(_, attempt)| refused(attempt));
    attempts.map(|(object, attempt)| answer_words(object, &attempt.last)).collect()
}

/// Returns in words the conditions that a job waits for; empty when nothing is due.
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
    if job.deleting || job.gone {
        out.push("garbage collection of its pods and services: the job object is deleted".to_owned());
    }
    if job.needs_status() && !job.deleting && !job.gone {
        out.push(format!("its status with mirror {} to be acknowledged", job.status_stamp));
    }
    if !job.deleting_pods.is_empty() {
        let names: Vec<&str> =
            job.deleting_pods.iter().take(6).map(|uid| job.pods.get(uid).map_or(&*uid.0, |p| &*p.fact.name)).collect();
        out.push(format!("{} pods to be gone: {}", job.deleting_pods.len(), names.join(", ")));
    }
    if let Some(spec) = job.spec().filter(|_| !job.phase.is_terminal()) {
        let held = spec.groups.iter().filter_map(|group| job.hold(spec, group));
        for hold in held.map(|hold| hold.to_string()) {
            if !out.contains(&hold) {
                out.push(hold);
            }
        }
    }
    out.extend(job.missing().iter().map(|missing| crate::Hold::Missing(missing).to_string()));
    out.extend(backing_off(&job, state.at));
    for (object, attempt) in &job.attempts {
        let when = attempt.retry_at.map_or_else(|| "after an edit of the spec".to_owned(), Timestamp::to_rfc3339);
        out.push(format!("next try {when}: {}", answer_words(object, &attempt.last)));
    }
    if !job.planned_pods.is_empty() {
        out.push(format!("creation of {} pods", job.planned_pods.len()));
    }
    if job.decision.is_none() && matches!(job.phase, Phase::Pending | Phase::Creating | Phase::Restarting) {
        out.extend(starting(&job));
    }
    if let Some(at) = job.time_limit_at().filter(|_| job.ending().is_none()) {
        out.push(format!("its time limit, at {}", at.to_rfc3339()));
    }
    out
}

/// Back-offs that hold pods back, those that end at the same time together.
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

/// Joins names; of more than a line holds, the first ones and their number.
fn named_list(names: &[String]) -> String {
    match names.len() {
        0..=6 => names.join(", "),
        n => format!("{}, ... ({n} in all)", names.get(..4).unwrap_or_default().join(", ")),
    }
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
    if let Some((_, why)) = &job.unschedulable {
        out.push(format!("the scheduler says: {why}"));
    }
    let trouble = crate::words::creation_trouble(job);
    if !trouble.is_empty() {
        out.push(format!("containers to be created: {trouble}"));
    }
    out
}

impl State {
    /// Returns the state as plain data, for comparing two positions.
    pub fn summary(&self) -> Value {
        let jobs: BTreeMap<String, Value> =
            self.jobs.iter().map(|(key, job)| (format!("{key} ({})", key.uid), job_summary(&job))).collect();
        let nodes: BTreeMap<&str, &str> =
            self.nodes.values().map(|n| (&*n.fact.name, if n.fact.ready { "ready" } else { "not ready" })).collect();
        json!({ "jobs": jobs, "nodes": nodes, "term": self.stamp.term })
    }
}

fn job_summary(job: &Job) -> Value {
    let groups: BTreeMap<&str, Value> = job
        .groups
        .iter()
        .map(|(name, g)| {
            let c = g.counters;
            let value = json!({
                "replicas": g.replicas, "restarts": g.restarts, "charged": g.charged,
                "pending": c.pending, "scheduled": c.scheduled, "active": c.active,
                "succeeded": c.succeeded, "failed": c.failed,
            });
            (&**name, value)
        })
        .collect();
    let pods: BTreeMap<String, Value> = job
        .pods
        .values()
        .map(|p| {
            let value = json!({
                "uid": p.fact.uid, "phase": wire::pod_phase_value(p.fact.phase), "node": p.fact.node,
                "incarnation": p.fact.incarnation, "leaving": p.is_leaving(),
            });
            (p.fact.name.to_string(), value)
        })
        .collect();
    json!({
        "phase": wire::phase_value(job.phase),
        "decision": wire::decision_value(job.decision.as_ref()),
        "groups": groups,
        "pods": pods,
        "services": job.services.values().map(|s| &*s.name).collect::<Vec<_>>(),
        "planned": job.planned_pods.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "invalid": wire::errors_value(job.invalid()),
        "mirror": job.acked_stamp.to_string(),
    })
}

/// Members that differ between two summaries: path, before, after.
pub fn differences(before: &Value, after: &Value) -> Vec<(String, Value, Value)> {
    let mut out = Vec::new();
    compare(String::new(), before, after, &mut out);
    out
}

fn compare(path: String, before: &Value, after: &Value, out: &mut Vec<(String, Value, Value)>) {
    if before == after {
        return;
    }
    let (Value::Object(a), Value::Object(b)) = (before, after) else {
        out.push((path, before.clone(), after.clone()));
        return;
    };
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        compare(path, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), out);
    }
}

/// Returns true if a record is about a job, by namespace and name.
pub fn concerns(record: &Record, namespace: &str, name: &str) -> bool {
    matches!(&record.scope, Scope::Job(key) if &*key.namespace == namespace && &*key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;

    #[test]
    fn back_offs_are_told_by_slot_and_until_when() {
        let mut group = Group::default();
        for (index, until) in [(0, 9_000), (1, 9_000), (2, 30_000), (3, 500)] {
            group.delay(index, Timestamp(until));
        }
        let mut job = Job { phase: Phase::Restarting, ..Job::default() };
        job.groups.insert("trainer".into(), Box::new(group));
        let told = |job: &Job| backing_off(job, Timestamp(1000));
        assert_eq!(
            told(&job),
            [
                "back-off of trainer-0, trainer-1, until 1970-01-01T00:00:09Z",
                "back-off of trainer-2, until 1970-01-01T00:00:30Z",
            ]
        );
        job.retry_at = Some(Timestamp(5000));
        assert_eq!(told(&job)[0], "back-off of every pod of the job, until 1970-01-01T00:00:05Z");
        job.phase = Phase::Failed;
        assert_eq!(told(&job), [""; 0]);
    }
}
