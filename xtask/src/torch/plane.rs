//! The elastic sample on the real control plane of this machine, with processes as pods.
//!
//! Owns the control plane, the operator and the job of this test, and ends them. What is done to the workers is `elastic`'s.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elastic::{self, Losses};
use super::in_directory;
use crate::cluster;
use crate::run::{KillOnDrop, Problem, Scratch, built, io, output, root, status, succeed, target, text};
use crate::venv;

const JOB: &str = "elasticjob/torch-elastic";

/// Runs the sample, disturbs it, and compares its losses with those of an undisturbed run.
pub(super) fn run(programs: &Path, scratch: &Scratch, wanted: &Losses) -> Result<(), Problem> {
    println!("\n== workers come and go on a real control plane");
    let plane = Plane::start(Some(programs), (2, 0), &["ElasticJob"])?;
    let _operator = plane.operator(scratch, "none")?;
    let manifest = manifest(scratch)?;
    plane.kubectl(&["apply", "-f", &manifest.to_string_lossy()])?;
    let scale = |replicas: u32| plane.kubectl(&["scale", JOB, &format!("--replicas={replicas}")]).map(drop);
    elastic::disturb(&mut || plane.logs("default"), &scale)?;
    plane.kubectl(&["wait", JOB, "--for=condition=Succeeded", "--timeout=300s"])?;
    println!("{}", plane.kubectl(&["get", "elasticjobs"])?.trim_end());
    elastic::check(&plane.logs("default")?, wanted, &elastic::LAUNCHERS)
}

/// The sample's manifest with checkpoints in a directory of this machine: nothing here provides volumes.
fn manifest(scratch: &Scratch) -> Result<PathBuf, Problem> {
    let path = elastic::manifest(&scratch.join("plane.yaml"), "--step-ms=100", 3)?;
    in_directory(&path, "torch-elastic", &scratch.join("plane-checkpoints"))?;
    Ok(path)
}

/// The control plane; ended when dropped.
pub(super) struct Plane {
    /// Its kubeconfig, its logs, and the data of its node agents.
    directory: PathBuf,
}

impl Plane {
    /// Starts it with some nodes whose pods are processes and that have some GPUs each, and with the definitions of some kinds. Where
    /// `programs` is a directory, its programs come first for the pods.
    pub(super) fn start(programs: Option<&Path>, (nodes, gpus): (u32, u32), kinds: &[&str]) -> Result<Self, Problem> {
        let is_up = output(cluster::program().arg("status"))?;
        if is_up.status.success() {
            let remedy = "a control plane is up: end it with `cargo xtask cluster down`";
            return Err(Problem::Missing(remedy.to_owned()));
        }
        let mut up = cluster::program();
        // Its node agents give their programs this PATH and this working directory.
        up.args(["up", &format!("--process-nodes={nodes}"), &format!("--gpus={gpus}")]);
        if let Some(programs) = programs {
            up.env("PATH", venv::path(programs)?);
        }
        succeed(up.current_dir(root()))?;
        let plane = Self { directory: target().join("cluster") };
        for kind in kinds {
            let definition = output(Command::new(built("trainyard")).args(["crd", kind]))?;
            let path = plane.directory.join(format!("{kind}.yaml"));
            fs::write(&path, &definition.stdout).map_err(io(path.display()))?;
            plane.kubectl(&["apply", "-f", &path.to_string_lossy()])?;
        }
        plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])?;
        Ok(plane)
    }

    /// Starts an operator with the log that an earlier one left in `scratch`. Its figures are at `health`, which may be `none`.
    pub(super) fn operator(&self, scratch: &Scratch, health: &str) -> Result<Operator, Problem> {
        let mut command = Command::new(built("trainyard"));
        command.args(["operator", "--leader-elect=false", "--health-address", health, "--log-address=none"]);
        command.arg("--node-grace-period=0s");
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.arg("--data-directory").arg(scratch.join("operator"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Operator(KillOnDrop(command.spawn().map_err(io("trainyard operator"))?)))
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(super) fn kubectl(&self, words: &[&str]) -> Result<String, Problem> {
        let output = output(cluster::program().arg("kubectl").args(words).current_dir(&self.directory))?;
        if output.status.success() {
            return Ok(text(&output));
        }
        Err(Problem::failed(format!("kubectl {words:?}: {}", text(&output))))
    }

    /// Whether an Event of this reason was written.
    pub(super) fn has_event(&self, namespace: &str, reason: &str) -> Result<bool, Problem> {
        let field = format!("reason={reason}");
        let words = ["-n", namespace, "get", "events", "--field-selector", &field, "-o", "name"];
        self.kubectl(&words).map(|found| found.contains("event/"))
    }

    /// Kills the agent of a node. Its pods end with it.
    pub(super) fn lose(node: &str) -> Result<(), Problem> {
        let status = text(&output(cluster::program().arg("status"))?);
        let mut lines = status.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| words.first() == Some(&node));
        let Some([_, _, process, ..]) = line.as_deref() else {
            return Err(Problem::failed(format!("the status of the control plane does not name {node}:\n{status}")));
        };
        succeed(Command::new("kill").args(["-KILL", process]))
    }

    /// The output of all pods of a namespace so far, also of those that were replaced: each line with its pod, as `trainyard run`
    /// prints it.
    pub(super) fn logs(&self, namespace: &str) -> Result<String, Problem> {
        let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for node in entries(&self.directory.join("nodes"))? {
            for pod in entries(&node.join("logs").join(namespace))? {
                let name = pod.file_name().unwrap_or_default().to_string_lossy().into_owned();
                for entry in entries(&pod)? {
                    // The output of an earlier pod of the name is in a directory of its own.
                    let own = if entry.is_dir() { entries(&entry)? } else { vec![entry] };
                    files.entry(name.clone()).or_default().extend(own);
                }
            }
        }
        let mut all = String::new();
        for (pod, mut logs) in files {
            // One file per pod of the name, numbered in their order.
            logs.sort_by_key(|log| log.file_name().map(|name| (name.len(), name.to_owned())));
            for log in logs {
                let bytes = fs::read(&log).map_err(io(log.display()))?;
                for line in String::from_utf8_lossy(&bytes).lines() {
                    let _ = writeln!(all, "{pod} | {line}");
                }
            }
        }
        Ok(all)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // It says itself what it could not end.
        let _ = status(cluster::program().arg("down"));
    }
}

/// The entries of a directory; none if it does not exist.
fn entries(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(Vec::new()) };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(io(path.display()))).collect()
}

/// An operator process; killed when dropped.
pub(super) struct Operator(KillOnDrop);

impl Operator {
    /// Kills it with SIGKILL, and returns when it is gone.
    pub(super) fn kill(&mut self) -> Result<(), Problem> {
        let Self(KillOnDrop(child)) = self;
        child.kill().and_then(|()| child.wait()).map(drop).map_err(io("killing the operator"))
    }
}

/// Fails unless something holds that the test requires.
pub(super) fn require(what: &str, holds: bool) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err(Problem::failed(format!("does not hold: {what}"))) }
}
