//! A kind that no product file names is served: a copy of ElasticJob under another group (`fixtures::copied`).
//!
//! Whatever the operator needs of an API comes from its folder and the table of served APIs. Random walks of the copy are in `walks`, and
//! a copy on a real API server is in `k8s-driver/tests/leadership.rs`.

use std::collections::BTreeSet;

use apis::api::Descriptor;
use apis::{Registry, Resource, ServedResource};
use cluster::ServedKinds;
use fixtures::copied::{COPIED, with_copy};
use serde_json::Value;
use simulator::runner::run_serving;
use simulator::scenario;
use simulator::simulation::Simulation;

const ORIGINAL: Descriptor = apis::elasticjob::DESCRIPTOR;

fn group(names: &Descriptor) -> &'static str {
    names.api_version.split('/').next().unwrap_or_default()
}

/// Writes the names of the copy in place of those of the original, but for words of a status: reasons and sentences are the original's.
fn renamed(text: &str) -> String {
    // Uids of the embedded cluster and names of Workloads begin with the kind; the name of a container does, too, and stays.
    let [original, copied] = [ORIGINAL, COPIED].map(|names| format!("{}-", names.kind.to_lowercase()));
    let container = format!("{original}worker");
    let text = text.replace(ORIGINAL.api_version, COPIED.api_version).replace(&container, "CONTAINER");
    let text = text.replace(&original, &copied).replace("CONTAINER", &container);
    // Pods and services that a scenario plants carry the label of their API.
    let text = text.replace("labels: {group-name: ", "labels: {copied: 'yes', group-name: ");
    let mut parts = text.split(ORIGINAL.kind);
    let mut renamed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_word = part.starts_with(|next: char| next.is_alphanumeric() || next == ' ');
        renamed.push_str(if is_word { ORIGINAL.kind } else { COPIED.kind });
        renamed.push_str(part);
    }
    renamed
}

/// Writes the names of the original in place of those of the copy, and takes the labels of both away.
fn restored(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            *text = text.replace(group(&COPIED), group(&ORIGINAL)).replace(COPIED.kind, ORIGINAL.kind);
            *text = text.replace(&COPIED.kind.to_lowercase(), &ORIGINAL.kind.to_lowercase());
        }
        Value::Array(list) => list.iter_mut().for_each(|each| *each = restored(each.take())),
        Value::Object(map) => {
            // A Workload carries the label of its API alone.
            let labels = [COPIED.label, ORIGINAL.label].map(|label| label.map(|(key, _)| key));
            map.retain(|key, _| !labels.contains(&Some(key.as_str())));
            *map = std::mem::take(map)
                .into_iter()
                .map(|(key, each)| (key.replace(COPIED.kind, ORIGINAL.kind), restored(each)))
                .collect();
            // Names of Events are hashes of what they are about.
            if map.get("kind").is_some_and(|kind| kind == "Event")
                && let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.remove("name");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

/// What a scenario leads to, apart from the bytes of the log.
fn outcome(text: &str, origin: &str, registry: &Registry, kinds: &ServedKinds) -> Value {
    let scenario = scenario::parse(text, origin).unwrap_or_else(|error| panic!("{error}"));
    let mut found = match run_serving(&scenario, registry, kinds) {
        Ok(outcome) => outcome.to_json(),
        Err(error) => return restored(Value::from(error.to_string())),
    };
    let mut objects: Vec<Value> = found["objects"].take().as_array().cloned().unwrap_or_default();
    // Definitions are those of the build.
    objects.retain(|object| object["kind"] != "CustomResourceDefinition");
    objects = objects.into_iter().map(restored).collect();
    // Objects are listed by type, and the types are named otherwise.
    objects.sort_by_key(ToString::to_string);
    serde_json::json!({"objects": objects, "steps": restored(found["steps"].take()), "phases": restored(found["phases"].take())})
}

#[test]
fn a_copied_kind_lives_as_its_original() {
    let registry = with_copy();
    let kinds = Simulation::kinds_of(&registry).expect("the definitions register");
    let mut compared = 0;
    for file in fixtures::scenarios("elasticjob").expect("the scenario folder can be read") {
        let text = std::fs::read_to_string(&file.path).expect("the scenario can be read");
        // Manifests in files of their own are those of the original.
        if scenario::parse(&text, &file.name).is_err() {
            continue;
        }
        let original = outcome(&text, &file.name, &registry, &kinds);
        let copied = outcome(&renamed(&text), &file.name, &registry, &kinds);
        let lines = |outcome: &Value| -> Vec<String> { format!("{outcome:#}").lines().map(str::to_owned).collect() };
        let (original, copied) = (lines(&original), lines(&copied));
        let differs = original.iter().zip(&copied).position(|(one, other)| one != other);
        let around = |lines: &[String], at: usize| lines[at.saturating_sub(12)..lines.len().min(at + 6)].join("\n");
        if let Some(at) = differs {
            panic!("{}:\n{}\n--- copied\n{}", file.name, around(&original, at), around(&copied, at));
        }
        assert_eq!(original.len(), copied.len(), "{}", file.name);
        compared += 1;
    }
    assert!(compared >= 100, "only {compared} scenarios could be copied");
}

#[test]
fn a_copied_kind_has_rights_watches_and_validation() {
    let registry = with_copy();
    let rows = registry.resources();
    let row = |resource: &Resource| rows.iter().find(|row| row.resource == *resource).expect("a row").clone();
    let (own, of_original) = (row(&COPIED.resource()), row(&ORIGINAL.resource()));
    let named = ServedResource { resource: ORIGINAL.resource(), plural: ORIGINAL.plural, ..own };
    assert_eq!(format!("{named:?}"), format!("{of_original:?}"), "rights");

    let targets = |registry: &Registry| -> BTreeSet<String> {
        registry.watch_targets().iter().map(|target| format!("{target:?}")).collect()
    };
    let (with, without) = (targets(&registry), targets(&Registry::all()));
    assert!(without.is_subset(&with));
    let added: Vec<&String> = with.difference(&without).collect();
    let kinds = ["kind: Job", "kind: Owned", "kind: Pod", "kind: Service"];
    assert!(added.len() == kinds.len() && added.iter().zip(kinds).all(|(row, kind)| row.contains(kind)), "{added:#?}");

    let job = |kind: &str, api_version: &str| {
        serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "j"},
            "spec": {"rdzvEndpoint": "e:1", "replicaSpec": {}, "replicaSpecs": {"Worker": {"replicas": -1}}}})
    };
    let findings = |manifest: &Value| -> Vec<String> {
        apis::manifest::findings(&registry, manifest).iter().map(|finding| finding.field.to_string()).collect()
    };
    let of_copy = findings(&job(COPIED.kind, COPIED.api_version));
    assert_eq!(of_copy, findings(&job(ORIGINAL.kind, ORIGINAL.api_version)));
    assert!(of_copy.len() >= 2, "{of_copy:?}");
}
