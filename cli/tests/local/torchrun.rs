//! TorchrunJobs as processes of this machine, and what the plugin of kubectl does without a cluster.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::place::{Place, output_of};

/// A launcher that needs no PyTorch: it runs the program after its options.
const LAUNCHER: &str =
    "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"$1\" != --no-python ]; do shift; done\nshift\nexec \"$@\"\n";

/// A queue and a job of two workers. They write what they see into their checkpoints.
const JOBS: &str = "apiVersion: torchrun.ai/v1alpha1
kind: TorchrunQueue
metadata: {name: cpus}
spec:
  queue: {name: cpus}
  scheduling: {scheduler: default-scheduler}
  storage: {checkpoints: {enabled: true, sizePerGPU: 1Gi}}
  podTemplate:
    spec:
      containers:
        - name: trainer
          image: none
          env: [{name: PATH, value: '/app/bin:/usr/local/bin:/usr/bin:/bin'}]
---
apiVersion: torchrun.ai/v1alpha1
kind: TorchrunJob
metadata: {name: vit}
spec:
  queue: cpus
  command: sh train.sh /checkpoints
  numNodes: 2
";

const PROGRAM: &str = "echo sees $(cat words) in ${PWD##*/}
echo $JOB_COMPLETION_INDEX > \"$1/rank-$JOB_COMPLETION_INDEX\"
ls -a
";

