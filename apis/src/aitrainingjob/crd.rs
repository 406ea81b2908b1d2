//! The `CustomResourceDefinition` of AITrainingJob.
//!
//! The original had no schema, so this one refuses only what made the original crash or read none of its jobs: a replica group
//! that is null, a negative number of replicas, and a field of another type than its own (`null` is read as absent). Everything
//! else is kept as written, fields without a name here too, and what cannot be served becomes a condition. The definition is made
//! from the schema as it is meant ([`spec_schema`]), which manifests are checked against. Must not hold anything of other APIs.
//! Tests: `tests/crd.rs`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::constants::{GROUP, KIND, PLURAL};
use super::spec::{CLEAN, GROUP_END, JOB_END, RESTART, SCOPE};
use crate::crd::{
    self, Names, UnknownFields, Version, column, condition, definition, field, one_of, replica_statuses, time,
};
use crate::kubernetes;
use crate::summary;

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names =
        Names { group: GROUP, version: "v1", kind: KIND, plural: PLURAL, singular: "aitrainingjob", short: &["aitj"] };
    let [ready, restarts, queue] = summary::columns();
    let version = Version {
        description: "A distributed training job of named replica groups.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("Phase", "string", ".status.phase", 0, "Where the job stands."),
            ready,
            restarts,
            queue,
            summary::reason(),
            column("Restarting", "string", ".status.RestartReplicaName", 1, "The group a restart waits for."),
            column("Running-Since", "date", ".status.startRunningTime", 1, "When every pod first ran."),
            column("Ended", "date", ".status.endTime", 1, "When the job ended."),
            column("Age", "date", ".metadata.creationTimestamp", 0, "When the job was created."),
        ],
        spec: strict_spec(),
        groups: "replicaSpecs",
        unknown: UnknownFields::Kept,
        status: status(),
    };
    definition(names, &version)
}

/// Returns the schema of `spec` as it is meant: types, accepted words, and the fields of pod templates.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

fn strict_spec() -> Value {
    json!({
        "type": "object",
        "description": "What the job asks for.",
        "properties": {
            "restartingExitCode": {
                "x-kubernetes-int-or-string": true,
                "description": "Exit codes that count as restartable: numbers between commas, or one number.",
            },
            "frameworkType": field("string", "Name of the framework; not acted on."),
            "faultTolerant": field("boolean", "Not acted on: each group's restartPolicy says what is restarted."),
            "priority": field("string", "Value of the label `priority` of every pod."),
            "schedulerName": field("string", "Scheduler of every pod; the template's own when empty."),
            "timeLimit": field("integer", "Seconds from the first pod running after which the job ends as Timeout."),
            "cleanPodPolicy": one_of(
                &CLEAN,
                "What becomes of the pods of a job that succeeded or failed: All (deleted) or None (kept).",
            ),
            "failPolicy": one_of(&JOB_END, "Which groups fail the job: Any (default), All or None."),
            "completePolicy": one_of(&JOB_END, "Which groups complete the job: All (default), Any or None."),
            "replicaSpecs": {
                "type": "object",
                "description": "The replica groups by name.",
                "additionalProperties": {"type": "object", "properties": replica_spec()},
            },
        },
    })
}

fn replica_spec() -> Value {
    json!({
        "replicas": {
            "type": "integer",
            "minimum": 0,
            "description": "Number of pods, with indices from 0; 1 when absent.",
        },
        "minReplicas": field("integer", "Fewest pods that a queue may choose; replicas when absent."),
        "maxReplicas": field("integer", "Most pods that a queue may choose; replicas when absent."),
        "edlPolicy": one_of(
            &[("Auto", ()), ("Manual", ()), ("Never", ())],
            "Auto, which is the default, lets a queue choose the number of pods; Manual and Never do not.",
        ),
        "restartPolicy": one_of(
            &RESTART,
            "Which failures are restarted: Always, OnFailure, OnNodeFail, Never (default), ExitCode or \
             OnNodeFailWithExitCode.",
        ),
        "restartScope": one_of(&SCOPE, "What a restart takes along: All (default), Replica or Pod."),
        "restartLimit": field("integer", "Restarts this group may cause; unlimited when absent."),
        "failPolicy": one_of(&GROUP_END, "Which pods fail the group: Any (default), Rank0, All or None."),
        "completePolicy": one_of(&GROUP_END, "Which pods complete the group: All (default), Any, Rank0 or None."),
        "template": {
            "$ref": kubernetes::POD_TEMPLATE,
            "description": "The pod template, a core/v1 PodTemplateSpec. Containers whose names start with aitj- decide the \
                pod's result; their ports of such names are announced to all pods of the job.",
        },
    })
}

/// Returns the schema of the status; `null` stays possible where the original operator wrote it.
fn status() -> Value {
    let fields = [
        (
            "phase",
            field(
                "string",
                "Empty before the first decision, then Pending, Creating, Running, Terminating or Restarting; at the end \
                 Succeed, Failed, Timeout, Preempted or NodeFail.",
            ),
        ),
        (
            "conditions",
            json!({
                "type": "array",
                "nullable": true,
                "description": "The phases the job went through, in order, the last one True. Before them what needs \
                    attention: Invalid, NameTaken, Degraded or Warning; and of a job in a TrainingQueue Queued or Admitted.",
                "items": condition(
                    "A phase, or Invalid, NameTaken, Degraded, Warning, Queued, Admitted.",
                    ("lastProbeTime", "When it was seen last."),
                ),
            }),
        ),
        (
            "replicaStatuses",
            replica_statuses(&[
                ("pending", "Pods without a node."),
                ("scheduled", "Pods with a node that do not run yet."),
                ("active", "Pods that run."),
                ("succeeded", "Pods that succeeded."),
                ("restarting", "Pods of a restart that do not run yet."),
                ("failed", "Pods that failed."),
            ]),
        ),
        (
            "RestartCount",
            json!({
                "type": "object",
                "nullable": true,
                "x-kubernetes-map-type": "atomic",
                "description": "Restarts so far, by replica group.",
                "additionalProperties": {"type": "integer"},
            }),
        ),
        (
            "RestartReplicaName",
            field("string", "The group that asked for the restart under way, while its old pods are not gone yet."),
        ),
        ("startTime", time("When the job was first Pending.")),
        ("startRunningTime", time("When every pod first ran; restarts do not change it.")),
        ("endTime", time("When the job ended.")),
        ("lastReconcileTime", time("Not written.")),
    ];
    crd::status(fields.into_iter().chain(summary::schemas()).map(|(name, schema)| (name.to_owned(), schema)).collect())
}
