//! `cargo xtask torch-tests`: the PyTorch samples end with the same results whatever happens to them on the way.
//!
//! Runs the `DistributedDataParallel` sample undisturbed, and then with a rank killed, its node lost, and the job preempted and
//! applied again. Each run has to meet its fault: one that ends before it proves nothing. The elastic sample is `elastic`'s, the samples of
//! TorchJob are `torchjob`'s; `MPIJob`s, which need no PyTorch, are `mpijob`'s.

mod elastic;
mod many;
mod mpi_plane;
mod mpijob;
mod plane;
mod plugin;
mod torchjob;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::run::{Problem, Scratch, Watched, build_quietly, built, io, root, shown, watch};
use crate::venv;

/// `PyTorch` of a distribution may lack a `torchrun` that works. It hands tensors to programs as arrays of numpy.
const CHECK: &str = "import os, sys, torch, torch.distributed.run, numpy
assert os.path.isfile(os.path.join(sys.prefix, 'bin', 'torchrun')), 'no torchrun'";
const SAMPLE: &str = "deploy/samples/torch-ddp.yaml";
/// One run takes well under a minute; this is for machines that are busy with something else.
const LIMIT: Duration = Duration::from_secs(300);

/// How one run ended.
struct RunOutput {
    success: bool,
    output: String,
}

impl RunOutput {
    /// The line in which the training says its own result.
    fn result(&self) -> Option<&str> {
        let at = self.output.rfind("done: loss ")?;
        self.output.get(at..)?.lines().next()
    }

    /// The last step that was printed before the training resumed from a checkpoint.
    fn resumed_after(&self) -> Vec<u32> {
        let after = |line: &str| line.split_once("rank 0 of 2: going on after step ")?.1.trim().parse().ok();
        self.output.lines().filter_map(after).collect()
    }
}

/// Parts that can be run alone.
const PARTS: [&str; 8] = ["ddp", "elastic", "many", "mpijob", "plane", "plugin", "torchjob", "torchjob-plane"];

/// Runs the parts that are named, or all.
pub(crate) fn run(parts: &[String]) -> Result<(), Problem> {
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
        return Err(Problem::Usage(format!("torch-tests has no part `{unknown}`; there are {}", PARTS.join(", "))));
    }
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    build_quietly(&["trainyard", "control-plane"])?;
    if wants("mpijob") {
        mpijob::run()?;
    }
    if PARTS.into_iter().any(|part| part != "mpijob" && wants(part)) {
        with_torch(&wants)?;
    }
    println!("\nxtask torch-tests: ok");
    Ok(())
}

/// Runs the parts that need `PyTorch`.
fn with_torch(wants: &dyn Fn(&str) -> bool) -> Result<(), Problem> {
    let programs = venv::programs("torch", &["torch", "numpy"], CHECK)?;
    if wants("ddp") {
        ddp(&programs)?;
    }
    if wants("many") {
        many::run(&programs)?;
    }
    if ["elastic", "plane", "plugin"].into_iter().any(wants) {
        elastic::run(&programs, wants)?;
    }
    if ["torchjob", "torchjob-plane"].into_iter().any(wants) {
        torchjob::run(&programs, wants)?;
    }
    Ok(())
}

/// Runs the `DistributedDataParallel` sample.
fn ddp(programs: &Path) -> Result<(), Problem> {
    let tests = Tests { scratch: Scratch::new("torch")?, programs: programs.to_path_buf() };
    let undisturbed = tests.undisturbed()?;
    println!("  undisturbed: {undisturbed}");
    let faults = [
        ("as the sample has it: rank 1 kills itself", None, None),
        ("a rank killed from outside", Some("--fault=exit=torch-ddp-trainer-1:137@8s"), Some("SIGKILL, code 137")),
        ("the node lost", Some("--fault=node=local-1@8s"), Some("node local-1")),
    ];
    for (name, fault, sign) in faults {
        let manifest = if fault.is_none() { root().join(SAMPLE) } else { tests.manifest(None)? };
        let run = tests.run(name, &manifest, fault, &[])?;
        require(run.success, name, "did not succeed", &run)?;
        require(run.output.contains("Restarting"), name, "was not restarted", &run)?;
        require(sign.is_none_or(|sign| run.output.contains(sign)), name, "did not meet its fault", &run)?;
        same(name, &run, &undisturbed)?;
    }
    tests.preempted(&undisturbed)?;
    println!("\nfive runs ended with {undisturbed}");
    Ok(())
}

struct Tests {
    scratch: Scratch,
    programs: PathBuf,
}

impl Tests {
    fn undisturbed(&self) -> Result<String, Problem> {
        let name = "undisturbed";
        let run = self.run(name, &self.manifest(None)?, None, &[])?;
        require(run.success, name, "did not succeed", &run)?;
        require(!run.output.contains("Restarting"), name, "was restarted", &run)?;
        require(run.resumed_after() == [0], name, "did not train from the beginning", &run)?;
        let result = run.result().map(str::to_owned);
        result.ok_or_else(|| Problem::failed(format!("{name}: said no result:\n{}", run.output)))
    }

