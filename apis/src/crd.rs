//! Parts of `CustomResourceDefinition`s that are alike for every API.
//!
//! A definition is made from the schema as it is meant, which manifests are checked against ([`crate::schema`]); [`served`] makes of it
//! what an API server holds objects to. Must not name an API. Tests: each API's `tests/crd.rs`.

mod served;

use serde_json::{Map, Value, json};

use crate::fields::Word;
use crate::kubernetes;
pub use served::{UnknownFields, served};

/// Names of a type of object in a definition.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// API group.
    pub group: &'a str,
    /// Version inside the group.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Plural, as in URLs.
    pub plural: &'a str,
    /// Singular.
    pub singular: &'a str,
    /// Short names, for `kubectl get`.
    pub short: &'a [&'a str],
}

/// Parts of a definition's only version.
#[derive(Debug)]
pub struct Version<'a> {
    /// Description of the type.
    pub description: &'a str,
    /// Subresources.
    pub subresources: Value,
    /// Columns of `kubectl get`.
    pub columns: Vec<Value>,
    /// Schema of `spec` as it is meant.
    pub spec: Value,
    /// Member of `spec` that holds replica groups; empty when there is none.
    pub groups: &'a str,
    /// Treatment of fields that the definition does not name.
    pub unknown: UnknownFields,
    /// Schema of `status`.
    pub status: Value,
}

/// Returns a definition of one version, as `apiextensions.k8s.io/v1`.
pub fn definition(names: Names<'_>, version: &Version<'_>) -> Value {
    let Names { group, version: name, kind, plural, singular, short } = names;
    let mut called = Map::new();
    called.insert("kind".to_owned(), kind.into());
    called.insert("listKind".to_owned(), format!("{kind}List").into());
    called.insert("plural".to_owned(), plural.into());
    called.insert("singular".to_owned(), singular.into());
    if !short.is_empty() {
        called.insert("shortNames".to_owned(), json!(short));
    }
    let mut schema = json!({
        "type": "object",
        "description": version.description,
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this object's schema."},
            "kind": {"type": "string", "description": format!("{kind}.")},
            "metadata": {"type": "object"},
            "spec": served(&version.spec, version.groups, version.unknown),
            "status": version.status,
        },
    });
    if let (UnknownFields::Kept, Some(schema)) = (version.unknown, schema.as_object_mut()) {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": called,
            "versions": [{
                "name": name,
                "served": true,
                "storage": true,
                "subresources": version.subresources,
                "additionalPrinterColumns": version.columns,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Returns a column of `kubectl get`; priority 1 is shown by `-o wide` only.
pub fn column(name: &str, kind: &str, path: &str, priority: u32, description: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description})
}

/// Returns the schema of a field of one type whose members are kept as written.
pub fn open(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the schema of a field of one type.
pub fn field(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description})
}

/// Returns the schema of an object with these fields.
pub fn object(description: &str, fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect();
    json!({"type": "object", "description": description, "properties": properties})
}

/// Returns the schema of the same that may be null.
pub fn nullable(mut schema: Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("nullable".to_owned(), true.into());
    }
    schema
}

/// Returns the schema of a field that takes one of a few words.
pub fn one_of<T>(words: &[Word<T>], description: &str) -> Value {
    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    json!({"type": "string", "enum": words, "description": description})
}

/// Returns the schema of a time.
pub fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "nullable": true, "description": description})
}

/// Returns the schema of a pod template, which in manifests of some APIs also says what it is.
pub fn pod_template(description: &str) -> Value {
    let mut schema = kubernetes::definition(kubernetes::POD_TEMPLATE).cloned().unwrap_or_default();
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.extend(["apiVersion", "kind"].map(|name| (name.to_owned(), field("string", "Not acted on."))));
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), description.into());
    }
    schema
}

/// Returns the schema of the conditions of a job that passed through several states; `types` names these.
pub fn condition_history(types: &str, updated: (&str, &str)) -> Value {
    json!({
        "type": "array",
        "description": "The states the job was in, the present one last. Before them what needs attention: Invalid, NameTaken, \
            Degraded or Warning.",
        "items": condition(&format!("{types}; or Invalid, NameTaken, Degraded, Warning."), updated),
    })
}

/// Returns the schema of a condition; `updated` is the name and description of the time beside `lastTransitionTime`.
pub fn condition(types: &str, updated: (&str, &str)) -> Value {
    let mut schema = open("object", "");
    let mut properties = Map::new();
    for (name, description) in
        [("type", types), ("status", "True or False."), ("reason", "One word."), ("message", "For people.")]
    {
        properties.insert(name.to_owned(), field("string", description));
    }
    properties.insert(updated.0.to_owned(), time(updated.1));
    properties.insert("lastTransitionTime".to_owned(), time("When it became so."));
    properties.insert("observedGeneration".to_owned(), field("integer", "Generation of the spec that it is about."));
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("description");
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    schema
}

/// Returns the schema of the pods by state of each replica group, in `states` with their descriptions. Maps are written as a whole
/// (`atomic`): merged member by member, server-side apply leaves `null` where a map has lost its last member.
pub fn replica_statuses(states: &[(&str, &str)]) -> Value {
    let counts: Map<String, Value> =
        states.iter().map(|(name, description)| ((*name).to_owned(), field("integer", description))).collect();
    json!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-map-type": "atomic",
        "description": "Pods by replica group and state.",
        "additionalProperties": {
            "type": "object",
            "nullable": true,
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": counts,
        },
    })
}

/// Returns the schema of a status with these fields and the mirror. Only Trainyard writes it, so its fields have types. Server-side
/// apply replaces it as a whole: what others left there goes, and an emptied map stays a map.
pub fn status(mut fields: Map<String, Value>) -> Value {
    fields.insert(
        crate::objects::MIRROR.to_owned(),
        json!({
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "x-kubernetes-preserve-unknown-fields": true,
            "description": "What the operator needs to continue when its log is lost. Not an interface.",
        }),
    );
    json!({
        "type": "object",
        "description": "What has become of the job. Written by the operator.",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
        "properties": fields,
    })
}
