//! Structural schemas of `CustomResourceDefinition`s: pruning, defaulting and validation, in that order.
//!
//! Owns what `openAPIV3Schema` says; `schema_check` holds the checks themselves. Checked: types, `nullable`, `required`, `enum`, bounds of numbers, lengths,
//! items and properties, integer formats, `allOf` / `anyOf` / `oneOf` / `not`, int-or-string, preserved unknown fields, embedded
//! resources. Not checked: `pattern`, other formats, and CEL rules. Tests: at the end of this file and `tests/cluster/schema.rs`.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::error::DefinitionError;

/// A compiled schema.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a keyword of its own
pub(crate) struct Schema {
    pub(super) kind: Option<Type>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    /// Fields that are not named stay.
    preserve: bool,
    /// The object is an API object: its `apiVersion`, `kind` and `metadata` stay.
    embedded: bool,
    pub(super) properties: BTreeMap<String, Schema>,
    /// Schema of the members that are not named.
    pub(super) additional: Option<Box<Schema>>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) required: Vec<String>,
    /// Permitted values; empty permits all.
    pub(super) permitted: Vec<Value>,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    /// Least and greatest number of characters, items or properties.
    pub(super) size: (Option<u64>, Option<u64>),
    pub(super) int32: bool,
    default: Option<Value>,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    Text,
    Integer,
    Number,
    Boolean,
}

#[derive(Debug, Clone)]
pub(super) struct Bound {
    pub(super) value: Number,
    pub(super) exclusive: bool,
}

impl Type {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub(super) fn holds(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::Text => value.is_string(),
            Self::Integer => is_integer(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
        }
    }
}

pub(crate) fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

impl Schema {
    /// Reads `openAPIV3Schema`; `path` is where it stands in the definition.
    pub(crate) fn compile(schema: &Value, path: &str) -> Result<Self, DefinitionError> {
        let mut compiled = Self::read(schema, path)?;
        if compiled.kind != Some(Type::Object) {
            return Err(DefinitionError::at(format!("{path}.type"), "must be \"object\" at the root"));
        }
        // The server knows these itself; what a schema says about them is not asked.
        for own in ["apiVersion", "kind", "metadata"] {
            compiled.properties.remove(own);
        }
        compiled.embedded = true;
        compiled.required.retain(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
        Ok(compiled)
    }

    fn read(schema: &Value, path: &str) -> Result<Self, DefinitionError> {
        if !schema.is_object() {
            return Err(DefinitionError::at(path, "a schema must be an object"));
        }
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or_default();
        let number = |key: &str| schema.get(key).and_then(Value::as_number).cloned();
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let list = |key: &str| schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let nested = |key: &str| -> Result<Option<Box<Self>>, DefinitionError> {
            let found = schema.get(key).filter(|v| !v.is_boolean());
            found.map(|v| Self::read(v, &format!("{path}.{key}")).map(Box::new)).transpose()
        };
        let several = |key: &str| -> Result<Vec<Self>, DefinitionError> {
            list(key).iter().enumerate().map(|(n, v)| Self::read(v, &format!("{path}.{key}[{n}]"))).collect()
        };
        let kind = match schema.get("type").map(|v| v.as_str().unwrap_or("?")) {
            None | Some("") => None,
            Some("object") => Some(Type::Object),
            Some("array") => Some(Type::Array),
            Some("string") => Some(Type::Text),
            Some("integer") => Some(Type::Integer),
            Some("number") => Some(Type::Number),
            Some("boolean") => Some(Type::Boolean),
            Some(other) => {
                return Err(DefinitionError::at(format!("{path}.type"), format!("unknown type {other:?}")));
            }
        };
        let mut properties = BTreeMap::new();
        if let Some(Value::Object(named)) = schema.get("properties") {
            for (name, value) in named {
                properties.insert(name.clone(), Self::read(value, &format!("{path}.properties.{name}"))?);
            }
        }
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Box::new(Self { preserve: true, ..Self::default() })),
            _ => nested("additionalProperties")?,
        };
        let bound = |key: &str, exclusive: &str| number(key).map(|value| Bound { value, exclusive: flag(exclusive) });
        let least = ["minLength", "minItems", "minProperties"].into_iter().find_map(count);
        let most = ["maxLength", "maxItems", "maxProperties"].into_iter().find_map(count);
        Ok(Self {
            kind,
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional,
            items: nested("items")?,
            required: list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            permitted: list("enum").to_vec(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            size: (least, most),
            int32: schema.get("format").and_then(Value::as_str) == Some("int32"),
            default: schema.get("default").cloned(),
            all_of: several("allOf")?,
            any_of: several("anyOf")?,
            one_of: several("oneOf")?,
            not: nested("not")?,
        })
    }

