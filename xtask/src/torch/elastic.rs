//! The elastic sample while its workers come and go: the losses are those of a run that nothing disturbs.
//!
//! One worker is killed, its replacement joins, the job is scaled to two workers and back to three, all while it trains. Worker 0
//! and worker 1 keep their launchers throughout. Once by `trainyard run`, once on the real control plane with processes as pods
//! (`plane`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{edited, plane, plugin};
use crate::run::{KillOnDrop, Problem, Scratch, Watched, built, io, root, shown, succeed, watch};
use crate::venv;

const SAMPLE: &str = "deploy/samples/torch-elastic.yaml";
/// Steps of the training: enough for every change to meet it, also on a busy machine.
pub(super) const STEPS: u32 = 500;
/// Time limit of what a test waits for.
const LIMIT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Largest difference of two losses of one step: sums of other orders are rounded otherwise.
const MAX_DIFFERENCE: f64 = 0.005;

/// Number of launchers that each worker has had after [`disturb`].
pub(super) const LAUNCHERS: [(u32, usize); 3] = [(0, 1), (1, 1), (2, 3)];

/// Losses by step.
pub(super) type Losses = BTreeMap<u32, f64>;

/// Runs the sample undisturbed, then the parts that are wanted: by `trainyard run`, on the control plane, and by the plugin there.
pub(super) fn run(programs: &Path, wants: &dyn Fn(&str) -> bool) -> Result<(), Problem> {
    let scratch = Scratch::new("torch-elastic")?;
    let quick = manifest(&scratch.join("quick.yaml"), "--step-ms=0", 3)?;
    let mut run = Run::start(programs, &scratch, "undisturbed", &quick, &[])?;
    let wanted = losses(&run.finish()?)?;
    println!("  undisturbed: the last of {} steps has {:?}", wanted.len(), wanted.last_key_value());

    if wants("elastic") {
        let file = manifest(&scratch.join("elastic.yaml"), "--step-ms=100", 3)?;
        let mut run = Run::start(programs, &scratch, "workers come and go", &file, &[])?;
        let scale = |replicas| manifest(&file, "--step-ms=100", replicas).map(drop);
        disturb(&mut || run.output(), &scale)?;
        check(&run.finish()?, &wanted, &LAUNCHERS)?;
    }
    if wants("plane") {
        plane::run(programs, &scratch, &wanted)?;
    }
    if wants("plugin") {
        plugin::run(programs, &scratch, &wanted)?;
    }
    Ok(())
}

/// Kills worker 2, then scales to two workers and back to three, each once the change before it is seen in the training.
pub(super) fn disturb(
    output: &mut dyn FnMut() -> Result<String, Problem>,
    scale: &dyn Fn(u32) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let killed = until("three workers train", output, |text| {
        agents(text).get(&2).and_then(|agents| agents.last().copied()).filter(|_| workers(text) == Some(3))
    })?;
    println!("  killing worker 2, process {killed}");
    succeed(Command::new("kill").args(["-KILL", &killed.to_string()]))?;
    until("its replacement trains", output, |text| {
        let replaced = agents(text).get(&2).is_some_and(|agents| agents.len() == 2);
        (replaced && workers(text) == Some(3)).then_some(())
    })?;
    for replicas in [2, 3] {
        println!("  scaling to {replicas} workers");
        scale(replicas)?;
        until(&format!("{replicas} workers train"), output, |text| (workers(text) == Some(replicas)).then_some(()))?;
    }
    Ok(())
}

/// Compares a disturbed run with an undisturbed one, and the number of launchers that each worker had.
pub(super) fn check(output: &str, wanted: &Losses, launchers: &[(u32, usize)]) -> Result<(), Problem> {
    let losses = same_losses(output, wanted)?;
    let agents = agents(output);
    for (worker, launchers) in launchers {
        let own = agents.get(worker).cloned().unwrap_or_default();
        if own.len() != *launchers {
            return Err(Problem::failed(format!("worker {worker} had launchers {own:?}, not {launchers}:\n{output}")));
        }
    }
    let of_two = steps(output).filter(|(.., workers)| *workers == 2).count();
    println!(
        "  {} steps, {of_two} of them by two workers: every loss is as undisturbed; launchers {agents:?}",
        losses.len()
    );
    Ok(())
}

/// Requires the losses of an undisturbed run, and returns them.
pub(super) fn same_losses(output: &str, wanted: &Losses) -> Result<Losses, Problem> {
    let losses = losses(output)?;
    let differing =
        wanted.iter().find(|(step, loss)| losses.get(step).is_none_or(|own| (own - *loss).abs() > MAX_DIFFERENCE));
    match differing {
        None => Ok(losses),
        Some((step, loss)) => {
            let own = losses.get(step);
            Err(Problem::failed(format!("the loss of step {step} is {own:?}, undisturbed {loss}:\n{output}")))
        }
    }
}

