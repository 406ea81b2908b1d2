//! The `CustomResourceDefinition` of TorchJob.
//!
//! Fields have the original's types; one without a name here is refused, as the original's definition did. What cannot be served becomes
//! a condition: a job without a spec is one of them. The definition is made from the schema as it is meant ([`spec_schema`]), which manifests are checked against. Must not hold anything of other APIs.
//! Tests: `tests/mod.rs`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::autoscaler;
use super::conditions::UPDATED;
use super::constants::{GROUP, KIND, PLURAL, VERSION};
use super::run_policy::{CLEAN_NAMES, LIMIT_NAMES, PROCESSES_NAMES, TTL_NAMES};
use crate::crd::{self, Names, UnknownFields, Version, column, definition, field, object, one_of, open, time};
use crate::modelversion::spec_schema as model_version_spec;
use crate::replicas::RESTART;
use crate::summary;

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names = Names { group: GROUP, version: VERSION, kind: KIND, plural: PLURAL, singular: "torchjob", short: &[] };
    let of_spec = |names: [&str; 2]| format!(".spec.{}", names[0]);
    let [ready, restarts, queue] = summary::columns();
    let version = Version {
        description: "A PyTorch training of a master and workers.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("State", "string", ".status.conditions[-1:].type", 0, "Where the job stands."),
            column("Age", "date", ".metadata.creationTimestamp", 0, "When the job was created."),
            column("Model-Version", "string", ".status.modelVersionName", 0, "The model that the job made."),
            column("Max-Lifetime", "integer", &of_spec(LIMIT_NAMES), 0, "Seconds after which the job fails."),
            column("TTL-After-Finished", "integer", &of_spec(TTL_NAMES), 0, "Seconds for which an ended job is kept."),
            ready,
            restarts,
            queue,
            summary::reason(),
        ],
        spec: strict_spec(),
        groups: "torchTaskSpecs",
        unknown: UnknownFields::Refused,
        status: status(),
    };
    definition(names, &version)
}

/// Returns the schema of `spec` as it is meant: types, accepted words, and the fields of pod templates.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

/// Returns a field under the original's name and under the usual one.
fn both(names: [&str; 2], schema: &Value) -> [(String, Value); 2] {
    names.map(|name| (name.to_owned(), schema.clone()))
}

