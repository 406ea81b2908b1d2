//! The JSON Schema of scenario files, for editors and other checkers.
//!
//! It follows from the types that read a file; owns the schemas of those with several spellings. Tests:
//! `snapshots/tests/schema.rs`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use serde_json::Value;

use super::Scalar;
use super::args::{Millis, Names, ObjectName, OneOrMany, Pods, Word};
use super::parse::{File, LongNode, NodeShape};
use crate::expect::Phases;

/// Returns the JSON Schema (draft 2020-12) of scenario files.
pub fn schema() -> Value {
    schema_for!(File).to_value()
}

/// Gives a type a schema that stands where it is used.
macro_rules! inline {
    ($type:ty, $name:literal, $schema:expr) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let schema: fn(&mut SchemaGenerator) -> Schema = $schema;
                schema(generator)
            }
        }
    };
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({"anyOf": [one, {"type": "array", "items": one}]})
    }
}

inline!(Scalar, "Scalar", |_| json_schema!({"type": ["string", "number", "boolean"]}));
inline!(ObjectName, "ObjectName", |_| json_schema!({"type": "string", "pattern": "^[^/]+(/[^/]+)?$"}));
inline!(Word, "Word", |_| json_schema!({"type": ["string", "boolean"]}));
inline!(Millis, "Duration", |_| json_schema!({
    "anyOf": [{"type": "string", "examples": ["98s", "10m", "1h30m"]}, {"const": 0}]
}));
inline!(Names, "Names", |_| json_schema!({
    "description": "Names of manifests, as `name` or `Kind/name`; nothing for all of them.",
    "anyOf": [
        {"type": "null"},
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "maxProperties": 0}
    ]
}));
inline!(Pods, "Pods", |generator| {
    let name = generator.subschema_for::<ObjectName>();
    let long = json_schema!({
        "type": "object", "properties": {"pod": name}, "required": ["pod"], "additionalProperties": false
    });
    json_schema!({
        "description": "Pods by name, or `all`.",
        "anyOf": [name, long, {"type": "array", "items": {"anyOf": [name, long]}}]
    })
});
inline!(NodeShape, "Node", |generator| {
    let long = generator.subschema_for::<LongNode>();
    json_schema!({"anyOf": [{"type": "string"}, long]})
});
inline!(Phases, "Phases", |generator| {
    let phases = generator.subschema_for::<Vec<String>>();
    json_schema!({"anyOf": [phases, {"type": "object", "additionalProperties": phases}]})
});
