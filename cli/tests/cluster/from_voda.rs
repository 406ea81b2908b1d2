//! The way of `docs/from-voda.md` on an API server: Voda's definition with jobs in it becomes the MPI operator's, and no job is lost.
//!
//! Voda's definition is one of version v1 alone whose objects keep every field. Its schema was no structural one; an API server of today
//! takes no such definition, so it has none here.

use std::collections::BTreeSet;
use std::process::Command;

use control_plane::{Options, until};
use serde_json::{Value, json};

use crate::common::{Cluster, file};
use crate::kubectl::with_input;

/// The definition by its name.
const CRD: [&str; 2] = ["crd", "mpijobs.kubeflow.org"];

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "mpijobs.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced",
            "names": {"kind": "MPIJob", "plural": "mpijobs", "singular": "mpijob"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn job(name: &str) -> Value {
    let container = |env: &Value| json!({"spec": {"containers": [{"name": "mpi", "image": "i", "env": env}]}});
    let env = json!([{"name": "MIN_NP", "value": "1"}, {"name": "MAX_NP", "value": "4"}]);
    json!({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": name, "namespace": "default"},
        "spec": {"slotsPerWorker": 1, "cleanPodPolicy": "Running", "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": container(&env)},
            "Worker": {"replicas": 2, "template": container(&json!([]))}}}})
}

/// Does what kubectl says with a manifest, until the API server has taken up an earlier step.
fn eventually(cluster: &Cluster, words: &[&str], manifest: &str) {
    until("the step is taken", || {
        let (code, says) = with_input(cluster, words, manifest);
        if code == 0 { Ok(()) } else { Err(says) }
    });
}

/// Returns name and uid of each job, as a version shows them.
fn jobs(cluster: &Cluster, version: &str) -> BTreeSet<(String, String)> {
    let path = format!("/apis/kubeflow.org/{version}/mpijobs");
    let mut found = BTreeSet::new();
    until("the jobs are served", || {
        let list: Value = serde_json::from_str(&cluster.try_kubectl(&["get", "--raw", &path])?).unwrap();
        let text = |job: &Value, key: &str| job["metadata"][key].as_str().unwrap().to_owned();
        found = list["items"].as_array().unwrap().iter().map(|job| (text(job, "name"), text(job, "uid"))).collect();
        Ok::<(), String>(())
    });
    found
}

#[test]
fn the_steps_from_voda_lose_no_job() {
    let cluster = Cluster::start_undefined(Options::default());
    eventually(&cluster, &["create"], &definition().to_string());
    for name in ["waits", "ended"] {
        eventually(&cluster, &["create"], &job(name).to_string());
    }
    let ended = r#"{"status":{"conditions":[{"type":"Succeeded","status":"True"}]}}"#;
    cluster.kubectl(&["patch", "mpijob", "ended", "--subresource=status", "--type=merge", "-p", ended]);
    let before = jobs(&cluster, "v1");
    assert_eq!(before.len(), 2);

    // What the guide warns of.
    let target = apis::mpijob::DESCRIPTOR.crd().to_string();
    let (code, says) = with_input(&cluster, &["apply", "--server-side", "--force-conflicts"], &target);
    assert!(code != 0 && says.contains("status.storedVersions[0]"), "{says}");

    let saved = cluster.kubectl(&["get", "--raw", "/apis/kubeflow.org/v1/mpijobs"]);
    eventually(&cluster, &["replace"], &file("deploy/voda/mpijobs-both-versions.yaml"));
    assert_eq!(jobs(&cluster, "v2beta1"), before);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mpijobs-v1.json");
    std::fs::write(&path, saved).unwrap();
    let mut convert = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    let output = convert.args(["voda", "convert", "--queue", "voda", "-f"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually(&cluster, &["replace"], &String::from_utf8(output.stdout).unwrap());
    let stored = r#"{"status":{"storedVersions":["v2beta1"]}}"#;
    cluster.kubectl(&[&["patch"], &CRD[..], &["--subresource=status", "--type=merge", "-p", stored]].concat());
    eventually(&cluster, &["apply", "--server-side", "--force-conflicts"], &target);

    assert_eq!(jobs(&cluster, "v2beta1"), before, "no job is lost");
    let list: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "--raw", "/apis/kubeflow.org/v2beta1/mpijobs"])).unwrap();
    for job in list["items"].as_array().unwrap() {
        let suspended = if job["metadata"]["name"] == "waits" { json!(true) } else { Value::Null };
        let policy = &job["spec"]["runPolicy"];
        assert_eq!((&policy["cleanPodPolicy"], &policy["suspend"]), (&json!("Running"), &suspended), "{job}");
        assert_eq!(job["metadata"]["labels"]["trainyard.dev/queue"], "voda");
    }
}
