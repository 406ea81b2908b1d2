//! Patterns of JSON values, as expectations write them.
//!
//! A map asks for its members and ignores others; against a list it picks elements by their `name` or `type`. A list asks
//! for exactly its elements. Words in angle brackets are conditions. Tests: at the end of this file.

use serde_json::Value;

/// Returns the differences between a pattern and a value, each with its path; empty if the value fits.
///
/// Words: `<absent>`, `<present>`, `<set>` (neither null nor empty), `<contains TEXT>`; in a map against a list also the
/// members `<length>`, `<first>` and `<last>`.
pub fn differences(pattern: &Value, actual: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    compare(pattern, actual, "", &mut found);
    found
}

fn shown(actual: Option<&Value>) -> String {
    let text = actual.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    match text.char_indices().nth(160) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn word(word: &str, actual: Option<&Value>) -> Option<bool> {
    Some(match word {
        "<absent>" => actual.is_none_or(Value::is_null),
        "<present>" => actual.is_some(),
        "<set>" => actual.is_some_and(|value| !is_empty(value)),
        _ => {
            let text = word.strip_prefix("<contains ")?.strip_suffix('>')?;
            actual.is_some_and(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).contains(text))
        }
    })
}

fn compare(pattern: &Value, actual: Option<&Value>, path: &str, found: &mut Vec<String>) {
    let mut differ = |wanted: &str| found.push(format!("{path}: wanted {wanted}, found {}", shown(actual)));
    match pattern {
        Value::String(text) if text.starts_with('<') => match word(text, actual) {
            Some(true) => {}
            Some(false) => differ(text),
            None => differ(&format!("something that the unknown word {text} means")),
        },
        Value::Null => {
            if !actual.is_none_or(Value::is_null) {
                differ("nothing");
            }
        }
        Value::Object(members) => match actual {
            Some(Value::Object(map)) => {
                for (key, member) in members {
                    compare(member, map.get(key), &format!("{path}.{key}"), found);
                }
            }
            Some(Value::Array(items)) => {
                for (key, member) in members {
                    let length;
                    let element = match key.as_str() {
                        "<length>" => {
                            length = Value::from(items.len());
                            Some(&length)
                        }
                        "<first>" => items.first(),
                        "<last>" => items.last(),
                        name => items.iter().find(|item| goes_by(item, name)),
                    };
                    compare(member, element, &format!("{path}[{key}]"), found);
                }
            }
            None if members.values().any(accepts_nothing) || members.is_empty() => {
                for (key, member) in members {
                    compare(member, None, &format!("{path}.{key}"), found);
                }
            }
            _ => differ("a map"),
        },
        Value::Array(wanted) => match actual {
            Some(Value::Array(items)) if items.len() == wanted.len() => {
                for (n, (member, item)) in wanted.iter().zip(items).enumerate() {
                    compare(member, Some(item), &format!("{path}[{n}]"), found);
                }
            }
            _ => differ(&format!("a list of {}", wanted.len())),
        },
        scalar => {
            if actual != Some(scalar) {
                differ(&scalar.to_string());
            }
        }
    }
}

/// Returns whether a pattern may be met by nothing being there.
fn accepts_nothing(pattern: &Value) -> bool {
    match pattern {
        Value::Null => true,
        Value::String(text) => text == "<absent>",
        Value::Object(members) => members.values().any(accepts_nothing),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

fn goes_by(item: &Value, name: &str) -> bool {
    ["name", "type"].iter().any(|key| item.get(key).and_then(Value::as_str) == Some(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

    #[test]
    fn what_fits_has_no_differences() {
        let value = json!({"a": 1, "b": {"c": "text", "n": null, "e": ""}, "env": [{"name": "A", "value": "b"}, {"name": "B"}]});
        for pattern in [
            json!({}),
            json!({"a": 1, "b": {"c": "<set>", "n": "<absent>", "zz": "<absent>", "e": "<present>"}}),
            json!({"b": {"c": "<contains ex>", "n": null}}),
            json!({"env": {"A": {"value": "b"}, "C": "<absent>", "<length>": 2, "<first>": {"name": "A"}, "<last>": {"name": "B"}}}),
            json!({"env": [{"name": "A"}, {}]}),
            json!({"zz": {"y": {"x": "<absent>"}}}),
        ] {
            assert_eq!(differences(&pattern, Some(&value)), Vec::<String>::new(), "{pattern}");
        }
        assert!(differences(&json!(null), None).is_empty());
    }

    #[test]
    fn what_does_not_fit_is_named_by_path() {
        let value = json!({"a": 1, "b": {"e": ""}, "env": [{"name": "A", "value": "b"}]});
        for (pattern, first) in [
            (json!({"a": 2}), ".a: wanted 2, found 1"),
            (json!({"a": null}), ".a: wanted nothing, found 1"),
            (json!({"b": {"e": "<set>"}}), ".b.e: wanted <set>, found \"\""),
            (json!({"b": {"f": "<present>"}}), ".b.f: wanted <present>, found nothing"),
            (json!({"b": {"e": "<contains x>"}}), ".b.e: wanted <contains x>, found \"\""),
            (json!({"b": {"e": "<what>"}}), ".b.e: wanted something that the unknown word <what> means, found \"\""),
            (json!({"env": {"A": "<absent>"}}), ".env[A]: wanted <absent>, found {\"name\":\"A\",\"value\":\"b\"}"),
            (json!({"env": {"<length>": 2}}), ".env[<length>]: wanted 2, found 1"),
            (json!({"env": []}), ".env: wanted a list of 0, found [{\"name\":\"A\",\"value\":\"b\"}]"),
            (json!({"a": {"x": 1}}), ".a: wanted a map, found 1"),
        ] {
            assert_eq!(differences(&pattern, Some(&value)), [first], "{pattern}");
        }
    }
}
