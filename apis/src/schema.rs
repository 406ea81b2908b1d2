//! Checks a value against the schema of what its author means: unknown fields, wrong types, unknown words.
//!
//! The schema is `OpenAPI` as in a `CustomResourceDefinition`; `$ref` names a definition of [`kubernetes`]. A cluster's own
//! validation is laxer where older objects must stay valid; this one is for people who write manifests, so every finding says
//! what was probably meant. Null counts as absent, and so does empty text where a few words are accepted, as for Kubernetes'
//! own types. Every finding is a [`Severity::Mistake`]; what cannot be accepted is up to each API. Tests: `schema/tests.rs`.

#[cfg(test)]
mod tests;

use model::FieldError;
use serde_json::{Map, Value, json};
use settings::Quantity;

use crate::fields::{Finding, Severity, join, shown, type_of};
use crate::kubernetes;
use crate::names::is_base64;
use crate::nearest::{begun, misspelt, nearest};

/// Maximum number of findings about one value.
const MAX_FINDINGS: usize = 1000;
/// Maximum number of levels that a misplaced field is looked for below.
const MAX_MISPLACED: usize = 3;
/// Maximum number of characters of a suggested value.
const MAX_SUGGESTION: usize = 200;
/// Maximum nesting of a value that is checked.
const MAX_DEPTH: usize = 64;
/// Characters that only a shell gives a meaning.
const SHELL: &[char] = &['|', '&', ';', '<', '>', '$', '`', '"', '\'', '*', '(', ')'];

/// Returns what is wrong with `value`, which stands at `path`.
pub fn check(schema: &Value, value: &Value, path: &str) -> Vec<Finding> {
    let mut walk = Walk { found: Vec::new(), depth: 0 };
    walk.value(schema, value, path, "");
    walk.found
}

struct Walk {
    found: Vec<Finding>,
    depth: usize,
}

