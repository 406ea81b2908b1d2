//! JSON texts and patches. Canonical JSON has sorted keys and no white space: equal values give equal bytes with every map `serde_json`
//! can be built with.

use serde_json::{Map, Value};

/// Applies a JSON merge patch (RFC 7386).
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            members.remove(key);
        } else {
            merge_patch(members.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// Returns the JSON merge patch (RFC 7386) that makes `to` of `from`; `None` where they are equal. A member that is null in `to` goes.
pub fn merge_patch_of(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in new {
        if let Some(change) = merge_patch_of(old.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Writes `value` as canonical JSON text.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (n, key) in keys.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write(map.get(key).unwrap_or(&Value::Null), out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value = json!({"b": [{"z": 1, "a": "x\"y"}], "a": null});
        assert_eq!(canonical(&value), r#"{"a":null,"b":[{"a":"x\"y","z":1}]}"#);
    }

    #[test]
    fn a_difference_is_a_patch_that_makes_it() {
        let (from, to) = (json!({"a": {"b": 1, "c": [1]}, "d": 1}), json!({"a": {"b": 2, "c": [1]}, "e": {"f": 1}}));
        let patch = merge_patch_of(&from, &to).unwrap();
        assert_eq!(patch, json!({"a": {"b": 2}, "d": null, "e": {"f": 1}}));
        let mut patched = from;
        merge_patch(&mut patched, &patch);
        assert_eq!(patched, to);
        assert_eq!(merge_patch_of(&to, &to), None);
    }
}
