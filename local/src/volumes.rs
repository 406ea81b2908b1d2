//! Volumes as directories: each is given to the containers as `TRAINYARD_VOLUME_<NAME>`, and by `mounts` where they name its path.
//!
//! `emptyDir`, `ConfigMap`s and `Secret`s live below the pod's own directory and go with it; a claim is a directory that stays;
//! a host path is itself. Nothing is mounted anywhere. Tests: at the end.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::mounts::has_path_below;
use crate::names::Names;
use crate::object_files::{FilesError, ObjectFiles};
use crate::objects::{ObjectKind, Objects};
use crate::pod::{Container, HostPath, Pod, Volume};
use crate::private::{self, Access};

/// Reason for which the volumes of a pod cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumesError {
    /// A volume cannot have this name.
    #[error("volume name {0:?} cannot be used")]
    Name(String),
    /// A volume cannot be made.
    #[error("volume {name:?}: {source}")]
    Volume { name: String, source: VolumeError },
}

/// Reason for which a volume cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// A claim cannot have this name.
    #[error("claim name {0:?} cannot be used")]
    Claim(String),
    /// Its directory cannot be made.
    #[error(transparent)]
    Directory(io::Error),
    /// The path of the machine is to be a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The path of the machine is to be a file.
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The path of the machine cannot be used.
    #[error("{}: {source}", path.display())]
    HostPath { path: PathBuf, source: io::Error },
    /// The files of its object cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Location of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Directory of a pod, below the data directory; goes with the pod.
pub(crate) fn pod_dir(data_dir: &Path, uid: &str) -> PathBuf {
    data_dir.join("pods").join(uid)
}

/// The variable with the path of a volume, for containers.
pub(crate) fn variable(volume: &str) -> String {
    format!("TRAINYARD_VOLUME_{}", volume.to_uppercase().replace(['-', '.'], "_"))
}

/// Makes the volumes of a pod, and returns those that show objects as well. Kinds of volumes that do not exist here are left out, with a
/// warning.
pub(crate) fn prepare(
    data_dir: &Path,
    pod: &Pod,
    access: &Access,
    objects: &Objects,
    names: &mut Names,
    warnings: &mut Vec<String>,
) -> Result<(Vec<Place>, Vec<ObjectFiles>), VolumesError> {
    let (mut places, mut all_files) = (Vec::new(), Vec::new());
    for volume in &pod.spec.volumes {
        if !is_plain_name(&volume.name) {
            return Err(VolumesError::Name(volume.name.clone()));
        }
        let in_volume = |source: VolumeError| VolumesError::Volume { name: volume.name.clone(), source };
        let path = match place(data_dir, pod, access, volume).map_err(in_volume)? {
            Contents::None => {
                warnings.push(format!("volume {:?} has a type that this machine does not support", volume.name));
                continue;
            }
            Contents::Own(path) => path,
            Contents::Object(mut files) => {
                files.write(objects, names).map_err(|error| in_volume(error.into()))?;
                let path = files.directory.clone();
                all_files.push(files);
                path
            }
        };
        places.push(Place { name: volume.name.clone(), path });
    }
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        for mount in &container.volume_mounts {
            let Some(place) = places.iter().find(|place| place.name == mount.name) else { continue };
            // Every process of this machine has its /dev/shm already; who uses the variable needs no advice.
            let differs = Path::new(&mount.mount_path) != place.path && mount.mount_path != "/dev/shm";
            if differs && !mentions(container, &mount.mount_path, &variable(&mount.name)) {
                warnings.push(format!(
                    "nothing is mounted at {}: volume {:?} is the directory in ${}",
                    mount.mount_path,
                    mount.name,
                    variable(&mount.name)
                ));
            }
        }
    }
    Ok((places, all_files))
}

/// Contents of a volume.
enum Contents {
    /// None: there is no volume of its kind on this machine.
    None,
    /// Files of the pod's programs.
    Own(PathBuf),
    /// The files of an object, yet to be written.
    Object(ObjectFiles),
}

