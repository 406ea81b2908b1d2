//! Objects that a queue has made beside it, from templates: `spec.resources`.
//!
//! Owns which kinds there may be, and what each is called: with the rights of the operator, the author of a queue creates nothing else.
//! Tests: `tests.rs`.

use std::collections::BTreeSet;

use model::{CreatePhase, OwnedRef, OwnedSpec, ReadinessGate, Retain};
use serde_json::{Map, Value, json};

use super::constants::{APP, APP_LABEL, QUEUE_LABEL, TEMPLATED};
use crate::fields::{Findings, Unknown, Word, join};
use crate::names::is_dns_subdomain;
use crate::objects::{at, list_at, text_at};
use crate::owned::{self, CLAIM, CONFIG_MAP, OwnedType, SERVICE};

/// Types of the objects that are created.
const TYPES: [OwnedType; 3] = [CLAIM, CONFIG_MAP, SERVICE];
/// Annotation of a template: true if its object outlives the queue.
const RETAIN: &str = "torchrun.ai/retain";
/// Accepted values of `nameMode`: true if the queue's name comes first.
const NAME_MODES: [Word<bool>; 2] = [("exact", false), ("prefix", true)];

/// An object of a template.
#[derive(Debug, Clone)]
pub(crate) struct Templated<'a> {
    /// The object, by its own name.
    object: OwnedRef,
    /// Name in the template, by which pods of the queue may name it.
    alias: Option<&'a str>,
    template: &'a Value,
    immutable: bool,
    /// Name of the queue.
    queue: &'a str,
}

/// Reads the templates of a queue object and its `spec` that an object is created of.
pub(super) fn read<'a>(queue: &'a Value, spec: &'a Value, findings: &mut Findings) -> Vec<Templated<'a>> {
    let queue = text_at(queue, &["metadata", "name"]).unwrap_or_default();
    let mut all: Vec<Templated<'a>> = Vec::new();
    let mut known: BTreeSet<OwnedRef> = BTreeSet::from([CLAIM.named(&super::datasets_claim(queue))]);
    for (n, entry) in findings.list(spec, "spec", "resources").iter().enumerate() {
        let path = format!("spec.resources[{n}]");
        let Some(templated) = one(queue, entry, &path, findings) else { continue };
        if known.insert(templated.object.clone()) {
            all.push(templated);
        } else {
            let problem = format!("another object of this queue is {}", templated.object);
            findings.error(join(&path, "name"), entry.get("name"), problem);
        }
    }
    all
}

fn one<'a>(queue: &'a str, entry: &'a Value, path: &str, findings: &mut Findings) -> Option<Templated<'a>> {
    let own = findings.required_text(entry, path, "name");
    let is_prefixed = findings.word(entry, path, "nameMode", &NAME_MODES, false, Unknown::Refused);
    let immutable = findings.boolean(entry, path, "immutable").unwrap_or_default();
    if findings.object(entry, path, "template").is_none() {
        if entry.get("template").is_none_or(Value::is_null) {
            findings.error(join(path, "template"), None, "an object needs a template");
        }
        return None;
    }
    let template = entry.get("template")?;
    let base = join(path, "template");
    let api_version = findings.required_text(template, &base, "apiVersion")?;
    let kind = findings.required_text(template, &base, "kind")?;
    let own = own?;
    let Some(found) = TYPES.iter().find(|found| (found.api_version, found.kind) == (api_version, kind)) else {
        let problem = "objects of this kind are not created: apply it beside the queue";
        findings.warn(join(&base, "kind"), template.get("kind"), problem);
        return None;
    };
    let named = if is_prefixed { format!("{queue}-{own}") } else { own.to_owned() };
    if !is_dns_subdomain(&named) {
        let problem = format!("{named} is no name of an object: letters a to z, digits, - and . are");
        findings.error(join(path, "name"), entry.get("name"), problem);
        return None;
    }
    Some(Templated {
        object: found.named(&named),
        alias: text_at(template, &["metadata", "name"]),
        template,
        immutable,
        queue,
    })
}

impl Templated<'_> {
    /// Returns the object as the engine wants it. One that is immutable is created, and never patched.
    pub(super) fn owned(&self) -> OwnedSpec {
        let is_retained = text_at(self.template, &["metadata", "annotations", RETAIN]) == Some("true");
        OwnedSpec {
            object: self.object.clone(),
            when: CreatePhase::Accepted,
            awaits: ReadinessGate::Nothing,
            keep: if is_retained { Retain::Retained } else { Retain::WithJob },
            digest: (!self.immutable).then(|| owned::digest(&self.body())),
            follows: None,
            pods: None,
        }
    }

    /// Returns what the object is rendered from, for the manifest.
    pub(super) fn stored(&self) -> Value {
        let OwnedRef { api_version, kind, name } = &self.object;
        json!({"apiVersion": &**api_version, "kind": &**kind, "name": &**name, "body": self.body()})
    }

    /// Returns the object without type, name and namespace. Of its metadata labels and annotations are the user's.
    fn body(&self) -> Value {
        let mut body = self.template.as_object().cloned().unwrap_or_default();
        for member in ["apiVersion", "kind", "status"] {
            body.remove(member);
        }
        let own = |member: &str| {
            let found = at(self.template, &["metadata", member]).and_then(Value::as_object);
            found.cloned().unwrap_or_default()
        };
        let mut labels = own("labels");
        for (label, value) in [(APP_LABEL, APP), (TEMPLATED.0, TEMPLATED.1), (QUEUE_LABEL, self.queue)] {
            labels.insert(label.to_owned(), json!(value));
        }
        let mut metadata = Map::from_iter([("labels".to_owned(), Value::Object(labels))]);
        let annotations = own("annotations");
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), Value::Object(annotations));
        }
        body.insert("metadata".to_owned(), Value::Object(metadata));
        Value::Object(body)
    }
}

/// Returns the body of an object in the manifest of a queue.
pub(super) fn body_of(manifest: &Value, object: &OwnedRef) -> Option<Value> {
    let is_it = |stored: &&Value| {
        let text = |key: &str| text_at(stored, &[key]);
        (text("apiVersion"), text("kind"), text("name"))
            == (Some(&*object.api_version), Some(&*object.kind), Some(&*object.name))
    };
    list_at(manifest, &["objects"]).iter().find(is_it)?.get("body").cloned()
}

/// Gives the claims of a pod template their own names, where it names them as the templates of the queue do.
pub(crate) fn name_claims(all: &[Templated<'_>], template: &mut Value) {
    let volumes = template.pointer_mut("/spec/volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let Some(Value::String(claim)) = volume.pointer_mut("/persistentVolumeClaim/claimName") else { continue };
        let is_it = |one: &&Templated<'_>| &*one.object.kind == CLAIM.kind && one.alias == Some(claim.as_str());
        if let Some(found) = all.iter().find(is_it) {
            *claim = found.object.name.to_string();
        }
    }
}
