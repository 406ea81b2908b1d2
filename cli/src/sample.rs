//! `trainyard sample allreduce`: a small distributed program to try the product with.
//!
//! Every worker of a job holds a vector; together they sum them by a ring all-reduce over TCP, several times, and check each
//! element against the known result. It finds its peers through the environment of an `AITrainingJob` and nothing else, so
//! it shows that names, ports, ranks and restarts work; one worker can be made to die. Must not use anything of the
//! operator. Tests: `sample/tests.rs`.

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};

mod ring;

use self::ring::{Element, Ring, listen};

/// Addresses of the peers: `host:port`, comma separated, in rank order.
const HOSTS: &str = "TRAINER_HOSTS";
/// Rank of this worker.
const RANK: &str = "TRAININGJOB_REPLICA_INDEX";
/// Number of restarts of the workers.
const RESTARTS: &str = "TRAININGJOB_REPLICA_RESTARTCOUNT";

/// Arguments of `trainyard sample`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SampleArgs {
    /// The sample to run.
    #[command(subcommand)]
    pub(crate) sample: Sample,
}

/// The samples.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Sample {
    /// Sum vectors over all workers of an AITrainingJob (replica `trainer`) by a ring all-reduce, and check the sums
    Allreduce(AllreduceArgs),
}

/// Arguments of `trainyard sample allreduce`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AllreduceArgs {
    /// Length of each worker's list of numbers
    #[arg(long, default_value_t = 100_000)]
    pub(crate) elements: usize,
    /// Number of sums
    #[arg(long, default_value_t = 5)]
    pub(crate) steps: u32,
    /// Pause before each step, in milliseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) step_ms: u64,
    /// Type of the numbers
    #[arg(long, value_enum, default_value_t = Number::F64)]
    pub(crate) number: Number,
    /// The rank that dies
    #[arg(long)]
    pub(crate) fail_rank: Option<usize>,
    /// The step, from 1, in which it dies
    #[arg(long, default_value_t = 2, requires = "fail_rank")]
    pub(crate) fail_step: u32,
    /// The code it exits with; without it, it is killed by SIGKILL (137)
    #[arg(long, requires = "fail_rank")]
    pub(crate) fail_code: Option<u8>,
    /// It dies only as long as the job was never restarted
    #[arg(long, requires = "fail_rank")]
    pub(crate) first_try_only: bool,
    /// Time limit for all workers to connect, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) connect_seconds: u64,
    /// Time limit for a message from a connected worker, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) silence_seconds: u64,
}

/// A type of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Number {
    /// 64-bit floating point
    F64,
    /// 64-bit integer
    I64,
}

/// Error of a worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program was not started as a worker of a job.
    #[error("{name} {problem}: run this as the container of an AITrainingJob with a replica `trainer`")]
    Environment {
        /// The variable.
        name: &'static str,
        /// The problem.
        problem: String,
    },
    /// This worker cannot be reached by the others.
    #[error("cannot listen on {host}: {source}")]
    Listen {
        /// Its own entry in the list of hosts.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// A neighbour did not come up in time.
    #[error("rank {rank} ({host}) did not connect in time: {source}")]
    Connect {
        /// The neighbour.
        rank: usize,
        /// Its entry in the list of hosts.
        host: String,
        /// The last attempt's error.
        source: io::Error,
    },
    /// A neighbour ended, or sends nothing any more.
    #[error("lost rank {rank} in step {step}: {source}")]
    Lost {
        /// The neighbour.
        rank: usize,
        /// The step, from 1.
        step: u32,
        /// Error of the connection.
        source: io::Error,
    },
    /// The sum is not what it has to be.
    #[error("wrong sum in step {step}: element {index} is {got}, expected {want}")]
    WrongSum {
        /// The step, from 1.
        step: u32,
        /// The first wrong element.
        index: usize,
        /// Its value.
        got: String,
        /// The right one.
        want: String,
    },
}

/// Runs a sample as its arguments say. Exit code 2: not started as a worker; 1: the work failed.
pub(crate) fn run(args: SampleArgs) -> ExitCode {
    let Sample::Allreduce(args) = args.sample;
    let result = worker(&args, |name| std::env::var(name).ok());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, Error::Environment { .. }) { 2 } else { 1 })
        }
    }
}

