//! Finds the manifest of a recorded job, and the edits of it.
//!
//! A log holds the translation of each spec, not the object. Owns the search for an object that translates to what was recorded:
//! among the documents given, the object of a data directory, and small changes of the version before. The translation of the job's
//! API is the only judge; nothing is taken that it does not confirm.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use apis::demand::QUEUE;
use apis::objects::{MARKED_FOR, STATE, STOP};
use apis::{JobApi, Registry, Resource};
use engine::{Body, Record};
use model::json::{merge_patch, merge_patch_of};
use model::{JobFact, JobKey, Position, SpecFact, Term, Text, Timestamp};
use serde_json::{Map, Value, json};

/// Maximum number of differences that are named of a manifest that does not fit.
const MAX_DIFFERENCES: usize = 3;
/// Members of `metadata` that users write.
const OWN_METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Why there is no manifest.
#[derive(Debug)]
pub enum Unknown {
    /// None was given.
    Absent,
    /// None translates to what was recorded: differences of the one that stands first.
    Other(Vec<String>),
}

impl Unknown {
    /// Returns it in words, of a job in a log.
    pub fn in_log(self, log: &Path, key: &JobKey) -> String {
        let (log, job) = (log.display(), key.written());
        match self {
            Self::Absent => format!(
                "{log}: the log holds what was decided from the manifest of {job}, not the manifest: name its file with --manifest FILE"
            ),
            Self::Other(differences) => {
                let mut text = format!(
                    "{log}: no manifest of {} {job} translates to what the log recorded: name the one it was started with with --manifest FILE",
                    key.kind
                );
                for difference in differences.iter().take(MAX_DIFFERENCES) {
                    let _ = write!(text, "\n  {difference}");
                }
                text
            }
        }
    }
}

/// The versions of a job's object that are known, and the objects it needs.
pub struct Manifests {
    api: Arc<dyn JobApi>,
    key: JobKey,
    /// Possible versions, in the order in which they were given.
    versions: Vec<Value>,
    /// Objects besides the job.
    others: Vec<Value>,
    /// The version in force.
    current: Value,
    /// Time at which the object was created.
    created: Timestamp,
    /// Its generation, where that is recorded.
    generation: Option<u64>,
}

impl Manifests {
    /// Holds what may be a version of the job's object: documents given, and objects stored in a data directory.
    pub fn new(api: Arc<dyn JobApi>, key: &JobKey, given: Vec<Value>, stored: Vec<Value>) -> Self {
        let is_job = |object: &Value| {
            text(object, "/kind") == &*key.kind
                && text(object, "/metadata/name") == &*key.name
                && text(object, "/metadata/namespace") == &*key.namespace
        };
        let (mut versions, mut others): (Vec<Value>, Vec<Value>) = given.into_iter().partition(is_job);
        // Other jobs are no part of the scenario.
        let registry = Registry::all();
        others.retain(|object| {
            registry.get(&Resource::of(object)).is_none_or(|api| !registry.is_job(&api.resource().kind))
        });
        let (stored_job, stored_others): (Vec<Value>, Vec<Value>) = stored.into_iter().partition(is_job);
        versions.extend(stored_job);
        for object in stored_others {
            let same = |other: &Value| address(other) == address(&object);
            let needed = versions.iter().any(|version| needs(api.as_ref(), version, &object));
            if needed && !others.iter().any(same) {
                others.push(object);
            }
        }
        Self { api, key: key.clone(), versions, others, current: Value::Null, created: Timestamp(0), generation: None }
    }

    /// Returns whether the job needs an object of that kind and name, and the scenario has it.
    pub(super) fn has_other(&self, kind: &str, name: &str) -> bool {
        self.others.iter().any(|other| text(other, "/kind") == kind && text(other, "/metadata/name") == name)
    }

    /// Returns the objects besides the job.
    pub(super) fn others(&self) -> &[Value] {
        &self.others
    }

    /// Returns whether the job's queue is among the objects, or it names none.
    pub(super) fn knows_queue(&self) -> bool {
        let queue = self.current.get("metadata").and_then(|m| m.get("labels")?.get(QUEUE)?.as_str());
        let is = |other: &Value, queue: &str| {
            text(other, "/kind") == "TrainingQueue" && text(other, "/metadata/name") == queue
        };
        queue.is_none_or(|queue| queue.is_empty() || self.others.iter().any(|other| is(other, queue)))
    }

