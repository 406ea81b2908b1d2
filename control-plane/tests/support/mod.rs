//! What several of these tests need. Each of them needs the programs: built with Go, or those of `KUBEBUILDER_ASSETS`. Where they
//! cannot be had, the tests fail with the error that says so.

#![allow(dead_code, reason = "not every test file uses all of it")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use control_plane::{ControlPlane, until_within};
use serde_json::{Value, json};

/// A pod of two containers that asks for one GPU.
pub(crate) fn pod(name: &str, annotations: &Value) -> String {
    let container = |name: &str, gpus: &str| {
        json!({
            "name": name,
            "image": "registry.invalid/image:1",
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        })
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 4,
            "initContainers": [container("prepare", "0")],
            "containers": [container("main", "1"), container("side", "0")],
        },
    });
    pod.to_string()
}

/// An object as the API server has it; `None` if it has none.
pub(crate) fn get(plane: &ControlPlane, kind: &str, name: &str) -> Option<Value> {
    let text = plane.run_kubectl(["get", kind, name, "-o", "json", "--ignore-not-found"]).unwrap();
    if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text).unwrap()) }
}

/// Waits until a pod is in a phase, and gives the pod.
pub(crate) fn wait_for_phase(plane: &ControlPlane, name: &str, phase: &str) -> Value {
    until_within(Duration::from_secs(30), &format!("pod {name} {phase}"), || {
        let found = get(plane, "pod", name).unwrap_or_default();
        if found["status"]["phase"] == phase { Ok(found) } else { Err(found["status"].to_string()) }
    })
}

/// The number of processes with this working directory.
pub(crate) fn processes_in(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<u32>().is_err() {
            continue;
        }
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let inside = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
        // A process that has ended, but was not reaped, has no command line.
        if !words.is_empty() && (inside || words.contains(&*directory.to_string_lossy())) {
            found.push(format!("{name}: {words}"));
        }
    }
    found
}