/// Rank of this worker, and addresses of all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    rank: usize,
    hosts: Vec<String>,
    restarts: u32,
}

impl Place {
    fn read(env: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let need =
            |name: &'static str| env(name).ok_or_else(|| Error::Environment { name, problem: "is not set".to_owned() });
        let bad = |name: &'static str, value: &str| Error::Environment { name, problem: format!("is {value:?}") };
        let list = need(HOSTS)?;
        let mut hosts: Vec<String> = Vec::new();
        for entry in list.split(',') {
            let (host, port) = entry.rsplit_once(':').ok_or_else(|| bad(HOSTS, &list))?;
            if host.is_empty() || port.parse::<u16>().is_err() {
                return Err(bad(HOSTS, &list));
            }
            // A worker with several ports is listed once for each; the first will do.
            if !hosts.iter().any(|known| known.rsplit_once(':').is_some_and(|(known, _)| known == host)) {
                hosts.push(entry.to_owned());
            }
        }
        let rank = need(RANK)?;
        let rank = rank.parse().ok().filter(|rank| *rank < hosts.len()).ok_or_else(|| bad(RANK, &rank))?;
        let restarts = env(RESTARTS).unwrap_or_default();
        let restarts = if restarts.is_empty() { Some(0) } else { restarts.parse().ok() };
        Ok(Self { rank, hosts, restarts: restarts.ok_or_else(|| bad(RESTARTS, "not a number"))? })
    }
}

fn worker(args: &AllreduceArgs, env: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let place = Place::read(env)?;
    let deadline = Instant::now() + Duration::from_secs(args.connect_seconds);
    let listener = listen(&place, deadline)?;
    let ring = Ring::connect(&place, &listener, deadline, Duration::from_secs(args.silence_seconds.max(1)))?;
    println!("rank {} of {}, try {}: connected", place.rank, place.hosts.len(), place.restarts.saturating_add(1));
    match args.number {
        Number::F64 => train::<f64>(args, &place, ring),
        Number::I64 => train::<i64>(args, &place, ring),
    }
}

fn train<T: Element>(args: &AllreduceArgs, place: &Place, mut ring: Ring) -> Result<(), Error> {
    let started = Instant::now();
    for step in 1..=args.steps {
        thread::sleep(Duration::from_millis(args.step_ms));
        if args.fail_rank == Some(place.rank) && args.fail_step == step && !(args.first_try_only && place.restarts > 0)
        {
            die(place.rank, step, args.fail_code);
        }
        let mut vector: Vec<T> = (0..args.elements).map(|index| contribution(place.rank, index, step)).collect();
        ring.all_reduce(&mut vector, step)?;
        check(&vector, place.hosts.len(), step)?;
        println!("rank {}: step {step} of {}: all {} sums are right", place.rank, args.steps, args.elements);
    }
    println!("rank {}: done in {} ms", place.rank, started.elapsed().as_millis());
    Ok(())
}

fn die(rank: usize, step: u32, code: Option<u8>) -> ! {
    let Some(code) = code else {
        println!("rank {rank}: step {step}: killing myself, as requested");
        local::kill_this_process()
    };
    println!("rank {rank}: step {step}: exiting with code {code}, as requested");
    std::process::exit(i32::from(code))
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a rank's summand: different for every rank, element and step.
fn contribution<T: Element>(rank: usize, index: usize, step: u32) -> T {
    T::of((whole(rank) + 1) * (whole(index % 1000) + 1) + i64::from(step))
}

/// Returns the sum: 1 + 2 + ... + n times the element's part, and n times the step's.
fn check<T: Element>(vector: &[T], ranks: usize, step: u32) -> Result<(), Error> {
    let n = whole(ranks);
    for (index, got) in vector.iter().enumerate() {
        let want = T::of(n * (n + 1) / 2 * (whole(index % 1000) + 1) + n * i64::from(step));
        if *got != want {
            return Err(Error::WrongSum { step, index, got: got.to_string(), want: want.to_string() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