/// Returns whether a container's command, arguments, environment or working directory speak of a mount: by its path, which is
/// replaced there, or by the variable of its volume.
fn mentions(container: &Container, mount: &str, variable: &str) -> bool {
    let env = container.env.iter().map(|variable| &variable.value);
    let mut texts = container.command.iter().chain(&container.args).chain(env).chain([&container.working_dir]);
    texts.any(|text| text.contains(variable) || has_path_below(text, mount))
}

fn place(data_dir: &Path, pod: &Pod, access: &Access, volume: &Volume) -> Result<Contents, VolumeError> {
    let namespace = &pod.metadata.namespace;
    let own = pod_dir(data_dir, &pod.metadata.uid).join("volumes").join(&volume.name);
    let made = |path: PathBuf| {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.and_then(|()| access.open(data_dir, &path)).map(|()| path).map_err(VolumeError::Directory)
    };
    let (kind, name, optional, items, default_mode) = if volume.empty_dir.is_some() {
        return made(own).map(Contents::Own);
    } else if let Some(path) = &volume.host_path {
        return host_path(path).map(Contents::Own);
    } else if let Some(claim) = &volume.persistent_volume_claim {
        if !is_plain_name(&claim.claim_name) {
            return Err(VolumeError::Claim(claim.claim_name.clone()));
        }
        return made(data_dir.join("claims").join(namespace).join(&claim.claim_name)).map(Contents::Own);
    } else if let Some(files) = &volume.config_map {
        (ObjectKind::ConfigMap, &files.name, files.optional, &files.items, files.default_mode)
    } else if let Some(files) = &volume.secret {
        (ObjectKind::Secret, &files.secret_name, files.optional, &files.items, files.default_mode)
    } else {
        return Ok(Contents::None);
    };
    Ok(Contents::Object(ObjectFiles {
        directory: made(own)?,
        kind,
        namespace: namespace.clone(),
        name: name.clone(),
        optional,
        items: items.clone(),
        default_mode,
        access: access.clone(),
        written: BTreeSet::new(),
    }))
}

fn host_path(volume: &HostPath) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(&volume.path);
    let exists = path.exists();
    let done = match volume.r#type.as_str() {
        "DirectoryOrCreate" => fs::create_dir_all(&path),
        "FileOrCreate" => fs::OpenOptions::new().append(true).create(true).open(&path).map(drop),
        "Directory" if !path.is_dir() => return Err(VolumeError::NotADirectory(path)),
        "File" if !path.is_file() => return Err(VolumeError::NotAFile(path)),
        _ => Ok(()),
    };
    // It is the machine's, not the run's: its mode follows the mask of the pods' programs.
    let opened = done.and_then(|()| match private::program_mask() {
        Some(mask) if !exists && path.exists() => {
            let mode = if path.is_dir() { 0o777 } else { 0o666 };
            fs::set_permissions(&path, Permissions::from_mode(mode & !mask))
        }
        _ => Ok(()),
    });
    match opened {
        Ok(()) => Ok(path),
        Err(source) => Err(VolumeError::HostPath { path, source }),
    }
}

