//! The `CustomResourceDefinition` of ElasticJob.
//!
//! It refuses what the original's definition refused (no endpoint, no groups, a minimum below 1, fields of another type) and what
//! made the original crash (a group that is null, a negative number of replicas). Everything else is kept as written, fields
//! without a name here too, and what cannot be served becomes a condition. The definition is made from the schema as it is meant ([`spec_schema`]), which manifests are checked
//! against. Must not hold anything of other APIs. Tests: `tests/crd.rs`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::constants::{GROUP, KIND, PLURAL, VERSION};
use super::run_policy::{CLEAN, OBJECTS};
use crate::crd::{self, Names, UnknownFields, Version, column, definition, field, one_of, replica_statuses, time};
use crate::replicas::RESTART;
use crate::summary;

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names =
        Names { group: GROUP, version: VERSION, kind: KIND, plural: PLURAL, singular: "elasticjob", short: &[] };
    let workers = ".spec.replicaSpecs.Worker.replicas";
    let [ready, restarts, queue] = summary::columns();
    let version = Version {
        description: "A training job whose number of workers may change while it runs.",
        subresources: json!({
            "status": {},
            "scale": {
                "specReplicasPath": workers,
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            },
        }),
        columns: vec![
            column("State", "string", ".status.conditions[-1:].type", 0, "Where the job stands."),
            column("Min", "integer", ".spec.minReplicas", 0, "The least number of workers."),
            column("Max", "integer", ".spec.maxReplicas", 0, "The greatest number of workers."),
            column("Desired", "integer", workers, 0, "The number of workers asked for."),
            column("rdzvEndpoint", "string", ".spec.rdzvEndpoint", 0, "Where the workers meet."),
            ready,
            restarts,
            queue,
            summary::reason(),
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
    let bound = |what: &str| {
        let description = format!("The {what} number of workers that can train; as many as replicas when absent.");
        json!({"type": "integer", "minimum": 1, "description": description})
    };
    let object = json!({
        "type": "object",
        "description": "Other spelling of the fields of the run policy; they may stand directly under spec.",
        "properties": run_policy(),
    });
    let mut properties = run_policy();
    properties.extend(OBJECTS.map(|name| (name.to_owned(), object.clone())));
    properties.extend([
        (
            "rdzvEndpoint".to_owned(),
            field("string", "host:port at which the workers meet: of an etcd, or of worker 0 with the back end c10d."),
        ),
        ("minReplicas".to_owned(), bound("least")),
        ("maxReplicas".to_owned(), bound("greatest")),
        (
            "suspend".to_owned(),
            field("boolean", "Set if the job waits without workers, until this is taken back; Trainyard's addition."),
        ),
        (
            "replicaSpecs".to_owned(),
            json!({
                "type": "object",
                "description": "The replica groups by name. The group Worker decides about the job.",
                "additionalProperties": {"type": "object", "properties": replica_spec()},
            }),
        ),
    ]);
    json!({
        "type": "object",
        "description": "What the job asks for.",
        "required": ["rdzvEndpoint", "replicaSpecs"],
        "properties": properties,
    })
}

fn run_policy() -> Map<String, Value> {
    let fields = [
        (
            "cleanPodPolicy",
            one_of(
                &CLEAN,
                "Which pods are deleted when the job has ended: All, Running (those that have not ended) or None. Absent: \
                 those that have not ended of a job that failed.",
            ),
        ),
        (
            "ttlSecondsAfterFinished",
            field("integer", "Seconds after its end at which the job is deleted; never when absent."),
        ),
        (
            "activeDeadlineSeconds",
            field("integer", "Seconds from its start after which the job fails; never when absent."),
        ),
        (
            "backoffLimit",
            field(
                "integer",
                "Replaced pods and restarts of containers, together, with which the job fails; unlimited when absent.",
            ),
        ),
        (
            "schedulingPolicy",
            json!({
                "type": "object",
                "description": "Not acted on.",
                "properties": {"minAvailable": field("integer", "Not acted on.")},
            }),
        ),
    ];
    fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn replica_spec() -> Value {
    json!({
        "replicas": {
            "type": "integer",
            "minimum": 0,
            "description": "Number of pods, with indices from 0; 1 when absent. 0 workers pause the job.",
        },
        "restartPolicy": one_of(
            &RESTART,
            "Which failures are restarted: Always (default), OnFailure, Never, or ExitCode: exit codes of signals, evicted pods \
             and lost nodes.",
        ),
        "template": crd::pod_template(
            "The pod template, a core/v1 PodTemplateSpec. The container elasticjob-worker, or each one where none has that name, gets the \
             launcher's arguments before its own.",
        ),
    })
}

/// Returns the schema of the status.
fn status() -> Value {
    let fields = [
        (
            "conditions",
            crd::condition_history(
                "Created, Running, Restarting, Suspended, Succeeded or Failed; of a job in a TrainingQueue Queued or Admitted",
                ("lastUpdateTime", "When it was written last."),
            ),
        ),
        (
            "replicaStatuses",
            replica_statuses(&[
                ("active", "Pods that run."),
                ("succeeded", "Pods that succeeded."),
                ("failed", "Pods that failed and are not replaced yet, or never."),
            ]),
        ),
        ("startTime", time("When the job's pods were first asked for.")),
        ("completionTime", time("When the job ended.")),
        ("lastReconcileTime", time("Not written.")),
    ];
    crd::status(fields.into_iter().chain(summary::schemas()).map(|(name, schema)| (name.to_owned(), schema)).collect())
}
