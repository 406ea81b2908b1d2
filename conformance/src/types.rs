//! Kubernetes' own types as `apis::kubernetes` has them, taken from the types an API server publishes.
//!
//! Owns which types are kept, and what of them: names, types, words, references, and the first sentence that describes each field.
//! Defaults and merge strategies are left out, and status is left open. It must not talk to a server.

use std::collections::{BTreeMap, BTreeSet};

use apis::{Resource, kubernetes};
use serde_json::{Map, Value};

/// Prefixes that the names of definitions go without.
const PREFIXES: [&str; 3] = ["io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg."];
/// Members of a schema that are kept as they are.
const KEPT: [&str; 4] = ["type", "required", "enum", "format"];
/// Maximum number of characters of a description.
const MAX_DESCRIPTION: usize = 120;

/// Returns the paths of an API server that publish the types kept.
pub fn paths() -> BTreeSet<String> {
    let path = |Resource { api_version, .. }: Resource| {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        format!("/openapi/v3/{root}/{api_version}")
    };
    kubernetes::kinds().map(path).collect()
}

/// Returns the text of the file that holds the types of a Kubernetes version (`1.36`), made of `OpenAPI` documents.
pub fn text(version: &str, documents: &[Value]) -> String {
    let published: BTreeMap<&str, &Value> = documents
        .iter()
        .filter_map(|document| document.pointer("/components/schemas")?.as_object())
        .flatten()
        .map(|(name, schema)| (short(name), schema))
        .collect();
    let wanted: BTreeSet<String> =
        kubernetes::kinds().map(|kind| format!("{}/{}", kind.api_version, kind.kind)).collect();
    let kinds: Map<String, Value> = published
        .iter()
        .flat_map(|(name, schema)| kinds_of(schema).map(move |kind| (kind, Value::from(*name))))
        .filter(|(kind, _)| wanted.contains(kind))
        .collect();
    let mut definitions: BTreeMap<String, Value> = BTreeMap::new();
    let mut waiting: Vec<String> = kinds.values().filter_map(Value::as_str).map(str::to_owned).collect();
    waiting.push(kubernetes::POD_TEMPLATE.to_owned());
    while let Some(name) = waiting.pop() {
        let Some(schema) = published.get(name.as_str()).filter(|_| !definitions.contains_key(&name)) else { continue };
        let mut schema = reduced(schema);
        let is_kind = kinds.values().any(|kind| *kind == *name);
        if let Some(status) = schema.pointer_mut("/properties/status").filter(|_| is_kind) {
            *status = serde_json::json!({"type": "object"});
        }
        references(&schema, &mut waiting);
        definitions.insert(name, schema);
    }
    let lines: Vec<String> = definitions
        .iter()
        .map(|(name, schema)| format!("{}:{}", Value::from(name.as_str()), model::json::canonical(schema)))
        .collect();
    format!(
        "{{\"version\":{},\"kinds\":{},\n\"definitions\":{{\n{}\n}}}}\n",
        Value::from(version),
        model::json::canonical(&Value::Object(kinds)),
        lines.join(",\n")
    )
}

fn short(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

fn kinds_of(schema: &Value) -> impl Iterator<Item = String> {
    let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array).into_iter().flatten();
    kinds.map(|kind| {
        let text = |key: &str| kind.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("group") {
            "" => format!("{}/{}", text("version"), text("kind")),
            group => format!("{group}/{}/{}", text("version"), text("kind")),
        }
    })
}

fn reduced(schema: &Value) -> Value {
    if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return reduced(only);
    }
    let mut kept = Map::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, field)| (name.clone(), described(field))).collect()
            }
            ("oneOf", Value::Array(choices)) => choices.iter().map(reduced).collect(),
            ("items" | "additionalProperties", Value::Object(_)) => reduced(value),
            ("$ref", Value::String(name)) => short(name.rsplit('/').next().unwrap_or(name)).into(),
            (key, value) if KEPT.contains(&key) => value.clone(),
            _ => continue,
        };
        kept.insert(key.clone(), value);
    }
    Value::Object(kept)
}

/// Returns a field reduced, with its description.
fn described(field: &Value) -> Value {
    let mut kept = reduced(field);
    if let (Some(kept), Some(text)) = (kept.as_object_mut(), field.get("description").and_then(Value::as_str)) {
        kept.insert("description".to_owned(), first_sentence(text).into());
    }
    kept
}

/// Returns the first sentence of a description; of a longer one the words that there is room for.
fn first_sentence(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let end = words.iter().position(|word| word.ends_with('.') && !word.ends_with("e.g.") && !word.ends_with("i.e."));
    let sentence = words.get(..end.map_or(words.len(), |last| last.saturating_add(1))).unwrap_or_default().join(" ");
    if sentence.chars().count() < MAX_DESCRIPTION {
        return if sentence.ends_with('.') { sentence } else { format!("{sentence}.") };
    }
    let mut kept = String::new();
    for word in sentence.split(' ') {
        if kept.chars().count().saturating_add(word.chars().count()).saturating_add("...".len()) >= MAX_DESCRIPTION {
            break;
        }
        kept.push_str(word);
        kept.push(' ');
    }
    format!("{}...", kept.trim_end())
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(name) if key == "$ref" => found.push(name.clone()),
                    value => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
