//! `trainyard run`: the manifests' jobs on this machine, pods as real processes.

mod attempts;
mod changed_files;
mod data_dir;
mod images;
mod nodes;
mod output;
mod signals;
mod turns;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use apis::Registry;
use clap::Args;
use embedded::{EmbeddedCluster, Session};
use event_log::disk::SledLog;
use local::{Output, Processes, VisibleGpus};
use serde_json::Value;

use self::changed_files::ChangedFiles;
use self::data_dir::DataDir;
use self::images::{ImagePullFaults, Images};
use self::output::Lines;
use self::turns::{Run, Wake};
use crate::commands::simulate::{config, flag};
use crate::faults::{self, Fault, FaultKind, Faults};
use crate::manifests;
use crate::out::{self, Failure};
use crate::view::{self, Progress};

/// Time after a first failure in which failures of other pods are waited for. The workers of one machine lose a peer within
/// milliseconds, and take some time to end.
const FAILURE_WINDOW: &str = "500ms";

/// Arguments of `trainyard run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Manifest files (YAML or JSON): jobs, and the `ConfigMaps` and Secrets they use.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Warn of unknown fields and wrong values in the manifests, and continue (`trainyard validate` lists them).
    #[arg(long)]
    lax: bool,
    /// Directory of the log, the cluster's objects and the pods' output.
    #[arg(long, alias = "data-directory", default_value = "./trainyard-data", value_name = "DIR")]
    data_dir: PathBuf,
    /// Show the pods' output.
    #[arg(long)]
    logs: bool,
    /// Number of GPUs to claim, of those that no other run holds and `CUDA_VISIBLE_DEVICES` allows.
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Working directory of containers without one.
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Number of nodes that this machine stands for.
    #[arg(long, default_value_t = 2, value_name = "N")]
    nodes: u32,
    /// Maximum number of restarts of a group without a limit of its own: a number, or `none`.
    #[arg(long, default_value = "3", value_name = "N|none", value_parser = restart_limit)]
    restart_limit: String,
    /// Apply the files again when they change while the run goes on, for example to scale a job.
    #[arg(long)]
    watch: bool,
    /// Run jobs again that ended in an earlier run and are unchanged.
    #[arg(long)]
    rerun: bool,
    /// Remove the data of earlier runs from the data directory, except volume claims, and start over.
    #[arg(long)]
    again: bool,
    /// With `--again`: remove the volume claims as well, and with them checkpoints that jobs keep there.
    #[arg(long, requires = "again")]
    claims: bool,
    /// Fault to inject: exit=POD:CODE[@TIME], node=NODE[@TIME], image=POD[@FOR], preempt=JOB[@TIME]. May be repeated.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// A setting of the operator, for example `enable-creating-failed=true`. May be repeated.
    #[arg(long = "flag", value_name = "NAME=VALUE", value_parser = flag)]
    flags: Vec<(String, String)>,
}