fn strict_spec() -> Value {
    let number =
        |least: i64, description: &str| json!({"type": "integer", "minimum": least, "description": description});
    let mut properties = Map::new();
    let clean =
        "Which pods are deleted when the job has ended: None (default), Running (those that have not ended) or All.";
    properties.extend(both(CLEAN_NAMES, &field("string", clean)));
    properties
        .extend(both(TTL_NAMES, &number(0, "Seconds after its end at which the job is deleted; never when absent.")));
    properties
        .extend(both(LIMIT_NAMES, &number(0, "Seconds from its start after which the job fails; never when absent.")));
    let fields = [
        (
            "backoffLimit",
            number(
                0,
                "Rounds in which failed pods are replaced; the next one fails the job, as do this many restarts of containers in \
                 running pods. Unlimited when absent.",
            ),
        ),
        (
            "schedulingPolicy",
            json!({
                "type": "object",
                "description": "What schedulers read.",
                "properties": {
                    "minAvailable": field("integer", "Least number of pods of a pod group of the whole job."),
                    "priority": field("integer", "Priority in the queue."),
                    "priorityClassName": field("string", "Priority class of the pod groups."),
                    "queue": field("string", "Queue of the pod groups."),
                },
            }),
        ),
        (
            "minMembers",
            json!({
                "type": "object",
                "description": "Least number of pods of the pod group of each type; all of them when absent.",
                "additionalProperties": {"type": "integer"},
            }),
        ),
        (
            "modelVersion",
            object(
                "Where the training leaves its model: a ModelVersion, of which only the spec counts.",
                &[
                    ("apiVersion", field("string", "Not acted on.")),
                    ("kind", field("string", "Not acted on.")),
                    ("metadata", open("object", "Not acted on.")),
                    ("spec", model_version_spec().clone()),
                    ("status", open("object", "Not acted on.")),
                ],
            ),
        ),
        ("enableTorchElastic", field("boolean", "Set if the containers get the launcher's arguments.")),
        ("torchElasticPolicy", torch_elastic()),
        (
            "torchTaskSpecs",
            json!({
                "type": "object",
                "description": "The types of tasks: Master, Worker and AIMaster.",
                "additionalProperties": {"type": "object", "properties": task_spec()},
            }),
        ),
    ];
    properties.extend(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    json!({
        "type": "object",
        "nullable": true,
        "description": "What the job asks for.",
        "properties": properties,
    })
}

fn torch_elastic() -> Value {
    let number = |description: &str| field("integer", description);
    let mut properties = Map::new();
    let fields = [
        ("numMinReplicas", number("Lower bound of --nnodes; the number of workers when absent.")),
        ("numMaxReplicas", number("Upper bound of --nnodes; the number of workers when absent.")),
        ("rendezvousBackend", field("string", "How the workers find each other, for example etcd or c10d.")),
        ("rendezvousEndpoint", field("string", "Where they do: host:port.")),
    ];
    properties.extend(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    properties.extend(both(PROCESSES_NAMES, &number("Processes in each pod: --nproc_per_node; 1 when absent.")));
    json!({"type": "object", "description": "Arguments of the launcher.", "properties": properties})
}

fn task_spec() -> Value {
    json!({
        "numTasks": {"type": "integer", "minimum": 0, "description": "Number of pods, with indices from 0; 1 when absent."},
        "restartPolicy": one_of(
            &RESTART,
            "Which failures are restarted: ExitCode (default of Master: exit codes of signals, evicted pods), OnFailure (default of \
             Worker), Always or Never. Absent for AIMaster: what the API server has pods do.",
        ),
        "spotTaskSpec": {
            "type": "object",
            "description": "Pods that may be taken away: those of the highest indices.",
            "properties": {
                "numSpotTasks": {"type": "integer", "description": "Their number."},
                "priorityClassName": {"type": "string", "description": "Their priority class."},
                "labels": {
                    "type": "object",
                    "description": "Labels that they get.",
                    "additionalProperties": {"type": "string"},
                },
            },
        },
        "template": crd::pod_template(
            "The pod template, a core/v1 PodTemplateSpec. The container torch trains.",
        ),
    })
}

/// Returns the schema of the state of autoscalers.
fn elastic_scaling() -> Value {
    json!({
        "type": "object",
        "description": "State of the autoscaler of TorchElastic, by type of task.",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "elasticCondition": field("string", "Start, Continue, ReachMaxMetric, ReachMaxReplicas or Stop."),
                "continue": field("boolean", "Set while the number of pods may change."),
                "curReplicas": field("integer", "Number of pods that it set last."),
                "lastReplicas": field("integer", "Number of pods before."),
                "lastUpdateTime": time("When it changed last."),
                "message": field("string", "Why, where the condition does not say it."),
            },
        },
    })
}

/// Returns the schema of the status.
fn status() -> Value {
    let counts = [
        ("active", "Pods on a node that have not ended."),
        ("succeed", "Pods that succeeded."),
        ("failed", "Pods that failed."),
        ("evicted", "Not written."),
    ];
    let fields = [
        (
            "conditions",
            crd::condition_history(
                "Created, Queuing, Running, Restarting, Succeeded or Failed",
                (UPDATED, "When it was set last."),
            ),
        ),
        ("taskStatuses", crd::replica_statuses(&counts)),
        (autoscaler::STATUSES, elastic_scaling()),
        ("startTime", time("When the job's pods were first asked for.")),
        ("completionTime", time("When the job ended.")),
        ("modelVersionName", field("string", "The ModelVersion that is made of the model of a job that succeeded.")),
    ];
    crd::status(fields.into_iter().chain(summary::schemas()).map(|(name, schema)| (name.to_owned(), schema)).collect())
}
