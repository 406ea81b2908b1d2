//! Parts of schemas that queues and jobs share. Must not hold what only one of them has. Tests: `tests.rs`.

use serde_json::{Value, json};

use super::settings::{BACKENDS, RENDEZVOUS};
use super::storage::SOURCES;
use crate::crd::{field, object, one_of};

/// Returns the schema of a reference to a type of Kubernetes.
pub(crate) fn of_kubernetes(name: &str) -> Value {
    json!({"$ref": name})
}

/// Returns the schema of a list.
pub(crate) fn list(items: &Value, description: &str) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

/// Returns the schema of a map of text.
pub(crate) fn text_map(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
}

/// Returns the schema of `distributed`.
pub(crate) fn distributed() -> Value {
    object(
        "How the processes find each other.",
        &[
            ("backend", one_of(&BACKENDS, "Back end of the communication; programs read it from TORCHRUN_BACKEND.")),
            ("rdzvBackend", one_of(&RENDEZVOUS, "Back end of the rendezvous of several nodes; c10d when absent.")),
            (
                "rdzvEndpoint",
                field("string", "host:port of the rendezvous. With c10d and static it is at worker 0 when absent."),
            ),
            ("port", field("integer", "Port at which worker 0 serves the rendezvous; 29500 when absent.")),
        ],
    )
}

/// Returns the schema of `workspaceStorage`.
pub(crate) fn workspace_storage() -> Value {
    object(
        "The workspace: files that every worker gets.",
        &[
            ("size", field("string", "Size of its claim; 1Gi when absent.")),
            ("image", field("string", "Image that fills it; alpine/git:latest when absent.")),
            ("imagePullPolicy", field("string", "Pull policy of that image; IfNotPresent when absent.")),
            ("mountPath", field("string", "Path at which the trainer sees it; /app when absent.")),
            ("storageClass", field("string", "Storage class of its claim; the cluster's own when absent.")),
            ("source", one_of(&SOURCES, "Where its files come from: zip, git, s3 or existing; zip when absent.")),
            ("url", field("string", "Address of the source. A zip without one is uploaded.")),
        ],
    )
}
