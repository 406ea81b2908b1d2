//! Checks one manifest before it is applied: its kind, its metadata, and its contents by the schema of its kind.
//!
//! Owns the rules for objects of every kind. Those for a job's spec come from its [`JobApi`], those for other kinds from
//! [`kubernetes`]. It must not know files or positions. Tests: `manifest/tests.rs`.
//!
//! [`JobApi`]: crate::JobApi

#[cfg(test)]
mod tests;

use model::FieldError;
use serde_json::{Map, Value, json};

use crate::call::Resource;
use crate::fields::{Finding, Findings, Severity, shown};
use crate::kubernetes;
use crate::names::{NOT_DNS_LABEL, NOT_DNS_SUBDOMAIN, is_dns_label, is_dns_subdomain, is_label_key, is_label_value};
use crate::nearest::nearest;
use crate::registry::Registry;
use crate::schema;
use crate::{bounds, checkpoint};

/// Characters that an API server adds to a `generateName`, as an example.
const GENERATED: &str = "xxxxx";
/// Characters of a `generateName` that it keeps.
const GENERATED_MAX: usize = 58;

/// Returns everything that is wrong with a manifest, or worth a remark.
pub fn findings(registry: &Registry, manifest: &Value) -> Vec<Finding> {
    if !manifest.is_object() {
        return vec![error("", Some(manifest), "a manifest must be an object".to_owned(), None)];
    }
    let mut found = Findings::default();
    bounds::check(manifest, &mut found);
    if found.has_errors() {
        return found.into_list();
    }
    let Some(resource) = resource(registry, manifest, &mut found) else { return found.into_list() };
    let example = with_example_name(manifest);
    let is_unnamed = example.is_some();
    let manifest = example.as_ref().unwrap_or(manifest);
    let Some(members) = manifest.as_object() else { return found.into_list() };
    let shape = match registry.get(&resource) {
        Some(api) => {
            found.merge(api.findings(manifest));
            checkpoint::grace_seconds(&**api, manifest, &mut found);
            job_shape()
        }
        None => kubernetes::kind(&resource).map(|name| json!({"$ref": name})).unwrap_or_default(),
    };
    found.merge(metadata(members));
    found.merge(schema::check(&shape, manifest, ""));
    let mut list = found.into_list();
    for finding in list.iter_mut().filter(|finding| is_unnamed && finding.field.path == "metadata.name") {
        "metadata.generateName".clone_into(&mut finding.field.path);
        finding.field.value = shown(manifest.pointer("/metadata/generateName"));
        let suggestion = finding.field.suggestion.take();
        finding.field.suggestion = suggestion.map(|name| name.trim_end_matches(GENERATED).to_owned());
    }
    list
}

/// Returns a manifest with a name such as an API server makes of its `generateName`; `None` for one that has a name, or neither.
fn with_example_name(manifest: &Value) -> Option<Value> {
    let metadata = manifest.get("metadata")?;
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let base: String = text("generateName").chars().take(GENERATED_MAX).collect();
    if base.is_empty() || !text("name").is_empty() {
        return None;
    }
    let mut example = manifest.clone();
    let metadata = example.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("name".to_owned(), format!("{base}{GENERATED}").into());
    Some(example)
}

/// Returns the type of object that a manifest is, or was most likely meant to be.
fn resource(registry: &Registry, manifest: &Value, found: &mut Findings) -> Option<Resource> {
    for key in ["apiVersion", "kind"] {
        let value = manifest.get(key).filter(|value| !value.is_null());
        if value.and_then(Value::as_str).is_none_or(str::is_empty) {
            found.push(error(key, value, "must name the type of the object".to_owned(), None));
        }
    }
    if found.has_errors() {
        return None;
    }
    let asked = Resource::of(manifest);
    let served: Vec<Resource> = registry.iter().map(|api| api.resource()).chain(kubernetes::kinds()).collect();
    if served.contains(&asked) {
        return Some(asked);
    }
    if let Some(same) = served.iter().find(|resource| resource.kind == asked.kind) {
        let problem = format!("{} is served in another version", asked.kind);
        found.push(error("apiVersion", manifest.get("apiVersion"), problem, Some(same.api_version.to_string())));
        return Some(same.clone());
    }
    let near = nearest(&asked.kind, served.iter().map(|resource| &*resource.kind));
    // A kind that has a successor is not proposed.
    let is_former = |resource: &Resource| registry.get(resource).is_some_and(|api| api.descriptor().is_former);
    let present = || served.iter().filter(|resource| !is_former(resource));
    let kinds = || present().map(|resource| &*resource.kind).collect::<Vec<_>>().join(", ");
    let problem = match near {
        Some(_) => "this kind is not served".to_owned(),
        None => format!("this kind is not served; there are {}", kinds()),
    };
    found.push(error("kind", manifest.get("kind"), problem, near.map(str::to_owned)));
    let near = near.map(str::to_owned)?;
    served.into_iter().find(|resource| *resource.kind == *near)
}

/// Returns the schema of a job object around its spec, which its API checks.
fn job_shape() -> Value {
    json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": kubernetes::OBJECT_META},
        "spec": {},
        "status": {},
    }})
}

/// Names and labels as every API server takes them.
fn metadata(manifest: &Map<String, Value>) -> Vec<Finding> {
    let mut found = Vec::new();
    let value = manifest.get("metadata");
    let Some(metadata) = value.and_then(Value::as_object) else {
        if value.is_none_or(Value::is_null) {
            found.push(error("metadata.name", None, "an object needs a name".to_owned(), None));
        }
        return found;
    };
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let absent = metadata.get("name").is_none_or(|name| name.is_null() || name == "");
    if absent {
        found.push(error("metadata.name", metadata.get("name"), "an object needs a name".to_owned(), None));
    }
    if let Some(name) = text("name").filter(|name| !is_dns_subdomain(name)) {
        let problem = NOT_DNS_SUBDOMAIN;
        found.push(error("metadata.name", metadata.get("name"), problem.to_owned(), dns_name(name)));
    }
    if let Some(namespace) = text("namespace").filter(|namespace| !is_dns_label(namespace)) {
        let problem = NOT_DNS_LABEL;
        found.push(error("metadata.namespace", metadata.get("namespace"), problem.to_owned(), dns_name(namespace)));
    }
    for field in ["labels", "annotations"] {
        let members = metadata.get(field).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in members {
            let path = format!("metadata.{field}.{key}");
            // Annotations are not selected by: the case of their domains is free.
            let key = if field == "annotations" { &key.to_lowercase() } else { key };
            if !is_label_key(key) {
                let problem = "a name must be letters, digits and inner -_. up to 63, after a domain and / or not";
                let mut finding = error(&path, Some(value), problem.to_owned(), None);
                finding.in_name = true;
                found.push(finding);
            } else if field == "labels" && value.as_str().is_some_and(|text| !is_label_value(text)) {
                let problem = "must be letters, digits and inner -_. up to 63";
                found.push(error(&path, Some(value), problem.to_owned(), None));
            }
        }
    }
    found
}

/// Spells a name in the letters that are accepted; `None` when that makes no name.
fn dns_name(text: &str) -> Option<String> {
    let lower = text.to_lowercase().replace(['_', ' '], "-");
    Some(lower).filter(|name| is_dns_label(name))
}

fn error(path: &str, value: Option<&Value>, problem: String, suggestion: Option<String>) -> Finding {
    let field = FieldError { path: path.to_owned(), value: shown(value), problem, suggestion };
    Finding { severity: Severity::Error, in_name: false, field }
}
