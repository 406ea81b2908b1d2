//! Manifests with mistakes: what `validate`, `run` and `simulate` say of them, and that nothing is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::place::{Place, output_of};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn wrong() -> PathBuf {
    root().join("fixtures/manifests/wrong")
}

fn trainyard(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trainyard")).args(args).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let mut reported = String::new();
    for name in files(&wrong()) {
        let output = trainyard(&wrong(), &["validate", &name]);
        let found = text(&output.stdout);
        let errors = found.lines().filter(|line| !line.contains(": warning: ")).count();
        assert_eq!(output.status.code(), Some(i32::from(errors > 0)), "{name}: {found}");
        assert!(found.lines().all(|line| line.starts_with(&format!("{name}:"))), "{found}");
        reported.extend([&*found, &text(&output.stderr), "\n"]);
    }
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("wrong_manifests", reported);
    });
}

#[test]
fn right_manifests_have_no_findings() {
    let samples = root().join("deploy/samples");
    let manifests = root().join("fixtures/manifests");
    let mut paths = Vec::new();
    for directory in [&samples, &manifests] {
        let yaml = |name: &String| Path::new(name).extension().is_some_and(|ending| ending == "yaml");
        paths.extend(files(directory).iter().filter(|name| yaml(name)).map(|name| directory.join(name)));
    }
    assert!(paths.len() >= 4, "{paths:?}");
    for path in paths {
        let output = trainyard(root(), &["validate", path.to_str().unwrap()]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()), "{}", path.display());
    }
}

