//! Volume into which the training writes its model.
//!
//! Owns `spec.modelVersion.spec.storage`. It must not know containers (that is `pods.rs`). Tests: `tests/pods.rs`.

use serde_json::{Value, json};

use crate::fields::{Findings, join};
use crate::objects::{at, text_at};

/// Path of the storage.
const PATH: &str = "spec.modelVersion.spec.storage";

/// Returns where the volume is mounted, and the volume without its name; `None` where no storage is named.
pub(super) fn read(spec: &Value, findings: &mut Findings) -> Option<Value> {
    findings.object(spec, "spec", "modelVersion")?;
    let storage = at(spec, &["modelVersion", "spec", "storage"]).filter(|storage| storage.is_object());
    let Some(storage) = storage else {
        findings.mistake(PATH, None, "names no storage: the training gets no volume for its model");
        return None;
    };
    let written = |key: &str| storage.get(key).filter(|value| value.is_object());
    let (key, of) = match (written("nfs"), written("localStorage")) {
        (Some(_), Some(_)) => {
            findings.error(PATH, Some(storage), "must be either nfs or localStorage");
            return None;
        }
        (Some(nfs), None) => ("nfs", nfs),
        (None, Some(local)) => ("localStorage", local),
        (None, None) => {
            findings.mistake(PATH, Some(storage), "names no storage: the training gets no volume for its model");
            return None;
        }
    };
    let base = join(PATH, key);
    let mut text = |name: &str| {
        let text = findings.text(of, &base, name).filter(|text| !text.is_empty());
        if text.is_none() && text_at(of, &[name]).is_none_or(str::is_empty) {
            findings.error(join(&base, name), of.get(name), "must be written");
        }
        text
    };
    let (mount, path) = (text("mountPath"), text("path"));
    let volume = if key == "nfs" {
        let server = text("server");
        json!({"nfs": {"server": server?, "path": path?}})
    } else {
        json!({"hostPath": {"path": path?}})
    };
    Some(json!({"mountPath": mount?, "volume": volume}))
}
