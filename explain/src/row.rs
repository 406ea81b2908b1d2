//! A job as a row of a list. Decides nothing. Tests: `cli/tests/local/verbs.rs`.

use apis::Registry;
use engine::{Job, State};
use model::{GroupSpec, JobKey, JobSpec, Phase, RestartPolicy, Timestamp};
use serde_json::{Value, json};

use crate::phases::{DELETED, end_word};
use crate::waits::waits_for;

/// One job of a list.
#[derive(Debug)]
pub struct Row {
    /// The job.
    pub key: JobKey,
    /// Its phase in its API's words.
    pub phase: String,
    /// Number of its pods that run.
    pub ready: u32,
    /// Number of its pods by its spec.
    pub replicas: u32,
    /// Retries so far.
    pub restarts: u32,
    /// Retries that it may have.
    pub limit: Option<u32>,
    /// GPUs of all its pods.
    pub gpus: u32,
    /// Time of its beginning.
    pub since: Option<Timestamp>,
    /// Time of its end.
    pub ended: Option<Timestamp>,
    /// Its queue, where it has one.
    pub queue: String,
    /// Nodes of its pods.
    pub nodes: Vec<String>,
    /// Cause of its phase, or the condition that it waits for.
    pub reason: String,
}

impl Row {
    /// Returns the row of a job.
    pub fn of(state: &State, key: &JobKey) -> Option<Self> {
        Some(Self::new(state, key, state.job(key)?.as_ref()))
    }

    /// Returns the row of a job as it was.
    pub fn new(state: &State, key: &JobKey, job: &Job) -> Self {
        let spec = job.spec();
        let groups = || spec.into_iter().flat_map(|spec| &spec.groups).filter(|group| !group.once);
        let word = end_word(&Registry::all(), key, job.phase);
        let gpus = spec.into_iter().flat_map(JobSpec::gpu_groups);
        let gpus = gpus.map(|(group, request)| group.replicas.saturating_mul(request.count));
        let mut nodes: Vec<String> =
            job.pods.values().filter_map(|pod| pod.fact.node.as_deref().map(str::to_owned)).collect();
        nodes.sort();
        nodes.dedup();
        Self {
            key: key.clone(),
            phase: if job.object.is_gone() { DELETED } else { word }.to_owned(),
            ready: job.groups.values().map(|group| group.counters.active).sum(),
            replicas: groups().map(|group| group.replicas).fold(0, u32::saturating_add),
            restarts: retries(job),
            limit: limit(state, job),
            gpus: gpus.fold(0, u32::saturating_add),
            since: job.started_at.or_else(|| job.milestones.front().map(|milestone| milestone.at)),
            ended: job.ended_at,
            queue: job.queue().map(ToString::to_string).unwrap_or_default(),
            nodes,
            reason: reason(state, key, job),
        }
    }

    /// Returns the restarts and their limit, `3/10`; the number alone where there is no limit.
    pub fn restarts_text(&self) -> String {
        self.limit.map_or_else(|| self.restarts.to_string(), |limit| format!("{}/{limit}", self.restarts))
    }

    /// Returns the time for which the job is there, or was until its end.
    pub fn age_ms(&self, now: Timestamp) -> Option<u64> {
        Some(now.since_ms(self.since?))
    }

    /// Returns the row as an object.
    pub fn to_json(&self) -> Value {
        json!({
            "job": self.key.to_string(), "kind": &*self.key.kind, "uid": self.key.uid, "phase": self.phase,
            "ready": self.ready, "replicas": self.replicas, "restarts": self.restarts, "restartLimit": self.limit,
            "gpus": self.gpus, "since": self.since.map(Timestamp::to_rfc3339),
            "ended": self.ended.map(Timestamp::to_rfc3339), "queue": self.queue, "nodes": self.nodes,
            "reason": self.reason,
        })
    }
}

/// Returns the restarts that stand beside their limit: the retries that the job's budget counts, or else all restarts.
pub fn retries(job: &Job) -> u32 {
    if job.spec().is_some_and(|spec| spec.budget.is_some()) { job.retries() } else { job.restarts() }
}

/// Returns the retries that a job may have, where its spec or the operator limits them.
fn limit(state: &State, job: &Job) -> Option<u32> {
    let spec = job.spec()?;
    if let Some(budget) = spec.budget {
        return Some(budget.limit);
    }
    let of_group = |group: &GroupSpec| match (group.budget, group.restart_limit) {
        (Some(budget), _) => Some(budget.limit),
        (None, None) if group.restart == RestartPolicy::Never => Some(0),
        _ => job.restart_limit(group, &state.config).filter(|limit| *limit != u32::MAX),
    };
    let limits: Option<Vec<u32>> = spec.groups.iter().filter(|group| !group.once).map(of_group).collect();
    limits.filter(|limits| !limits.is_empty()).map(|limits| limits.into_iter().fold(0, u32::saturating_add))
}

/// Returns why a job is where it is; nothing of one that runs.
fn reason(state: &State, key: &JobKey, job: &Job) -> String {
    if let Some(errors) = job.invalid().filter(|_| job.phase == Phase::New) {
        return errors.first().map(ToString::to_string).unwrap_or_default();
    }
    let last = || job.milestones.back().map(|milestone| milestone.message.to_string()).unwrap_or_default();
    if matches!(job.phase, Phase::Running | Phase::Succeeded) {
        String::new()
    } else if job.phase.is_terminal() {
        last()
    } else {
        waits_for(state, key).into_iter().next().unwrap_or_else(last)
    }
}