    /// Finds the object that was first applied.
    pub(super) fn first(&mut self, fact: &SpecFact, at: Timestamp) -> Result<Value, Unknown> {
        self.created = created(fact).unwrap_or(at);
        self.generation = generation(fact);
        let fits = |version: &&Value| agrees(&self.translated(version), fact);
        match (self.versions.iter().find(fits), self.versions.first()) {
            (Some(found), _) => {
                self.current = found.clone();
                Ok(found.clone())
            }
            (None, None) => Err(Unknown::Absent),
            (None, Some(first)) => {
                let translated = wire(&self.key, self.translated(first));
                let all = explain::differences(&wire(&self.key, fact.clone()), &translated);
                let line = |(path, recorded, found): (String, Value, Value)| {
                    format!("{path}: recorded {recorded}, by the manifest {found}")
                };
                Err(Unknown::Other(all.into_iter().map(line).collect()))
            }
        }
    }

    /// Finds the merge patch that changed the object from one recorded spec to the next.
    pub(super) fn edit(&mut self, before: &SpecFact, after: &SpecFact) -> Option<Value> {
        self.generation = generation(after);
        let candidates = self.versions.iter().cloned().chain(candidates(&self.current, before, after));
        let next = candidates.into_iter().find(|version| agrees(&self.translated(version), after))?;
        let patch = merge_patch_of(&self.current, &next)?;
        self.current = next;
        Some(patch)
    }

    /// Returns the annotation that asks for the end of a job, if its API has one.
    pub(super) fn end_annotation(&self, request: model::fact::EndRequest) -> Option<&'static str> {
        ["Preempted", "Failed", "NodeFail", STOP].into_iter().find(|name| {
            let object = json!({"metadata": {"annotations": {*name: ""}}});
            self.api.object_fact(&object).end_requests.contains_key(&request)
        })
    }

    fn translated(&self, version: &Value) -> SpecFact {
        let mut object = version.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), json!(self.key.uid));
            if let Some(generation) = self.generation {
                metadata.insert("generation".to_owned(), generation.into());
            }
            metadata.insert("creationTimestamp".to_owned(), self.created.to_rfc3339().into());
        }
        let needed = self.api.referenced(&object).into_iter().filter_map(|(kind, name)| {
            let is = |other: &&Value| text(other, "/kind") == &*kind && text(other, "/metadata/name") == &*name;
            Some(((kind.clone(), name.clone()), Arc::new(self.others.iter().find(is)?.clone())))
        });
        let needed: BTreeMap<(Text, Text), Arc<Value>> = needed.collect();
        apis::translation::spec_fact(self.api.as_ref(), &self.key, &object, &needed)
    }
}

/// Returns the time at which the object of a spec was created, where the spec has it.
fn created(fact: &SpecFact) -> Option<Timestamp> {
    let spec = fact.spec.as_ref().ok()?;
    let demanded = spec.demand.as_ref().map(|demand| demand.submitted);
    demanded.or_else(|| spec.coordination.as_ref().map(|coordination| coordination.submitted))
}

/// Returns the generation of the object of a spec, where the spec has it.
fn generation(fact: &SpecFact) -> Option<u64> {
    fact.notes.as_ref()?.elastic.map(|elastic| elastic.generation)
}

