//! Objects of a job besides its pods: the claims of its workspace and its checkpoints, and the service of its workers.
//!
//! It must not decide when they are created. Tests: `tests/pods.rs`.

use engine::Job;
use model::{FieldError, OwnedRef};
use serde_json::{Map, Value, json};

use super::constants::{OBJECT_LABEL, ROLE_LABEL, SYNC, SYNCED_LABEL, WORKER};
use super::pods::family_labels;
use crate::api::RenderInput;
use crate::objects::{at, text_at};
use crate::owned::{CLAIM, SERVICE};
use crate::torchrunqueue::constants::TYPE_LABEL;

/// Renders an object of a job.
///
/// # Errors
/// Returns an error if the manifest has no such object.
pub(super) fn owned(source: RenderInput<'_>, job: &Job, object: &OwnedRef) -> Result<Value, FieldError> {
    let manifest = source.manifest;
    let is_claim_of =
        |volume: &str| text_at(manifest, &[volume, "claim"]).is_some_and(|name| *object == CLAIM.named(name));
    let mut body = if *object == SERVICE.named(&object.name) {
        service(manifest)
    } else if is_claim_of("workspace") {
        let is_synced = job.groups.get(SYNC).is_some_and(|group| group.achieved.is_some());
        workspace(manifest, is_synced)
    } else if is_claim_of("checkpoints") {
        checkpoints(manifest)
    } else {
        return Err(FieldError::new("spec", object.name.to_string(), "the manifest in force has no such claim"));
    };
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(&*source.job.namespace));
    }
    Ok(body)
}

/// Renders the claim of the workspace. Its label says whether it was filled.
pub(super) fn workspace(manifest: &Value, is_synced: bool) -> Value {
    let is_shared = at(manifest, &["workspace", "shared"]).and_then(Value::as_bool).unwrap_or_default();
    let modes: &[&str] = if is_shared { &["ReadWriteMany"] } else { &["ReadWriteOnce", "ReadOnlyMany"] };
    let mut labels = labels(manifest, "workspace");
    labels.insert(SYNCED_LABEL.to_owned(), json!(if is_synced { "true" } else { "false" }));
    claim(manifest, "workspace", &labels, modes)
}

/// Renders the claim of the checkpoints.
pub(super) fn checkpoints(manifest: &Value) -> Value {
    claim(manifest, "checkpoints", &labels(manifest, "checkpoints"), &["ReadWriteMany"])
}

fn labels(manifest: &Value, kind: &str) -> Map<String, Value> {
    let mut labels = family_labels(manifest);
    labels.insert(TYPE_LABEL.to_owned(), json!(kind));
    labels
}

fn claim(manifest: &Value, volume: &str, labels: &Map<String, Value>, modes: &[&str]) -> Value {
    let mut spec = json!({
        "accessModes": modes,
        "resources": {"requests": {"storage": at(manifest, &[volume, "size"])}},
    });
    if let (Some(class), Some(spec)) = (text_at(manifest, &[volume, "class"]), spec.as_object_mut()) {
        spec.insert("storageClassName".to_owned(), json!(class));
    }
    json!({"metadata": {"labels": labels}, "spec": spec})
}

/// Renders the service by which workers find each other. They do so before any of them is ready.
pub(super) fn service(manifest: &Value) -> Value {
    let port = at(manifest, &["port"]);
    json!({
        "metadata": {"labels": family_labels(manifest)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": {OBJECT_LABEL: at(manifest, &["name"]), ROLE_LABEL: WORKER},
            "ports": [{"name": "rendezvous", "port": port, "targetPort": port}],
        },
    })
}
