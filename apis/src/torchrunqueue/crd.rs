//! The `CustomResourceDefinition` of TorchrunQueue: the fields of every shape that manifests in use have.
//!
//! It refuses fields of another type and fields without a name here, but in the specs of pods, where the original kept these. What cannot
//! be served becomes a condition. Must not hold anything of the jobs.
//! Tests: `tests.rs`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::constants::{GROUP, VERSION};
use super::schemas::{distributed, list, of_kubernetes, workspace_storage};
use crate::crd::{self, Names, UnknownFields, Version, column, condition, field, object, open, time};
use crate::kubernetes;

/// Returns the definition, by the names of a kind.
pub(crate) fn definition(kind: &str, plural: &str, singular: &str, short: &[&str]) -> Value {
    let names = Names { group: GROUP, version: VERSION, kind, plural, singular, short };
    let version = Version {
        description: "Nodes, storage and a queue of the KAI scheduler, for TorchrunJobs that name it.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("Queue", "string", ".spec['queue.name','kaiQueue']", 0, "The KAI Queue."),
            column("Phase", "string", ".status.phase", 0, "Where the queue stands."),
            column("Pending", "integer", ".status.pendingJobs", 0, "Jobs that neither run nor have ended."),
            column("Running", "integer", ".status.runningJobs", 0, "Jobs that run."),
            column("GPUs", "integer", ".status.allocatedGPUs", 0, "GPUs of its jobs' pods on nodes."),
            column("Age", "date", ".metadata.creationTimestamp", 0, "When the queue was created."),
        ],
        spec: strict_spec(),
        groups: "",
        unknown: UnknownFields::Refused,
        status: status(),
    };
    crd::definition(names, &version)
}

/// Returns the schema of `spec` as it is meant.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

fn strict_spec() -> Value {
    let fields = [
        ("queue", queue()),
        ("kaiQueue", field("string", "Other spelling of queue.name.")),
        ("parentKaiQueue", field("string", "Other spelling of queue.parentQueue.")),
        ("distributed", distributed()),
        ("podTemplate", pod_template()),
        ("image", field("string", "Image of the trainer where podTemplate has none.")),
        ("workspaceStorage", workspace_storage()),
        (
            "serviceAccountName",
            field(
                "string",
                "Account of the pods that fill workspaces; that of the podTemplate, or default, when absent.",
            ),
        ),
        ("nodeResources", node_resources()),
        ("storage", storage()),
        ("scheduling", scheduling()),
        ("resources", resources()),
    ];
    object("What the queue offers.", &fields)
}

fn queue() -> Value {
    let amounts = || {
        object(
            "One resource.",
            &[
                ("quota", field("integer", "What the queue may have at any time; -1, which is no limit, when absent.")),
                ("limit", field("integer", "What it may have at most; -1 when absent. 0 lets nothing run.")),
                ("overQuotaWeight", field("integer", "Its share of what others leave over; 1 when absent.")),
            ],
        )
    };
    object(
        "The KAI Queue; none is created where this and kaiQueue are absent.",
        &[
            ("name", field("string", "Its name.")),
            ("parentQueue", field("string", "Its parent; default when absent.")),
            (
                "resources",
                object(
                    "Its share, in KAI's units: thousandths of a CPU, megabytes, GPUs.",
                    &[("cpu", amounts()), ("gpu", amounts()), ("memory", amounts())],
                ),
            ),
        ],
    )
}

