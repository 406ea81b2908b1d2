//! API calls: create, patch, status, get.
//!
//! Owns what a write does to an object: preconditions, what the server sets itself, schema, generation, and that a write which
//! changes nothing is no change. Deleting is `deletion`'s. Tests: `tests/cluster/api.rs`.

use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, ApiError, Resource, Verb};
use model::json::merge_patch;
use model::{ResourceVersion, Uid};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Mode, address};
use crate::deletion::DeleteOptions;
use crate::error::refusal;
use crate::kinds::{KindId, Served, ServedKind};
use crate::merge::{at, changes_nothing, map_mut, object_mut, text};
use crate::rules;
use crate::store::{Key, is_deleting};

/// Members of `metadata` that only the server writes.
const SERVER_METADATA: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Preconditions of a write.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Preconditions<'a> {
    pub(crate) uid: Option<&'a Uid>,
    pub(crate) rv: Option<ResourceVersion>,
}

impl Preconditions<'_> {
    pub(crate) fn check(self, kind: &ServedKind, key: &Key, object: &Value) -> Result<(), ApiError> {
        let uid = text(object, &["metadata", "uid"]);
        if let Some(wanted) = self.uid
            && *wanted.0 != *uid
        {
            let problem = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
            return Err(refusal::conflict(kind, &key.name, &problem));
        }
        if let Some(wanted) = self.rv
            && text(object, &["metadata", "resourceVersion"]) != wanted.to_string()
        {
            let problem = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(refusal::conflict(kind, &key.name, problem));
        }
        Ok(())
    }
}

/// Treatment of unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Dropped, as for programs.
    Drop,
    /// Refused, as by kubectl.
    Refuse,
}

/// Half of an object that a patch may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
}

impl Cluster {
    /// Carries out one call of the operator; rules of [`Cluster::fail`] come first.
    ///
    /// # Errors
    /// What the API server would answer, with its code and reason.
    pub fn execute(&mut self, call: &ApiCall) -> ApiAnswer {
        let Some((error, applied)) = self.faults.inject(call) else {
            return self.perform(call);
        };
        if applied {
            // The caller gets the failure only, also if the call took effect.
            let _ = self.perform(call);
        }
        Err(error)
    }

    fn perform(&mut self, call: &ApiCall) -> ApiAnswer {
        let served = self.serve(&call.resource)?;
        let key = address(&served.kind, &call.namespace, &call.name);
        let preconditions = Preconditions { uid: call.uid.as_ref(), rv: call.rv };
        let body = || call.body.as_ref().ok_or_else(|| refusal::bad_request("the request has no body"));
        match call.verb {
            Verb::Create => self.create(&served, key, body()?.clone(), Unknown::Drop),
            Verb::Delete => {
                self.delete(&served.kind, &key, DeleteOptions { preconditions, grace_seconds: call.grace_seconds })
            }
            Verb::Patch => self.patch(&served, &key, body()?, preconditions, Part::Main, Unknown::Drop),
            Verb::PatchStatus => self.patch(&served, &key, body()?, preconditions, Part::Status, Unknown::Drop),
            Verb::ApplyStatus => self.apply_status(&served, &key, body()?, preconditions),
            Verb::Get => self.stored(&served.kind, &key),
            Verb::List => Ok(Arc::new(self.page(served.kind.id, &call.namespace))),
            Verb::Log => self.log_of(&served.kind, &key, text(body()?, &["container"])),
        }
    }

    /// Returns the last line that a container of a pod printed; empty where it printed nothing.
    fn log_of(&self, kind: &ServedKind, key: &Key, container: &str) -> ApiAnswer {
        let pod = self.stored(kind, key)?;
        let said = self.logs.get(text(&pod, &["metadata", "uid"])).cloned();
        let line = said.or_else(|| self.runtime.last_line(&key.namespace, &key.name, container));
        Ok(Arc::new(Value::from(line.unwrap_or_default())))
    }

