//! `trainyard validate --server`: what an API server says of each object, beside the rules of this build.

use std::process::Command;

use control_plane::Options;

use crate::common::Cluster;

const GOOD: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {generateName: c-, namespace: default}
";
const BAD: &str = "apiVersion: train.distributed.io/v1alpha1
kind: TorchJob
metadata: {name: unknown}
spec: {novel: 1}
---
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: negative}
spec:
  replicaSpecs:
    w:
      replicas: -1
      template: {spec: {containers: [{name: aitj-main, image: i}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: nowhere}
---
apiVersion: example.com/v1
kind: Novel
metadata: {name: n}
";

/// Runs `trainyard validate --server` on a text: exit code, standard output, standard error.
fn validate(text: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("m.yaml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    command.current_dir(directory.path()).args(["validate", "--server", "m.yaml"]).args(words);
    let output = command.env("KUBECONFIG", "/nonexistent").env("HOME", "/nonexistent").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_api_server_is_asked_about_each_object() {
    let cluster = Cluster::start(Options { nodes: 0, scheduler: false, kwok: false, ..Options::default() });
    let kubeconfig = cluster.plane.kubeconfig();
    let asked = ["--kubeconfig", &*kubeconfig.to_string_lossy()];

    // A kind that only the server knows is no mistake, and nothing is stored.
    let (code, out, err) = validate(GOOD, &asked);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    assert!(err.contains("2 objects in 1 file: 0 errors, 0 warnings; asked the API server https://"), "{err}");
    assert!(cluster.try_kubectl(&["get", "deployment", "web"]).is_err());
    // One that exists is asked about as a change.
    cluster.apply(GOOD.split_once("---").unwrap().0);
    assert_eq!(validate(GOOD, &asked).0, Some(0));

    let (code, out, err) = validate(BAD, &asked);
    assert_eq!(code, Some(1), "{err}");
    for line in [
        "m.yaml:3:18: TorchJob default/unknown: the API server says: TorchJob in version \"v1alpha1\" cannot be handled as a TorchJob: \
         strict decoding error: unknown field \"spec.novel\"",
        "m.yaml:12:17: spec.replicaSpecs.w.replicas: AITrainingJob default/negative: the API server says: Invalid value: -1",
        "m.yaml:17:18: ConfigMap nowhere/c: the API server says: namespaces \"nowhere\" not found",
        "m.yaml:20:7: kind: the API server serves no Novel of example.com/v1: install its definition first (\"Novel\")",
    ] {
        assert!(out.contains(line), "no {line:?} in\n{out}");
    }
    let (code, out, _) = validate(GOOD, &[&asked[..], &["--namespace", "elsewhere"]].concat());
    assert!(code == Some(1) && out.contains("Deployment elsewhere/web: the API server says: "), "{out}");
}

#[test]
fn without_an_api_server_the_command_says_so() {
    let (code, out, err) = validate(GOOD, &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("no cluster is configured: name a kubeconfig (--kubeconfig)"), "{err}");
    assert!(err.contains("; without --server the files alone are checked"), "{err}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let nowhere = "apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";
    std::fs::write(&path, nowhere).unwrap();
    let (code, _, err) = validate(GOOD, &["--kubeconfig", path.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(err.contains("the API server http://127.0.0.1:1") && err.contains("Connection refused"), "{err}");
}
