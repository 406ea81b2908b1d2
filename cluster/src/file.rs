//! The cluster in a file, for runs that continue after a crash.
//!
//! Owns the format: a JSON document that is replaced atomically, and beside it a journal of what changed since, one line for
//! each save. Watches, holds and failure rules belong to a process and are not saved. The format is
//! described in `docs/cluster-file.md`. Tests: `tests/cluster/file.rs`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apis::Resource;
use model::{Text, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::{Cluster, Mode, address};
use crate::error::FileError;
use crate::merge::text;
use crate::runtime::PodRuntime;
use crate::store::Key;

/// Format of file and journal; a later one is refused. Format 1 had no journal.
const FORMAT: u64 = 2;
/// Size of a journal, in bytes, up to which it is never worth replacing the file.
const MIN_COMPACT_BYTES: u64 = 1 << 20;
/// The journal is folded into the file when it is this many times as large.
const COMPACT_RATIO: u64 = 2;
/// Permissions of the files: pods' environments hold secrets.
const FILE_MODE: u32 = 0o600;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    format: u64,
    /// Number of the file; its journal has the same.
    #[serde(default)]
    generation: u64,
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

/// First members of a file, and first line of a journal.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u64,
    #[serde(default)]
    generation: u64,
}

/// A line of the journal: the changes between two saves.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    now: Timestamp,
    revision: u64,
    uid_counts: BTreeMap<String, u64>,
    /// Uids of objects that went; they go before the others come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    put: Vec<SavedObject>,
}

/// The file a cluster is saved to, and its journal.
#[derive(Debug)]
pub struct ClusterFile {
    path: PathBuf,
    journal: PathBuf,
    /// Absent until this process has written the file.
    generation: Option<u64>,
    /// Absent until the first change after that.
    open: Option<File>,
    file_bytes: u64,
    journal_bytes: u64,
}

impl ClusterFile {
    /// Nothing is read or written before [`ClusterFile::keep`].
    pub fn new(path: &Path) -> Self {
        let journal = journal_of(path);
        Self { path: path.to_owned(), journal, generation: None, open: None, file_bytes: 0, journal_bytes: 0 }
    }

    /// Saves the cluster. The first time the file is replaced; later the changes are appended to the journal, and
    /// nothing is written where there are none. The cluster is on disk when this returns; a crash before that leaves the
    /// one saved before.
    ///
    /// # Errors
    /// When the file system refuses. The next call writes everything.
    pub fn save(&mut self, cluster: &mut Cluster) -> Result<(), FileError> {
        let changes = cluster.store.take_changes();
        let (Some(generation), Some(changes), false) = (self.generation, changes, cluster.redefined) else {
            return self.replace(cluster);
        };
        if changes.keys.is_empty() && changes.gone.is_empty() {
            return Ok(());
        }
        let put = changes.keys.iter().filter_map(|key| cluster.saved(key)).collect();
        let entry = Entry {
            now: cluster.now,
            revision: cluster.store.revision,
            uid_counts: cluster.store.uid_counts.clone(),
            gone: changes.gone,
            put,
        };
        let line = line(&entry).map_err(|e| failed("encode", &self.journal, e))?;
        let size = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.journal_bytes.saturating_add(size)
            > MIN_COMPACT_BYTES.max(self.file_bytes.saturating_mul(COMPACT_RATIO))
        {
            return self.replace(cluster);
        }
        let appended = self.append(generation, &line);
        if appended.is_err() {
            // The end of the journal is unknown: it is not written again.
            (self.generation, self.open) = (None, None);
        }
        self.journal_bytes = self.journal_bytes.saturating_add(size);
        appended
    }

    fn append(&mut self, generation: u64, line: &[u8]) -> Result<(), FileError> {
        let path = &self.journal;
        if let Some(file) = &mut self.open {
            return file.write_all(line).and_then(|()| file.sync_data()).map_err(|e| failed("write", path, e));
        }
        let mut file = create(path).map_err(|e| failed("create", path, e))?;
        let header = self::line(&Header { format: FORMAT, generation }).map_err(|e| failed("encode", path, e))?;
        let written = file.write_all(&header).and_then(|()| file.write_all(line)).and_then(|()| file.sync_all());
        written.map_err(|e| failed("write", path, e))?;
        sync_directory(path)?;
        self.open = Some(file);
        Ok(())
    }

    /// Replaces the file by the cluster as it is, atomically, and begins a journal.
    fn replace(&mut self, cluster: &mut Cluster) -> Result<(), FileError> {
        let path = self.path.clone();
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |e| failed(action, &path, e)
        };
        // A journal of an earlier generation may still be there: it must not be taken for one of this file.
        let before = match self.generation {
            Some(generation) => generation,
            None => generation_of(&path).max(journal_generation(&self.journal)),
        };
        (self.generation, self.open) = (None, None);
        let generation = before.saturating_add(1);
        let bytes = serde_json::to_vec(&cluster.everything(generation))
            .map_err(|e| failed("encode", &path, io::Error::from(e)))?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".new");
        let new = path.with_file_name(name);
        let mut file = create(&new).map_err(fail("create", &new))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(fail("write", &new))?;
        drop(file);
        fs::rename(&new, &path).map_err(fail("replace", &path))?;
        // The new name is durable only once its directory is.
        sync_directory(&path)?;
        match fs::remove_file(&self.journal) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &self.journal, e)),
            _ => {}
        }
        cluster.store.record_changes();
        cluster.redefined = false;
        self.generation = Some(generation);
        (self.file_bytes, self.journal_bytes) = (u64::try_from(bytes.len()).unwrap_or(u64::MAX), 0);
        Ok(())
    }
}