    /// Lists a kind in a namespace, or in all where that is empty, on one page.
    fn page(&self, kind: KindId, namespace: &str) -> Value {
        let is_there = |key: &&Key| namespace.is_empty() || &*key.namespace == namespace;
        let items: Vec<&Value> =
            self.store.of_kind(kind).filter(|(key, _)| is_there(key)).map(|(_, object)| &**object).collect();
        json!({"metadata": {}, "items": items})
    }

    pub(crate) fn serve(&self, resource: &Resource) -> Result<Served, ApiError> {
        let served = self.kinds.served(resource).cloned();
        served.ok_or_else(|| refusal::not_served(&resource.api_version, &resource.kind))
    }

    pub(crate) fn stored(&self, kind: &ServedKind, key: &Key) -> ApiAnswer {
        self.store.get(key).cloned().ok_or_else(|| refusal::not_found(kind, &key.name))
    }

    /// Creates an object from `body`. `key.name` may be empty: then the body says it, or its `generateName`.
    pub(crate) fn create(&mut self, served: &Served, mut key: Key, mut body: Value, unknown: Unknown) -> ApiAnswer {
        let kind = &served.kind;
        self.check_addressed(served, &mut key, &body)?;
        if self.store.get(&key).is_some() {
            return Err(refusal::already_exists(kind, &key.name));
        }
        if !text(&body, &["metadata", "resourceVersion"]).is_empty() {
            return Err(refusal::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if served.status && kind.id != KindId::NODE {
            map_mut(&mut body).remove("status");
        }
        Self::admit(served, &key, &mut body, None, unknown)?;
        self.enter_namespace(kind, &key)?;
        if let Some(status) = self.first_status(kind.id, &body) {
            map_mut(&mut body).insert("status".into(), status);
        }
        let uid = self.store.next_uid(&kind.name);
        let metadata = object_mut(&mut body, "metadata");
        for own in ["generateName", "selfLink", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(own);
        }
        metadata.insert("name".into(), (*key.name).into());
        if kind.namespaced {
            metadata.insert("namespace".into(), (*key.namespace).into());
        } else {
            metadata.remove("namespace");
        }
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), self.now.to_rfc3339().into());
        if kind.generation {
            metadata.insert("generation".into(), 1.into());
        } else {
            metadata.remove("generation");
        }
        let object = self.commit_new(kind, &key, body);
        if kind.id == KindId::POD && !text(&object, &["spec", "nodeName"]).is_empty() {
            self.runtime.start(&object);
        }
        self.collect_if_ownerless(&key);
        Ok(object)
    }

    /// Returns the status of a new object that has one. Where pods run by themselves, a claim is bound at once: its directory is made
    /// with the first pod that uses it.
    pub(crate) fn first_status(&self, kind: KindId, object: &Value) -> Option<Value> {
        let asked = |path: &[&str]| at(object, path).cloned().unwrap_or_default();
        match (kind, self.mode) {
            (KindId::POD, _) | (KindId::CLAIM, Mode::Manual) => Some(json!({"phase": "Pending"})),
            (KindId::CLAIM, Mode::Automatic) => Some(json!({
                "phase": "Bound",
                "accessModes": asked(&["spec", "accessModes"]),
                "capacity": asked(&["spec", "resources", "requests"]),
            })),
            _ => None,
        }
    }

    /// Checks that the body is an object of the type and address it is sent to, and completes the address.
    fn check_addressed(&mut self, served: &Served, key: &mut Key, body: &Value) -> Result<(), ApiError> {
        let kind = &served.kind;
        let said = Resource::of(body);
        if self.kinds.served(&said).is_none_or(|other| other.kind.id != kind.id) {
            let problem =
                format!("the object ({}, {}) is not a {}", said.api_version, said.kind, kind.qualified_kind());
            return Err(refusal::bad_request(problem));
        }
        let name = text(body, &["metadata", "name"]);
        let generate = text(body, &["metadata", "generateName"]);
        if key.name.is_empty() {
            let generated = || format!("{generate}{:05}", self.store.revision.saturating_add(1));
            key.name = if name.is_empty() && !generate.is_empty() { generated().into() } else { name.into() };
        } else if !name.is_empty() && *name != *key.name {
            let problem = format!("the name of the object ({name}) does not match the name on the URL ({})", key.name);
            return Err(refusal::bad_request(problem));
        }
        let namespace = text(body, &["metadata", "namespace"]);
        if kind.namespaced {
            if key.namespace.is_empty() {
                return Err(refusal::bad_request("an empty namespace may not be set during creation"));
            }
            if !namespace.is_empty() && *namespace != *key.namespace {
                return Err(refusal::bad_request(
                    "the namespace of the object does not match the namespace on the request",
                ));
            }
        }
        Ok(())
    }

