//! The schema: structural, and tolerant of everything the original read.

use serde_json::{Value, json};

use super::base;
use crate::aitrainingjob::{AiTrainingJob, DESCRIPTOR};
use crate::testing::{self, atomic_maps, check_described, check_structure, refusals};

fn schema() -> Value {
    testing::schema(&AiTrainingJob)
}

#[test]
fn names_subresource_and_columns_are_what_tools_look_for() {
    let crd = DESCRIPTOR.crd();
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
    let columns = testing::columns(&AiTrainingJob);
    assert_eq!(
        columns,
        ["Phase", "Ready", "Restarts", "Queue", "Reason", "Restarting", "Running-Since", "Ended", "Age"]
    );
}

#[test]
fn the_schema_is_structural_and_loses_nothing() {
    check_structure(&schema(), "$");
}

/// Server-side apply, merging member by member, leaves `null` where a map has lost its last member.
#[test]
fn maps_of_the_status_are_written_as_a_whole() {
    assert_eq!(atomic_maps(&schema()), ["RestartCount", "replicaStatuses", "trainyard"]);
}

/// `kubectl explain` has something to say about every field.
#[test]
fn every_field_is_described() {
    check_described(&schema(), "$");
}

/// Checks that every written member stands in the schema.
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
fn only_what_made_the_original_crash_or_read_no_job_is_refused() {
    let schema = schema();
    let trainer = "/spec/replicaSpecs/trainer";
    for (pointer, value) in [
        ("/spec/restartingExitCode", json!(137)),
        ("/spec/restartingExitCode", json!("137,128")),
        ("/spec/timeLimit", json!(null)),
        ("/spec/cleanPodPolicy", json!(null)),
        ("/spec/cleanPodPolicy", json!("Sometimes")),
        ("/spec/failPolicy", json!("Rank0")),
        ("/spec/novel", json!({"a": [1]})),
        ("/spec/replicaSpecs/trainer/replicas", json!(0)),
        ("/spec/replicaSpecs/trainer/replicas", json!(null)),
        ("/spec/replicaSpecs/trainer/edlPolicy", json!("Auto")),
        ("/spec/replicaSpecs/trainer/template", json!(null)),
        ("/spec/replicaSpecs/trainer/template/metadata", json!({"creationTimestamp": null, "labels": {"a": null}})),
        ("/spec/replicaSpecs/trainer/template/spec/novel", json!([1])),
        ("/spec/replicaSpecs/trainer/template/spec/containers/0/novel", json!({"a": 1})),
        (
            "/spec/replicaSpecs/trainer/template/spec/containers/0/resources",
            json!({"limits": {"cpu": 0.5, "memory": "1Gi"}}),
        ),
        ("/status", json!({"phase": "", "conditions": null, "replicaStatuses": null, "RestartReplicaName": ""})),
    ] {
        let job = super::edited(&[(pointer, value.clone())]);
        assert_eq!(refusals(&schema, &job, "$"), [""; 0], "{pointer} {value}");
    }
    assert_eq!(refusals(&schema, &base(), "$"), [""; 0]);
    let refused = |pointer: &str, value: Value| refusals(&schema, &super::edited(&[(pointer, value)]), "$");
    // One object of a wrong type, and the original's list of all jobs could not be read.
    assert_eq!(refused("/spec/timeLimit", json!("1h")), ["$.spec.timeLimit: not \"integer\""]);
    assert_eq!(
        refused(&format!("{trainer}/replicas"), json!("2")),
        ["$.spec.replicaSpecs.trainer.replicas: not \"integer\""]
    );
    assert_eq!(refused(&format!("{trainer}/replicas"), json!(-1)), ["$.spec.replicaSpecs.trainer.replicas: below 0"]);
    assert_eq!(refused(trainer, json!(null)), ["$.spec.replicaSpecs.trainer: not \"object\""]);
}
