//! What a run writes is for its user, and for the users its containers run as.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::{Harness, shell_pod};
use serde_json::json;

/// Everything below a directory, and itself, with its mode.
fn modes(path: &Path) -> Vec<(PathBuf, u32)> {
    let found = fs::symlink_metadata(path).unwrap();
    let mut all = vec![(path.to_owned(), found.mode() & 0o7777)];
    if found.is_dir() {
        all.extend(fs::read_dir(path).unwrap().flat_map(|entry| modes(&entry.unwrap().path())));
    }
    all
}

#[test]
fn files_are_for_their_owner_and_programs_keep_the_mask() {
    let dir = tempfile::tempdir().unwrap();
    // As an older build left it.
    let old = dir.path().join("logs/ns/old");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("c-0.log"), "old").unwrap();
    fs::create_dir_all(dir.path().join("claims/ns/c")).unwrap();
    fs::write(dir.path().join("claims/ns/c/checkpoint"), "x").unwrap();
    for path in ["", "logs", "logs/ns", "logs/ns/old", "claims", "claims/ns", "claims/ns/c"] {
        fs::set_permissions(dir.path().join(path), Permissions::from_mode(0o755)).unwrap();
    }
    for path in ["logs/ns/old/c-0.log", "claims/ns/c/checkpoint"] {
        fs::set_permissions(dir.path().join(path), Permissions::from_mode(0o644)).unwrap();
    }
    let data_dir = dir.path().to_owned();
    let mut harness = Harness::with(|options| options.data_dir = data_dir);
    let secret =
        json!({"kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "stringData": {"a": "A", "b": "B"}});
    harness.processes.provide(&secret);
    let script = "stat -c %a $TRAINYARD_VOLUME_E $TRAINYARD_VOLUME_S $TRAINYARD_VOLUME_S/a $TRAINYARD_VOLUME_M/b/c $TRAINYARD_VOLUME_D/a; umask";
    let mut pod = shell_pod("p", script);
    pod["spec"]["volumes"] = json!([
        {"name": "e", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "m", "secret": {"secretName": "s", "defaultMode": 0o444, "items": [{"key": "b", "path": "b/c", "mode": 0o440}]}},
        {"name": "d", "secret": {"secretName": "s", "defaultMode": 0o444}},
    ]);
    assert_eq!(harness.run(&pod)["phase"], "Succeeded");
    let lines = harness.lines("p");
    assert_eq!(lines[..5], ["700", "700", "600", "440", "444"]);
    assert_ne!(lines[5], "0077", "programs have the mask that the runner was started with");
    for (path, mode) in modes(dir.path()) {
        let below = path.strip_prefix(dir.path()).unwrap();
        let wanted = match below.to_str().unwrap() {
            "claims/ns/c/checkpoint" => 0o644,
            _ if path.is_dir() => 0o700,
            _ => 0o600,
        };
        assert_eq!(mode, wanted, "{}: {mode:o}", path.display());
    }
}

#[test]
fn a_container_of_another_user_reaches_its_own_volumes_only() {
    // Without root its user is this one, who may read everything.
    let is_root = rustix::process::geteuid().is_root();
    let mut harness = Harness::new();
    let secret = json!({"kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "stringData": {"a": "A"}});
    harness.processes.provide(&secret);
    let volumes = json!([
        {"name": "e", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "a", "path": "b/c"}]}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "c"}},
    ]);
    let data = harness.dir.path().display().to_string();
    let script = format!(
        "echo x > $TRAINYARD_VOLUME_E/f; echo y > $TRAINYARD_VOLUME_P/f; cat $TRAINYARD_VOLUME_S/b/c; echo; \
         stat -c %g $TRAINYARD_VOLUME_E/f; ls {data} {data}/logs > /dev/null 2>&1 || echo closed"
    );
    let mut pod = shell_pod("p", &script);
    pod["spec"]["volumes"] = volumes;
    pod["spec"]["securityContext"] = json!({"runAsUser": 54321, "fsGroup": 54324});
    pod["spec"]["containers"][0]["workingDir"] = json!("/");
    assert_eq!(harness.run(&pod)["phase"], "Succeeded");
    let own_group = rustix::process::getegid().as_raw().to_string();
    let wanted = if is_root { vec!["A", "54324", "closed"] } else { vec!["A", own_group.as_str()] };
    assert_eq!(harness.lines("p"), wanted);
    // A third user gets to none of it.
    let mut other = shell_pod("q", &format!("cat {data}/claims/ns/c/f || echo closed"));
    other["spec"]["securityContext"] = json!({"runAsUser": 54325});
    other["spec"]["containers"][0]["workingDir"] = json!("/");
    assert_eq!(harness.run(&other)["phase"], "Succeeded");
    assert_eq!(harness.lines("q").last().unwrap(), if is_root { "closed" } else { "y" });
}
