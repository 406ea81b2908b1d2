//! Jobs as a log knows them: found by name, and as rows.
//!
//! Owns what a name on the command line means, and what `ps` and `get` say of a job. It decides nothing. Tests:
//! `cli/tests/local/verbs.rs`.

use apis::Registry;
use engine::explain;
use engine::{Job, State};
use model::{GroupSpec, JobKey, Phase, SlotId, Timestamp};
use serde_json::{Value, json};
use terminal::near::did_you_mean;
use terminal::out::Failure;

/// Group whose pods have the first ranks.
pub const MASTER: &str = "master";

/// Maximum number of names listed for one that does not exist.
const MAX_LISTED: usize = 10;

/// Word for a job whose object is gone, instead of a phase.
pub const DELETED: &str = "Deleted";

/// Returns the name that the job's API has for a phase; empty for a phase without one.
pub fn phase_word(registry: &Registry, key: &JobKey, phase: Phase) -> &'static str {
    registry.api_of(key).map_or("", |api| api.phase_word(phase))
}

/// Returns the same, or the words for a job that was not started.
pub fn end_word(registry: &Registry, key: &JobKey, phase: Phase) -> &'static str {
    match phase_word(registry, key, phase) {
        "" => "not started",
        word => word,
    }
}

/// Returns namespace and name of a job as a user writes it.
pub fn split(job: &str) -> (&str, &str) {
    job.split_once('/').unwrap_or(("default", job))
}

/// Returns a job's name as a user writes it.
pub fn written(key: &JobKey) -> String {
    key.written()
}

/// Returns the newest job of each name whose object is there, or was until it was deleted where `gone` is set.
pub fn all(state: &State, gone: bool) -> Vec<JobKey> {
    let mut found: Vec<(JobKey, (bool, model::ResourceVersion))> = Vec::new();
    let registry = Registry::all();
    let jobs = state.jobs.iter().filter(|(key, job)| job.known && registry.is_job(&key.kind) && (gone || !job.gone));
    for (key, job) in jobs {
        let age = (!job.gone, job.rv);
        match found.iter_mut().find(|(known, _)| known.kind == key.kind && same_name(known, key)) {
            Some(known) if known.1 < age => *known = (key.clone(), age),
            Some(_) => {}
            None => found.push((key.clone(), age)),
        }
    }
    found.into_iter().map(|(key, _)| key).collect()
}

fn same_name(one: &JobKey, other: &JobKey) -> bool {
    (&one.namespace, &one.name) == (&other.namespace, &other.name)
}

/// Returns the job that a user means: of that name, or the only one where none is named.
///
/// # Errors
/// When there is none, or several without a name; the message lists those that there are.
pub fn find(state: &State, wanted: Option<&str>) -> Result<JobKey, Failure> {
    let present = all(state, false);
    if present.is_empty() {
        return pick(&all(state, true), wanted);
    }
    // One that was deleted is meant where it is named.
    pick(&present, wanted).or_else(|failure| wanted.and_then(|_| pick(&all(state, true), wanted).ok()).ok_or(failure))
}