    /// The schema of a top-level field.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name)
    }

    /// Returns whether fields that are not named stay.
    pub(crate) const fn keeps_unknown(&self) -> bool {
        self.preserve
    }

    /// Removes what the schema does not name; the paths of what went are added to `dropped`.
    pub(crate) fn prune(&self, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if !self.preserve && self.additional.is_none() {
                    self.drop_unknown(map, path, dropped);
                }
                for (key, member) in map.iter_mut() {
                    let own = self.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
                    let rules = self.properties.get(key).or(self.additional.as_deref()).filter(|_| !own);
                    if let Some(rules) = rules {
                        rules.prune(member, &join(path, key), dropped);
                    }
                }
            }
            Value::Array(list) => {
                for (n, item) in list.iter_mut().enumerate() {
                    if let Some(rules) = &self.items {
                        rules.prune(item, &format!("{path}[{n}]"), dropped);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn drop_unknown(&self, map: &mut Map<String, Value>, path: &str, dropped: &mut Vec<String>) {
        let known = |key: &str| {
            self.properties.contains_key(key) || self.embedded && matches!(key, "apiVersion" | "kind" | "metadata")
        };
        let mut unknown: Vec<String> = map.keys().filter(|key| !known(key)).cloned().collect();
        unknown.sort_unstable();
        for key in unknown {
            map.remove(&key);
            dropped.push(join(path, &key));
        }
    }

    /// Fills in defaults of fields that are absent, or `null` where they must not be.
    pub(crate) fn fill_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, rules) in &self.properties {
                    let Some(default) = &rules.default else { continue };
                    let absent = map.get(key).is_none_or(|present| present.is_null() && !rules.nullable);
                    if absent {
                        map.insert(key.clone(), default.clone());
                    }
                }
                for (key, member) in map.iter_mut() {
                    if let Some(rules) = self.properties.get(key).or(self.additional.as_deref()) {
                        rules.fill_defaults(member);
                    }
                }
            }
            Value::Array(list) => {
                for item in list {
                    if let Some(rules) = &self.items {
                        rules.fill_defaults(item);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(schema: &Value, value: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        Schema::read(schema, "schema").unwrap().check(value, "spec.x", &mut problems);
        problems
    }

    #[test]
    fn every_keyword_accepts_and_refuses() {
        let cases = [
            (json!({"type": "integer"}), json!(3), json!("3"), "must be of type integer"),
            (json!({"type": "integer"}), json!(3.0), json!(3.5), "must be of type integer: \"number\""),
            (json!({"type": "string"}), json!(""), json!(null), "must be of type string: \"null\""),
            (json!({"type": "string", "nullable": true}), json!(null), json!(1), "must be of type string"),
            (json!({"type": "boolean"}), json!(true), json!("true"), "must be of type boolean"),
            (json!({"x-kubernetes-int-or-string": true}), json!("137,128"), json!(true), "type integer,string"),
            (json!({"x-kubernetes-int-or-string": true}), json!(137), json!([1]), "type integer,string"),
            (json!({"type": "integer", "minimum": 0}), json!(0), json!(-1), "greater than or equal to 0"),
            (json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true}), json!(1), json!(0), "greater than 0"),
            (json!({"type": "number", "maximum": 1.5}), json!(1.5), json!(1.6), "less than or equal to 1.5"),
            (json!({"type": "integer", "format": "int32"}), json!(7), json!(1_i64 << 40), "must be of type int32"),
            (json!({"type": "string", "enum": ["A", "B"]}), json!("A"), json!("C"), "supported values: \"A\", \"B\""),
            (json!({"type": "string", "minLength": 1, "maxLength": 2}), json!("ab"), json!("abc"), "between 1 and 2"),
            (json!({"type": "array", "items": {"type": "string"}}), json!(["a"]), json!(["a", 1]), "spec.x[1]"),
            (json!({"type": "array", "maxItems": 1}), json!([1]), json!([1, 2]), "at most 1 items"),
            (json!({"type": "object", "required": ["a"]}), json!({"a": 1}), json!({}), "spec.x.a: Required value"),
            (json!({"type": "object", "minProperties": 1}), json!({"a": 1}), json!({}), "at least 1 properties"),
            (
                json!({"type": "object", "additionalProperties": {"type": "object"}}),
                json!({"trainer": {}}),
                json!({"trainer": null}),
                "spec.x.trainer: Invalid value: \"null\"",
            ),
            (json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), json!(1), json!([]), "(anyOf)"),
            (json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}), json!(1), json!(2), "(oneOf)"),
            (json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}), json!(2), json!(3), "less than or equal to 2"),
            (json!({"not": {"type": "string"}}), json!(1), json!(""), "(not)"),
        ];
        for (schema, good, bad, why) in cases {
            assert_eq!(problems(&schema, &good), Vec::<String>::new(), "{schema}");
            let found = problems(&schema, &bad).join("; ");
            assert!(found.contains(why), "{schema} on {bad}: {found:?}");
        }
    }

    #[test]
    fn pruning_reports_what_went_and_keeps_what_is_preserved() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "n": {"type": "integer", "default": 4},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "pods": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true}},
                "map": {"type": "object", "additionalProperties": {"type": "object"}},
            }},
        }});
        let schema = Schema::compile(&schema, "schema").unwrap();
        let mut value = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "k"}, "other": 1, "spec": {
            "m": 1, "free": {"any": {"thing": 1}}, "pods": [{"kind": "Pod", "x": 1}], "map": {"k": {"y": 1}},
        }});
        let mut dropped = Vec::new();
        schema.prune(&mut value, "", &mut dropped);
        assert_eq!(dropped, ["other", "spec.m", "spec.map.k.y", "spec.pods[0].x"]);
        schema.fill_defaults(&mut value);
        assert_eq!(value["spec"]["n"], 4);
        assert_eq!(value["spec"]["free"], json!({"any": {"thing": 1}}));
        assert_eq!(value["metadata"], json!({"name": "k"}));
    }

    #[test]
    fn definitions_that_make_no_sense_are_refused_with_their_path() {
        let bad = json!({"type": "object", "properties": {"spec": {"type": "objekt"}}});
        let error = Schema::compile(&bad, "s").unwrap_err();
        assert_eq!(error.path, "s.properties.spec.type");
        assert!(Schema::compile(&json!({"type": "array"}), "s").is_err());
    }
}
