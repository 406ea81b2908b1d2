//! The operator on a real control plane, measured beside a bare client that creates the same pods and services in the same run.
//! `cargo xtask bench cluster` builds it, what it runs, and the log it starts cold on.
//!
//! Owns the order of what is measured and what may be asked for. It judges nothing but the aims, and a missed one is printed,
//! not an error: numbers of a busy machine decide nothing. What the figures mean stands in `docs/measured.md`.

mod api;
mod bare;
mod cold;
mod memory;
mod operator;
mod peers;
#[path = "../../cli/tests/common/probe.rs"]
mod probe;
mod queue;
mod recovery;
mod shapes;
mod table;
mod test_bed;
mod watcher;
mod work;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use memory::Amounts;
use table::AnyError;
use test_bed::TestBed;
use work::{JobKind, Shape};

/// Topics that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Topic {
    /// From apply to all Running, CPU and memory, in several shapes.
    Shapes,
    /// Jobs through a TrainingQueue, and a preemption.
    Queue,
    /// Calls in the life of a job.
    Writes,
    /// Memory with many live jobs, and beside objects of others.
    Memory,
    /// After the leader is killed; after pods are deleted.
    Recovery,
    /// From a long log to the first decision.
    Cold,
}

/// Arguments of the bench.
#[derive(Debug, Parser)]
#[command(name = "bench cluster")]
struct Args {
    /// Small: 100 nodes, one round, a minute and a half altogether.
    #[arg(long, conflicts_with = "large")]
    quick: bool,
    /// Large as well: 1,000 jobs of 8 pods, 10,000 live jobs, 1 GiB of other people's configuration.
    #[arg(long)]
    large: bool,
    /// The API whose jobs are measured. Of another than AITrainingJob only `shapes` and `writes` are.
    #[arg(long, value_enum, default_value = "aitrainingjob")]
    api: JobKind,
    /// Only these, between commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Topic>,
    /// Shapes, jobs x pods as in `100x10`, between commas; `:plain` for pods without services.
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<Shape>,
    /// Rounds of each shape. [default: 3, with --quick 1]
    #[arg(long)]
    rounds: Option<u32>,
    /// Simulated nodes. [default: 1000, with --quick 100]
    #[arg(long)]
    nodes: Option<u32>,
    /// Live jobs of 8 pods, for their memory. [default: 250, with --quick 20, with --large 10000]
    #[arg(long)]
    live_jobs: Option<u32>,
    /// Give these no services, and preempt them in the end: their pods' ends would not be theirs.
    #[arg(long)]
    live_plain: bool,
    /// An export of a log to start cold on. [default: one of 1,000,000 records, with --quick 100,000, by --log-maker]
    #[arg(long, value_name = "FILE")]
    cold_log: Option<PathBuf>,
    /// The program that makes such a log, `simulator/examples/bench`; without it and a log, the cold start is left out.
    #[arg(long, value_name = "FILE", hide = true)]
    log_maker: Option<PathBuf>,
    /// Time pods with this label instead, made by some other controller.
    #[arg(long, value_name = "LABEL=VALUE")]
    peer_label: Option<String>,
    /// Manifests for it, applied one after the other, each timed.
    #[arg(long, value_name = "FILE", requires = "peer_label", value_delimiter = ',')]
    peer_apply: Vec<PathBuf>,
    /// The `trainyard` to measure. [default: the one built with the bench]
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,
}

impl Args {
    fn wants(&self, topic: Topic) -> bool {
        let measured = self.api == JobKind::AiTrainingJob || matches!(topic, Topic::Shapes | Topic::Writes);
        measured && (self.only.is_empty() || self.only.contains(&topic))
    }

    fn shapes(&self) -> Vec<Shape> {
        if !self.shapes.is_empty() {
            return self.shapes.clone();
        }
        if self.quick {
            return vec![Shape::new(1, 100), Shape::new(10, 10)];
        }
        let mut shapes = vec![Shape::new(1, 1000), Shape::new(100, 10)];
        if self.api == JobKind::AiTrainingJob {
            shapes.insert(1, Shape { plain: true, ..Shape::new(1, 1000) });
        }
        if self.large {
            shapes.push(Shape::new(1000, 8));
        }
        shapes
    }

    /// By size: small, usual, large.
    const fn sized<T: Copy>(&self, small: T, usual: T, large: T) -> T {
        if self.quick {
            small
        } else if self.large {
            large
        } else {
            usual
        }
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            jobs: self.live_jobs.unwrap_or_else(|| self.sized(20, 250, 10_000)),
            services: !self.live_plain,
            foreign_pods: self.sized(500, 10_000, 10_000),
            config_map_bytes: self.sized(16 << 20, 64 << 20, 1 << 30),
        }
    }
}

/// Returns the path of the `trainyard` that was built with the bench.
fn beside_bench() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("trainyard")
}

fn run(args: &Args) -> Result<(), AnyError> {
    let nodes = args.nodes.unwrap_or_else(|| args.sized(100, 1000, 1000));
    let program = args.operator.clone().unwrap_or_else(beside_bench);
    if args.api != JobKind::AiTrainingJob && args.shapes.iter().any(|shape| shape.plain) {
        return Err("shapes: pods of this API always have services".into());
    }
    if !program.is_file() {
        return Err(format!("operator: {} is no program", program.display()).into());
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    println!("load average before: {load}; other users of this machine affect every figure");
    let test_bed = TestBed::start(nodes, program, args.api)?;
    let idle = test_bed.idle();
    println!(
        "{nodes} simulated nodes; at rest the API server uses {:.3} and etcd {:.3} CPU seconds a second, taken off below",
        idle.api_server, idle.etcd
    );
    if let Some(label) = &args.peer_label {
        return peers::run(&test_bed, label, &args.peer_apply);
    }
    let rounds = args.rounds.unwrap_or_else(|| args.sized(1, 3, 3)).max(1);
    if args.wants(Topic::Shapes) {
        shapes::run(&test_bed, &args.shapes(), rounds)?;
    }
    if args.wants(Topic::Queue) {
        let shape = args.sized(Shape::new(10, 8), Shape::new(100, 8), Shape::new(1000, 8));
        queue::run(&test_bed, Shape { plain: true, ..shape }, rounds, nodes)?;
    }
    if args.wants(Topic::Writes) {
        writes::run(&test_bed, args.sized(&[1, 8, 100], &[1, 8, 1000], &[1, 8, 1000]))?;
    }
    if args.wants(Topic::Recovery) {
        recovery::run(&test_bed, rounds, args.quick)?;
    }
    if args.wants(Topic::Cold) {
        let records = args.sized(100_000, cold::FULL_RECORDS, cold::FULL_RECORDS);
        match (&args.cold_log, &args.log_maker) {
            (Some(log), _) => cold::run(&test_bed, log, rounds)?,
            (None, Some(maker)) => cold::run(&test_bed, cold::make(maker, records)?.path(), rounds)?,
            (None, None) => println!("\ncold start: SKIPPED: no --cold-log; `cargo xtask bench cluster` makes one"),
        }
    }
    if args.wants(Topic::Memory) {
        memory::run(&test_bed, args.amounts())?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench cluster: {error}");
            ExitCode::from(2)
        }
    }
}
