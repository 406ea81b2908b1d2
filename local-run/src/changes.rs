//! Changes that users make to jobs by requests: as edits of their objects, as on a cluster.
//!
//! Owns which edit a request is, and refusing one that the job's API does not accept. It must not run pods. Tests:
//! `cli/tests/local/control.rs`.

use apis::objects::STOP;
use apis::{Resource, Severity};
use embedded::Session;
use model::Phase;
use serde_json::{Value, json};
use terminal::near::did_you_mean;
use terminal::out::Failure;

use crate::requests::{JobRef, Request};

/// Fields that hold the number of pods of a group, in the APIs served.
const COUNTS: [&str; 3] = ["replicas", "numTasks", "replica"];

/// Makes a change. Returns what was done; `None` for requests that are no change of a job.
pub(crate) fn make(session: &mut Session, request: &Request) -> Option<Result<String, Failure>> {
    match request {
        Request::StopJob { job, why } => Some(stop(session, job, why)),
        Request::Delete { job } => Some(delete(session, job)),
        Request::Scale { job, group, replicas } => Some(scale(session, job, group.as_deref(), *replicas)),
        Request::Suspend { job, suspend } => Some(suspended(session, job, *suspend)),
        Request::Stop | Request::Submit(_) | Request::Rerun { .. } => None,
    }
}

/// Returns the type and the object of a job.
pub(crate) fn stored(session: &Session, job: &JobRef) -> Result<(Resource, Value), Failure> {
    let missing = || Failure::missing(format!("{} {}: there is no such job here any more", job.kind, job.written()));
    let resource = session.cluster().resource_named(&job.kind).ok_or_else(missing)?;
    let object = session.cluster().get(&resource, &job.namespace, &job.name).ok_or_else(missing)?;
    Ok((resource, (*object).clone()))
}

/// Asks for the end of a job. One that its API has not accepted has nothing to end.
fn stop(session: &mut Session, job: &JobRef, why: &str) -> Result<String, Failure> {
    let (resource, object) = stored(session, job)?;
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let name = job.written();
    if let Some((key, phase)) = session.jobs().into_iter().find(|(key, _)| *key.uid.0 == *uid) {
        if phase.is_terminal() {
            let word = session.phase_word(&key, phase);
            return Err(Failure::missing(format!("{name} has ended ({word}): `trainyard delete` deletes it")));
        }
        if session.operator.state().job(&key).is_some_and(|job| job.phase == Phase::New && job.invalid().is_some()) {
            return Err(Failure::missing(format!("{name} was not started: `trainyard delete` deletes it")));
        }
    }
    let patch = json!({"metadata": {"annotations": {STOP: why}}});
    session.cluster_mut().merge_patch(&resource, &job.namespace, &job.name, &patch, false)?;
    Ok(format!("{} {name} is stopping: its pods have their grace period", job.kind))
}

fn delete(session: &mut Session, job: &JobRef) -> Result<String, Failure> {
    let (resource, _) = stored(session, job)?;
    session.cluster_mut().delete_as_user(&resource, &job.namespace, &job.name, None)?;
    Ok(format!("{} {} is deleted", job.kind, job.written()))
}

fn scale(session: &mut Session, job: &JobRef, group: Option<&str>, replicas: u32) -> Result<String, Failure> {
    let (resource, object) = stored(session, job)?;
    let groups = groups(&object);
    let scaled = session.cluster().scaled_member(&resource);
    let is_scaled = |group: &&Group| {
        let path = ["spec", &group.map, &group.name, &group.field];
        scaled.as_ref().is_some_and(|scaled| scaled.iter().map(|member| &**member).eq(path))
    };
    let names = || groups.iter().map(|group| group.name.as_str());
    let found = match group {
        Some(wanted) => groups.iter().find(|group| group.name.eq_ignore_ascii_case(wanted)).ok_or_else(|| {
            let near = did_you_mean(wanted, names());
            let all = names().collect::<Vec<_>>().join(", ");
            Failure::missing(format!("{}: no group {wanted}{near}; there are {all}", job.written()))
        })?,
        None => match &groups[..] {
            [one] => one,
            [] => {
                return Err(Failure::missing(format!(
                    "{} {}: its number of pods is not in its groups: edit its manifest and run it again",
                    job.kind,
                    job.written()
                )));
            }
            several => several.iter().find(is_scaled).ok_or_else(|| {
                let all = names().collect::<Vec<_>>().join(", ");
                Failure::missing(format!("{}: which group? There are {all}: say GROUP=N", job.written()))
            })?,
        },
    };
    let before = found.count;
    let patch = json!({"spec": {&found.map: {&found.name: {&found.field: replicas}}}});
    edit(session, job, &patch)?;
    Ok(format!("{} {}: {} {before} -> {replicas}", job.kind, job.written(), found.name))
}

fn suspended(session: &mut Session, job: &JobRef, suspend: bool) -> Result<String, Failure> {
    let (_, object) = stored(session, job)?;
    let word = if suspend { "suspended" } else { "resumed" };
    if object["spec"]["suspend"].as_bool().unwrap_or_default() == suspend {
        let state = if suspend { "suspended already" } else { "not suspended" };
        return Err(Failure::missing(format!("{} {} is {state}", job.kind, job.written())));
    }
    edit(session, job, &json!({"spec": {"suspend": suspend}}))?;
    Ok(format!("{} {} is {word}", job.kind, job.written()))
}

/// Edits a job's object, unless its API has something against what comes of it.
fn edit(session: &mut Session, job: &JobRef, patch: &Value) -> Result<(), Failure> {
    let (resource, object) = stored(session, job)?;
    let mut edited = object;
    model::json::merge_patch(&mut edited, patch);
    if let Some(own) = edited.as_object_mut() {
        own.remove("status");
    }
    let known = |object: &Value| {
        let findings = apis::manifest::findings(session.operator.registry(), object);
        let bad = findings.into_iter().filter(|finding| finding.severity != Severity::Remark);
        bad.map(|finding| finding.field).collect::<Vec<_>>()
    };
    if let Some(problem) = known(&edited).first() {
        let why =
            if problem.path == "spec.suspend" { format!("{} has no suspend", job.kind) } else { problem.to_string() };
        return Err(Failure::missing(format!("{}: {why}. Nothing was changed", job.written())));
    }
    session.cluster_mut().merge_patch(&resource, &job.namespace, &job.name, patch, false)?;
    Ok(())
}

/// A group of pods in a job's object.
struct Group {
    /// Field of the spec that holds the groups.
    map: String,
    name: String,
    /// Field of the group that holds its number of pods.
    field: String,
    count: u64,
}

/// Returns the groups of a job's object: objects below a field of its spec that have a pod template.
fn groups(object: &Value) -> Vec<Group> {
    let mut found = Vec::new();
    for (map, groups) in object["spec"].as_object().into_iter().flatten() {
        for (name, group) in groups.as_object().into_iter().flatten() {
            if group.get("template").is_none() {
                continue;
            }
            let field = COUNTS.iter().find(|field| group.get(**field).is_some()).unwrap_or(&COUNTS[0]);
            let count = group.get(*field).and_then(Value::as_u64).unwrap_or(1);
            found.push(Group { map: map.clone(), name: name.clone(), field: (*field).to_owned(), count });
        }
    }
    found
}
