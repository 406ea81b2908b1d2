//! A directory with the elastic sample, submitted by `kubectl torchrun` to the real control plane with processes as pods.
//!
//! A file is edited and delivered while the workers run; then the job is suspended, resumed from its checkpoint, and ends. Owns the
//! directory and the verbs; the control plane is `plane`'s.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::elastic::{self, Losses, STEPS};
use super::plane::Plane;
use crate::run::{Problem, Scratch, built, io, output, root, text};

const PROGRAM: &str = "deploy/samples/torch_elastic.py";
const QUEUE: &str = "
apiVersion: torchrun.ai/v1alpha1
kind: TorchrunQueue
metadata: {name: cpus}
spec:
  queue: {name: cpus}
  distributed: {backend: gloo}
  scheduling: {scheduler: default-scheduler}
  storage:
    checkpoints: {sizePerGPU: 1Gi}
  podTemplate:
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: trainer
          image: pytorch/pytorch
          env:
            - {name: OMP_NUM_THREADS, value: '1'}
            - {name: GLOO_SOCKET_IFNAME, value: lo}
";
/// Volumes for the claims of the workspace and of the checkpoints: nothing here provides them, and a node agent keeps its own.
const VOLUMES: &str = "
apiVersion: v1
kind: PersistentVolume
metadata: {name: first}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], hostPath: {path: /tmp}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: second}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], hostPath: {path: /tmp}}
";

/// Submits the sample, disturbs it, and compares its losses with those of an undisturbed run.
pub(super) fn run(programs: &Path, scratch: &Scratch, wanted: &Losses) -> Result<(), Problem> {
    println!("\n== a directory is submitted by the plugin, edited, suspended and resumed");
    let plane = Plane::start(Some(programs), (1, 0), &["TorchrunQueue", "TorchrunJob"])?;
    let _operator = plane.operator(scratch, "none")?;
    for (name, manifest) in [("queue.yaml", QUEUE), ("volumes.yaml", VOLUMES)] {
        let path = scratch.join(name);
        fs::write(&path, manifest).map_err(io(path.display()))?;
        plane.kubectl(&["apply", "-f", &path.to_string_lossy()])?;
    }
    let project = Project { plane: &plane, directory: scratch.join("project") };
    fs::create_dir_all(&project.directory).map_err(io(project.directory.display()))?;
    fs::copy(root().join(PROGRAM), project.directory.join("train.py")).map_err(io(PROGRAM))?;
    project.write("step-ms", "100\n")?;
    let steps = format!("--steps={STEPS}");
    let submit = ["submit", "--queue=cpus", "--name=net", "--num-nodes=2", "--"];
    project.plugin(&[&submit[..], &["python3", "train.py", &steps, "--step-ms-file=step-ms"]].concat())?;
    let until_step = |least: u32| {
        let what = format!("step {least} is made");
        elastic::until(&what, &mut || plane.logs("default"), |text| (elastic::last_step(text) >= least).then_some(()))
    };
    until_step(20)?;

    project.write("step-ms", "30\n")?;
    project.plugin(&["sync", "net"])?;
    for rank in [0, 1] {
        let line = format!("rank {rank}: 30 ms before each step");
        elastic::until(&line, &mut || plane.logs("default"), |text| text.contains(&line).then_some(()))?;
    }
    until_step(120)?;

    project.plugin(&["suspend", "net"])?;
    plane.kubectl(&["wait", "pod", "-l", "torchrun.ai/job-name=net", "--for=delete", "--timeout=60s"])?;
    let done = elastic::last_step(&plane.logs("default")?);
    println!("  suspended after step {done}");
    project.plugin(&["resume", "net"])?;
    let goes_on = format!("going on after step {done}");
    elastic::until(&goes_on, &mut || plane.logs("default"), |text| text.contains(&goes_on).then_some(()))?;

    project.plugin(&["logs", "net", "-f", "--rank=0"])?;
    plane.kubectl(&["wait", "torchrunjob/net", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s"])?;
    println!("{}", project.plugin(&["status", "net"])?.trim_end());
    elastic::check(&plane.logs("default")?, wanted, &[(0, 2), (1, 2)])
}

/// The directory that is submitted.
struct Project<'a> {
    plane: &'a Plane,
    directory: PathBuf,
}

impl Project<'_> {
    fn write(&self, name: &str, content: &str) -> Result<(), Problem> {
        let path = self.directory.join(name);
        fs::write(&path, content).map_err(io(path.display()))
    }

    /// Runs the plugin in the directory, and returns what it printed.
    fn plugin(&self, words: &[&str]) -> Result<String, Problem> {
        println!("  $ kubectl torchrun {}", words.join(" "));
        let mut command = Command::new(built("trainyard"));
        command.arg("torchrun").args(words).current_dir(&self.directory).env("KUBECONFIG", self.plane.kubeconfig());
        let output = output(&mut command)?;
        if output.status.success() {
            return Ok(text(&output));
        }
        Err(Problem::failed(format!("kubectl torchrun {words:?}: {}", text(&output))))
    }
}