/// Runs.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let manifests = manifests::load(&args.files, args.lax)?;
    local::keep_files_private();
    let mut dir = DataDir::open(&args.data_dir)?;
    if args.again {
        dir.clear(args.claims)?;
    }
    let log = SledLog::open(args.data_dir.join("log"), event_log::disk::Options::default())?;
    let (wake, woken) = mpsc::channel();
    out::start_printer(format!("The pods' output is in {}", args.data_dir.join("logs").display()))?;
    let lines = Arc::new(Lines::default());
    let result = go(args, dir.id(), &manifests, log, (&wake, &woken), &lines);
    // Threads that read log files may wait for room.
    lines.close();
    let stopped = result.as_ref().is_ok_and(|end| end.stopped);
    turns::finish_printing(&woken, stopped || result.is_err());
    let end = result?;
    Ok(if end.succeeded { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

/// Result of a run.
struct RunResult {
    /// True if every job succeeded, and nothing was rejected or stopped.
    succeeded: bool,
    /// True if the user stopped the run, or the printing of its output.
    stopped: bool,
}

impl RunArgs {
    /// Returns the operator's flags: those of every run, then the given ones, which win.
    fn settings(&self) -> Vec<(String, String)> {
        let own = [("restart-limit", self.restart_limit.as_str()), ("failure-window", FAILURE_WINDOW)];
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().chain(self.flags.clone()).collect()
    }
}

/// Reads the value of `--restart-limit`.
fn restart_limit(text: &str) -> Result<String, String> {
    let known = text == "none" || text.parse::<u32>().is_ok();
    known.then(|| text.to_owned()).ok_or_else(|| "a number of restarts, or `none`".to_owned())
}

/// Runs the jobs to their end. Returns when nothing of them runs any more.
fn go(
    args: &RunArgs,
    directory_id: &str,
    manifests: &[Value],
    log: SledLog,
    (wake, woken): (&Sender<Wake>, &Receiver<Wake>),
    lines: &Arc<Lines>,
) -> Result<RunResult, Failure> {
    let processes = processes(args, directory_id, wake, lines)?;
    let images: Images = Arc::new(Mutex::new(faults::image_pull_faults(&args.faults).into_iter().collect()));
    let runtime = ImagePullFaults::new(processes.clone(), Arc::clone(&images));
    let machine = nodes::Machine { nodes: args.nodes, gpus: args.gpus.unwrap_or_default() };
    let cluster_file = args.data_dir.join("cluster.json");
    let cluster = nodes::cluster(&cluster_file, machine, local::now(), Box::new(runtime))?;
    let registry = Registry::all();
    let backend = EmbeddedCluster::serving(cluster, &registry)?.stored_in(&cluster_file);
    let mut session = Session::open(backend, registry, Box::new(log), config(&args.settings())?)?;
    let stop = wake.clone();
    signals::on_stop(move || stop.send(Wake::Stop).is_ok())?;
    faults::check(&args.faults, &session, manifests)?;
    let prepared = attempts::prepare(&mut session, manifests, args.rerun)?;
    let rejected = manifests::apply(&mut session, &prepared)?;
    for object in manifests.iter().cloned().chain(session.cluster().objects().iter().map(|o| (**o).clone())) {
        processes.provide(&object);
    }
    let mut run = Run {
        files: args.watch.then(|| ChangedFiles::new(&args.files, args.lax)),
        // By uid: earlier attempts have the same names.
        mine: manifests.iter().filter_map(|manifest| session.job_uid(manifest)).collect(),
        rejected: !rejected.is_empty(),
        progress: Progress::new(local::now()),
        processes,
        faults: Faults::new(&args.faults),
        lines: Arc::clone(lines),
        stops: 0,
    };
    run.until_done(&mut session, woken)?;
    let stopped_printing = run.last_lines(woken);
    run.progress.update(&mut session, local::now());
    run.progress.finish();
    let succeeded =
        view::outcomes(&session, &run.progress, &|key| run.mine.contains(&*key.uid.0), Some(&args.data_dir))?;
    let images = images.lock().unwrap_or_else(PoisonError::into_inner);
    let of_images = |fault: &&Fault| matches!(&fault.kind, FaultKind::Image { pod } if images.contains_key(pod));
    let all_happened = faults::report_missed(run.faults.waiting().chain(args.faults.iter().filter(of_images)));
    Ok(RunResult {
        succeeded: succeeded && all_happened && !run.rejected && run.stops == 0,
        stopped: run.stops > 0 || stopped_printing,
    })
}

fn processes(
    args: &RunArgs,
    directory_id: &str,
    wake: &Sender<Wake>,
    lines: &Arc<Lines>,
) -> Result<Processes, Failure> {
    let mut options = local::Options::new(&args.data_dir, std::env::current_exe()?);
    options.gpus = args.gpus;
    options.visible_gpus = VisibleGpus::of_environment();
    options.directory_id = Some(directory_id.to_owned());
    options.workdir.clone_from(&args.workdir);
    let (logs, sink, lines) = (args.logs, wake.clone(), Arc::clone(lines));
    options.log_sink = Some(Arc::new(move |output| {
        // The loop ends before the runtime does; what is said after that has no reader.
        let _ = match output {
            Output::Line { .. } if !logs || out::is_gone() => Ok(()),
            Output::Line { pod, text, .. } => {
                if lines.offer(pod, text) {
                    sink.send(Wake::Lines)
                } else {
                    Ok(())
                }
            }
            Output::Warning { pod, message, .. } => sink.send(Wake::Warning { pod, message }),
        };
    }));
    let waker = wake.clone();
    options.waker = Some(Arc::new(move || {
        let _ = waker.send(Wake::Pods);
    }));
    Ok(Processes::new(options)?)
}