impl Cluster {
    fn saved(&self, key: &Key) -> Option<SavedObject> {
        let (object, created) = self.store.get_with_creation(key)?;
        Some(SavedObject { created, object: Arc::clone(object), applied: self.applied.get(key).cloned() })
    }

    fn everything(&self, generation: u64) -> Saved {
        Saved {
            format: FORMAT,
            generation,
            now: self.now,
            revision: self.store.revision,
            uid_counts: self.store.uid_counts.clone(),
            definitions: self.kinds.definitions().cloned().collect(),
            objects: self.store.iter().filter_map(|(key, ..)| self.saved(key)).collect(),
        }
    }

    /// Takes a cluster back from a file and its journal: objects, versions, uid counters, clock and registered definitions.
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
        check_format(path, header.format)?;
        let mut saved: Saved = serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string()))?;
        let mut objects: BTreeMap<String, SavedObject> = BTreeMap::new();
        for object in std::mem::take(&mut saved.objects) {
            let uid = text(&object.object, &["metadata", "uid"]).to_owned();
            if let Some(twice) = objects.insert(uid, object) {
                return Err(corrupt(format!("uid {} is there twice", text(&twice.object, &["metadata", "uid"]))));
            }
        }
        for entry in read_journal(&journal_of(path), header.generation)? {
            for uid in entry.gone {
                objects.remove(&*uid);
            }
            objects.extend(entry.put.into_iter().map(|o| (text(&o.object, &["metadata", "uid"]).to_owned(), o)));
            (saved.now, saved.revision, saved.uid_counts) = (entry.now, entry.revision, entry.uid_counts);
        }
        let mut cluster = Self::empty(mode, saved.now, runtime);
        for definition in &saved.definitions {
            cluster.register(definition).map_err(|e| corrupt(e.to_string()))?;
        }
        for SavedObject { created, object, applied } in objects.into_values() {
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
        Ok(address(&served.kind, of("namespace"), of("name")))
    }
}

/// Reads the changes in a journal. An incomplete last line was never saved; damage before it is an error.
fn read_journal(path: &Path, generation: u64) -> Result<Vec<Entry>, FileError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("read", path, e)),
    };
    let corrupt = |n: usize| FileError::Corrupt {
        path: path.to_owned(),
        problem: format!("line {} does not match its checksum, and others follow", n + 1),
    };
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let Some((first, rest)) = lines.split_first() else { return Ok(Vec::new()) };
    let Some(header) = parse::<Header>(first) else {
        return if rest.is_empty() { Ok(Vec::new()) } else { Err(corrupt(0)) };
    };
    check_format(path, header.format)?;
    if header.generation < generation {
        // The file was replaced, and the process ended before it removed the journal.
        return Ok(Vec::new());
    }
    if header.generation > generation {
        let problem = format!("it belongs to file {}, which is a newer one than file {generation}", header.generation);
        return Err(FileError::Corrupt { path: path.to_owned(), problem });
    }
    let mut entries = Vec::new();
    for (n, line) in rest.iter().enumerate() {
        match parse(line) {
            Some(entry) => entries.push(entry),
            None if n + 1 == rest.len() => {}
            None => return Err(corrupt(n + 1)),
        }
    }
    Ok(entries)
}

fn check_format(path: &Path, found: u64) -> Result<(), FileError> {
    if found > FORMAT {
        return Err(FileError::TooNew { path: path.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

/// Generation of the file at a path; 0 where there is none, or an older one.
fn generation_of(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    serde_json::from_slice::<Header>(&bytes).map_or(0, |header| header.generation)
}

fn journal_generation(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    let first = bytes.split_inclusive(|byte| *byte == b'\n').next();
    first.and_then(parse::<Header>).map_or(0, |header| header.generation)
}

/// A line: the checksum (CRC-32C) of a JSON text in eight hexadecimal digits, a space, and the text.
fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(value)?;
    let mut line = format!("{:08x} ", crc32c::crc32c(&text)).into_bytes();
    line.extend(text);
    line.push(b'\n');
    Ok(line)
}

fn parse<T: for<'de> Deserialize<'de>>(line: &[u8]) -> Option<T> {
    let (checksum, text) = line.strip_suffix(b"\n")?.split_at_checked(9)?;
    let checksum = std::str::from_utf8(checksum).ok()?.strip_suffix(' ')?;
    let matches = u32::from_str_radix(checksum, 16).ok()? == crc32c::crc32c(text);
    if matches { serde_json::from_slice(text).ok() } else { None }
}

fn journal_of(path: &Path) -> PathBuf {
    path.with_extension("journal")
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).write(true).mode(FILE_MODE).open(path)
}

fn sync_directory(of: &Path) -> Result<(), FileError> {
    let directory = of.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(directory).and_then(|d| d.sync_all()).map_err(|e| failed("flush", directory, e))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError::Io { action, path: PathBuf::from(path), source }
}