    /// Prunes, fills in defaults and validates what is about to be stored. What was wrong with the version before, and still is,
    /// is let through: otherwise an object that a later schema refuses could never be written again.
    fn admit(
        served: &Served,
        key: &Key,
        object: &mut Value,
        before: Option<&Value>,
        unknown: Unknown,
    ) -> Result<(), ApiError> {
        let (dropped, mut problems) = admission(served, key, object);
        if unknown == Unknown::Drop && problems.is_empty() || dropped.is_empty() && problems.is_empty() {
            return Ok(());
        }
        let (old_dropped, old_problems) =
            before.map(|before| admission(served, key, &mut before.clone())).unwrap_or_default();
        let new_fields = dropped.iter().filter(|path| !old_dropped.contains(path));
        let fields: Vec<String> = new_fields.map(|path| format!("unknown field \"{path}\"")).collect();
        if unknown == Unknown::Refuse && !fields.is_empty() {
            return Err(refusal::bad_request(format!("strict decoding error: {}", fields.join(", "))));
        }
        problems.retain(|problem| !old_problems.contains(problem));
        if problems.is_empty() { Ok(()) } else { Err(refusal::invalid(&served.kind, &key.name, &problems)) }
    }

    /// Applies a merge patch to one half of an object.
    pub(crate) fn patch(
        &mut self,
        served: &Served,
        key: &Key,
        patch: &Value,
        preconditions: Preconditions<'_>,
        part: Part,
        unknown: Unknown,
    ) -> ApiAnswer {
        let kind = &served.kind;
        let old = self.stored(kind, key)?;
        preconditions.check(kind, key, &old)?;
        if !patch.is_object() {
            return Err(refusal::bad_request("a merge patch must be an object"));
        }
        // A patch may carry its preconditions itself.
        let said = |name: &str| Some(text(patch, &["metadata", name])).filter(|said| !said.is_empty());
        let (uid, rv) = (said("uid").map(Uid::from), said("resourceVersion").map(str::parse::<u64>));
        let rv = rv.map(|rv| ResourceVersion(rv.unwrap_or_default()));
        Preconditions { uid: uid.as_ref(), rv }.check(kind, key, &old)?;
        if part == Part::Status && !served.status {
            return Err(refusal::not_served(text(&old, &["apiVersion"]), &format!("{}/status", kind.name)));
        }
        if changes_nothing(&old, patch) {
            return Ok(old);
        }
        let mut new = Value::clone(&old);
        merge_patch(&mut new, patch);
        keep_server_fields(&old, &mut new, served.status, part);
        Self::admit(served, key, &mut new, Some(&old), unknown)?;
        if kind.id == KindId::POD
            && let Some(problem) = rules::forbidden_pod_change(&old, &new)
        {
            return Err(refusal::invalid(kind, &key.name, &[problem]));
        }
        self.replace(served, key, &old, new)
    }

    /// Stores a new version of an object, unless it is the old one.
    pub(crate) fn replace(&mut self, served: &Served, key: &Key, old: &Arc<Value>, mut new: Value) -> ApiAnswer {
        let kind = &served.kind;
        if new == **old {
            return Ok(Arc::clone(old));
        }
        if kind.generation && says_other(old, &new, served.status) {
            let generation = at(old, &["metadata", "generation"]).and_then(Value::as_u64).unwrap_or_default();
            object_mut(&mut new, "metadata").insert("generation".into(), generation.saturating_add(1).into());
        }
        let committed = self.commit_edit(kind, key, |object| *object = new);
        let object = committed.ok_or_else(|| refusal::not_found(kind, &key.name))?;
        let grace = at(&object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_u64);
        if is_deleting(&object) && !self.is_kept(key, &object) && grace.unwrap_or_default() == 0 {
            return Ok(self.remove(key).unwrap_or(object));
        }
        Ok(object)
    }

