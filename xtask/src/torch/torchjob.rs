//! The samples of TorchJob while their pods are killed, lose their node, are deleted and scaled: the losses are those of a run that
//! nothing disturbs.
//!
//! Once by `trainyard run`, once on the real control plane with processes as pods. Owns what is done to the jobs; the control plane is
//! `plane`'s, and how losses are read and compared is `elastic`'s.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::elastic::{self, Losses, Run, STEPS, until};
use super::plane::{Plane, require};
use super::{edited, in_directory};
use crate::cluster;
use crate::run::{KillOnDrop, Problem, Scratch, io, root, succeed};

const SAMPLE: &str = "deploy/samples/torch-job.yaml";
const ELASTIC_SAMPLE: &str = "deploy/samples/torch-job-elastic.yaml";
const ELASTIC_JOB: &str = "torchjob/torch-job-elastic";
/// Namespace of the elastic job, so that its pods' output is apart.
const NAMESPACE: &str = "elastic";

/// Runs the sample undisturbed, then the parts that are wanted.
pub(super) fn run(programs: &Path, wants: &dyn Fn(&str) -> bool) -> Result<(), Problem> {
    let scratch = Scratch::new("torch-job")?;
    let sample = |name: &str, pause: &str| {
        let path = scratch.join(name);
        let arguments = format!("--steps={STEPS}, {pause}");
        edited(&root().join(SAMPLE), &path, &[("--steps=200, --step-ms=100", &arguments)]).map(|()| path)
    };
    let mut run = Run::start(programs, &scratch, "undisturbed", &sample("quick.yaml", "--step-ms=0")?, &[])?;
    let wanted = elastic::losses(&run.finish()?)?;
    println!("  undisturbed: the last of {} steps has {:?}", wanted.len(), wanted.last_key_value());

    let manifest = sample("torch-job.yaml", "--step-ms=100")?;
    if wants("torchjob") {
        // The node is lost after the worker was killed, in the middle of the training.
        let fault = ["--fault=node=local-1@45s"];
        let mut run = Run::start(programs, &scratch, "a worker is killed, a node is lost", &manifest, &fault)?;
        kill_worker(&mut || run.output())?;
        let output = run.finish()?;
        // At first, after the kill, and after the loss.
        if starts(&output) != 3 {
            return Err(Problem::failed(format!("the job did not meet its faults:\n{output}")));
        }
        report(&output, &wanted)?;
    }
    if wants("torchjob-plane") {
        let plane = Plane::start(Some(programs), (2, 0), &["TorchJob"])?;
        let _operator = plane.operator(&scratch, "none")?;
        in_directory(&manifest, "torch-job", &scratch.join("checkpoints"))?;
        killed_and_lost(&plane, &manifest, &wanted)?;
        checkpointed_and_scaled(&plane, &scratch, &wanted)?;
    }
    Ok(())
}

/// A worker is killed, then the node of one is lost, each while the job trains.
fn killed_and_lost(plane: &Plane, manifest: &Path, wanted: &Losses) -> Result<(), Problem> {
    println!("\n== a worker is killed and a node is lost, on a real control plane");
    plane.kubectl(&["apply", "-f", &manifest.to_string_lossy()])?;
    let mut logs = || plane.logs("default");
    kill_worker(&mut logs)?;
    until("three processes train again", &mut logs, |text| (starts(text) == 2).then_some(()))?;
    trains_on(&mut logs)?;
    let of_job = ["get", "torchjob/torch-job", "-o"];
    let failed_over = r"jsonpath={.metadata.annotations.distributed\.io/last-failover-timestamp}";
    require("last-failover-timestamp", !plane.kubectl(&[&of_job[..], &[failed_over]].concat())?.is_empty())?;

    let node_of = |pod: &str| plane.kubectl(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]);
    let node = node_of("torch-job-worker-0")?;
    println!("  node {node} is lost, with worker 0");
    let before = starts(&plane.logs("default")?);
    Plane::lose(&node)?;
    until("three processes train again", &mut logs, |text| (starts(text) > before).then_some(()))?;
    let other = node_of("torch-job-worker-0")?;
    require("worker 0 is on another node", other != node)?;
    plane.kubectl(&["wait", "torchjob/torch-job", "--for=condition=Succeeded", "--timeout=300s"])?;
    require("the Event FailoverSucceed", plane.has_event("default", "FailoverSucceed")?)?;
    println!("{}", plane.kubectl(&["get", "torchjobs"])?.trim_end());
    report(&plane.logs("default")?, wanted)
}

