//! The `CustomResourceDefinition` of TrainingQueue. It refuses fields of another type and fields without a name here; what cannot be
//! served becomes a condition. Tests: `tests.rs`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::spec::{ORDERS, PLACEMENTS, RECLAIM, WITHIN};
use super::{KIND, PLURAL, nodes};
use crate::crd::{Names, UnknownFields, Version, column, condition, definition, field, object, one_of, status};

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names = Names {
        group: "trainyard.dev",
        version: "v1alpha1",
        kind: KIND,
        plural: PLURAL,
        singular: "trainingqueue",
        short: &["tq"],
    };
    let version = Version {
        description: "Quota and order of the jobs that carry the label trainyard.dev/queue with its name.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("Cohort", "string", ".spec.cohort", 0, "Queues that lend to each other."),
            column("Policy", "string", ".spec.policy", 1, "Policy of the scheduler."),
            column("Admitted", "integer", ".status.admitted", 0, "Jobs that hold places on nodes."),
            column("Pending", "integer", ".status.pending", 0, "Jobs that wait."),
            column("GPUs", "string", ".status.gpus", 0, "GPUs in use, and its quota."),
            column("Reason", "string", ".status.conditions[-1:].reason", 1, "State of the queue, in one word."),
            column("Age", "date", ".metadata.creationTimestamp", 0, "Time since the queue was created."),
        ],
        spec: strict_spec(),
        groups: "",
        unknown: UnknownFields::Refused,
        status: status_schema(),
    };
    let mut definition = definition(names, &version);
    if let Some(scope) = definition.pointer_mut("/spec/scope") {
        *scope = json!("Cluster");
    }
    definition
}

/// Returns the schema of `spec` as it is meant.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

fn strict_spec() -> Value {
    let amounts = object(
        "Quota of one resource.",
        &[
            ("nominal", field("integer", "GPUs of the queue's own.")),
            ("borrowing", field("integer", "GPUs that it may use beyond, of what its cohort lends; 0 when absent.")),
            ("lending", field("integer", "GPUs of its own that others may use while it does not; all when absent.")),
        ],
    );
    let quota = json!({"type": "object", "description": "Quota by resource.", "additionalProperties": amounts});
    let preemption = object(
        "Permission to take places from running jobs.",
        &[
            (
                "withinQueue",
                one_of(
                    &WITHIN,
                    "From jobs of the same queue: those of lower priority, or any whose places the policy gives to another; Never when \
                     absent.",
                ),
            ),
            ("reclaim", one_of(&RECLAIM, "Back from queues that borrowed them; Any when absent.")),
            (
                "minRunSeconds",
                field("integer", "Time in seconds for which a job is left alone after each change; 120 when absent."),
            ),
        ],
    );
    object(
        "Settings of the queue.",
        &[
            ("namespaceSelector", crate::namespace_selector::schema()),
            ("cohort", field("string", "Name of the queues that lend to each other; none when absent.")),
            ("quota", quota),
            ("weight", field("integer", "Share of what is borrowed, against other queues; 1 when absent.")),
            ("nodes", nodes::schema()),
            ("policy", field("string", "Policy of the scheduler, with its arguments; fifo-backfill when absent.")),
            ("order", one_of(&ORDERS, "Order of jobs that wait; Priority when absent.")),
            ("preemption", preemption),
            (
                "roundSeconds",
                field("integer", "Time in seconds between two decisions where there are many jobs; 10 when absent."),
            ),
            ("placement", one_of(&PLACEMENTS, "Pack fills nodes, Spread loads them evenly; Pack when absent.")),
            ("paused", field("boolean", "True admits nothing new; what runs continues.")),
        ],
    )
}

fn status_schema() -> Value {
    let counts = |description: &str| {
        json!({"type": "object", "description": description,
        "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer"}})
    };
    let job = object(
        "A job that waits.",
        &[
            ("name", field("string", "Its namespace and name.")),
            ("position", field("integer", "Its place in line, from 1.")),
            ("reason", field("string", "Kind of the reason for which it waits, in one word.")),
            ("message", field("string", "The reason, with numbers.")),
            (
                "expectedStart",
                field(
                    "string",
                    "Time at which it starts if every job takes its whole time limit and nothing else happens; absent where \
                     that is not known.",
                ),
            ),
        ],
    );
    let mut fields = serde_json::Map::new();
    for (name, schema) in [
        ("observedGeneration", field("integer", "Generation of the spec that the status is about.")),
        ("admitted", field("integer", "Number of jobs that hold places on nodes.")),
        ("pending", field("integer", "Number of jobs that wait.")),
        ("usage", counts("GPUs in use, by resource: those of pods that are being deleted as well.")),
        (
            "gpus",
            field("string", "GPUs in use, and after a slash its own quota; with several resources, of each by name."),
        ),
        ("borrowed", counts("GPUs in use beyond the nominal quota, by resource.")),
        ("jobs", json!({"type": "array", "description": "The first 100 jobs that wait.", "items": job})),
        (
            "conditions",
            json!({"type": "array", "description": "State of the queue.",
            "items": condition(
                "Active; before it Invalid, Degraded, Warning.", ("lastUpdateTime", "Not written."))}),
        ),
    ] {
        fields.insert(name.to_owned(), schema);
    }
    status(fields)
}