/// A line of the training about a step: its number, its loss, and how many workers made it.
fn steps(output: &str) -> impl Iterator<Item = (u32, f64, u32)> {
    output.lines().filter_map(|line| {
        let (step, rest) = line.split_once("step ")?.1.split_once(" of ")?;
        let (loss, rest) = rest.split_once(": loss ")?.1.split_once(", ")?;
        Some((step.parse().ok()?, loss.parse().ok()?, rest.strip_suffix(" workers")?.parse().ok()?))
    })
}

/// The last step that was made.
pub(super) fn last_step(output: &str) -> u32 {
    steps(output).map(|(step, ..)| step).max().unwrap_or_default()
}

/// The number of workers that made the last step.
pub(super) fn workers(output: &str) -> Option<u32> {
    steps(output).max_by_key(|(step, ..)| *step).map(|(.., workers)| workers)
}

/// The losses of a whole training. A step that was made again counts as it was made last.
pub(super) fn losses(output: &str) -> Result<Losses, Problem> {
    let losses: Losses = steps(output).map(|(step, loss, _)| (step, loss)).collect();
    if losses.keys().copied().eq(1..=STEPS) {
        return Ok(losses);
    }
    Err(Problem::failed(format!("the training made {} of {STEPS} steps:\n{output}", losses.len())))
}

/// The processes of the launchers of each worker, in the order in which they said so.
fn agents(output: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut agents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let said = output.lines().filter_map(|line| {
        let (pod, said) = line.split_once(" | ")?;
        let (_, agent) = said.split_once(", agent ")?;
        let worker = pod.rsplit_once('-')?.1.parse().ok()?;
        Some((worker, agent.split_once(':')?.0.parse().ok()?))
    });
    for (worker, agent) in said {
        let known = agents.entry(worker).or_default();
        if !known.contains(&agent) {
            known.push(agent);
        }
    }
    agents
}

/// Waits until the output of a training shows something.
pub(super) fn until<T>(
    what: &str,
    output: &mut dyn FnMut() -> Result<String, Problem>,
    shows: impl Fn(&str) -> Option<T>,
) -> Result<T, Problem> {
    let started = Instant::now();
    loop {
        let text = output()?;
        if let Some(found) = shows(&text) {
            return Ok(found);
        }
        if started.elapsed() > LIMIT || text.contains("done after ") {
            let seconds = started.elapsed().as_secs();
            return Err(Problem::failed(format!("waited {seconds} s until {what}, in vain:\n{text}")));
        }
        sleep(POLL_INTERVAL);
    }
}

/// Writes the sample's manifest with other arguments and another number of workers.
pub(super) fn manifest(path: &Path, arguments: &str, replicas: u32) -> Result<PathBuf, Problem> {
    let edits = [
        ("--steps=200, --step-ms=100", &*format!("--steps={STEPS}, {arguments}")),
        ("replicas: 3", &*format!("replicas: {replicas}")),
    ];
    edited(&root().join(SAMPLE), path, &edits)?;
    Ok(path.to_path_buf())
}

/// A `trainyard run`; killed when dropped.
pub(super) struct Run {
    child: KillOnDrop,
    output: PathBuf,
}

impl Run {
    pub(super) fn start(
        programs: &Path,
        scratch: &Scratch,
        name: &str,
        manifest: &Path,
        more: &[&str],
    ) -> Result<Self, Problem> {
        let place = name.replace(' ', "-");
        let output = scratch.join(&format!("{place}.log"));
        let file = File::create(&output).map_err(io(output.display()))?;
        let mut command = Command::new(built("trainyard"));
        command.args(["run", "--watch", "--logs"]).arg(manifest).arg("--data-dir").arg(scratch.join(&place));
        command.args(more);
        println!("\n== {name}\n$ {}", shown(&command));
        command.env("PATH", venv::path(programs)?).current_dir(root()).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(io(output.display()))?).stderr(file);
        Ok(Self { child: KillOnDrop(command.spawn().map_err(io("trainyard run"))?), output })
    }

    pub(super) fn output(&self) -> Result<String, Problem> {
        fs::read_to_string(&self.output).map_err(io(self.output.display()))
    }

    /// Waits for its end, and returns its output.
    pub(super) fn finish(&mut self) -> Result<String, Problem> {
        match watch(&mut self.child.0, POLL_INTERVAL, LIMIT, &mut |_| {})? {
            Watched::Ended(status) if status.success() => self.output(),
            ended => Err(Problem::failed(format!("trainyard run: {ended:?}:\n{}", self.output()?))),
        }
    }
}
