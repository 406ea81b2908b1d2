//! Files that pods of a run wait for: in a run, the user who uploads them is the run itself.
//!
//! Owns that an archive of the working directory becomes such a file, before its pod is started. What is in it is `archive`'s. It must
//! not know which API asks. Tests: `cli/tests/local/torchrun.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use apis::Registry;
use inputs::archive::{self, DEFAULT_MAX_BYTES, Source};
use local::{PathIn, Prepare};
use serde_json::Value;
use tempfile::NamedTempFile;
use terminal::out::Failure;

use crate::origins::Origins;
use crate::peers::api_of_pod;

/// The workspace of a pod cannot be filled.
#[derive(Debug, thiserror::Error)]
#[error("its workspace cannot be filled: {0}")]
struct WorkspaceError(Failure);

/// Returns what uploads the working directory of a pod's job, without the data directory. Jobs of the run's own have `workdir`.
pub(crate) fn of_directory(registry: Registry, origins: Origins, workdir: Option<&Path>, data_dir: &Path) -> Prepare {
    let own = workdir.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let data_dir = data_dir.to_owned();
    Arc::new(move |pod, path_in| {
        let directory = origins.workdir(pod).unwrap_or_else(|| own.clone());
        let upload = || upload(&registry, pod, path_in, (&directory, &data_dir));
        Ok(upload().map_err(WorkspaceError)?)
    })
}

fn upload(registry: &Registry, pod: &Value, path_in: &PathIn<'_>, of: (&Path, &Path)) -> Result<(), Failure> {
    let Some((api, _)) = api_of_pod(registry, pod) else { return Ok(()) };
    let Some(upload) = api.uploads().and_then(|uploads| uploads.awaited_upload(pod)) else { return Ok(()) };
    let Some(path) = path_in(upload.container, upload.file) else { return Ok(()) };
    let (directory, data_dir) = of;
    let source = Source { directory, exclude: &[], without: Some(data_dir), max_bytes: DEFAULT_MAX_BYTES };
    let part = NamedTempFile::new_in(path.parent().unwrap_or_else(|| Path::new(".")))?;
    archive::pack(&source, part.reopen()?)?;
    part.persist(&path)?;
    Ok(())
}
