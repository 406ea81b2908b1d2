//! Manifest files: YAML or JSON, several documents each.

use std::fs;
use std::path::{Path, PathBuf};

use apis::Resource;
use serde_json::Value;

use crate::out::Failure;

/// Reads every document of some files. Lists are unfolded; a missing namespace becomes `default`.
pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Value>, Failure> {
    let mut manifests = Vec::new();
    for file in files {
        let found = read_file(file)?;
        if found.is_empty() {
            return Err(Failure::new(format!("{}: no manifest in it", file.display())));
        }
        manifests.extend(found);
    }
    Ok(manifests)
}

fn read_file(file: &Path) -> Result<Vec<Value>, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|e| Failure::new(format!("{shown}: {e}")))?;
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(&text, options).map_err(|e| Failure::new(format!("{shown}: {e}")))?;
    let mut manifests = Vec::new();
    for (n, document) in documents.into_iter().enumerate().filter(|(_, d)| !d.is_null()) {
        let listed = document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind == "List");
        match document.get("items").and_then(Value::as_array).filter(|_| listed) {
            Some(items) => manifests.extend(items.iter().cloned()),
            None => manifests.push(document),
        }
        for manifest in &mut manifests {
            check(manifest).map_err(|problem| Failure::new(format!("{shown}: document {}: {problem}", n + 1)))?;
        }
    }
    Ok(manifests)
}

fn check(manifest: &mut Value) -> Result<(), String> {
    let resource = Resource::of(manifest);
    for (field, value) in [("apiVersion", &resource.api_version), ("kind", &resource.kind)] {
        if value.is_empty() {
            return Err(format!("{field} is missing"));
        }
    }
    let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err("metadata is missing".to_owned());
    };
    if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err("metadata.name is missing".to_owned());
    }
    metadata.entry("namespace").or_insert_with(|| "default".into());
    Ok(())
}
