//! Ten `DistributedDataParallel` jobs at once on one machine: five of one run, five of runs of their own.
//!
//! Each listens on a port of its own, so the workers of one job must not meet those of another: every job ends with the result of
//! one that is alone. Owns how the jobs are started and distinguished.

use std::path::{Path, PathBuf};
use std::{fs, thread};

use super::{RunOutput, Tests, edited};
use crate::run::{Problem, Scratch, io, root};

/// Jobs of the run that has several, and runs that have one.
const JOBS: usize = 5;
const SAMPLE: &str = "torch-ddp";

/// Runs one job alone, and then all at once.
pub(super) fn run(programs: &Path) -> Result<(), Problem> {
    let tests = || Ok(Tests { scratch: Scratch::new("torch-many")?, programs: programs.to_path_buf() });
    let alone = tests()?;
    let run = alone.run("alone", &manifest(&alone, "", SAMPLE)?, None, &[])?;
    let wanted = run.result().filter(|_| run.success).map(str::to_owned);
    let wanted = wanted.ok_or_else(|| Problem::failed(format!("alone: said no result:\n{}", run.output)))?;
    println!("  alone: {wanted}\n\n== {} jobs at once", 2 * JOBS);

    let together = tests()?;
    fs::create_dir(together.scratch.join("jobs")).map_err(io("jobs"))?;
    for n in 0..JOBS {
        manifest(&together, "jobs", &format!("{SAMPLE}-{n}"))?;
    }
    let directory = together.scratch.join("jobs");
    let runs = (0..JOBS).map(|_| tests()).collect::<Result<Vec<Tests>, Problem>>()?;
    let (several, single) = thread::scope(|scope| {
        let several = scope.spawn(|| together.run("five jobs of one run", &directory, None, &[]));
        let single: Vec<_> = runs
            .iter()
            .map(|one| scope.spawn(|| one.run("a run of its own", &manifest(one, "", SAMPLE)?, None, &[])))
            .collect();
        let single: Vec<Result<RunOutput, Problem>> = single.into_iter().map(|run| joined(run.join())).collect();
        (joined(several.join()), single)
    });
    results("five jobs of one run", &several?, JOBS, &wanted)?;
    for run in single {
        results("a run of its own", &run?, 1, &wanted)?;
    }
    println!("\n{} jobs at once ended with {wanted}", 2 * JOBS);
    Ok(())
}

fn joined(run: thread::Result<Result<RunOutput, Problem>>) -> Result<RunOutput, Problem> {
    run.unwrap_or_else(|_| Err(Problem::failed("a thread of this test failed")))
}

/// Writes the sample as a job of this name, without the failure that it has.
fn manifest(tests: &Tests, directory: &str, name: &str) -> Result<PathBuf, Problem> {
    let path = tests.scratch.join(directory).join(format!("{name}.yaml"));
    let edits = [("args: [--steps=100, --fail-rank=1, --fail-step=55]", "args: [--steps=100]"), (SAMPLE, name)];
    edited(&root().join("deploy/samples/torch-ddp.yaml"), &path, &edits)?;
    Ok(path)
}

/// Every job of a run said the result once, and no other.
fn results(name: &str, run: &RunOutput, jobs: usize, wanted: &str) -> Result<(), Problem> {
    let said: Vec<&str> =
        run.output.lines().filter_map(|line| line.find("done: loss ").and_then(|at| line.get(at..))).collect();
    println!(
        "  {name}: {} of {jobs} with the result of one alone",
        said.iter().filter(|line| **line == wanted).count()
    );
    let is_right = run.success && said.len() == jobs && said.iter().all(|line| *line == wanted);
    if is_right { Ok(()) } else { Err(Problem::failed(format!("{name}: {said:?}, wanted {wanted}:\n{}", run.output))) }
}