#[test]
fn files_are_checked_together_and_reported_in_order() {
    let output = trainyard(&wrong(), &["validate", "job.json", "empty.yaml", "job.json"]);
    let found = text(&output.stdout);
    let places: Vec<&str> = found.lines().filter_map(|line| line.split_once(": ").map(|(place, _)| place)).collect();
    assert_eq!(
        places,
        ["job.json:5:41", "job.json:6:38", "empty.yaml:1:1", "job.json:4:24", "job.json:5:41", "job.json:6:38"]
    );
    assert!(found.contains("is the name of another AITrainingJob of namespace default, at job.json:4"), "{found}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_checked() {
    let output = trainyard(&wrong(), &["validate", "no-such-file.yaml", "job.json"]);
    let found = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{found}");
    assert!(found.starts_with("no-such-file.yaml: No such file or directory"), "{found}");
    assert!(found.contains("\njob.json:5:41: "), "{found}");
}

#[test]
fn findings_are_one_json_object_too() {
    let output = trainyard(&wrong(), &["validate", "misspelt.yaml", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["objects"], &found["errors"]), (&1.into(), &14.into()));
    let finding = found["findings"].as_array().unwrap().iter().find(|f| f["line"] == 11).unwrap();
    assert_eq!(
        finding,
        &serde_json::json!({"file": "misspelt.yaml", "line": 11, "column": 7, "severity": "error",
            "path": "spec.replicaSpecs.trainer.replica", "value": "2", "problem": "unknown field; it has no effect",
            "suggestion": "replicas"})
    );
}

#[test]
fn run_and_simulate_start_nothing_with_a_mistake() {
    for (command, name) in
        [("run", "misspelt.yaml"), ("run", "tab.yaml"), ("simulate", "misspelt.yaml"), ("simulate", "twice.yaml")]
    {
        let scratch = tempfile::tempdir().unwrap();
        let manifest = wrong().join(name);
        let output = trainyard(scratch.path(), &[command, manifest.to_str().unwrap()]);
        let reported = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command} {name}: {reported}");
        assert_eq!(text(&output.stdout), "", "{command} {name}");
        assert!(reported.contains(&format!("{name}:")) && reported.contains("nothing was started"), "{reported}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "{command} {name} made files");
    }
    let scratch = tempfile::tempdir().unwrap();
    let output = trainyard(scratch.path(), &["run", "missing.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// The misspelt field is without effect, so one worker runs, and does well.
const LAX: &str = "
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: lax}
spec:
  replicaSpecs:
    trainer:
      replica: 2
      template: {spec: {containers: [{name: aitj-main, image: i, command: ['true']}]}}
";

#[test]
fn lax_only_warns() {
    for command in ["run", "simulate"] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("job.yaml"), LAX).unwrap();
        let strict = trainyard(scratch.path(), &[command, "job.yaml"]);
        assert_eq!(strict.status.code(), Some(2), "{}", text(&strict.stderr));
        let lax = trainyard(scratch.path(), &[command, "job.yaml", "--lax"]);
        let reported = text(&lax.stderr);
        assert_eq!(lax.status.code(), Some(0), "{reported}{}", text(&lax.stdout));
        assert!(
            reported.contains("job.yaml:8:7: warning: spec.replicaSpecs.trainer.replica: unknown field"),
            "{reported}"
        );
        assert!(text(&lax.stdout).contains("Succeed"), "{}", text(&lax.stdout));
    }
}

/// A file that is no manifest ends the command, also with `--lax`.
#[test]
fn lax_does_not_help_where_there_is_no_object() {
    for name in ["tab.yaml", "empty.yaml", "kinds.yaml"] {
        let scratch = tempfile::tempdir().unwrap();
        let manifest = wrong().join(name);
        let output = trainyard(scratch.path(), &["run", manifest.to_str().unwrap(), "--lax"]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("--lax"), "{}", text(&output.stderr));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_job_of_another_operator_is_valid_and_is_not_run() {
    let place = Place::new();
    place.write("j.yaml", MPI_JOB);
    assert_eq!(output_of(&place.run(&["validate", "j.yaml"])).0, Some(0));
    let (code, _, err) = output_of(&place.run(&["run", "j.yaml"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("MPIJob j: its pods are created by its own operator"), "{err}");
    assert!(!place.path("trainyard-data").exists());
}

/// `kubectl create` sends such objects, and each gets a name of its own.
#[test]
fn a_name_that_an_api_server_makes_is_valid_and_is_not_run() {
    let place = Place::new();
    place.write("j.yaml", &LAX.replace("name: lax", "generateName: lax-").replace("replica: 2", "replicas: 1"));
    let (code, _, err) = output_of(&place.run(&["validate", "j.yaml"]));
    assert_eq!((code, err.trim_end()), (Some(0), "1 object in 1 file: 0 errors, 0 warnings"));
    for command in [vec!["run", "j.yaml"], vec!["simulate", "j.yaml", "--lax"]] {
        let (code, _, err) = output_of(&place.run(&command));
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("j.yaml:4:26: ") && err.contains("write metadata.name (\"lax-\")"), "{err}");
    }
    assert!(!place.path("trainyard-data").exists());
}

#[test]
fn a_queue_of_a_former_kind_runs_under_its_name() {
    let place = Place::new();
    place.write("j.yaml", FIRST_GENERATION);
    let (code, _, err) = output_of(&place.run(&["simulate", "j.yaml", "--nodes", "2"]));
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("j.yaml:2:7: warning: kind: is called TorchrunQueue now"), "{err}");
}

/// A job and its queue as the first generation of their controller took them.
const FIRST_GENERATION: &str = "apiVersion: torchrun.ai/v1alpha1
kind: JobQueue
metadata: {name: q}
spec: {kaiQueue: q, image: i, nodeResources: {gpus: 8}, storage: {workspace: {enabled: true, sizePerGPU: 10Gi}}}
---
apiVersion: torchrun.ai/v1alpha1
kind: TorchrunJob
metadata: {name: j}
spec: {jobQueue: q, numNodes: 2, command: python train.py, volumes: {workspace: {enabled: true, source: zip}}}
";

/// A job that the MPI operator runs.
const MPI_JOB: &str = "apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: j, labels: {trainyard.dev/queue: q}}
spec:
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: {spec: {containers: [{name: l, image: i}]}}}
    Worker: {replicas: 1, template: {spec: {containers: [{name: w, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
";