    /// Replaces the status of an object.
    fn apply_status(&mut self, served: &Served, key: &Key, body: &Value, pre: Preconditions<'_>) -> ApiAnswer {
        let kind = &served.kind;
        let old = self.stored(kind, key)?;
        if !served.status {
            return Err(refusal::not_served(text(&old, &["apiVersion"]), &format!("{}/status", kind.name)));
        }
        pre.check(kind, key, &old)?;
        let Some(status) = body.get("status") else {
            return Err(refusal::bad_request("the request has no status"));
        };
        if old.get("status").unwrap_or(&Value::Null) == status {
            return Ok(old);
        }
        let mut status = status.clone();
        if let Some(schema) = &served.schema {
            let mut problems = Vec::new();
            match schema.field("status") {
                Some(rules) => {
                    rules.prune(&mut status, "status", &mut Vec::new());
                    rules.fill_defaults(&mut status);
                    rules.check(&status, "status", &mut problems);
                }
                None if schema.keeps_unknown() => {}
                None => status = Value::Null,
            }
            if !problems.is_empty() {
                return Err(refusal::invalid(kind, &key.name, &problems));
            }
        }
        if old.get("status").unwrap_or(&Value::Null) == &status {
            return Ok(old);
        }
        // The old version is let go first, so that the new one can take its place without a copy.
        drop(old);
        let committed = self.commit_edit(kind, key, |object| set_member(object, "status", Some(status)));
        committed.ok_or_else(|| refusal::not_found(kind, &key.name))
    }
}

/// Prunes an object and fills in its defaults; returns what was dropped and what is wrong with the rest.
fn admission(served: &Served, key: &Key, object: &mut Value) -> (Vec<String>, Vec<String>) {
    let (mut dropped, mut problems) = (Vec::new(), Vec::new());
    rules::check_metadata(&served.kind, &key.name, object, &mut problems);
    match served.kind.id {
        KindId::POD => rules::check_pod(object, &mut problems),
        KindId::SERVICE => rules::check_service(object, &mut problems),
        _ => {}
    }
    if let Some(schema) = &served.schema {
        schema.prune(object, "", &mut dropped);
        schema.fill_defaults(object);
        schema.check(object, "", &mut problems);
    }
    (dropped, problems)
}

/// Puts back what a patch must not change.
fn keep_server_fields(old: &Value, new: &mut Value, status_subresource: bool, part: Part) {
    match part {
        Part::Status => {
            let status = new.get("status").cloned();
            new.clone_from(old);
            set_member(new, "status", status);
        }
        Part::Main => {
            if status_subresource {
                set_member(new, "status", old.get("status").cloned());
            }
            for key in ["apiVersion", "kind"] {
                set_member(new, key, old.get(key).cloned());
            }
            let metadata = object_mut(new, "metadata");
            for key in SERVER_METADATA {
                match at(old, &["metadata", key]) {
                    Some(value) => metadata.insert(key.to_owned(), value.clone()),
                    None => metadata.remove(key),
                };
            }
        }
    }
}

/// Sets a member, or removes it when there is no value for it.
pub(crate) fn set_member(object: &mut Value, key: &str, value: Option<Value>) {
    let map = map_mut(object);
    match value {
        None | Some(Value::Null) => map.remove(key),
        Some(value) => map.insert(key.to_owned(), value),
    };
}

/// Returns whether two versions differ in what their generation counts: everything but metadata and a status of its own.
fn says_other(old: &Value, new: &Value, status_subresource: bool) -> bool {
    let counted = |key: &str| key != "metadata" && !(status_subresource && key == "status");
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    old.iter().any(|(key, value)| counted(key) && new.get(key) != Some(value))
        || new.keys().any(|key| counted(key) && !old.contains_key(key))
}
