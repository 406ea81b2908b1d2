//! Jobs that ended in an earlier run: which of them run again.
//!
//! Owns what counts as a change: the job's manifest, and the contents of the `ConfigMaps` and Secrets it names. Their digest is
//! kept as an annotation on the job. A new attempt is a new job object of the same name: the old one is deleted with its pods,
//! volume claims stay. Tests: `cli/tests/local/attempts.rs`.

use std::collections::BTreeSet;

use apis::Resource;
use apis::objects::{STOP, annotation};
use cluster::Cluster;
use embedded::Session;
use serde_json::{Map, Value};
use terminal::out::Failure;

/// Annotation on a job: digest of the manifests it was applied from.
const DIGEST: &str = "trainyard.dev/applied-digest";

/// Returns the manifests to apply. Jobs that ended and that run again are deleted; `say` prints what becomes of each.
pub(crate) fn prepare(
    session: &mut Session,
    manifests: &[Value],
    rerun: bool,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Value>, Failure> {
    let mut prepared = manifests.to_vec();
    for (manifest, applied) in manifests.iter().zip(&mut prepared) {
        if !session.is_job(manifest) {
            continue;
        }
        let digest = digest(session.cluster(), manifest, manifests);
        annotate(applied, &digest);
        let (resource, namespace, name) = address(manifest);
        let Some(object) = session.cluster().get(&resource, namespace, name) else { continue };
        let uid = text(&object, "/metadata/uid");
        let ended = session.jobs().into_iter().find(|(key, phase)| *key.uid.0 == *uid && phase.is_terminal());
        let Some((key, phase)) = ended else { continue };
        let known = object.pointer("/metadata/annotations").and_then(|annotations| annotations.get(DIGEST)?.as_str());
        let changed = match known {
            Some(known) => known != digest,
            None => applied_otherwise(session.cluster(), manifest, manifests),
        };
        let (kind, word) = (&key.kind, session.phase_word(&key, phase));
        let stopped = annotation(&object, STOP).is_some();
        if !changed && !rerun && !stopped {
            say(&format!("{kind} {key} has ended ({word}) and is unchanged: not run again. --rerun runs it"));
            continue;
        }
        // A manifest that is refused does not cost the outcome of the job it was to replace.
        if session.cluster_mut().apply(applied).is_err() {
            continue;
        }
        let why = match (changed, stopped) {
            (true, _) => "has changed since it ended",
            (false, true) => "was stopped",
            (false, false) => "has ended",
        };
        say(&format!("{kind} {key} {why} ({word}): run again, as a new attempt"));
        session.cluster_mut().delete_as_user(&resource, namespace, name, None)?;
    }
    // Pods of a deleted job are known to have no processes: this run has started none.
    session.cluster_mut().tick();
    Ok(prepared)
}

/// Digest of a job's manifest and of the objects that it names, as they are once `manifests` are applied.
fn digest(cluster: &Cluster, manifest: &Value, manifests: &[Value]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(canonical(manifest).as_bytes());
    for (kind, name) in references(manifest) {
        let namespace = text(manifest, "/metadata/namespace");
        let resource = Resource::new("v1", kind);
        let given = manifests.iter().find(|other| address(other) == (resource.clone(), namespace, &name));
        let stored = cluster.get(&resource, namespace, &name);
        let content = given.or(stored.as_deref()).map(content).unwrap_or_default();
        hasher.update(format!("\n{kind} {name} {}", model::json::canonical(&content)).as_bytes());
    }
    hasher.finalize().to_hex().as_str()[..32].to_owned()
}

/// Returns true if manifests differ from those applied last, for a job that an older build applied without a digest.
fn applied_otherwise(cluster: &Cluster, manifest: &Value, manifests: &[Value]) -> bool {
    let differs = |manifest: &Value| {
        let (resource, namespace, name) = address(manifest);
        let before = cluster.last_applied(&resource, namespace, name);
        before.is_none_or(|before| canonical(&before) != canonical(manifest))
    };
    let named = references(manifest);
    let namespace = text(manifest, "/metadata/namespace");
    let is_named = |other: &&Value| {
        text(other, "/metadata/namespace") == namespace
            && named.iter().any(|(kind, name)| text(other, "/kind") == *kind && text(other, "/metadata/name") == name)
    };
    differs(manifest) || manifests.iter().filter(is_named).any(differs)
}

/// A manifest without what its user did not write.
fn canonical(manifest: &Value) -> String {
    let mut manifest = manifest.clone();
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.remove("status");
    }
    if let Some(annotations) = manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(DIGEST);
    }
    // As it was before it was annotated.
    let is_bare = |annotations: &Value| annotations.as_object().is_some_and(Map::is_empty);
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("annotations").is_some_and(is_bare)
    {
        metadata.remove("annotations");
    }
    model::json::canonical(&manifest)
}

/// Returns the members of a `ConfigMap` or Secret that containers see.
fn content(object: &Value) -> Value {
    let members = ["data", "binaryData", "stringData"].into_iter();
    members.filter_map(|name| Some((name.to_owned(), object.get(name)?.clone()))).collect::<Map<_, _>>().into()
}

/// Kind and name of every `ConfigMap` and Secret that a manifest names.
fn references(manifest: &Value) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    let mut left = vec![manifest];
    while let Some(value) = left.pop() {
        if let Value::Array(items) = value {
            left.extend(items);
        }
        for (member, value) in value.as_object().into_iter().flatten() {
            let kind = match member.as_str() {
                "configMap" | "configMapRef" | "configMapKeyRef" => Some("ConfigMap"),
                "secret" | "secretRef" | "secretKeyRef" => Some("Secret"),
                _ => None,
            };
            let name = value.get("name").or_else(|| value.get("secretName")).and_then(Value::as_str);
            found.extend(kind.zip(name.map(str::to_owned)));
            left.push(value);
        }
    }
    found
}

fn annotate(manifest: &mut Value, digest: &str) {
    let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    // Annotations that are no object are refused when the manifest is applied.
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(DIGEST.to_owned(), digest.into());
    }
}

fn address(manifest: &Value) -> (Resource, &str, &str) {
    (Resource::of(manifest), text(manifest, "/metadata/namespace"), text(manifest, "/metadata/name"))
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
