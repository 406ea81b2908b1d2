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
use crate::synonyms;

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
    let mut walk = Walk { found: Vec::new(), depth: 0, types_alone: false, root: (schema, path) };
    walk.value(schema, value, path, "");
    walk.found
}

/// Returns the values of another type than a definition of [`kubernetes`] says, as errors: no version of an API server reads them.
pub fn wrong_types(definition: &str, value: &Value, path: &str) -> Vec<Finding> {
    let schema = json!({"$ref": definition});
    let mut walk = Walk { found: Vec::new(), depth: 0, types_alone: true, root: (&schema, path) };
    walk.value(&schema, value, path, "");
    walk.found
}

struct Walk<'r> {
    found: Vec<Finding>,
    depth: usize,
    /// Set if wrong types alone are looked for.
    types_alone: bool,
    /// Schema of the whole value, and its path.
    root: (&'r Value, &'r str),
}

impl Walk<'_> {
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
            let field = FieldError {
                path: path.to_owned(),
                value: shown(Some(value)),
                problem,
                suggestion: expected.converted(schema, value, key),
            };
            let severity = if self.types_alone { Severity::Error } else { Severity::Mistake };
            self.found.push(Finding { severity, in_name: false, field });
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
                    let suggestion = suggestion
                        .or_else(|| self.elsewhere(schema, key, value).filter(|_| reference.is_none()))
                        .or_else(|| below(schema, key, true))
                        .or_else(|| begun(key, names()).map(here));
                    let problem = match reference {
                        // A newer cluster may know it.
                        Some(_) => format!("unknown field in Kubernetes {}", kubernetes::version()),
                        None => "unknown field; it has no effect".to_owned(),
                    };
                    if !self.types_alone {
                        self.add(&path, Some(value), problem, suggestion);
                        if let Some(finding) = self.found.last_mut() {
                            finding.in_name = true;
                        }
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

    /// Returns where a field of another API has its like among the API's own: here, below, or in the whole value. Of an object that only holds fields
    /// together, where each of them has it.
    fn elsewhere(&self, schema: &Value, key: &str, value: &Value) -> Option<String> {
        let (root, base) = self.root;
        let of_field = |key: &str| {
            let is_here =
                |schema: &Value, name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
            let mut names = synonyms::of(key);
            let found = names.clone().find(|name| is_here(schema, name)).map(str::to_owned);
            let found = found.or_else(|| names.clone().find_map(|name| below(schema, name, false)));
            let at_root =
                |name: &str| is_here(root, name).then(|| name.to_owned()).or_else(|| below(root, name, false));
            found.or_else(|| names.find_map(at_root).map(|path| if base.is_empty() { path } else { join(base, &path) }))
        };
        of_field(key).or_else(|| {
            let held = synonyms::held(key, value);
            let places = held.iter().filter_map(|name| {
                let place = of_field(name)?;
                Some(if place == *name { place } else { format!("{place} for {name}") })
            });
            let places = places.collect::<Vec<_>>().join(", ");
            Some(places).filter(|places| !places.is_empty())
        })
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

    /// Adds what is wrong besides types.
    fn add(&mut self, path: &str, value: Option<&Value>, problem: String, suggestion: Option<String>) {
        if self.types_alone {
            return;
        }
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

/// Returns the path of the nearest field of this name below a schema; with `of_kubernetes` also in types of Kubernetes.
fn below(schema: &Value, key: &str, of_kubernetes: bool) -> Option<String> {
    let mut level = vec![(String::new(), schema)];
    for _ in 0..MAX_MISPLACED {
        let mut next = Vec::new();
        for (path, schema) in level {
            let fields = schema.get("properties").and_then(Value::as_object);
            let mut fields: Vec<_> = fields.into_iter().flatten().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, field) in fields {
                let is_own = |schema: &Value| of_kubernetes || schema.get("$ref").is_none();
                if !is_own(field) {
                    continue;
                }
                let field = resolved(field);
                let (mark, contents) = match (field.get("items"), field.get("additionalProperties")) {
                    (Some(items), _) => ("[]", items),
                    (None, Some(members)) => (".*", members),
                    (None, None) => ("", field),
                };
                if !is_own(contents) {
                    continue;
                }
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