impl Walk {
    /// Checks one value; `key` is the name of the field that holds it.
    fn value(&mut self, schema: &Value, value: &Value, path: &str, key: &str) {
        if self.depth >= MAX_DEPTH || self.found.len() >= MAX_FINDINGS {
            return;
        }
        self.depth = self.depth.saturating_add(1);
        let reference = schema.get("$ref").and_then(Value::as_str);
        let schema = resolved(schema);
        let expected = Expected::of(schema);
        if expected.is_met_by(value) {
            self.contents(schema, reference, value, path);
        } else {
            let problem = format!("must be {}, not {}", expected.name(), type_of(value));
            self.add(path, Some(value), problem, expected.converted(schema, value, key));
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// Checks a value of the right type.
    fn contents(&mut self, schema: &Value, reference: Option<&str>, value: &Value, path: &str) {
        match value {
            Value::Object(members) => self.object(schema, reference, members, path),
            Value::Array(items) => {
                let Some(rules) = schema.get("items") else { return };
                for (n, item) in items.iter().enumerate() {
                    let path = format!("{path}[{n}]");
                    if item.is_null() {
                        self.add(
                            &path,
                            Some(item),
                            format!("must be {}, not null", Expected::resolved(rules).name()),
                            None,
                        );
                    } else {
                        self.value(rules, item, &path, "");
                    }
                }
            }
            Value::String(text) => self.text(schema, reference, value, text, path),
            Value::Number(number) => {
                for (bound, word, order) in [("minimum", "least", true), ("maximum", "most", false)] {
                    let limit = schema.get(bound).and_then(Value::as_i64);
                    let beyond = |limit: i64| match (number.as_i64(), order) {
                        (Some(n), true) => n < limit,
                        (Some(n), false) => n > limit,
                        (None, least) => !least && number.is_u64(),
                    };
                    if let Some(limit) = limit.filter(|limit| beyond(*limit)) {
                        self.add(path, Some(value), format!("must be at {word} {limit}"), None);
                    }
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn object(&mut self, schema: &Value, reference: Option<&str>, members: &Map<String, Value>, path: &str) {
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        // Without either, its members are anyone's to choose.
        let open = known.is_none() || is_set(schema, "x-kubernetes-preserve-unknown-fields");
        let mut keys: Vec<&String> = members.keys().collect();
        keys.sort_unstable();
        for key in keys {
            let Some(value) = members.get(key) else { continue };
            let path = if path.is_empty() { key.clone() } else { join(path, key) };
            match known.and_then(|known| known.get(key)).or(others) {
                Some(rules) => self.value(rules, value, &path, key),
                None if open => {}
                None => {
                    let names = || known.into_iter().flat_map(Map::keys).map(String::as_str);
                    let here = |word: &str| word.to_owned();
                    let suggestion = misspelt(key, names()).map(here);
                    let suggestion =
                        suggestion.or_else(|| below(schema, key)).or_else(|| begun(key, names()).map(here));
                    let problem = match reference {
                        // A newer cluster may know it.
                        Some(_) => format!("unknown field in Kubernetes {}", kubernetes::version()),
                        None => "unknown field; it has no effect".to_owned(),
                    };
                    self.add(&path, Some(value), problem, suggestion);
                    if let Some(finding) = self.found.last_mut() {
                        finding.in_name = true;
                    }
                }
            }
        }
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if members.get(name).is_none_or(Value::is_null) {
                let path = if path.is_empty() { name.to_owned() } else { join(path, name) };
                self.add(&path, None, "this field is required".to_owned(), None);
            }
        }
    }

    fn text(&mut self, schema: &Value, reference: Option<&str>, value: &Value, text: &str, path: &str) {
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            if !text.is_empty() && !words.contains(&text) {
                let suggestion = nearest(text, words.iter().copied()).map(str::to_owned);
                self.add(path, Some(value), format!("must be one of {}", words.join(", ")), suggestion);
            }
        }
        if reference == Some(kubernetes::QUANTITY) && !Quantity::is_valid(text) {
            let problem = "must be a quantity: a number, then m, k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei or nothing";
            self.add(path, Some(value), problem.to_owned(), quantity_without_bytes(text));
        }
        if schema.get("format").and_then(Value::as_str) == Some("byte") && !is_base64(text) {
            self.add(path, Some(value), "must be base64; stringData takes plain text".to_owned(), None);
        }
    }

    fn add(&mut self, path: &str, value: Option<&Value>, problem: String, suggestion: Option<String>) {
        let field = FieldError { path: path.to_owned(), value: shown(value), problem, suggestion };
        self.found.push(Finding { severity: Severity::Mistake, in_name: false, field });
    }
}

fn is_set(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Resolves a reference.
fn resolved(schema: &Value) -> &Value {
    schema.get("$ref").and_then(Value::as_str).and_then(kubernetes::definition).unwrap_or(schema)
}

/// Returns the path of the nearest field of this name below a schema.
fn below(schema: &Value, key: &str) -> Option<String> {
    let mut level = vec![(String::new(), schema)];
    for _ in 0..MAX_MISPLACED {
        let mut next = Vec::new();
        for (path, schema) in level {
            let fields = schema.get("properties").and_then(Value::as_object);
            let mut fields: Vec<_> = fields.into_iter().flatten().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, field) in fields {
                let field = resolved(field);
                let (mark, contents) = match (field.get("items"), field.get("additionalProperties")) {
                    (Some(items), _) => ("[]", items),
                    (None, Some(members)) => (".*", members),
                    (None, None) => ("", field),
                };
                let contents = resolved(contents);
                if contents.get("properties").is_some_and(|fields| fields.get(key).is_some()) {
                    return Some(format!("{path}{name}{mark}.{key}"));
                }
                next.push((format!("{path}{name}{mark}."), contents));
            }
        }
        level = next;
    }
    None
}

/// The types that a schema accepts; none means any.
struct Expected<'a>(Vec<&'a str>);

impl<'a> Expected<'a> {
    fn of(schema: &'a Value) -> Self {
        let of = |schema: &'a Value| schema.get("type").and_then(Value::as_str);
        if is_set(schema, "x-kubernetes-int-or-string") {
            return Self(vec!["integer", "string"]);
        }
        match schema.get("oneOf").and_then(Value::as_array) {
            Some(choices) => Self(choices.iter().filter_map(of).collect()),
            None => Self(of(schema).into_iter().collect()),
        }
    }

    fn resolved(schema: &'a Value) -> Self {
        Self::of(self::resolved(schema))
    }

    fn is_met_by(&self, value: &Value) -> bool {
        let fits = |kind: &&str| match *kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            _ => true,
        };
        value.is_null() || self.0.is_empty() || self.0.iter().any(fits)
    }

    fn name(&self) -> String {
        let words = self.0.iter().map(|kind| match *kind {
            "object" => "an object",
            "array" => "a list",
            "string" => "text",
            "integer" => "a whole number",
            "number" => "a number",
            "boolean" => "true or false",
            other => other,
        });
        words.collect::<Vec<_>>().join(" or ")
    }

    /// Converts a value to an accepted type, as it would be written in a manifest.
    fn converted(&self, schema: &Value, value: &Value, key: &str) -> Option<String> {
        let accepts = |kind: &str| self.0.contains(&kind);
        match value {
            Value::Number(_) | Value::Bool(_) if is_text(schema) && schema.get("enum").is_none() => {
                Some(format!("\"{value}\""))
            }
            Value::String(text) if accepts("integer") => text.trim().parse::<i64>().ok().map(|n| n.to_string()),
            Value::String(text) if accepts("boolean") => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some("true".to_owned()),
                "false" | "no" | "off" => Some("false".to_owned()),
                _ => None,
            },
            Value::String(text) if accepts("array") && schema.get("items").is_some_and(is_text) => {
                Some(words(text, key))
            }
            Value::Object(members) if accepts("array") => as_list(schema.get("items")?, value, members),
            _ => None,
        }
        .filter(|text| text.chars().count() <= MAX_SUGGESTION)
    }
}

fn is_text(schema: &Value) -> bool {
    Expected::resolved(schema).0 == ["string"]
}

/// Splits a command line into the list that a container takes.
fn words(text: &str, key: &str) -> String {
    let list = if key == "command" && text.contains(SHELL) {
        vec!["sh", "-c", text.trim_end()]
    } else {
        text.split_whitespace().collect()
    };
    let quoted: Vec<String> = list.into_iter().map(|word| Value::from(word).to_string()).collect();
    format!("[{}]", quoted.join(", "))
}

/// Converts a mapping to the list of objects that is expected: names with values, or one object.
fn as_list(items: &Value, value: &Value, members: &Map<String, Value>) -> Option<String> {
    let known = resolved(items).get("properties")?;
    let list = if members.keys().all(|key| known.get(key).is_some()) {
        Value::from(vec![value.clone()])
    } else if known.get("name").is_some() && known.get("value").is_some() {
        let named = |(name, value): (&String, &Value)| match value {
            Value::String(_) => json!({"name": name, "value": value}),
            _ => json!({"name": name, "value": value.to_string()}),
        };
        Value::from(members.iter().map(named).collect::<Vec<_>>())
    } else {
        return None;
    };
    Some(model::json::canonical(&list))
}

/// Spells `16GB` and `16gib` as Kubernetes does.
fn quantity_without_bytes(text: &str) -> Option<String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c.is_whitespace())?;
    let (number, unit) = text.split_at_checked(split)?;
    let unit = unit.trim().trim_end_matches(['b', 'B']).to_ascii_lowercase();
    let unit = match unit.as_str() {
        "k" | "" => unit,
        other => other.get(..1)?.to_ascii_uppercase() + other.get(1..)?,
    };
    Some(format!("{number}{unit}")).filter(|text| Quantity::is_valid(text))
}
