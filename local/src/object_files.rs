//! Files of `ConfigMap` and Secret volumes: written when a pod starts, and again when the object changes, as a kubelet does.
//!
//! Owns their keys, paths, modes and contents. Where the directory of a volume is, and who may pass it, is `volumes`'s to say. Tests: at the
//! end, and `tests/local/processes.rs`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use crate::names::Names;
use crate::objects::{Data, NotFound, ObjectKind, Objects};
use crate::pod::Item;
use crate::private::Access;
use crate::volumes::is_plain_name;

/// Reason for which the files of a volume cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    /// The object is missing, and is not optional.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The object lacks a key, and is not optional.
    #[error("references non-existent key {0:?}")]
    NoKey(String),
    /// A path leads out of the volume, or is none.
    #[error("{0:?} is not a path inside the volume")]
    Path(String),
    /// A file cannot be written.
    #[error("{path}: {source}")]
    Write { path: String, source: io::Error },
}

/// The files of one volume.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFiles {
    /// The volume's directory.
    pub(crate) directory: PathBuf,
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
    pub(crate) optional: bool,
    pub(crate) items: Vec<Item>,
    pub(crate) default_mode: Option<u32>,
    pub(crate) access: Access,
    /// Paths that were written last.
    pub(crate) written: BTreeSet<String>,
}

impl ObjectFiles {
    /// Writes the files that differ from the object, and removes those whose keys are gone. A reader sees the old file or the new one, never
    /// a part. After an error, what was written before it stays.
    pub(crate) fn write(&mut self, objects: &Objects, names: &mut Names) -> Result<(), FilesError> {
        let Some(data) = objects.get(self.kind, &self.namespace, &self.name) else {
            let missing = || NotFound { kind: self.kind, name: self.name.clone() };
            return if self.optional { Ok(()) } else { Err(missing().into()) };
        };
        let mut written = BTreeSet::new();
        for (key, path, mode) in self.wanted(data) {
            let Some(content) = data.get(&key) else {
                if self.optional {
                    continue;
                }
                return Err(FilesError::NoKey(key));
            };
            if !path.split('/').all(is_plain_name) {
                return Err(FilesError::Path(path));
            }
            let content = self.with_addresses(content, names);
            if let Err(source) = self.write_file(&path, &content, mode) {
                return Err(FilesError::Write { path, source });
            }
            written.insert(path);
        }
        for path in self.written.difference(&written) {
            // One that the program removed itself need not be removed.
            let _ = fs::remove_file(self.directory.join(path));
        }
        self.written = written;
        Ok(())
    }

    /// Keys, paths in the volume, and modes.
    fn wanted(&self, data: &Data) -> Vec<(String, String, u32)> {
        let default_mode = self.default_mode.unwrap_or_else(|| self.access.file_mode());
        if self.items.is_empty() {
            return data.keys().map(|key| (key.clone(), key.clone(), default_mode)).collect();
        }
        let of = |item: &Item| (item.key.clone(), item.path.clone(), item.mode.unwrap_or(default_mode));
        self.items.iter().map(of).collect()
    }

