//! Decides by Pod Security of the namespace whether the volume of a version is created: only where a pod there could mount its storage.
//!
//! Owns the label and its levels. It must not read the namespace. Tests: `tests.rs`.
//!
//! Source: [Pod Security Standards](https://kubernetes.io/docs/concepts/security/pod-security-standards/), volume types and host paths.

use crate::authorization::{OwnedWrite, forbidden};
use crate::call::ApiError;
use crate::objects::{at, label, text_at};

/// Label of a namespace: the level that its pods have to keep.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Decides whether the volume of a version is created.
pub(super) fn authorize(write: &OwnedWrite<'_>) -> Result<(), ApiError> {
    let level = write.namespace().and_then(|namespace| label(namespace, ENFORCE)).unwrap_or("privileged");
    let spec = |path: &[&str]| text_at(write.body, path).unwrap_or_default();
    let is_local = at(write.body, &["spec", "local"]).is_some();
    let allowed = match level {
        "privileged" => true,
        "baseline" => !is_local,
        // The API server takes a word that it does not know for restricted.
        _ => false,
    };
    if allowed {
        return Ok(());
    }
    let (field, storage, named) = if is_local {
        ("localStorage.path", "host paths", spec(&["spec", "local", "path"]).to_owned())
    } else {
        ("nfs", "NFS volumes", format!("{}:{}", spec(&["spec", "nfs", "server"]), spec(&["spec", "nfs", "path"])))
    };
    Err(forbidden(format!(
        "spec.storage.{field}: {named}: the label {ENFORCE}={level} of namespace {} forbids {storage}",
        write.job.namespace
    )))
}
