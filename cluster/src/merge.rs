//! JSON merge patches (RFC 7386) and small readers of objects.
//!
//! Owns the question "does this patch change anything", answered without building the result: a write that changes
//! nothing must not get a new resourceVersion. Tests: at the end of this file.

use serde_json::{Map, Value};

/// The member at a path of keys.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, key| v.get(key))
}

/// The text at a path of keys; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list at a path of keys; none when there is no list.
pub(crate) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The object member `key`, made an object if it is anything else.
pub(crate) fn object_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let member = map_mut(value).entry(key).or_insert_with(|| Value::Object(Map::new()));
    map_mut(member)
}

/// The value as an object, made an empty one if it is anything else.
pub(crate) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => {
            *other = Value::Object(Map::new());
            map_mut(other)
        }
    }
}

/// Returns whether applying `patch` would leave `target` as it is.
pub(crate) fn changes_nothing(target: &Value, patch: &Value) -> bool {
    let Value::Object(patch) = patch else {
        return target == patch;
    };
    let Value::Object(target) = target else {
        return false;
    };
    patch.iter().all(|(key, value)| match target.get(key) {
        Some(present) => !value.is_null() && changes_nothing(present, value),
        None => value.is_null(),
    })
}

/// Returns the patch that `kubectl apply` sends: the new manifest, and `null` for what the manifest applied before had and this one has not.
pub(crate) fn apply_patch(before: &Value, manifest: &Value) -> Value {
    let (Value::Object(before), Value::Object(manifest)) = (before, manifest) else {
        return manifest.clone();
    };
    let mut patch = Map::new();
    for (key, value) in manifest {
        let value = before.get(key).map_or_else(|| value.clone(), |old| apply_patch(old, value));
        patch.insert(key.clone(), value);
    }
    for key in before.keys().filter(|key| !manifest.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use model::json::merge_patch;
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_merge_as_rfc_7386_lists_them() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (target, patch, want) in cases {
            let mut got = target.clone();
            merge_patch(&mut got, &patch);
            assert_eq!(got, want, "{target} + {patch}");
            assert_eq!(changes_nothing(&target, &patch), target == want, "{target} + {patch}");
            merge_patch(&mut got, &patch);
            assert_eq!(got, want, "{target} + {patch}, again");
        }
    }

    #[test]
    fn applying_again_removes_what_the_manifest_dropped() {
        let before = json!({"spec": {"a": 1, "b": {"x": 1, "y": 2}}, "metadata": {"labels": {"l": "1"}}});
        let after = json!({"spec": {"b": {"y": 3}}});
        let mut live =
            json!({"spec": {"a": 1, "b": {"x": 1, "y": 2}, "own": 5}, "metadata": {"labels": {"l": "1"}, "uid": "u"}});
        merge_patch(&mut live, &apply_patch(&before, &after));
        assert_eq!(live["spec"], json!({"b": {"y": 3}, "own": 5}));
        let twice = apply_patch(&after, &after);
        assert!(changes_nothing(&live, &twice));
    }
}
