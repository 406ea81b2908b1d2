//! Values of fields that small jobs leave out, by the definition of each API.
//!
//! Owns the walk of a schema. What a value of a type is at its extremes stands in [`super`].

use apis::Registry;
use serde_json::{Map, Value, json};

use super::{LONG, MANY};

/// A field and the value that it gets: the members on the way to it, `None` for the first element of a list.
pub(super) struct Extreme {
    pub(super) path: Vec<Option<String>>,
    pub(super) value: Value,
}

impl Extreme {
    /// Writes the value into an object, with what is missing on the way.
    pub(super) fn write(&self, object: &mut Value) {
        let mut at = object;
        for part in &self.path {
            at = if let Some(member) = part {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                &mut at[member.as_str()]
            } else {
                if at.as_array().is_none_or(Vec::is_empty) {
                    *at = json!([null]);
                }
                &mut at[0]
            };
        }
        *at = self.value.clone();
    }

    pub(super) fn shown(&self) -> String {
        let value: String = self.value.to_string().chars().take(40).collect();
        let path: Vec<&str> = self.path.iter().map(|part| part.as_deref().unwrap_or("0")).collect();
        format!("{} = {value}", path.join("/"))
    }
}

/// Returns the extremes of every field in `spec` of the definition of an API, by its kind in lower case. The insides of pod templates, which
/// all APIs read alike, are left out unless `templates` is set.
pub(super) fn extremes(name: &str, templates: bool) -> Vec<Extreme> {
    let mut found = Vec::new();
    for api in Registry::all().iter().filter(|api| api.resource().kind.to_lowercase() == name) {
        let definition = api.crd();
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        add(spec, &mut vec![Some("spec".to_owned())], templates, &mut found);
    }
    found
}

fn add(schema: &Value, path: &mut Vec<Option<String>>, templates: bool, found: &mut Vec<Extreme>) {
    let values = match schema["type"].as_str() {
        Some("integer") => vec![json!(-1), json!(u32::MAX), json!(i64::MAX)],
        Some("number") => vec![json!(1e300), json!(-1e300)],
        Some("string") => vec![json!("a".repeat(LONG)), json!("\u{0}\u{1b}[31m\u{202e}\r\n"), json!("9".repeat(19))],
        Some("array") => vec![vec![element(&schema["items"]); MANY].into()],
        Some("object") if schema["additionalProperties"].is_object() => {
            let of = element(&schema["additionalProperties"]);
            vec![(0..MANY).map(|n| (format!("k{n}"), of.clone())).collect::<Map<_, _>>().into()]
        }
        _ => Vec::new(),
    };
    found.extend(values.into_iter().map(|value| Extreme { path: path.clone(), value }));
    if !templates && schema["properties"]["spec"]["properties"]["containers"].is_object() {
        return;
    }
    for (member, inside) in schema["properties"].as_object().into_iter().flatten() {
        path.push(Some(member.clone()));
        add(inside, path, templates, found);
        path.pop();
    }
    for (part, inside) in [(Some("k".to_owned()), &schema["additionalProperties"]), (None, &schema["items"])] {
        if inside.is_object() {
            path.push(part);
            add(inside, path, templates, found);
            path.pop();
        }
    }
}

/// Returns a value that a schema accepts.
fn element(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("a"),
    }
}
