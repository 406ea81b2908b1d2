//! `trainyard simulate`: the manifests' jobs with virtual pods in virtual time.
//!
//! Owns the run; its nodes are `nodes`'. Tests: `cli/tests/local/simulate.rs`.

mod nodes;

use std::path::PathBuf;
use std::process::ExitCode;

use apis::Registry;
use clap::Args;
use cluster::{Cluster, Mode};
use embedded::kubelet::{Kubelet, PodBehaviour};
use embedded::{EmbeddedCluster, Session};
use event_log::MemoryLog;
use inputs::manifests;
use local_run::faults::{self, Fault, Faults};
use local_run::records;
use local_run::session::{apply, config, duration, flag};
use local_run::view::{self, Audience, Form, Progress};
use simulator::controllers::mpi_operator;
use terminal::out::{self, Failure, Stream};

/// Maximum number of nodes of a simulation: each is an object in memory.
const MAX_NODES: i64 = 10_000;

/// Arguments of `trainyard simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard simulate job.yaml
  trainyard simulate job.yaml --fault exit=demo-trainer-1:137@20s --quiet")]
pub(crate) struct SimulateArgs {
    /// Manifest files (YAML or JSON).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Warn of unknown fields and wrong values in the manifests, and continue (`trainyard validate` lists them).
    #[arg(long)]
    lax: bool,
    /// Number of nodes; of each kind where the manifests select nodes by labels that exclude each other.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=MAX_NODES))]
    nodes: u32,
    /// GPUs of each node.
    #[arg(long, default_value_t = 8)]
    gpus: u32,
    /// Label of each node, as KEY=VALUE. May be repeated. Default: the labels that the manifests select.
    #[arg(long, value_name = "LABEL", value_parser = nodes::label)]
    node_label: Vec<(String, String)>,
    /// Running time of pods without the annotation `trainyard.dev/simulate-duration`.
    #[arg(long, default_value = "60s", value_parser = duration)]
    duration: u64,
    /// Fault to inject: exit=POD:CODE[@TIME], node=NODE[@TIME], image=POD[@FOR], preempt=JOB[@TIME]. May be repeated.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// A setting of the operator, for example `enable-creating-failed=true`. May be repeated.
    #[arg(long = "flag", value_name = "NAME=VALUE", value_parser = flag)]
    flags: Vec<(String, String)>,
    /// Maximum virtual time to simulate.
    #[arg(long, default_value = "720h", value_parser = duration)]
    limit: u64,
    /// Write the log as JSON lines to this file.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Print the outcome only.
    #[arg(long)]
    quiet: bool,
}

/// Rounds of the operator and the MPI operator beside it until nothing moves. Reaching it is a defect: they undo each other's work.
const MAX_ROUNDS: u32 = 100;

/// Runs cluster and operator until nothing moves, and the MPI operator, which creates the pods of `MPIJobs`.
fn settle(session: &mut Session, now: model::Timestamp) -> Result<(), Failure> {
    for _ in 0..MAX_ROUNDS {
        session.settle(&mut || now, &mut |_, _| {})?;
        let changed = mpi_operator::reconcile(session.backend_mut());
        if !changed.map_err(|error| Failure::new(format!("the simulated MPI operator: {error}")))? {
            return Ok(());
        }
    }
    Err(Failure::new(format!("operator and MPI operator are still busy after {MAX_ROUNDS} rounds")))
}

/// Simulates.
pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let manifests = manifests::load(&args.files, args.lax)?;
    let registry = Registry::all();
    let asked = nodes::Asked { nodes: args.nodes, gpus: args.gpus, labels: &args.node_label };
    let (nodes, lines) = nodes::of(&asked, &registry, &manifests);
    for line in lines.iter().filter(|_| !args.quiet) {
        out::error_line(line);
    }
    let cluster = Cluster::new(&cluster::Options { mode: Mode::Automatic, nodes, ..cluster::Options::default() });
    let start = cluster.now();
    let backend = EmbeddedCluster::serving(cluster, &registry)?;
    let log = MemoryLog::new();
    let mut session = Session::open(backend, registry, Box::new(log), config(&args.flags)?)?;
    faults::check(&args.faults, &session, &manifests)?;
    let mut kubelet = Kubelet::new(PodBehaviour { run_ms: args.duration, ..PodBehaviour::default() });
    for (pod, for_ms) in faults::image_pull_faults(&args.faults) {
        kubelet.fail_image_pull(&pod, for_ms);
    }
    let mut faults = Faults::new(&args.faults);
    let audience = Audience { stream: Stream::Out, form: Form::Text };
    let mut progress = Progress::new(start, audience);
    let rejected = apply(&mut session, &manifests)?;
    let mut now = start;
    loop {
        settle(&mut session, now)?;
        kubelet.plan(session.cluster_mut());
        kubelet.act(session.cluster_mut());
        settle(&mut session, now)?;
        faults.inject(&mut session, now, &mut |session, namespace, pod, code| {
            Ok(session.cluster_mut().exit(namespace, pod, code, None)?)
        })?;
        settle(&mut session, now)?;
        kubelet.plan(session.cluster_mut());
        if args.quiet {
            progress.skip(&mut session);
        } else {
            progress.update(&mut session, now);
        }
        let settled = |phase: model::Phase| phase.is_terminal();
        if session.jobs().iter().all(|(_, phase)| settled(*phase)) {
            break;
        }
        let next = [session.next_wake(), kubelet.next_wake(), faults.next_wake()].into_iter().flatten().min();
        let Some(next) = next.filter(|at| at.since_ms(start) <= args.limit) else { break };
        now = next.max(now);
    }
    progress.finish();
    if let Some(path) = &args.log {
        records::export(session.operator.log(), path)?;
    }
    let succeeded = view::outcomes(&session, &progress)?;
    let stuck: Vec<String> = session
        .jobs()
        .iter()
        .filter(|(_, phase)| !phase.is_terminal())
        .filter_map(|(key, _)| {
            let waits = explain::waits_for(session.operator.state(), key);
            (!waits.is_empty()).then(|| format!("{key} waits for: {}", waits.join("; ")))
        })
        .collect();
    for line in stuck {
        out::line(&line);
    }
    let images = args
        .faults
        .iter()
        .filter(|fault| matches!(&fault.kind, faults::FaultKind::Image { pod } if kubelet.awaits_image_fault(pod)));
    let all_happened = faults::report_missed(faults.waiting().chain(images));
    Ok(if succeeded && all_happened && rejected.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}