fn pod_template() -> Value {
    let mut schema = kubernetes::definition(kubernetes::POD_TEMPLATE).cloned().unwrap_or_default();
    if let Some(schema) = schema.as_object_mut() {
        let description = "Template of the workers, a core/v1 PodTemplateSpec. Its first container is named trainer. The pods \
             that fill workspaces have its place on nodes, pull secrets, account and DNS as well.";
        schema.insert("description".to_owned(), description.into());
    }
    if let Some(spec) = schema.pointer_mut("/properties/spec").and_then(Value::as_object_mut) {
        spec.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    schema
}

fn node_resources() -> Value {
    object(
        "What a worker has that takes a whole node.",
        &[
            ("gpus", field("integer", "GPUs.")),
            ("cpus", field("integer", "CPUs.")),
            ("memory", field("string", "Memory.")),
            ("gpuType", field("string", "Type of the GPUs. A label of the workers, which selects nothing.")),
        ],
    )
}

fn storage() -> Value {
    let volume = |what: &str, size: (&str, &str)| {
        object(
            what,
            &[
                ("enabled", field("boolean", "Whether there is one; true when absent.")),
                (size.0, field("string", size.1)),
                ("storageClass", field("string", "Storage class of its claim.")),
                ("mountPath", field("string", "Path at which the trainer sees it.")),
                ("existingClaim", field("string", "A claim of yours that stands for it.")),
                ("retain", field("boolean", "Whether its claim outlives what it was made for.")),
            ],
        )
    };
    object(
        "Volumes of the workers.",
        &[
            ("workspace", volume("The workspace, at /app.", ("sizePerGPU", "Its size for each GPU of the job."))),
            (
                "checkpoints",
                volume(
                    "Checkpoints, at /checkpoints. Retained unless retain is false.",
                    ("sizePerGPU", "Its size for each GPU of the job."),
                ),
            ),
            (
                "datasets",
                volume(
                    "Datasets, at /datasets, read-only. One for the queue, retained unless retain is false.",
                    ("size", "Its size."),
                ),
            ),
            ("shmSizePerGPU", field("string", "Size of /dev/shm for each GPU of a worker.")),
        ],
    )
}

fn scheduling() -> Value {
    object(
        "Where the workers run. Each wins over the same field of podTemplate.",
        &[
            ("scheduler", field("string", "Scheduler of the workers; kai-scheduler when absent.")),
            ("priorityClassName", field("string", "Priority class of the workers.")),
            (
                "nodeSelector",
                json!({"type": "object", "description": "Labels of their nodes.", "additionalProperties": {"type": "string"}}),
            ),
            ("tolerations", list(&of_kubernetes("core.v1.Toleration"), "Taints that they tolerate.")),
            ("affinity", json!({"$ref": "core.v1.Affinity", "description": "Affinity of the workers."})),
        ],
    )
}

fn resources() -> Value {
    let entry = object(
        "One object.",
        &[
            ("name", field("string", "Its name.")),
            ("nameMode", field("string", "exact, or prefix: after the queue's name. exact when absent.")),
            ("template", open("object", "The object.")),
            ("immutable", field("boolean", "Whether it is never changed once it is there; false when absent.")),
        ],
    );
    list(&entry, "Objects that are made beside the queue: claims, ConfigMaps and Services.")
}

/// Returns the schema of the status.
fn status() -> Value {
    let ready = object(
        "One object.",
        &[
            ("name", field("string", "Its name.")),
            ("kind", field("string", "Its kind.")),
            ("ready", field("boolean", "Whether it is there.")),
            ("message", field("string", "For people.")),
        ],
    );
    let fields = [
        ("phase", field("string", "Active or Terminating.")),
        ("observedGeneration", field("integer", "Generation of the spec that was read last.")),
        ("lastUpdateTime", time("When the phase changed.")),
        (
            "pendingJobs",
            field("integer", "Number of its jobs that neither run nor have ended, suspended ones included."),
        ),
        ("runningJobs", field("integer", "Number of its jobs that run, or restart.")),
        ("finishedJobs", field("integer", "Number of its jobs that ended and are still there.")),
        ("allocatedGPUs", field("integer", "GPUs that pods of its jobs hold: those on nodes that have not ended.")),
        ("resourcesReady", field("boolean", "Whether the objects of the queue exist, besides its KAI Queue.")),
        ("resourceStatuses", list(&ready, "The objects of resources.")),
        (
            "conditions",
            list(
                &condition(
                    "Valid, QueueReady, ResourcesReady or Terminating; before them Invalid, NameTaken, Degraded, Warning.",
                    ("lastUpdateTime", "Not written."),
                ),
                "What holds of the queue.",
            ),
        ),
    ];
    crd::status(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect())
}
