//! The schema: structural, and tolerant of everything the original stored.

use serde_json::{Value, json};

use super::base;
use crate::aitrainingjob::AiTrainingJob;
use crate::api::JobApi;

fn schema() -> Value {
    AiTrainingJob.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// What an API server checks with the keywords that this schema uses.
fn refusals(schema: &Value, value: &Value, path: &str) -> Vec<String> {
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

/// Every node of a structural schema has a type or keeps what it does not know, and no node forgets unknown members.
fn check_structure(schema: &Value, path: &str) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    assert!(open || schema["type"].is_string(), "{path}: neither typed nor open");
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

#[test]
fn names_subresource_and_columns_are_what_tools_look_for() {
    let crd = AiTrainingJob.crd();
    assert_eq!(crd["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(crd["metadata"]["name"], "aitrainingjobs.elasticdeeplearning.ai");
    assert_eq!(
        crd["spec"]["names"],
        json!({"kind": "AITrainingJob", "listKind": "AITrainingJobList", "plural": "aitrainingjobs",
            "singular": "aitrainingjob", "shortNames": ["aitj"]})
    );
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    let version = &crd["spec"]["versions"][0];
    assert_eq!((&version["name"], &version["subresources"]), (&json!("v1"), &json!({"status": {}})));
    let columns: Vec<_> = version["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Phase", "Restarts", "Restarting", "Running-Since", "Ended", "Age"]);
}

#[test]
fn the_schema_is_structural_and_loses_nothing() {
    check_structure(&schema(), "$");
}

/// Server-side apply, merging member by member, leaves `null` where a map has lost its last member.
#[test]
fn maps_of_the_status_are_written_as_a_whole() {
    let schema = schema();
    let status = schema["properties"]["status"]["properties"].as_object().unwrap();
    let maps: Vec<&String> = status.iter().filter(|(_, of)| of["type"] == "object").map(|(key, _)| key).collect();
    assert_eq!(maps, ["RestartCount", "replicaStatuses", "trainyard"]);
    assert!(maps.iter().all(|key| status[*key]["x-kubernetes-map-type"] == "atomic"));
}

/// `kubectl explain` has something to say about every field.
#[test]
fn every_field_is_described() {
    fn check(schema: &Value, path: &str) {
        for (key, of) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            assert!(
                path == "$.metadata" || of["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{path}"
            );
            check(of, &path);
        }
        for member in ["additionalProperties", "items"] {
            schema.get(member).into_iter().for_each(|of| check(of, path));
        }
    }
    check(&schema(), "$");
}

/// What is written is what the schema says is written.
#[test]
fn every_status_meets_the_schema() {
    for status in [
        json!({"phase": "", "conditions": null, "replicaStatuses": null, "RestartReplicaName": ""}),
        json!({
            "phase": "Running", "RestartCount": {"trainer": 1}, "RestartReplicaName": "trainer",
            "replicaStatuses": {"trainer": {"active": 2}, "ps": {}},
            "conditions": [{"type": "Running", "status": "True", "reason": "TrainingJobRunning", "message": "",
                "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "startTime": "2026-01-01T00:00:00Z", "endTime": null, "trainyard": {"term": 1},
        }),
    ] {
        let job = super::edited(&[("/status", status)]);
        assert_eq!(refusals(&schema(), &job, "$"), [""; 0]);
    }
    let job = super::edited(&[("/status", json!({"replicaStatuses": {"trainer": {"active": "2"}}}))]);
    assert_eq!(refusals(&schema(), &job, "$"), ["$.status.replicaStatuses.trainer.active: not \"integer\""]);
}

#[test]
fn only_what_made_the_original_crash_is_refused() {
    let schema = schema();
    let trainer = "/spec/replicaSpecs/trainer";
    for (pointer, value) in [
        ("/spec/restartingExitCode", json!(137)),
        ("/spec/restartingExitCode", json!("137,128")),
        ("/spec/timeLimit", json!("1h")),
        ("/spec/cleanPodPolicy", json!(null)),
        ("/spec/failPolicy", json!("Rank0")),
        ("/spec/novel", json!({"a": [1]})),
        ("/spec/replicaSpecs/trainer/replicas", json!("2")),
        ("/spec/replicaSpecs/trainer/replicas", json!(0)),
        ("/spec/replicaSpecs/trainer/replicas", json!(null)),
        ("/spec/replicaSpecs/trainer/edlPolicy", json!("Auto")),
        ("/spec/replicaSpecs/trainer/template", json!(null)),
        ("/status", json!({"phase": "", "conditions": null, "replicaStatuses": null, "RestartReplicaName": ""})),
    ] {
        let job = super::edited(&[(pointer, value.clone())]);
        assert_eq!(refusals(&schema, &job, "$"), [""; 0], "{pointer} {value}");
    }
    assert_eq!(refusals(&schema, &base(), "$"), [""; 0]);
    let refused = |pointer: &str, value: Value| refusals(&schema, &super::edited(&[(pointer, value)]), "$");
    assert_eq!(refused(&format!("{trainer}/replicas"), json!(-1)), ["$.spec.replicaSpecs.trainer.replicas: below 0"]);
    assert_eq!(refused(trainer, json!(null)), ["$.spec.replicaSpecs.trainer: not \"object\""]);
}
