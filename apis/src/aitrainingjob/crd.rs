//! The `CustomResourceDefinition` of AITrainingJob.
//!
//! The original had no schema, so this one refuses only what made the original crash: a replica group that is null and a
//! negative number of replicas. Everything else is kept as written, and what cannot be served becomes a condition. Tests:
//! `tests/crd.rs`.

use serde_json::{Value, json};

use super::words::{GROUP, KIND, PLURAL};

/// The definition, as `apiextensions.k8s.io/v1`.
pub(super) fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": PLURAL,
                "singular": "aitrainingjob",
                "shortNames": ["aitj"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Phase", "string", ".status.phase", 0),
                    column("Age", "date", ".metadata.creationTimestamp", 0),
                    column("Restarting", "string", ".status.RestartReplicaName", 1),
                    column("Running-Since", "date", ".status.startRunningTime", 1),
                    column("Ended", "date", ".status.endTime", 1),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A distributed training job of named replica groups.",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec(),
                        "status": open("object", "What has become of the job."),
                    },
                }},
            }],
        },
    })
}

fn column(name: &str, kind: &str, path: &str, priority: u32) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": priority})
}

/// A field of one type whose members are kept as written.
fn open(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

/// A field of any type: a wrong one is a condition on the job, not a refusal.
fn any(description: &str) -> Value {
    json!({"description": description, "x-kubernetes-preserve-unknown-fields": true})
}

fn spec() -> Value {
    let mut spec = open("object", "What the job asks for.");
    if let Some(spec) = spec.as_object_mut() {
        spec.insert(
            "properties".to_owned(),
            json!({
                "restartingExitCode": any("Exit codes that count as restartable: numbers between commas, or one number."),
                "frameworkType": any("Name of the framework; not acted on."),
                "faultTolerant": any("Not acted on: each group's restartPolicy says what is restarted."),
                "priority": any("Value of the label `priority` of every pod."),
                "schedulerName": any("Scheduler of every pod; the template's own when empty."),
                "timeLimit": any("Seconds from the first pod running after which the job ends as Timeout."),
                "cleanPodPolicy": any("What becomes of the pods of a job that succeeded or failed: All (deleted) or None (kept)."),
                "failPolicy": any("Which groups fail the job: Any (default), All or None."),
                "completePolicy": any("Which groups complete the job: All (default), Any or None."),
                "replicaSpecs": replica_specs(),
            }),
        );
    }
    spec
}

fn replica_specs() -> Value {
    json!({
        "type": "object",
        "description": "The replica groups by name.",
        "additionalProperties": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "replicas": {
                    "description": "Number of pods, with indices from 0; 1 when absent.",
                    "minimum": 0,
                    "x-kubernetes-preserve-unknown-fields": true,
                },
                "minReplicas": any("Not acted on."),
                "maxReplicas": any("Not acted on."),
                "edlPolicy": any("Not acted on."),
                "restartPolicy": any(
                    "Which failures are restarted: Always, OnFailure, OnNodeFail, Never (default), ExitCode or \
                     OnNodeFailWithExitCode.",
                ),
                "restartScope": any("What a restart takes along: All (default), Replica or Pod."),
                "restartLimit": any("Restarts this group may cause; unlimited when absent."),
                "failPolicy": any("Which pods fail the group: Any (default), Rank0, All or None."),
                "completePolicy": any("Which pods complete the group: All (default), Any, Rank0 or None."),
                "template": any("The pod template. Containers and ports named aitj-… take part in the job."),
            },
        },
    })
}