/// The same, among these jobs.
///
/// # Errors
/// Returns an error if there is none, or several without a name.
pub fn pick(jobs: &[JobKey], wanted: Option<&str>) -> Result<JobKey, Failure> {
    let names: Vec<String> = jobs.iter().map(written).collect();
    let listed = listed(&names);
    let Some(wanted) = wanted else {
        return match jobs {
            [] => Err(Failure::missing("this log has no job")),
            [one] => Ok(one.clone()),
            _ => Err(Failure::new(format!("which job? There are {listed}"))),
        };
    };
    // `Kind/NAMESPACE/NAME` where kinds clash.
    let (kind, rest) = match wanted.splitn(3, '/').collect::<Vec<_>>()[..] {
        [kind, namespace, name] => (Some(kind), format!("{namespace}/{name}")),
        _ => (None, wanted.to_owned()),
    };
    let (namespace, name) = split(&rest);
    let of_name = |key: &&JobKey| {
        &*key.namespace == namespace
            && &*key.name == name
            && kind.is_none_or(|kind| key.kind.eq_ignore_ascii_case(kind))
    };
    let mut found = jobs.iter().filter(of_name);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(one), Some(other)) => Err(Failure::new(format!(
            "{wanted}: there is a {} and a {} of this name: say {}/{}/{} or {}/{}/{}",
            one.kind, other.kind, one.kind, one.namespace, one.name, other.kind, other.namespace, other.name
        ))),
        (None, _) if jobs.is_empty() => Err(Failure::missing(format!("{wanted}: this log has no job"))),
        (None, _) => {
            let near = did_you_mean(wanted, names.iter().map(String::as_str));
            let verb = if jobs.len() == 1 { "is" } else { "are" };
            let near = if near.is_empty() { format!("; there {verb}") } else { format!("{near} There {verb}") };
            Err(Failure::missing(format!("{wanted}: this log has no such job{near} {listed}")))
        }
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MAX_LISTED);
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// A pod of a job, by its rank.
pub struct PodRank {
    /// Its rank.
    pub rank: u32,
    /// Its slot.
    pub slot: SlotId,
    /// Its name.
    pub name: String,
    /// True for a pod that runs once to prepare the others: its rank is no rank of the training.
    pub once: bool,
}

/// Returns the pods of a job by their ranks: those of a group `master` first, the other groups in their order, and last those that run once
/// to prepare the others.
pub fn ranks(key: &JobKey, job: &Job) -> Vec<PodRank> {
    let registry = Registry::all();
    let Some(api) = registry.api_of(key) else { return Vec::new() };
    let mut groups: Vec<&GroupSpec> = job.spec().into_iter().flat_map(|spec| &spec.groups).collect();
    groups.sort_by_key(|group| (group.once, &*group.name != MASTER));
    let slots = groups.iter().flat_map(|group| (0..group.replicas).map(move |index| (group, index)));
    (0..)
        .zip(slots)
        .map(|(rank, (group, index))| {
            let slot = SlotId { group: group.name.clone(), index };
            PodRank { rank, name: api.slot_name(key, &slot).to_string(), once: group.once, slot }
        })
        .collect()
}

/// One job of a list.
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
    /// Since when it is there.
    pub since: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Its queue, where it has one.
    pub queue: String,
    /// Nodes of its pods.
    pub nodes: Vec<String>,
    /// Why it is where it is, or what it waits for.
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
        let gpus = spec.into_iter().flat_map(model::JobSpec::gpu_groups);
        let gpus = gpus.map(|(group, request)| group.replicas.saturating_mul(request.count));
        let mut nodes: Vec<String> =
            job.pods.values().filter_map(|pod| pod.fact.node.as_deref().map(str::to_owned)).collect();
        nodes.sort();
        nodes.dedup();
        Self {
            key: key.clone(),
            phase: if job.gone { DELETED } else { word }.to_owned(),
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
    let of_group = |group: &model::GroupSpec| match (group.budget, group.restart_limit) {
        (Some(budget), _) => Some(budget.limit),
        (None, None) if group.restart == model::RestartPolicy::Never => Some(0),
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
    match job.phase {
        Phase::Running | Phase::Succeeded => String::new(),
        phase if phase.is_terminal() => last(),
        _ => explain::waits_for(state, key).into_iter().next().unwrap_or_else(last),
    }
}

/// Returns the limit of restarts that a job gets because it names none, in words.
pub(crate) fn default_limit(state: &State, key: &JobKey) -> Option<String> {
    let limit = state.config.restart_limit?;
    let job = state.job(key)?;
    let unlimited =
        |group: &&model::GroupSpec| group.restart_limit.is_none() && group.restart != model::RestartPolicy::Never;
    let spec = job.spec().filter(|spec| spec.budget.is_none())?;
    let names: Vec<&str> = spec.groups.iter().filter(unlimited).map(|group| &**group.display()).collect();
    let words =
        format!("{} without a limit of restarts: at most {limit} here (--restart-limit N|none)", names.join(", "));
    (!names.is_empty()).then_some(words)
}