/// Returns whether a name from an API server can be one part of a path, of a file or of a URL, and nothing else. All names that Kubernetes
/// itself allows for pods, volumes, claims and the keys of `ConfigMap`s can.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    /// Longest name of an object, in bytes.
    const MAX_BYTES: usize = 253;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (1..=MAX_BYTES).contains(&name.len()) && name != "." && name != ".." && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn run(data_dir: &Path, volumes: &Value, mounts: &Value) -> Result<(Vec<Place>, Vec<String>), String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts, "args": ["${TRAINYARD_VOLUME_CONF:-/conf}/a"]}]},
        }))
        .unwrap();
        let mut objects = Objects::default();
        objects.put(
            &json!({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}, "data": {"a": "A", "b": "B"}}),
        );
        objects
            .put(&json!({"kind": "ConfigMap", "metadata": {"name": "bad", "namespace": "ns"}, "data": {"../b": "B"}}));
        let mut warnings = Vec::new();
        let (access, mut names) = (Access::default(), Names::new(64));
        let prepared = prepare(data_dir, &pod, &access, &objects, &mut names, &mut warnings);
        prepared.map(|(places, _)| (places, warnings)).map_err(|error| error.to_string())
    }

    #[test]
    fn kinds() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("host");
        let volumes = json!([
            {"name": "scratch-1", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": host, "type": "DirectoryOrCreate"}},
            {"name": "conf", "configMap": {"name": "m"}},
            {"name": "some", "configMap": {"name": "m", "items": [{"key": "a", "path": "x/y"}]}},
            {"name": "none", "secret": {"secretName": "zz", "optional": true}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c1"}},
            {"name": "net", "nfs": {"server": "x"}},
        ]);
        let mounts = json!([
            {"name": "scratch-1", "mountPath": "/scratch"},
            {"name": "host", "mountPath": host},
            {"name": "conf", "mountPath": "/conf"},
            {"name": "net", "mountPath": "/net"},
        ]);
        let (places, warnings) = run(dir.path(), &volumes, &mounts).unwrap();
        let path = |name: &str| places.iter().find(|place| place.name == name).unwrap().path.clone();
        assert!(path("scratch-1").is_dir() && path("scratch-1").starts_with(pod_dir(dir.path(), "u")));
        assert!(host.is_dir() && path("host") == host);
        assert_eq!(fs::read_to_string(path("conf").join("b")).unwrap(), "B");
        assert_eq!(fs::read_to_string(path("some").join("x/y")).unwrap(), "A");
        assert!(!path("some").join("b").exists());
        assert_eq!(path("claim"), dir.path().join("claims/ns/c1"));
        assert_eq!(warnings.len(), 2, "{warnings:?}"); // none about `conf`
        assert!(warnings[0].contains("\"net\"") && warnings[1].contains("$TRAINYARD_VOLUME_SCRATCH_1"));
    }

    #[test]
    fn refused() {
        let dir = tempfile::tempdir().unwrap();
        for (volume, want) in [
            (json!({"name": "../x", "emptyDir": {}}), "cannot be used"),
            (json!({"name": "x", "configMap": {"name": "zz"}}), "configmap \"zz\" not found"),
            (
                json!({"name": "x", "configMap": {"name": "m", "items": [{"key": "zz", "path": "p"}]}}),
                "non-existent key",
            ),
            (
                json!({"name": "x", "configMap": {"name": "m", "items": [{"key": "a", "path": "../p"}]}}),
                "not a path inside",
            ),
            (
                json!({"name": "x", "configMap": {"name": "m", "items": [{"key": "a", "path": "/p"}]}}),
                "not a path inside",
            ),
            (json!({"name": "x", "configMap": {"name": "bad"}}), "\"../b\" is not a path inside"),
            (json!({"name": "x", "hostPath": {"path": "/no/such", "type": "Directory"}}), "not a directory"),
            (json!({"name": "x", "persistentVolumeClaim": {"claimName": "a/b"}}), "cannot be used"),
        ] {
            let error = run(dir.path(), &json!([volume]), &json!([])).unwrap_err();
            assert!(error.contains(want), "{volume}: {error}");
        }
    }

    #[test]
    fn plain_names() {
        for (name, want) in [
            ("a", true),
            ("a.b-c", true),
            ("", false),
            (".", false),
            ("..", false),
            ("a/b", false),
            ("/a", false),
            ("a/", false),
            ("a b", false),
            ("a\0", false),
            ("%2e%2e", false),
            ("A_b.json", true),
            (&"a".repeat(253), true),
            (&"a".repeat(254), false),
        ] {
            assert_eq!(is_plain_name(name), want, "{name}");
        }
    }
}
