//! Which objects the words of a step mean.
//!
//! Owns the ways to name a manifest or the object of a patch. Whether such an object exists is `verbs`' to find out.
//! Tests: in `super::tests`.

use serde_json::Value;

use super::{DEFAULT_NAMESPACE, ObjectName, Patch};

/// Object that a patch changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchTarget {
    /// Kind of the object; empty for a job of any kind with that name.
    pub kind: String,
    /// Its address.
    pub name: ObjectName,
}

impl Patch {
    /// Returns the patch's target, and the merge patch itself.
    ///
    /// # Errors
    /// When it names no object, or two.
    pub fn target_and_body(&self) -> Result<(PatchTarget, Value), String> {
        let mut body = serde_json::Map::new();
        let mut targets = Vec::new();
        let mut target =
            |kind: &str, name: &ObjectName| targets.push(PatchTarget { kind: kind.to_owned(), name: name.clone() });
        if let Some(name) = &self.job {
            target("", name);
        }
        if let Some(name) = &self.pod {
            target("Pod", name);
        }
        match (&self.kind, &self.name) {
            (Some(kind), Some(name)) => target(kind, &in_namespace(name, self.namespace.as_deref())),
            (None, None) => {}
            _ => return Err("kind and name belong together".to_owned()),
        }
        match &self.object {
            None => {}
            Some(Value::String(text)) => {
                let (kind, name) =
                    text.split_once('/').ok_or_else(|| format!("`{text}` is not of the form Kind/name"))?;
                target(kind, &ObjectName::from(name));
            }
            Some(Value::Object(map)) if map.contains_key("kind") => {
                let text =
                    |pointer: &str| self.object.as_ref().and_then(|o| o.pointer(pointer)).and_then(Value::as_str);
                let kind = text("/kind").ok_or("object.kind is no text")?;
                let name = text("/name").or_else(|| text("/metadata/name")).ok_or("object has no name")?;
                let namespace = text("/namespace").or_else(|| text("/metadata/namespace"));
                target(kind, &in_namespace(&ObjectName::from(name), namespace));
                for (key, value) in map {
                    if matches!(key.as_str(), "spec" | "status" | "data") {
                        body.insert(key.clone(), value.clone());
                    }
                }
            }
            Some(Value::Object(map)) => body.extend(map.clone()),
            Some(_) => return Err("object is neither Kind/name nor a map".to_owned()),
        }
        for (key, value) in [("metadata", &self.metadata), ("spec", &self.spec), ("status", &self.status)] {
            if let Some(value) = value {
                body.insert(key.to_owned(), value.clone());
            }
        }
        match <[PatchTarget; 1]>::try_from(targets) {
            Ok([target]) => Ok((target, Value::Object(body))),
            Err(targets) if targets.is_empty() => Err("names no object".to_owned()),
            Err(_) => Err("names more than one object".to_owned()),
        }
    }
}

/// `name`, in `namespace` when one is given.
pub fn in_namespace(name: &ObjectName, namespace: Option<&str>) -> ObjectName {
    match namespace {
        Some(namespace) => ObjectName { namespace: Some(namespace.to_owned()), name: name.name.clone() },
        None => name.clone(),
    }
}

/// Returns whether a name in a step means this manifest: `name`, `namespace/name`, `Kind/name` or `Kind/namespace/name`.
pub fn names_manifest(text: &str, manifest: &Value) -> bool {
    let member = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (member("/kind"), member("/metadata/name"));
    let namespace = match member("/metadata/namespace") {
        "" => DEFAULT_NAMESPACE,
        given => given,
    };
    match text.splitn(3, '/').collect::<Vec<_>>().as_slice() {
        [only] => *only == name,
        [first, second] => *second == name && (*first == namespace || *first == kind),
        [first, second, third] => *first == kind && *second == namespace && *third == name,
        _ => false,
    }
}