fn place() -> Place {
    let place = Place::new();
    place.write("jobs.yaml", JOBS);
    place.write("train.sh", PROGRAM);
    place.write("words", "one\n");
    place.write(".gitignore", "*.ckpt\n");
    place.write("old.ckpt", "left out");
    let launcher = place.write("bin/torchrun", LAUNCHER);
    std::fs::set_permissions(launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    place
}

fn says(place: &Place, words: &[&str], want: i32) -> String {
    let (code, out, err) = output_of(&place.run(words));
    assert_eq!(code, Some(want), "{words:?}: {out}{err}");
    if want == 0 { out } else { err }
}

#[test]
fn a_job_runs_on_a_copy_of_the_working_directory() {
    let place = place();
    says(&place, &["validate", "jobs.yaml"], 0);
    let reported = says(&place, &["run", "-q", "jobs.yaml"], 0);
    assert!(
        reported.contains("TorchrunJob default/vit Succeeded") && !reported.contains("TorchrunQueue"),
        "{reported}"
    );
    let table = says(&place, &["ps"], 0);
    assert!(table.contains("vit") && table.contains("Succeeded"), "{table}");
    for rank in ["0", "1"] {
        let logs = says(&place, &["logs", "vit", "--rank", rank], 0);
        assert!(logs.starts_with("sees one in workspace\n"), "{logs}");
        let listed: Vec<&str> = logs.lines().skip(1).filter(|name| !name.starts_with(".upload")).collect();
        for name in ["bin", "jobs.yaml", "train.sh", ".gitignore"] {
            assert!(listed.contains(&name), "{name} in {logs}");
        }
        assert!(!listed.contains(&"old.ckpt") && !listed.contains(&"trainyard-data"), "{logs}");
        assert_eq!(
            place.read(&format!("trainyard-data/claims/default/vit-checkpoints/rank-{rank}")),
            format!("{rank}\n")
        );
    }
    let story = says(&place, &["explain", "vit"], 0);
    assert!(story.contains("Succeeded"), "{story}");
    // Run again, it takes the files as they are then.
    place.write("words", "two\n");
    says(&place, &["run", "-q", "--rerun", "jobs.yaml"], 0);
    assert!(says(&place, &["logs", "vit"], 0).starts_with("sees two in workspace\n"));
}

/// Workers read the `ConfigMap` that the operator makes of a template, in the next run as it was patched.
#[test]
fn workers_read_the_settings_that_their_queue_makes() {
    let place = place();
    let jobs = |word: &str| {
        let resources = format!(
            "  resources: [{{name: words, template: {{apiVersion: v1, kind: ConfigMap, data: {{WORD: {word}}}}}}}]\n"
        );
        let jobs = JOBS.replace("  podTemplate:\n", &format!("{resources}  podTemplate:\n"));
        let jobs = jobs.replace("image: none\n", "image: none\n          envFrom: [{configMapRef: {name: words}}]\n");
        jobs.replace("sh train.sh /checkpoints", "echo reads $WORD")
    };
    for word in ["one", "two"] {
        place.write("jobs.yaml", &jobs(word));
        says(&place, &["run", "-q", "--rerun", "jobs.yaml"], 0);
        let logs = says(&place, &["logs", "vit", "--rank=0"], 0);
        assert!(logs.contains(&format!("reads {word}\n")), "{logs}");
    }
}

/// The binary as kubectl calls it.
fn plugin(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    command.arg0("/usr/bin/kubectl-torchrun").args(words).current_dir(place.dir.path());
    // No cluster is configured here.
    command.env("KUBECONFIG", place.path("none")).env("HOME", place.dir.path());
    output_of(&command.output().unwrap())
}

#[test]
fn one_binary_is_a_plugin_of_kubectl_by_its_name() {
    let place = place();
    let (code, out, _) = plugin(&place, &["--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("Usage: kubectl torchrun [OPTIONS] <COMMAND>"), "{out}");
    for verb in [
        "submit",
        "sync",
        "list",
        "status",
        "logs",
        "suspend",
        "resume",
        "exec",
        "port-forward",
        "delete",
        "completion",
    ] {
        assert!(out.contains(&format!("\n  {verb} ")), "{verb} in {out}");
        let (code, help, _) = plugin(&place, &[verb, "--help"]);
        assert!(code == Some(0) && help.contains(&format!("Usage: kubectl torchrun {verb}")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    let (code, out, _) = plugin(&place, &["completion", "bash"]);
    assert!(code == Some(0) && out.contains("kubectl-torchrun") && out.contains("port-forward"), "{out}");
    assert!(says(&place, &["torchrun", "--help"], 0).contains("Usage: trainyard torchrun"));
    let (code, _, err) = plugin(&place, &["list"]);
    assert!(code == Some(2) && err.contains("none"), "{err}");
}

#[test]
fn a_submission_is_shown_before_it_is_sent() {
    let place = place();
    let flags = [
        "submit",
        "--queue=cpus",
        "--name=vit",
        "--gpus=16",
        "--setup=pip install .",
        "--env=LR=1e-3",
        "--restarts=1",
        "--exclude=jobs.yaml",
        "--dry-run=client",
        "-n",
        "ml",
        "--",
        "python",
        "a b.py",
    ];
    let (code, out, err) = plugin(&place, &flags);
    assert_eq!(code, Some(0), "{err}");
    for want in [
        "kind: TorchrunJob",
        "namespace: ml",
        "queue: cpus",
        "numGPUs: 16",
        "maxRestarts: 1",
        "command: python 'a b.py'",
        "setupCommand: pip install .",
        "name: LR",
    ] {
        assert!(out.contains(want), "{want} in {out}");
    }
    let files: Vec<&str> = err.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(files, [".gitignore", "bin", "bin/torchrun", "train.sh", "words"]);
    let (code, out, err) = plugin(&place, &["submit", "-f", "jobs.yaml", "--dry-run=client"]);
    assert!(code == Some(0) && out.contains("kind: TorchrunQueue") && out.contains("kind: TorchrunJob"), "{out}{err}");
    for (words, want) in [
        (&["submit", "--queue=q", "--name=Bad", "--dry-run=client", "--", "x"][..], "submit: metadata.name"),
        (&["submit", "--queue=q", "--env=x", "--dry-run=client", "--", "x"], "--env x: write NAME=VALUE"),
        (&["submit", "--dry-run=client", "--", "x"], "--queue is needed"),
        (&["submit", "--queue=q", "--dry-run=client"], "a command is needed, or a manifest"),
        (&["submit", "--queue=q", "--max-size=much", "--", "x"], "write a number with a suffix"),
        (&["submit", "-f", "none.yaml", "--dry-run=client"], "none.yaml"),
        (&["submit", "--queue=q", "--workdir=none", "--dry-run=client", "--", "x"], "none: "),
    ] {
        let (code, _, err) = plugin(&place, words);
        assert!(code == Some(2) && err.contains(want), "{words:?}: {err}");
    }
}