    /// Preempted in the middle, then started again; the checkpoints stand outside the data directory, which is forgotten.
    fn preempted(&self, undisturbed: &str) -> Result<(), Problem> {
        let name = "preempted";
        let data = self.scratch.join(name);
        let manifest = self.manifest(Some(&self.scratch.join("checkpoints")))?;
        let run = self.run_in(&data, name, &manifest, &["--fault=preempt=torch-ddp@8s"])?;
        require(!run.success, name, "succeeded although it was preempted", &run)?;
        require(run.output.contains("Preempted"), name, "was not preempted", &run)?;
        require(run.result().is_none(), name, "had ended before it was preempted", &run)?;
        let name = "preempted, then applied again";
        let run = self.run_in(&data, name, &manifest, &["--again"])?;
        require(run.success, name, "did not succeed", &run)?;
        let from = run.resumed_after();
        require(from.first().is_some_and(|step| *step > 0), name, "did not continue from its checkpoint", &run)?;
        same(name, &run, undisturbed)
    }

    /// The sample's manifest without its own failure, slowed down so that faults meet it in the middle, and restarted after
    /// the loss of a node as well. Checkpoints go to a directory of this machine when one is given.
    fn manifest(&self, checkpoints: Option<&Path>) -> Result<PathBuf, Problem> {
        let path = self.scratch.join("torch-ddp.yaml");
        let edits = [
            ("args: [--steps=100, --fail-rank=1, --fail-step=55]", "args: [--steps=100, --step-ms=150]"),
            ("restartPolicy: OnFailure", "restartPolicy: Always"),
        ];
        edited(&root().join(SAMPLE), &path, &edits)?;
        checkpoints.map_or(Ok(()), |directory| in_directory(&path, "torch-ddp", directory))?;
        Ok(path)
    }

    fn run(&self, name: &str, manifest: &Path, fault: Option<&str>, more: &[&str]) -> Result<RunOutput, Problem> {
        let data = self.scratch.join(&name.replace([' ', ':', ','], "-"));
        let args: Vec<&str> = fault.into_iter().chain(more.iter().copied()).collect();
        self.run_in(&data, name, manifest, &args)
    }

    fn run_in(&self, data: &Path, name: &str, manifest: &Path, args: &[&str]) -> Result<RunOutput, Problem> {
        let path = self.scratch.join("output");
        let file = File::create(&path).map_err(io(path.display()))?;
        let mut command = Command::new(built("trainyard"));
        command.arg("run").arg(manifest).arg("--logs").arg("--data-dir").arg(data).args(args);
        println!("\n== {name}\n$ {}", shown(&command));
        // The sample says `python3`: the one that has torch comes first.
        let mut child = command
            .env("PATH", venv::path(&self.programs)?)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(io(path.display()))?)
            .stderr(file)
            .spawn()
            .map_err(io("trainyard run"))?;
        let ended = watch(&mut child, Duration::from_millis(100), LIMIT, &mut |_| {})?;
        let output = fs::read_to_string(&path).map_err(io(path.display()))?;
        match ended {
            Watched::Ended(status) => Ok(RunOutput { success: status.success(), output }),
            Watched::TooLong => Err(Problem::failed(format!("{name}: not done after {LIMIT:?}:\n{output}"))),
        }
    }
}

/// Writes a copy of a manifest with some of its words replaced, all of which must be there.
fn edited(from: &Path, to: &Path, edits: &[(&str, &str)]) -> Result<(), Problem> {
    let mut text = fs::read_to_string(from).map_err(io(from.display()))?;
    for (old, new) in edits {
        if !text.contains(old) {
            let said = format!("{} no longer says `{old}`: change this test with it", from.display());
            return Err(Problem::failed(said));
        }
        text = text.replace(old, new);
    }
    fs::write(to, text).map_err(io(to.display()))
}

/// Has a manifest keep its checkpoints in a directory of this machine instead of a claim.
fn in_directory(manifest: &Path, claim: &str, directory: &Path) -> Result<(), Problem> {
    let claim = format!("persistentVolumeClaim:\n                claimName: {claim}");
    let here =
        format!("hostPath:\n                path: {}\n                type: DirectoryOrCreate", directory.display());
    edited(manifest, manifest, &[(&claim, &here)])
}

fn require(holds: bool, name: &str, problem: &str, run: &RunOutput) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err(Problem::failed(format!("{name}: {problem}:\n{}", run.output))) }
}

/// The result of a run is that of the undisturbed one, to the bit.
fn same(name: &str, run: &RunOutput, undisturbed: &str) -> Result<(), Problem> {
    let result = run.result();
    println!("  {}; training began after steps {:?}", result.unwrap_or("no result"), run.resumed_after());
    require(result == Some(undisturbed), name, &format!("did not end with `{undisturbed}`"), run)
}
