//! The `CustomResourceDefinition` of TorchrunJob: the fields of every shape that manifests in use have.
//!
//! It refuses what every original refused: no command, no node, a field of another type, a field without a name here. What cannot be
//! served becomes a condition. Must not hold anything of the queues. Tests: `tests/crd.rs`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::constants::{KIND, PLURAL};
use super::fields::RESTART;
use crate::crd::{self, Names, UnknownFields, Version, column, condition, definition, field, object, one_of, time};
use crate::summary;
use crate::torchrunqueue::constants::{GROUP, VERSION};
use crate::torchrunqueue::schemas::{distributed, list, of_kubernetes, text_map, workspace_storage};

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names = Names {
        group: GROUP,
        version: VERSION,
        kind: KIND,
        plural: PLURAL,
        singular: "torchrunjob",
        short: &["tj", "trj"],
    };
    let [_, restarts, _] = summary::columns();
    let version = Version {
        description: "A training job that torchrun starts on nodes of a TorchrunQueue.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("Queue", "string", ".spec['queue','jobQueue']", 0, "The TorchrunQueue."),
            column("Nodes", "integer", ".status.numNodes", 0, "The number of workers."),
            column("Phase", "string", ".status.phase", 0, "Where the job stands."),
            column("Workers", "string", ".status.workersStatus", 0, "The workers that are ready."),
            restarts,
            summary::reason(),
            column("Age", "date", ".metadata.creationTimestamp", 0, "When the job was created."),
        ],
        spec: strict_spec(),
        groups: "",
        unknown: UnknownFields::Refused,
        status: status(),
    };
    definition(names, &version)
}

/// Returns the schema of `spec` as it is meant.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

fn strict_spec() -> Value {
    let count =
        |least: u32, description: &str| json!({"type": "integer", "minimum": least, "description": description});
    let fields = [
        ("queue", field("string", "Name of a TorchrunQueue in the job's namespace.")),
        ("jobQueue", field("string", "Other spelling of queue.")),
        (
            "jobName",
            field("string", "Name of the run: its claims and its rendezvous have it. The job's own when absent."),
        ),
        ("jobID", field("string", "Id of the run. The uid of the job when absent.")),
        ("command", field("string", "Program that torchrun starts in each process, with its arguments.")),
        ("setupCommand", field("string", "Shell commands before it.")),
        ("workingDir", field("string", "Directory in which the command starts; the workspace when absent.")),
        ("numNodes", count(1, "Number of workers; 1 when absent.")),
        ("numGPUs", count(0, "GPUs of all workers together, from which the number of workers follows.")),
        ("minNodes", count(1, "Least number of workers that can train.")),
        ("maxNodes", count(1, "Greatest number of workers that can train.")),
        ("distributed", distributed()),
        ("workspaceStorage", workspace_storage()),
        ("reliability", reliability()),
        ("env", list(&of_kubernetes("core.v1.EnvVar"), "Variables of the trainer; they win over the queue's.")),
        (
            "volumes",
            object(
                "Volumes of the workers.",
                &[
                    ("additionalVolumes", list(&of_kubernetes("core.v1.Volume"), "Volumes.")),
                    ("additionalMounts", list(&of_kubernetes("core.v1.VolumeMount"), "Where the trainer sees them.")),
                    ("workspace", first_workspace()),
                ],
            ),
        ),
        ("suspend", field("boolean", "Whether the job waits without workers.")),
        ("labels", text_map("Labels of the workers.")),
        ("annotations", text_map("Annotations of the workers.")),
    ];
    let mut spec = object("What the job asks for.", &fields);
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("required".to_owned(), json!(["command"]));
    }
    spec
}

/// Returns the schema of `volumes.workspace`, as jobs of the first generation write the workspace.
fn first_workspace() -> Value {
    let mut schema = workspace_storage();
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.insert("enabled".to_owned(), field("boolean", "Whether the job has a workspace."));
    }
    schema
}

fn reliability() -> Value {
    object(
        "Failures and the end.",
        &[
            (
                "maxRestarts",
                field(
                    "integer",
                    "Replaced workers and restarts of their containers with which it fails; 3 when absent.",
                ),
            ),
            (
                "restartPolicy",
                one_of(&RESTART, "Whether containers that fail are restarted: OnFailure (default) or Never."),
            ),
            (
                "ttlSecondsAfterFinished",
                field(
                    "integer",
                    "Seconds after its end at which the job is deleted; 3600 when absent, never when null.",
                ),
            ),
            ("activeDeadlineSeconds", field("integer", "Seconds from its start after which the job ends.")),
        ],
    )
}

/// Returns the schema of the status.
fn status() -> Value {
    let count = |description: &str| field("integer", description);
    let workers = json!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-map-type": "atomic",
        "description": "Workers by state.",
        "properties": {
            "running": count("Workers that run."),
            "ready": count("Workers that are ready."),
            "pending": count("Workers that wait for a node, or to start."),
            "succeeded": count("Workers that succeeded."),
            "failed": count("Workers that failed and are not replaced yet, or never."),
        },
    });
    let entry = object(
        "One phase.",
        &[
            ("phase", field("string", "The phase.")),
            ("time", time("When it began.")),
            ("message", field("string", "For people.")),
        ],
    );
    let fields = [
        (
            "phase",
            field(
                "string",
                "Pending, Syncing, Queued, Running, Suspended, Succeeded, Failed, TimedOut, Preempted or Deleted.",
            ),
        ),
        ("numNodes", count("Number of workers.")),
        ("workersStatus", field("string", "The workers that are ready, for people.")),
        ("workers", workers),
        ("restarts", count("Workers that were replaced, and containers that were started again.")),
        ("startTime", time("When the job's pods were first asked for.")),
        ("completionTime", time("When the job ended.")),
        ("lastReconcileTime", time("Not written.")),
        ("jobID", field("string", "Not written.")),
        ("jobName", field("string", "Not written.")),
        ("masterEndpoint", field("string", "Not written.")),
        ("history", list(&entry, "The phases the job was in, the present one last.")),
        (
            "conditions",
            list(
                &condition(
                    "Provisioned, WorkspaceReady, WorkspaceSync, AllWorkersReady, Completed, JobCreated, QueueNotFound or Failed; \
                     before them Invalid, NameTaken, Degraded, Warning.",
                    ("lastUpdateTime", "Not written."),
                ),
                "What holds of the job.",
            ),
        ),
    ];
    crd::status(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect())
}