/// Returns the members of a stored object that its user wrote.
pub(super) fn as_written(object: &Value) -> Value {
    let mut metadata: Map<String, Value> = Map::new();
    for member in OWN_METADATA {
        if let Some(value) = object.get("metadata").and_then(|metadata| metadata.get(member)) {
            metadata.insert(member.to_owned(), value.clone());
        }
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        // The end annotation that the operator wrote, and its companion.
        let end = annotations.remove(MARKED_FOR);
        let end = end.as_ref().and_then(Value::as_str).and_then(|text| text.split_once('/')).map(|(_, key)| key);
        annotations.retain(|name, _| Some(name.as_str()) != end && name != STATE);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let mut written = object.clone();
    if let Some(members) = written.as_object_mut() {
        members.remove("status");
        members.insert("metadata".to_owned(), Value::Object(metadata));
    }
    written
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn address(object: &Value) -> [&str; 3] {
    ["/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| text(object, pointer))
}

/// Returns whether a job needs another object: its spec references it, or it is its queue.
fn needs(api: &dyn JobApi, job: &Value, object: &Value) -> bool {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    let queue = job.get("metadata").and_then(|metadata| metadata.get("labels")?.get(QUEUE)?.as_str());
    api.referenced(job).iter().any(|(of, called)| &**of == kind && &**called == name)
        || (kind == "TrainingQueue" && queue == Some(name))
}

/// Returns whether two translations decide alike. Notes and missing objects do not count: they are no part of the spec.
fn agrees(one: &SpecFact, other: &SpecFact) -> bool {
    one.spec == other.spec && one.manifest == other.manifest && one.warnings == other.warnings
}

/// Returns a translation as logs have it.
fn wire(key: &JobKey, fact: SpecFact) -> Value {
    let record = Record {
        position: Position(1),
        term: Term(1),
        at: Timestamp(0),
        behaviour: 1,
        causes: Vec::new(),
        body: Body::Job { key: key.clone(), facts: vec![JobFact::Spec(Box::new(fact))], events: Vec::new() },
    };
    let body = record.encode().ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    body.and_then(|body| body.pointer("/facts/0/Spec").cloned()).unwrap_or_default()
}

/// Returns the versions that a usual edit makes of one: suspended or resumed, scaled, with other templates.
fn candidates(current: &Value, before: &SpecFact, after: &SpecFact) -> Vec<Value> {
    let (Ok(old), Ok(new)) = (&before.spec, &after.spec) else { return Vec::new() };
    let mut found = Vec::new();
    if old.suspended != new.suspended {
        for place in ["/spec", "/spec/runPolicy"] {
            let mut version = current.clone();
            if let Some(place) = version.pointer_mut(place).and_then(Value::as_object_mut) {
                place.insert("suspend".to_owned(), new.suspended.into());
                found.push(version);
            }
        }
    }
    let scaled: Vec<(&str, u32, u32)> = new
        .groups
        .iter()
        .filter_map(|group| {
            let old = old.groups.iter().find(|old| old.name == group.name)?;
            (old.replicas != group.replicas).then_some((&*group.name, old.replicas, group.replicas))
        })
        .collect();
    found.extend(scale(current, &scaled));
    let manifest = |fact: &SpecFact| serde_json::from_str::<Value>(&fact.manifest).unwrap_or_default();
    let spec = |manifest: &Value| json!({"spec": manifest.get("spec").cloned().unwrap_or_default()});
    if let Some(patch) = merge_patch_of(&spec(&manifest(before)), &spec(&manifest(after))) {
        for base in std::iter::once(current.clone()).chain(scale(current, &scaled)) {
            let mut version = base;
            merge_patch(&mut version, &patch);
            found.push(version);
        }
    }
    found
}

/// Returns the versions in which every group has its new size: the numbers that stood for the old one are replaced, those under the
/// group's name where there are some.
fn scale(current: &Value, groups: &[(&str, u32, u32)]) -> Vec<Value> {
    let mut versions = if groups.is_empty() { Vec::new() } else { vec![current.clone()] };
    for (name, old, new) in groups {
        let mut next = Vec::new();
        for version in &versions {
            let mut places = Vec::new();
            numbers(version.get("spec").unwrap_or(&Value::Null), "/spec", *old, &mut places);
            let named = |place: &&String| place.split('/').any(|part| part.eq_ignore_ascii_case(name));
            let own: Vec<String> = places.iter().filter(named).cloned().collect();
            for place in if own.is_empty() { places } else { own } {
                let mut changed = version.clone();
                if let Some(number) = changed.pointer_mut(&place) {
                    *number = (*new).into();
                    next.push(changed);
                }
            }
        }
        versions = next;
    }
    versions
}

/// Adds the places of a number, outside of pod templates.
fn numbers(value: &Value, at: &str, number: u32, found: &mut Vec<String>) {
    match value {
        Value::Number(own) if own.as_u64() == Some(u64::from(number)) => found.push(at.to_owned()),
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| *name != "template") {
                numbers(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), number, found);
            }
        }
        Value::Array(items) => {
            for (n, value) in items.iter().enumerate() {
                numbers(value, &format!("{at}/{n}"), number, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_scaled_where_its_number_stands() {
        let job = json!({"spec": {"replicaSpecs": {"ps": {"replicas": 2}, "Worker": {"replicas": 2, "template": {"n": 2}}}, "max": 2}});
        let versions = scale(&job, &[("worker", 2, 5)]);
        assert_eq!(versions.len(), 1, "{versions:?}");
        assert_eq!(versions[0]["spec"]["replicaSpecs"]["Worker"], json!({"replicas": 5, "template": {"n": 2}}));
        assert_eq!(scale(&job, &[("other", 2, 5)]).len(), 3);
        assert!(scale(&job, &[]).is_empty());
    }

    #[test]
    fn what_the_operator_wrote_is_no_part_of_a_manifest() {
        let stored = json!({"kind": "K", "metadata": {"name": "j", "uid": "u", "generation": 3,
            "annotations": {MARKED_FOR: "u/Succeed", "Succeed": "all", "own": "x"}}, "spec": {"a": 1}, "status": {"phase": "Succeed"}});
        let written = json!({"kind": "K", "metadata": {"name": "j", "annotations": {"own": "x"}}, "spec": {"a": 1}});
        assert_eq!(as_written(&stored), written);
    }
}
