//! PriorityClass objects: object -> [`ClassFact`]. Tests: at the end of this file.

use model::{ClassFact, FieldError};
use serde_json::Value;

use crate::objects::{name, resource_version};

/// Type of the objects: API version and kind.
pub const TYPE: (&str, &str) = ("scheduling.k8s.io/v1", "PriorityClass");

/// Reads the fact about a class.
///
/// # Errors
/// Returns an error if the object has no name.
pub fn fact(object: &Value) -> Result<ClassFact, FieldError> {
    let name = name(object);
    if name.is_empty() {
        return Err(FieldError::new("metadata.name", "missing", "a priority class without a name"));
    }
    let value = object.get("value").and_then(Value::as_i64).and_then(|value| i32::try_from(value).ok());
    let is_default = object.get("globalDefault").and_then(Value::as_bool).unwrap_or(false);
    Ok(ClassFact { name, rv: resource_version(object), value: value.unwrap_or_default(), is_default })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_and_default_are_read() {
        let class = json!({"metadata": {"name": "high", "resourceVersion": "7"}, "value": -3, "globalDefault": true});
        let read = fact(&class).unwrap();
        assert_eq!((&*read.name, read.rv.0, read.value, read.is_default), ("high", 7, -3, true));
        let bare = fact(&json!({"metadata": {"name": "bare"}})).unwrap();
        assert_eq!((bare.value, bare.is_default), (0, false));
        assert_eq!(fact(&json!({})).unwrap_err().path, "metadata.name");
    }
}
