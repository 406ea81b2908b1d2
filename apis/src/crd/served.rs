//! The schema that an API server holds objects to, made from the one that is meant.
//!
//! Owns what is left out of it: words, formats and required members, of which a wrong one becomes a condition on the job. Fields have the
//! types that the originals read, or null. Kubernetes' own types are written out, with what describes each field. Must not name an
//! API. Tests: each API's `tests/crd.rs`, and at the end of this file.

use serde_json::{Map, Value};

use crate::kubernetes;

/// Keyword under which a schema keeps what it does not name.
const KEEPS: &str = "x-kubernetes-preserve-unknown-fields";
/// Keyword of a number or a text.
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
/// Maximum number of levels that are written out.
const MAX_DEPTH: usize = 32;

/// Treatment of fields that a definition does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFields {
    /// They are kept, as by the definitions of originals without a structural schema.
    Kept,
    /// An API server refuses or drops them, as the client asks.
    Refused,
}

/// Returns the schema of `spec` that an API server holds objects to. `groups` names the member that holds replica groups, of which none
/// may be null. A part that is marked to keep unknown fields keeps them at every level.
pub fn served(spec: &Value, groups: &str, unknown: UnknownFields) -> Value {
    let mut schema = written_out(spec, unknown, 0);
    for key in ["required", "nullable"] {
        copy(spec, key, &mut schema);
    }
    for at in ["", "/additionalProperties"] {
        let part = schema.pointer_mut(&format!("/properties/{groups}{at}"));
        if let Some(part) = part.and_then(Value::as_object_mut) {
            part.remove("nullable");
        }
    }
    if let Some(schema) = schema.as_object_mut().filter(|_| spec.get("nullable").is_none()) {
        schema.remove("nullable");
    }
    schema
}

/// Returns the schema of a field with all its members.
fn written_out(schema: &Value, unknown: UnknownFields, depth: usize) -> Value {
    let is_marked = schema.get(KEEPS).is_some();
    let unknown = if is_marked { UnknownFields::Kept } else { unknown };
    let definition = schema.get("$ref").and_then(Value::as_str).and_then(kubernetes::definition).unwrap_or(schema);
    let mut out = Value::Object(Map::new());
    copy(schema, "description", &mut out);
    for key in ["type", "minimum", INT_OR_STRING] {
        copy(definition, key, &mut out);
    }
    let kinds: Vec<&str> =
        definition.get("oneOf").and_then(Value::as_array).into_iter().flatten().filter_map(kind).collect();
    let is_int_or_string = kinds == ["integer", "string"];
    if is_int_or_string {
        insert(&mut out, INT_OR_STRING, true.into());
    }
    let deeper = depth.saturating_add(1);
    let inner = |schema: &Value| written_out(schema, unknown, deeper);
    let fields = definition.get("properties").and_then(Value::as_object).filter(|_| depth < MAX_DEPTH);
    if let Some(fields) = fields {
        let fields = fields.iter().map(|(name, field)| (name.clone(), inner(field))).collect();
        insert(&mut out, "properties", Value::Object(fields));
    }
    let members = definition.get("additionalProperties").filter(|_| fields.is_none());
    for (key, of) in [("additionalProperties", members), ("items", definition.get("items"))] {
        if let Some(of) = of {
            insert(&mut out, key, inner(of));
        }
    }
    let is_object = kind(definition) == Some("object");
    let is_free = is_object && members.is_none() && (fields.is_none() || unknown == UnknownFields::Kept);
    let has_no_type = kind(definition).is_none() && out.get(INT_OR_STRING).is_none();
    if is_marked || is_free || has_no_type {
        insert(&mut out, KEEPS, true.into());
    }
    insert(&mut out, "nullable", true.into());
    out
}

fn kind(schema: &Value) -> Option<&str> {
    schema.get("type").and_then(Value::as_str)
}

fn copy(from: &Value, key: &str, to: &mut Value) {
    if let Some(value) = from.get(key) {
        insert(to, key, value.clone());
    }
}