/// A worker is deleted, and goes after a checkpoint; then there are four processes, and two.
fn checkpointed_and_scaled(plane: &Plane, scratch: &Scratch, wanted: &Losses) -> Result<(), Problem> {
    println!("\n== a checkpoint is asked for and written, and the job is scaled");
    let proxy = Proxy::start()?;
    let path = scratch.join("elastic.yaml");
    // No other checkpoint than those that are asked for.
    let arguments = format!("--steps={STEPS}, --step-ms=100, --checkpoint-every={}", STEPS + 1);
    let edits = [("--steps=200, --step-ms=100", &*arguments), ("https://kubernetes.default.svc", &*proxy.address)];
    edited(&root().join(ELASTIC_SAMPLE), &path, &edits)?;
    in_directory(&path, "torch-job-elastic", &scratch.join("elastic-checkpoints"))?;
    plane.kubectl(&["create", "namespace", NAMESPACE])?;
    let kubectl = |words: &[&str]| plane.kubectl(&[&["-n", NAMESPACE][..], words].concat());
    kubectl(&["apply", "-f", &path.to_string_lossy()])?;
    let mut logs = || plane.logs(NAMESPACE);
    until("three processes train", &mut logs, |text| (elastic::last_step(text) > 20).then_some(()))?;

    println!("  worker 1 is deleted");
    kubectl(&["delete", "pod", "torch-job-elastic-worker-1", "--wait=false"])?;
    let step = until("a checkpoint is written", &mut logs, |text| checkpoints(text).first().copied())?;
    until("it is gone on from", &mut logs, |text| goes_on(text).contains(&step).then_some(()))?;
    trains_on(&mut logs)?;
    let requested = r"jsonpath={.metadata.annotations.distributed\.io/ckpt-requested-version}";
    let requested = kubectl(&["get", ELASTIC_JOB, "-o", requested])?;
    require("the request is met", requested.contains(r#""status":"Succeeded""#))?;
    for reason in ["CheckpointStarted", "CheckpointSucceeded"] {
        require(&format!("the Event {reason}"), plane.has_event(NAMESPACE, reason)?)?;
    }

    for workers in [3, 1] {
        println!("  scaling to {workers} workers");
        let spec = format!(r#"{{"spec": {{"torchTaskSpecs": {{"Worker": {{"numTasks": {workers}}}}}}}}}"#);
        kubectl(&["patch", ELASTIC_JOB, "--type=merge", "-p", &spec])?;
        kubectl(&["annotate", ELASTIC_JOB, "--overwrite", "distributed.io/ready-to-start-worker=true"])?;
        let size = workers + 1;
        until(&format!("{size} processes train"), &mut logs, |text| {
            (elastic::workers(text) == Some(size)).then_some(())
        })?;
        let done = r"--for=jsonpath={.metadata.annotations.distributed\.io/scale-state}=done";
        kubectl(&["wait", ELASTIC_JOB, done, "--timeout=120s"])?;
        trains_on(&mut logs)?;
    }
    require("the Event ScaleSucceed", plane.has_event(NAMESPACE, "ScaleSucceed")?)?;
    kubectl(&["wait", ELASTIC_JOB, "--for=condition=Succeeded", "--timeout=300s"])?;
    println!("{}", kubectl(&["get", "torchjobs"])?.trim_end());
    report(&plane.logs(NAMESPACE)?, wanted)
}

/// Kills worker 1 with SIGKILL, once three processes train: its exit code is 137.
fn kill_worker(output: &mut dyn FnMut() -> Result<String, Problem>) -> Result<(), Problem> {
    let process = until("three processes train", output, |text| {
        let line = text.lines().find(|line| line.contains("-worker-1 | rank 2 of"))?;
        let process: u32 = line.split_once(", process ")?.1.split_once(':')?.0.parse().ok()?;
        (elastic::last_step(text) > 20).then_some(process)
    })?;
    println!("  killing worker 1, process {process}");
    succeed(Command::new("kill").args(["-KILL", &process.to_string()]))
}

/// Waits until some steps more are made than now.
fn trains_on(output: &mut dyn FnMut() -> Result<String, Problem>) -> Result<(), Problem> {
    let made = |text: &str| text.matches(": loss ").count();
    let before = made(&output()?);
    until("the training continues", output, |text| (made(text) > before + 5).then_some(()))
}

/// The steps after which rank 0 began to train, in their order.
fn goes_on(output: &str) -> Vec<u32> {
    let line = |line: &str| {
        let (_, said) = line.split_once(" | rank 0 of ")?;
        said.split_once(": going on after step ")?.1.trim().parse().ok()
    };
    output.lines().filter_map(line).collect()
}

/// How many times rank 0 began to train.
fn starts(output: &str) -> usize {
    goes_on(output).len()
}

/// The steps of the checkpoints that were asked for.
fn checkpoints(output: &str) -> Vec<u32> {
    let line = |line: &str| line.split_once(" is written: step ")?.1.trim().parse().ok();
    output.lines().filter_map(line).collect()
}

fn report(output: &str, wanted: &Losses) -> Result<(), Problem> {
    let losses = elastic::same_losses(output, wanted)?;
    println!(
        "  {} steps, every loss is as undisturbed; training began after steps {:?}",
        losses.len(),
        goes_on(output)
    );
    Ok(())
}

/// `kubectl proxy`, by which pods without a `ServiceAccount` reach the API server; killed when dropped.
struct Proxy {
    _child: KillOnDrop,
    address: String,
}

impl Proxy {
    fn start() -> Result<Self, Problem> {
        let mut command = cluster::program();
        command.args(["kubectl", "proxy", "--port=0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(io("kubectl proxy"))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).map_err(io("kubectl proxy"))?;
        }
        let mut proxy = Self { _child: KillOnDrop(child), address: String::new() };
        let Some((_, address)) = said.trim().rsplit_once(' ') else {
            return Err(Problem::failed(format!("kubectl proxy says no address: {said:?}")));
        };
        proxy.address = format!("http://{address}");
        Ok(proxy)
    }
}
