//! What the engine costs: one table per topic, aims beside what was measured. `cargo xtask bench` runs all of it.
//!
//! Owns making realistic logs (`workload`, `export`), states with many jobs (`replicated_jobs`) and measuring what is done to them. Each topic is a
//! process of its own, so that one's memory does not show in another's. It judges nothing but its own aims: a missed aim is
//! printed, a wrong result is an error.

mod classes;
mod export;
mod fold;
mod memory;
mod mpi_jobs;
mod queues;
mod replicated_jobs;
mod size;
mod table;
mod transition;
mod uids;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use self::replicated_jobs::JobStage;

type AnyError = Box<dyn std::error::Error>;

const USAGE: &str = "usage: bench TOPIC [OPTION VALUE]...
  log --records N --to FILE       make a log of many 8-pod jobs and export it
  fold --file FILE                fold and decide again against a bare read of the same log
  transition [--jobs N]           one transition, with 1, 100 and N jobs known
  instructions --jobs N --transitions N   the same without a clock, for callgrind
  memory [--jobs N]               memory per live 8-pod job
  over [--jobs N]                 memory per 8-pod job that is over and still exists
  queues                          one round of the queues, by jobs and GPUs
  classes                         the part of it with nodes of ten classes beside nodes of one
  mpi                             one round of a queue with 200 MPIJobs, and the writes of a resize
  size                            log bytes of one 8-pod job's life";

/// Options of all topics.
struct Options {
    records: u64,
    jobs: u32,
    transitions: u32,
    file: Option<PathBuf>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, AnyError> {
        let mut out = Self { records: 1_000_000, jobs: 10_000, transitions: 20_000, file: None };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--records" => out.records = value.parse()?,
                "--jobs" => out.jobs = value.parse()?,
                "--transitions" => out.transitions = value.parse()?,
                "--to" | "--file" => out.file = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {flag}\n{USAGE}").into()),
            }
        }
        if out.jobs == 0 || out.transitions == 0 || out.records == 0 {
            return Err("counts must be at least 1".into());
        }
        Ok(out)
    }

    fn file(&self) -> Result<&std::path::Path, AnyError> {
        self.file.as_deref().ok_or_else(|| format!("a file is needed\n{USAGE}").into())
    }
}

fn run() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let topic = args.next().ok_or(USAGE)?;
    let options = Options::parse(args)?;
    match topic.as_str() {
        "log" => export::write_log(options.records, options.file()?),
        "fold" => fold::run(options.file()?),
        "transition" => transition::run(options.jobs),
        "instructions" => transition::count(options.jobs, options.transitions),
        "memory" => memory::run(options.jobs, JobStage::Running),
        "over" => memory::run(options.jobs, JobStage::Over),
        "queues" => queues::run(),
        "classes" => classes::run(),
        "mpi" => mpi_jobs::run(),
        "size" => size::run(),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}
