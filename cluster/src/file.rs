//! The cluster in one file, for runs that go on after a crash.
//!
//! Owns the format: one JSON document, replaced atomically. Watches, holds and failure rules belong to a process and are not
//! kept. Tests: `tests/cluster/file.rs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apis::Resource;
use model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::{Cluster, Mode, address};
use crate::error::FileError;
use crate::merge::text;
use crate::runtime::PodRuntime;
use crate::store::Key;

/// Format of the file; a later one is refused.
const FORMAT: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    format: u64,
    now: Timestamp,
    revision: u64,
    uid_counts: BTreeMap<String, u64>,
    definitions: Vec<Arc<Value>>,
    objects: Vec<SavedObject>,
}

#[derive(Serialize, Deserialize)]
struct SavedObject {
    /// resourceVersion of its creation.
    created: u64,
    object: Arc<Value>,
    /// The manifest applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    applied: Option<Arc<Value>>,
}

#[derive(Deserialize)]
struct Header {
    format: u64,
}

impl Cluster {
    /// Keeps the cluster in a file. The file is replaced as a whole and flushed to disk: a crash leaves the old or the new one.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let objects = self.store.iter().map(|(key, object, created)| SavedObject {
            created,
            object: Arc::clone(object),
            applied: self.applied.get(key).cloned(),
        });
        let saved = Saved {
            format: FORMAT,
            now: self.now,
            revision: self.store.revision,
            uid_counts: self.store.uid_counts.clone(),
            definitions: self.kinds.definitions().cloned().collect(),
            objects: objects.collect(),
        };
        let text = serde_json::to_vec(&saved).map_err(|e| failed("encode", path, io::Error::from(e)))?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".new");
        let new = path.with_file_name(name);
        let mut file = File::create(&new).map_err(|e| failed("create", &new, e))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(|e| failed("write", &new, e))?;
        drop(file);
        fs::rename(&new, path).map_err(|e| failed("replace", path, e))?;
        // The new name is durable only once its directory is.
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| failed("flush", directory, e))
    }

    /// Takes a cluster back from a file: objects, versions, uid counters, clock and registered definitions.
    ///
    /// # Errors
    /// By what to do: there is no file, the file system refuses, the file is damaged, or a later build wrote it.
    pub fn load(path: &Path, mode: Mode, runtime: Box<dyn PodRuntime>) -> Result<Self, FileError> {
        let bytes = fs::read(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => FileError::Missing { path: path.to_owned() },
            _ => failed("read", path, e),
        })?;
        let corrupt = |problem: String| FileError::Corrupt { path: path.to_owned(), problem };
        let header: Header = serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string()))?;
        if header.format > FORMAT {
            return Err(FileError::TooNew { path: path.to_owned(), found: header.format, known: FORMAT });
        }
        let saved: Saved = serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string()))?;
        let mut cluster = Self::empty(mode, saved.now, runtime);
        for definition in &saved.definitions {
            cluster.register(definition).map_err(|e| corrupt(e.to_string()))?;
        }
        for SavedObject { created, object, applied } in saved.objects {
            let key = cluster.restored_key(&object).map_err(&corrupt)?;
            if cluster.store.get(&key).is_some() {
                return Err(corrupt(format!("{} {} is there twice", text(&object, &["kind"]), key.name)));
            }
            if created > saved.revision {
                return Err(corrupt(format!("{} was created after the newest resourceVersion", key.name)));
            }
            if let Some(applied) = applied {
                cluster.applied.insert(key.clone(), applied);
            }
            cluster.store.restore(&key, object, created);
        }
        cluster.store.revision = saved.revision;
        cluster.store.uid_counts = saved.uid_counts;
        Ok(cluster)
    }

    fn restored_key(&self, object: &Value) -> Result<Key, String> {
        let of = |name: &str| text(object, &["metadata", name]);
        let resource = Resource::of(object);
        let served = self.kinds.served(&resource);
        let served =
            served.ok_or_else(|| format!("kind {} of {} is not served", resource.kind, resource.api_version))?;
        if of("uid").is_empty() || of("name").is_empty() {
            return Err(format!("an object of kind {} has no name or no uid", resource.kind));
        }
        if self.store.key_of_uid(of("uid")).is_some() {
            return Err(format!("uid {} is there twice", of("uid")));
        }
        Ok(address(&served.kind, of("namespace"), of("name")))
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError::Io { action, path: PathBuf::from(path), source }
}
