//! Helpers for the tests of several APIs: edited objects, rendered ones, jobs as the engine holds them, and checks of schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Group, Job};
use model::fact::Milestone;
use model::{Incarnation, JobKey, JobSpec, Phase, Position, SlotId, Stamp, Term, Timestamp};
use serde_json::{Value, json};

use crate::api::{JobApi, PodSlot, RenderInput};

/// 2024-02-29T00:00:00Z.
pub(crate) const T0: u64 = 1_709_164_800_000;

/// The object with the values at these JSON pointers replaced (the parent must be there).
pub(crate) fn edited(mut object: Value, edits: &[(&str, Value)]) -> Value {
    for (pointer, value) in edits {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no {pointer}"));
        match parent {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            parent => parent[key.replace("~1", "/")] = value.clone(),
        }
    }
    object
}

/// The key, spec and manifest of an acceptable job object.
pub(crate) fn accepted(api: &dyn JobApi, object: &Value) -> (JobKey, JobSpec, Value) {
    let fact = api.spec_fact(object);
    let spec = fact.spec.unwrap_or_else(|errors| panic!("{errors:?}"));
    let text = |key: &str| object["metadata"][key].as_str().unwrap();
    let key = JobKey {
        namespace: text("namespace").into(),
        name: text("name").into(),
        kind: api.resource().kind,
        uid: text("uid").into(),
    };
    (key, spec, serde_json::from_str(&fact.manifest).unwrap())
}

pub(crate) fn slot(group: &str, index: u32) -> SlotId {
    SlotId { group: group.into(), index }
}

/// The pod of a slot.
pub(crate) fn render(api: &dyn JobApi, object: &Value, slot: &SlotId, incarnation: u32, count: u32) -> Value {
    let (job, spec, manifest) = accepted(api, object);
    let group = spec.group(&slot.group).unwrap();
    let source = RenderInput { job: &job, spec: &spec, manifest: &manifest };
    api.pods()
        .unwrap()
        .render(source, &[PodSlot { slot, group, incarnation: Incarnation(incarnation), count }])
        .remove(0)
        .unwrap()
}

/// The service of a slot.
pub(crate) fn render_service(api: &dyn JobApi, object: &Value, slot: &SlotId) -> Value {
    let (job, spec, manifest) = accepted(api, object);
    api.pods().unwrap().service(RenderInput { job: &job, spec: &spec, manifest: &manifest }, slot).unwrap()
}

pub(crate) fn milestone(phase: Phase, after_s: u64, message: &str) -> Milestone {
    Milestone { phase, at: Timestamp(T0).plus_ms(after_s.saturating_mul(1000)), message: message.into() }
}

/// A job as the engine holds it, without pods.
pub(crate) fn job(api: &dyn JobApi, object: &Value) -> (JobKey, Job) {
    let (key, spec, _) = accepted(api, object);
    let fact = Arc::new(api.spec_fact(object));
    let groups = spec
        .groups
        .iter()
        .map(|group| (group.name.clone(), Box::new(Group { replicas: group.replicas, ..Group::default() })))
        .collect::<BTreeMap<_, _>>();
    let job = Job {
        object: engine::ObjectState::present(model::ResourceVersion(0)),
        spec: Some(fact.clone()),
        valid: Some(fact),
        groups,
        stamps: engine::StatusStamps::of_mirror(Stamp { term: Term(2), position: Position(7) }),
        ..Job::default()
    };
    (key, job)
}

/// Errors of a spec, in words.
pub(crate) fn errors(api: &dyn JobApi, object: &Value) -> Vec<String> {
    api.spec_fact(object).spec.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// Remarks on a spec, in words.
pub(crate) fn warnings(api: &dyn JobApi, object: &Value) -> Vec<String> {
    api.spec_fact(object).warnings.iter().map(ToString::to_string).collect()
}

/// The schema of the only version of a definition.
pub(crate) fn schema(api: &dyn JobApi) -> Value {
    api.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Checks a value as an API server does, with the keywords that the schemas use.
pub(crate) fn refusals(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    if value.is_null() && schema["nullable"] == json!(true) {
        return found;
    }
    let is_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("{path}: the test knows no type {other}"),
    };
    if !is_type {
        found.push(format!("{path}: not {}", schema["type"]));
    }
    if let (Some(minimum), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
        && number < minimum
    {
        found.push(format!("{path}: below {minimum}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(name).is_none() {
            found.push(format!("{path}.{name}: missing"));
        }
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(of) = schema.get("items") {
            found.extend(refusals(of, item, &format!("{path}[{n}]")));
        }
    }
    for (key, member) in value.as_object().into_iter().flatten() {
        let of = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        if let Some(of) = of {
            found.extend(refusals(of, member, &format!("{path}.{key}")));
        }
    }
    found
}

/// Lists the fields of a value that an API server refuses or drops: those that a schema neither names nor keeps.
pub(crate) fn unknown(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    let mut found = Vec::new();
    for (key, member) in value.as_object().into_iter().flatten().filter(|_| path != "$.metadata") {
        let path = format!("{path}.{key}");
        match schema["properties"].get(key).or_else(|| schema.get("additionalProperties")) {
            Some(of) => found.extend(unknown(of, member, &path)),
            None if keeps => {}
            None => found.push(path),
        }
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(of) = schema.get("items") {
            found.extend(unknown(of, item, &format!("{path}[{n}]")));
        }
    }
    found
}

/// Every node of a structural schema has a type or keeps what it does not know, and no object without fields forgets its members.
pub(crate) fn check_structure(schema: &Value, path: &str) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    let int_or_string = schema["x-kubernetes-int-or-string"] == json!(true);
    assert!(open || int_or_string || schema["type"].is_string(), "{path}: neither typed nor open");
    let whole = schema["properties"].is_object() || schema["additionalProperties"].is_object();
    assert!(
        open || schema["type"] != json!("object") || whole || path == "$.metadata",
        "{path}: would lose its members"
    );
    assert!(
        !(schema["properties"].is_object() && schema["additionalProperties"].is_object()),
        "{path}: both kinds of members"
    );
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        check_structure(of, &format!("{path}.{key}"));
    }
    for (member, step) in [("additionalProperties", ".*"), ("items", "[]")] {
        if let Some(of) = schema.get(member) {
            check_structure(of, &format!("{path}{step}"));
        }
    }
}

/// `kubectl explain` has something to say about every field.
pub(crate) fn check_described(schema: &Value, path: &str) {
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        assert!(path == "$.metadata" || of["description"].as_str().is_some_and(|text| text.ends_with('.')), "{path}");
        check_described(of, &path);
    }
    for member in ["additionalProperties", "items"] {
        schema.get(member).into_iter().for_each(|of| check_described(of, path));
    }
}

/// Maps of the status that server-side apply replaces as a whole. Merging member by member, it leaves `null` where a map has lost its
/// last member.
pub(crate) fn atomic_maps(schema: &Value) -> Vec<String> {
    let status = schema["properties"]["status"]["properties"].as_object().unwrap();
    let maps: Vec<&String> = status.iter().filter(|(_, of)| of["type"] == "object").map(|(key, _)| key).collect();
    assert!(maps.iter().all(|key| status[*key]["x-kubernetes-map-type"] == "atomic"));
    maps.into_iter().cloned().collect()
}

/// Names of the columns of a definition.
pub(crate) fn columns(api: &dyn JobApi) -> Vec<String> {
    let crd = api.crd();
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
    columns.iter().map(|column| column["name"].as_str().unwrap().to_owned()).collect()
}
