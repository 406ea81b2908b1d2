//! Jobs of a log, found by name.
//!
//! Owns what a name on the command line means, and the ranks of a job's pods. It decides nothing. Tests: `cli/tests/local/verbs.rs`.

use apis::Registry;
use engine::{Job, State};
use model::{GroupSpec, JobKey, SlotId};
use terminal::near::did_you_mean;
use terminal::out::Failure;

/// Group whose pods have the first ranks.
pub const MASTER: &str = "master";

/// Maximum number of names listed for one that does not exist.
const MAX_LISTED: usize = 10;

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
    let jobs = state
        .jobs
        .iter()
        .filter(|(key, job)| job.object.is_known() && registry.is_job(&key.kind) && (gone || !job.object.is_gone()));
    for (key, job) in jobs {
        let age = (!job.object.is_gone(), job.object.rv());
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