fn insert(schema: &mut Value, key: &str, value: Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    /// Maximum number of bytes of all annotations of an object, of which `kubectl apply` makes one of the whole definition.
    const MAX_ANNOTATIONS: usize = 256 * 1024;

    /// Lists the fields below a schema, by path, that have neither a type nor the mark of a number or a text.
    fn without_type(schema: &Value, path: &str, found: &mut Vec<String>) {
        let mut inner: Vec<(String, &Value)> = Vec::new();
        let fields = schema["properties"].as_object().into_iter().flatten();
        inner.extend(fields.map(|(name, of)| (format!("{path}.{name}"), of)));
        let members = ["items", "additionalProperties"].into_iter().filter_map(|key| schema.get(key));
        inner.extend(members.map(|of| (format!("{path}[]"), of)));
        for (path, of) in inner {
            if kind(of).is_none() && of.get(INT_OR_STRING).is_none() {
                found.push(path.clone());
            }
            without_type(of, &path, found);
        }
    }

    #[test]
    fn every_definition_has_types_and_can_be_applied() {
        for api in Registry::all().iter() {
            let crd = api.crd();
            let length = crd.to_string().len();
            assert!(length < MAX_ANNOTATIONS - 16 * 1024, "{}: {length} bytes", api.descriptor().plural);
            let mut untyped = Vec::new();
            without_type(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut untyped);
            // Quantities may be any number.
            let quantities = ["limits[]", "requests[]", "overhead[]", "divisor", "sizeLimit", "capacity[]"];
            untyped.retain(|path| !quantities.iter().any(|name| path.ends_with(name)));
            assert_eq!(untyped, [""; 0], "{}", api.descriptor().plural);
        }
    }

    #[test]
    fn types_and_descriptions_stay_and_words_go() {
        let spec = json!({"type": "object", "description": "Asked for.", "required": ["command"], "properties": {
            "command": {"type": "string", "enum": ["a"], "description": "Word."},
            "number": {"type": "integer", "minimum": 0, "format": "int32", "description": "Number."},
            "free": {"type": "object", KEEPS: true, "description": "Free."},
            "template": {"description": "Pods.", "$ref": kubernetes::POD_TEMPLATE},
            "groups": {"type": "object", "additionalProperties": {"type": "object", "required": ["n"], "properties": {
                "n": {INT_OR_STRING: true},
            }}},
        }});
        let of = |unknown: UnknownFields| served(&spec, "groups", unknown);
        let schema = of(UnknownFields::Refused);
        assert_eq!(schema["required"], json!(["command"]));
        assert_eq!(schema.get("nullable"), None);
        let fields = &schema["properties"];
        assert_eq!(fields["command"], json!({"type": "string", "description": "Word.", "nullable": true}));
        assert_eq!(
            fields["number"],
            json!({"type": "integer", "minimum": 0, "description": "Number.", "nullable": true})
        );
        assert_eq!(fields["free"][KEEPS], json!(true));
        assert_eq!(
            fields["groups"],
            json!({"type": "object", "additionalProperties": {"type": "object", "properties": {
                "n": {INT_OR_STRING: true, "nullable": true},
            }}})
        );
        let container = &fields["template"]["properties"]["spec"]["properties"]["containers"]["items"];
        assert_eq!((&container["type"], container.get(KEEPS)), (&json!("object"), None));
        let image = &container["properties"]["image"];
        assert_eq!(image["type"], "string");
        assert!(image["description"].as_str().is_some_and(|text| text.ends_with('.')), "{image}");
        // A quantity may be any number, as `cpu: 0.5` is.
        let limit = &container["properties"]["resources"]["properties"]["limits"]["additionalProperties"];
        assert_eq!(limit, &json!({KEEPS: true, "nullable": true}));
        let kept = of(UnknownFields::Kept);
        assert_eq!(kept.pointer("/properties/groups/additionalProperties").unwrap()[KEEPS], json!(true));
        let container = "/properties/template/properties/spec/properties/containers/items";
        assert_eq!(kept.pointer(container).unwrap()[KEEPS], json!(true));
        assert_eq!(kept[KEEPS], json!(true));
    }

    #[test]
    fn a_marked_part_keeps_unknown_fields_at_every_level() {
        let spec = json!({"type": "object", "properties": {
            "pod": {"$ref": kubernetes::POD_TEMPLATE, KEEPS: true},
            "other": {"$ref": kubernetes::POD_TEMPLATE},
        }});
        let schema = served(&spec, "groups", UnknownFields::Refused);
        let volume = |field: &str| {
            let path = format!("/properties/{field}/properties/spec/properties/volumes/items");
            schema.pointer(&path).unwrap().get(KEEPS).cloned()
        };
        assert_eq!((volume("pod"), volume("other")), (Some(json!(true)), None));
        assert_eq!(schema.get(KEEPS), None);
    }
}
