//! Namespace objects: object -> [`NamespaceFact`]. Tests: at the end of this file.

use model::{FieldError, NAMESPACE_NAME, NamespaceFact, Text};
use serde_json::Value;

use crate::objects::{at, name, resource_version};

/// Type of the objects: API version and kind.
pub const TYPE: (&str, &str) = ("v1", "Namespace");

/// Reads the fact about a namespace.
///
/// # Errors
/// Returns an error if the object has no name.
pub fn fact(object: &Value) -> Result<NamespaceFact, FieldError> {
    let name = name(object);
    if name.is_empty() {
        return Err(FieldError::new("metadata.name", "missing", "a namespace without a name"));
    }
    let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter(|(key, _)| *key != NAMESPACE_NAME);
    let labels = labels.filter_map(|(key, value)| Some((Text::from(key.as_str()), Text::from(value.as_str()?))));
    Ok(NamespaceFact { name, rv: resource_version(object), labels: labels.collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_read_but_for_the_name() {
        let labels = json!({NAMESPACE_NAME: "ml", "team": "a"});
        let read = fact(&json!({"metadata": {"name": "ml", "resourceVersion": "7", "labels": labels}})).unwrap();
        assert_eq!((&*read.name, read.rv.0, read.labels), ("ml", 7, [("team".into(), "a".into())].into()));
        assert_eq!(fact(&json!({"metadata": {"name": "bare"}})).unwrap().labels.len(), 0);
        assert_eq!(fact(&json!({})).unwrap_err().path, "metadata.name");
    }
}
