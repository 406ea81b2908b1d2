//! Kubernetes' own types, as an API server describes them.
//!
//! Owns reading `kubernetes.json`: the `OpenAPI` definitions of `core/v1` `PodTemplateSpec` and of the kinds that stand beside
//! jobs in manifests (`ConfigMap`, `Secret`, ...), with the first sentence on each field, without defaults, status left open. A test of the package
//! `conformance` takes it from a real API server and says when it differs. Tests: at the end of this file.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::call::Resource;

/// The definition of pod templates, for `$ref`.
pub const POD_TEMPLATE: &str = "core.v1.PodTemplateSpec";
/// The definition of the specs of pods.
pub(crate) const POD_SPEC: &str = "core.v1.PodSpec";
/// The definition of metadata, for `$ref`.
pub const OBJECT_META: &str = "meta.v1.ObjectMeta";
/// The definition of quantities.
pub(crate) const QUANTITY: &str = "api.resource.Quantity";

static TYPES: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("kubernetes.json")).unwrap_or_default());

/// Returns the Kubernetes version that the definitions are of, for example `1.36`.
pub fn version() -> &'static str {
    TYPES.get("version").and_then(Value::as_str).unwrap_or_default()
}

/// Returns a definition by its name, for example `core.v1.Container`.
pub(crate) fn definition(name: &str) -> Option<&'static Value> {
    TYPES.get("definitions")?.get(name)
}

/// Returns the name of the definition of a kind, if it is known here.
pub(crate) fn kind(resource: &Resource) -> Option<&'static str> {
    kind_names()?.get(&format!("{}/{}", resource.api_version, resource.kind))?.as_str()
}

/// Lists the kinds that are known here.
pub fn kinds() -> impl Iterator<Item = Resource> {
    let names = kind_names().into_iter().flat_map(Map::keys);
    names.filter_map(|name| name.rsplit_once('/')).map(|(version, kind)| Resource::new(version, kind))
}

fn kind_names() -> Option<&'static Map<String, Value>> {
    TYPES.get("kinds")?.as_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
        match schema {
            Value::Object(members) => {
                for (key, value) in members {
                    match value.as_str() {
                        Some(name) if key == "$ref" => found.push(name),
                        Some(_) | None => references(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_kind_and_every_reference_has_a_definition() {
        assert!(!version().is_empty());
        assert_eq!(kinds().filter_map(|resource| definition(kind(&resource)?)).count(), kinds().count());
        assert!(kinds().any(|resource| resource == Resource::new("v1", "ConfigMap")));
        let mut names = vec![POD_TEMPLATE, OBJECT_META, QUANTITY];
        references(&TYPES, &mut names);
        assert!(names.len() > 100, "{}", names.len());
        for name in names {
            assert!(definition(name).is_some(), "{name}");
        }
    }
}
