//! Objects of a queue: its KAI Queue, the claim of its datasets, and those of its templates.
//!
//! Only members that the queue says something of are rendered: an administrator's stay. Tests: `tests.rs`.

use model::{FieldError, OwnedRef};
use serde_json::{Map, Value, json};

use super::constants::{
    APP, APP_LABEL, JOB_QUEUE_LABEL, KAI_QUEUE, MANAGED_BY, NAMESPACE_LABEL, QUEUE_LABEL, TYPE_LABEL,
};
use super::settings::{AMOUNTS, RESOURCES};
use super::templates;
use crate::api::RenderInput;
use crate::objects::{at, text_at};

/// Renders an object of a queue.
///
/// # Errors
/// Returns an error if the manifest has no datasets.
pub(super) fn owned(source: RenderInput<'_>, object: &OwnedRef) -> Result<Value, FieldError> {
    if *object == KAI_QUEUE.named(&object.name) {
        return Ok(kai_queue(source.manifest));
    }
    let datasets = || at(source.manifest, &["datasets"]).is_some_and(|datasets| !datasets.is_null());
    let mut body = match templates::body_of(source.manifest, object) {
        Some(body) => body,
        None if datasets() => claim(source.manifest),
        None => {
            return Err(FieldError::new("spec.storage.datasets", "missing", "the manifest in force has no datasets"));
        }
    };
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(&*source.job.namespace));
    }
    Ok(body)
}

/// Renders the KAI Queue. An amount that is not written is unlimited: to KAI, 0 means that nothing may be allocated.
pub(super) fn kai_queue(manifest: &Value) -> Value {
    let amounts = |resource: &str| {
        let amount = |(key, default): (&str, i64)| {
            let written = at(manifest, &["resources", resource, key]).and_then(Value::as_i64);
            (key.to_owned(), json!(written.unwrap_or(default)))
        };
        Value::Object(AMOUNTS.into_iter().map(amount).collect())
    };
    let resources: Map<String, Value> = RESOURCES.iter().map(|name| ((*name).to_owned(), amounts(name))).collect();
    let text = |key: &str| text_at(manifest, &[key]).unwrap_or_default();
    json!({
        "metadata": {"labels": {
            APP_LABEL: APP, MANAGED_BY.0: MANAGED_BY.1, JOB_QUEUE_LABEL: text("name"), NAMESPACE_LABEL: text("namespace"),
        }},
        "spec": {"parentQueue": text("parent"), "resources": resources},
    })
}

/// Renders the claim of the datasets.
pub(super) fn claim(manifest: &Value) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": at(manifest, &["datasets", "size"])}},
    });
    if let (Some(class), Some(spec)) = (text_at(manifest, &["datasets", "class"]), spec.as_object_mut()) {
        spec.insert("storageClassName".to_owned(), json!(class));
    }
    json!({
        "metadata": {"labels": {
            APP_LABEL: APP, TYPE_LABEL: "datasets", QUEUE_LABEL: text_at(manifest, &["name"]).unwrap_or_default(),
        }},
        "spec": spec,
    })
}