    /// Replaces whole names of pods and Services by addresses: no name server answers a program that reads them.
    fn with_addresses<'a>(&self, content: &'a [u8], names: &mut Names) -> Cow<'a, [u8]> {
        match (self.kind, str::from_utf8(content)) {
            (ObjectKind::ConfigMap, Ok(text)) => Cow::Owned(names.rewrite_file(&self.namespace, text).into_bytes()),
            _ => Cow::Borrowed(content),
        }
    }

    fn write_file(&self, path: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let file = self.directory.join(path);
        if fs::read(&file).is_ok_and(|now| now == content) {
            return Ok(());
        }
        let folder = file.parent().unwrap_or(&self.directory);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        for above in folder.ancestors().take_while(|above| *above != self.directory) {
            self.access.open(above, above)?;
        }
        // No key begins with two dots. One from an earlier attempt may not be writable.
        let unfinished = folder.join(format!("..{}", file.file_name().unwrap_or_default().to_string_lossy()));
        if unfinished.exists() {
            fs::remove_file(&unfinished)?;
        }
        // Written before it is opened to more readers than its owner; the mode is exact, independent of the umask.
        let mut open = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&unfinished)?;
        open.write_all(content)?;
        if let Some(group) = self.access.group {
            std::os::unix::fs::chown(&unfinished, None, Some(group))?;
        }
        fs::set_permissions(&unfinished, Permissions::from_mode(mode & 0o777))?;
        fs::rename(&unfinished, &file)
    }

    /// Returns whether the volume shows an object.
    pub(crate) fn shows(&self, kind: ObjectKind, namespace: &str, name: &str) -> bool {
        self.kind == kind && self.namespace == namespace && self.name == name
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use serde_json::{Value, json};

    fn files(directory: &Path, kind: ObjectKind, items: Vec<Item>) -> ObjectFiles {
        ObjectFiles {
            directory: directory.to_owned(),
            kind,
            namespace: "ns".to_owned(),
            name: "m".to_owned(),
            optional: false,
            items,
            default_mode: None,
            access: Access::default(),
            written: BTreeSet::new(),
        }
    }

    fn objects(kind: &str, data: &Value) -> Objects {
        let mut objects = Objects::default();
        objects.put(&json!({"kind": kind, "metadata": {"name": "m", "namespace": "ns"}, "data": data}));
        objects
    }

    #[test]
    fn a_changed_object_changes_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, mut names) = (files(dir.path(), ObjectKind::ConfigMap, vec![]), Names::new(64));
        files.write(&objects("ConfigMap", &json!({"a": "1", "b": "2"})), &mut names).unwrap();
        let before = fs::metadata(dir.path().join("b")).unwrap();
        files.write(&objects("ConfigMap", &json!({"a": "one", "b": "2", "c": "3"})), &mut names).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!((read("a").as_deref(), read("c").as_deref()), (Some("one"), Some("3")));
        let after = fs::metadata(dir.path().join("b")).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap(), "what is the same stays");
        files.write(&objects("ConfigMap", &json!({"c": "3"})), &mut names).unwrap();
        assert_eq!((read("a"), read("b"), read("c").as_deref()), (None, None, Some("3")));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_any_more_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let item = Item { key: "a".to_owned(), path: "x/run.sh".to_owned(), mode: Some(0o555) };
        let (mut files, mut names) = (files(dir.path(), ObjectKind::ConfigMap, vec![item]), Names::new(64));
        for text in ["#!/bin/sh\n", "#!/bin/sh\necho\n"] {
            files.write(&objects("ConfigMap", &json!({"a": text, "b": "2"})), &mut names).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("x/run.sh")).unwrap(), text);
            assert_eq!(fs::metadata(dir.path().join("x/run.sh")).unwrap().permissions().mode() & 0o777, 0o555);
        }
        let error = files.write(&objects("ConfigMap", &json!({"b": "2"})), &mut names).unwrap_err().to_string();
        assert!(error.contains("non-existent key \"a\""), "{error}");
        assert!(dir.path().join("x/run.sh").exists(), "what was written stays");
    }

    #[test]
    fn whole_names_are_addresses_in_files_of_config_maps() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::of_cluster("c1");
        names.add_service("ns", "j", std::iter::once(("job".to_owned(), "j".to_owned())).collect());
        let hosts = "j-worker-0.j.ns.svc slots=1\nj-worker-1.j.ns.svc slots=1\nj.ns j-worker-0 x.ns.svc\n";
        let (zero, one) = (names.address("ns", "j-worker-0"), names.address("ns", "j-worker-1"));
        files(dir.path(), ObjectKind::ConfigMap, vec![])
            .write(&objects("ConfigMap", &json!({"hostfile": hosts})), &mut names)
            .unwrap();
        let written = fs::read_to_string(dir.path().join("hostfile")).unwrap();
        assert_eq!(written, format!("{zero} slots=1\n{one} slots=1\nj.ns j-worker-0 x.ns.svc\n"));
        files(dir.path(), ObjectKind::Secret, vec![])
            .write(&objects("Secret", &json!({"key": "ai13b3JrZXItMC5qLm5zLnN2Yw=="})), &mut names)
            .unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("key")).unwrap(), "j-worker-0.j.ns.svc");
    }
}
