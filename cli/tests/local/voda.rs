//! `voda`: its help by both names. What it does with objects is tested beside its files.

use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

use crate::place::{Place, output_of};

#[test]
fn it_goes_by_the_name_of_vodas_command() {
    let directory = TempDir::new().unwrap();
    let link = directory.path().join("voda");
    symlink(env!("CARGO_BIN_EXE_trainyard"), &link).unwrap();
    let help = |command: &mut Command| {
        let output = command.arg("--help").output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (own, of_trainyard) =
        (help(&mut Command::new(&link)), help(Command::new(env!("CARGO_BIN_EXE_trainyard")).arg("voda")));
    for verb in ["create", "convert", "delete", "get", "algorithm", "ratelimit", "serve"] {
        assert!(own.contains(&format!("\n  {verb}")) && of_trainyard.contains(&format!("\n  {verb}")), "{own}");
    }
    let output = Command::new(&link).args(["get", "pods"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// A job of Voda's first generation: no namespace, and no type of GPU.
const FIRST: &str = r#"apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: digits}
spec:
  slotsPerWorker: 1
  cleanPodPolicy: Running
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - {name: mpi-launcher, image: i, env: [{name: MIN_NP, value: "1"}, {name: MAX_NP, value: "4"}], command: [horovodrun]}
    Worker:
      replicas: 2
      template:
        spec: {containers: [{name: mpi-worker, image: i}]}
"#;

#[test]
fn what_would_be_created_is_printed_without_a_cluster() {
    let place = Place::new();
    place.write("first.yaml", FIRST);
    let placed = FIRST.replace("{name: digits}", "{name: digits, namespace: voda-scheduler}");
    place.write("placed.yaml", &placed);
    place.write("unbounded.yaml", &FIRST.replace("MIN_NP", "LEAST"));
    let voda = |words: &[&str]| {
        let mut command = place.trainyard(&[&["voda"], words].concat());
        output_of(&command.env("KUBECONFIG", "none").output().unwrap())
    };
    let create = |file: &str, more: &[&str]| voda(&[&["create", "-f", file, "--dry-run"], more].concat());
    let (code, out, err) = create("first.yaml", &["--queue", "q"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for line in
        ["apiVersion: kubeflow.org/v2beta1", "  name: digits-2", "    trainyard.dev/queue: q", "    suspend: true"]
    {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("namespace:") && !out.contains("accelerator"), "{out}");
    let (code, out, err) = create("placed.yaml", &["--queue", "q"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("  namespace: voda-scheduler\n"), "{out}");
    for (file, more, want) in [
        ("placed.yaml", &["--queue", "q", "-n", "other"][..], "metadata.namespace: voda-scheduler"),
        ("first.yaml", &[], "name the queue with --queue"),
        ("unbounded.yaml", &["--queue", "q"], "MIN_NP"),
    ] {
        let (code, out, err) = create(file, more);
        assert_eq!(code, Some(2), "{out}{err}");
        assert!(err.contains(want), "{want}: {err}");
    }
    let (code, out, err) = voda(&["convert", "-f", "first.yaml", "--queue", "q"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("  name: digits\n") && out.contains("cleanPodPolicy: Running"), "{out}");
}
