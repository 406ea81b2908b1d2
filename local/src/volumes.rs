//! Volumes as directories: each is given to the containers as `TRAINYARD_VOLUME_<NAME>`, and by `mounts` where they name its path.
//!
//! `emptyDir`, `ConfigMap`s and `Secret`s live below the pod's own directory and go with it; a claim is a directory that stays;
//! a host path is itself. Nothing is mounted anywhere. Tests: at the end.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::mounts::has_path_below;
use crate::objects::{Data, ObjectKind, Objects};
use crate::pod::{Container, HostPath, Item, Pod, Volume};
use crate::private::{self, Access};

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

/// Makes the volumes of a pod. Kinds of volumes that do not exist here are left out, with a warning.
/// The error is a message.
pub(crate) fn prepare(
    data_dir: &Path,
    pod: &Pod,
    access: &Access,
    objects: &Objects,
    warnings: &mut Vec<String>,
) -> Result<Vec<Place>, String> {
    let mut places = Vec::new();
    for volume in &pod.spec.volumes {
        if !is_plain_name(&volume.name) {
            return Err(format!("volume name {:?} cannot be used", volume.name));
        }
        match place(data_dir, pod, access, objects, volume) {
            Ok(Some(path)) => places.push(Place { name: volume.name.clone(), path }),
            Ok(None) => {
                warnings.push(format!("volume {:?} has a type that this machine does not support", volume.name));
            }
            Err(problem) => return Err(format!("volume {:?}: {problem}", volume.name)),
        }
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
    Ok(places)
}

/// Returns whether a container's command, arguments, environment or working directory speak of a mount: by its path, which is
/// replaced there, or by the variable of its volume.
fn mentions(container: &Container, mount: &str, variable: &str) -> bool {
    let env = container.env.iter().map(|variable| &variable.value);
    let mut texts = container.command.iter().chain(&container.args).chain(env).chain([&container.working_dir]);
    texts.any(|text| text.contains(variable) || has_path_below(text, mount))
}

fn place(
    data_dir: &Path,
    pod: &Pod,
    access: &Access,
    objects: &Objects,
    volume: &Volume,
) -> Result<Option<PathBuf>, String> {
    let namespace = &pod.metadata.namespace;
    let own = pod_dir(data_dir, &pod.metadata.uid).join("volumes").join(&volume.name);
    let made = |path: PathBuf| {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.and_then(|()| access.open(data_dir, &path)).map(|()| path).map_err(|error| error.to_string())
    };
    if volume.empty_dir.is_some() {
        made(own).map(Some)
    } else if let Some(path) = &volume.host_path {
        host_path(path).map(Some)
    } else if let Some(claim) = &volume.persistent_volume_claim {
        if !is_plain_name(&claim.claim_name) {
            return Err(format!("claim name {:?} cannot be used", claim.claim_name));
        }
        made(data_dir.join("claims").join(namespace).join(&claim.claim_name)).map(Some)
    } else {
        let (source, name, optional, items, mode) = if let Some(files) = &volume.config_map {
            (ObjectKind::ConfigMap, &files.name, files.optional, &files.items, files.default_mode)
        } else if let Some(files) = &volume.secret {
            (ObjectKind::Secret, &files.secret_name, files.optional, &files.items, files.default_mode)
        } else {
            return Ok(None);
        };
        let own = made(own)?;
        match objects.get(source, namespace, name) {
            Some(data) => write_files(&own, data, items, optional, (mode, access))?,
            None if optional => {}
            None => return Err(format!("{} \"{name}\" not found", source.word())),
        }
        Ok(Some(own))
    }
}

fn host_path(volume: &HostPath) -> Result<PathBuf, String> {
    let path = PathBuf::from(&volume.path);
    let shown = path.display();
    let exists = path.exists();
    let done = match volume.r#type.as_str() {
        "DirectoryOrCreate" => fs::create_dir_all(&path),
        "FileOrCreate" => fs::OpenOptions::new().append(true).create(true).open(&path).map(drop),
        "Directory" if !path.is_dir() => return Err(format!("{shown} is not a directory")),
        "File" if !path.is_file() => return Err(format!("{shown} is not a file")),
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
    opened.map(|()| path.clone()).map_err(|error| format!("{shown}: {error}"))
}

fn write_files(
    dir: &Path,
    data: &Data,
    items: &[Item],
    optional: bool,
    (default_mode, access): (Option<u32>, &Access),
) -> Result<(), String> {
    let default_mode = default_mode.unwrap_or_else(|| access.file_mode());
    let named: Vec<(&str, &str, u32)> = if items.is_empty() {
        data.keys().map(|key| (key.as_str(), key.as_str(), default_mode)).collect()
    } else {
        let of = |item: &'_ Item| item.mode.unwrap_or(default_mode);
        items.iter().map(|item| (item.key.as_str(), item.path.as_str(), of(item))).collect()
    };
    for (key, path, mode) in named {
        let Some(content) = data.get(key) else {
            if optional {
                continue;
            }
            return Err(format!("references non-existent key {key:?}"));
        };
        if !path.split('/').all(is_plain_name) {
            return Err(format!("{path:?} is not a path inside the volume"));
        }
        let write = || -> io::Result<()> {
            let file = dir.join(path);
            let folder = file.parent().unwrap_or(dir);
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            for above in folder.ancestors().take_while(|above| *above != dir) {
                access.open(above, above)?;
            }
            // One from an earlier attempt may not be writable.
            if file.exists() {
                fs::remove_file(&file)?;
            }
            // Written before it is opened to more readers than its owner; the mode is exact, independent of the umask.
            let mut open = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&file)?;
            open.write_all(content)?;
            if let Some(group) = access.group {
                std::os::unix::fs::chown(&file, None, Some(group))?;
            }
            fs::set_permissions(&file, Permissions::from_mode(mode & 0o777))
        };
        write().map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
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
        prepare(data_dir, &pod, &Access::default(), &objects, &mut warnings).map(|places| (places, warnings))
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
