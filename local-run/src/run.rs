//! `trainyard run`: the manifests' jobs on this machine, pods as real processes.
//!
//! Owns the beginning and the end of a run; the loop between them is `turns`. Tests: `cli/tests/local/`, by topic.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apis::{Registry, Resource};
use cluster::runtime::PodRuntime;
use embedded::{EmbeddedCluster, Session};
use event_log::disk::SledLog;
use local::{Output, Processes, VisibleGpus};
use model::{JobKey, Phase};
use serde_json::{Value, json};
use terminal::out::{self, Failure};

use crate::args::{self, Events, RunArgs};
use crate::changed_files::ChangedFiles;
use crate::data_dir::DataDir;
use crate::faults::{self, Fault, FaultKind, Faults};
use crate::foreground::Foreground;
use crate::images::{ImagePullFaults, Images};
use crate::origins::Origins;
use crate::output::Lines;
use crate::peers::Places;
use crate::session::{apply, config};
use crate::turns::{self, Run, StopCause, Wake};
use crate::view::{self, Progress};
use crate::{attempts, detached, gpus, jobs, listen, nodes, signals, submit, threads, uploads};

/// Maximum time for which the end of a run waits for what was said before it.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Nodes that a machine stands for where manifests are run.
const NODES: u32 = 2;

/// The command that follows a run of a data directory.
pub(crate) fn attach_command(data_dir: &Path) -> String {
    format!("trainyard attach{}", view::DirOption { data_dir }.text())
}

/// Runs the manifests of these arguments to their end, or hands them to the run that has the data directory open.
///
/// # Errors
/// Returns an error if nothing was started, or the run broke off.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    if args.command.print_manifest {
        out::print(&args.command.text()?);
        return Ok(ExitCode::SUCCESS);
    }
    let manifests = args.manifests()?;
    refuse_foreign(&manifests)?;
    if let Some(code) = submit::to_active_run(args, &manifests)? {
        return Ok(code);
    }
    if args.background {
        detached::begin();
    } else if args.detach {
        // Standard input was read here.
        let input = args.reads_stdin().then(|| json!({"apiVersion": "v1", "kind": "List", "items": manifests}));
        let words = detached::own_arguments(detached::BACKGROUND);
        return detached::start(&words, input.as_ref(), &attach_command(&args.data_dir));
    } else if !args.in_front && args.stored.is_none() && args.output == Events::Text && detached::is_interactive() {
        return detached::stand_in_front();
    }
    threads::check()?;
    local::keep_files_private();
    let mut dir = match DataDir::open(&args.data_dir) {
        Ok(dir) => dir,
        // A run that began at the same moment takes the jobs.
        Err(failure) => return submit::to_active_run(args, &manifests)?.ok_or(failure),
    };
    if args.again {
        dir.clear(args.claims)?;
    }
    detached::forget(&args.data_dir);
    let log = SledLog::open(args.data_dir.join("log"), event_log::disk::Options::default())?;
    let (wake, woken) = mpsc::channel();
    out::start_printer(format!("The pods' output is in {}", args.data_dir.join("logs").display()))?;
    let lines = Arc::new(Lines::default());
    let result = go(args, &dir, &manifests, log, (&wake, &woken), &lines);
    // Threads that read log files may wait for room.
    lines.close();
    let stopped = result.as_ref().is_ok_and(|end| end.stopped_printing || end.stopped.is_some());
    turns::finish_printing(&woken, stopped || result.is_err());
    let code = match &result {
        Ok(RunResult { stopped: Some(cause), .. }) => cause.code(),
        Ok(end) if end.succeeded => 0,
        Ok(_) => out::FOUND,
        Err(failure) => failure.code(),
    };
    detached::note_exit(&args.data_dir, code);
    result.map(|_| ExitCode::from(code))
}

/// Returns the jobs of earlier runs that have not ended: all but those of this run, by uid.
fn unfinished(session: &Session, mine: &BTreeSet<String>) -> Vec<JobKey> {
    let is_left = |(key, phase): &(JobKey, Phase)| !phase.is_terminal() && !mine.contains(&*key.uid.0);
    session.jobs().into_iter().filter(is_left).map(|(key, _)| key).collect()
}

/// Refuses jobs whose pods another operator creates: none runs here.
fn refuse_foreign(manifests: &[Value]) -> Result<(), Failure> {
    let registry = Registry::all();
    let is_foreign = |manifest: &&Value| registry.get(&Resource::of(manifest)).is_some_and(|api| api.is_external());
    let Some(found) = manifests.iter().find(is_foreign) else { return Ok(()) };
    let (kind, name) = (Resource::of(found).kind, apis::objects::name(found));
    Err(Failure::new(format!(
        "{kind} {name}: its pods are created by its own operator, which does not run here: apply it to a cluster, or play it with `trainyard simulate`"
    )))
}

/// Result of a run.
struct RunResult {
    /// True if every job succeeded, and nothing was rejected or stopped.
    succeeded: bool,
    /// Why the run was stopped, if it was.
    stopped: Option<StopCause>,
    /// True if the user stopped the printing of its output.
    stopped_printing: bool,
}

/// Runs the jobs to their end. Returns when nothing of them runs any more.
fn go(
    args: &RunArgs,
    dir: &DataDir,
    manifests: &[Value],
    log: SledLog,
    (wake, woken): (&Sender<Wake>, &Receiver<Wake>),
    lines: &Arc<Lines>,
) -> Result<RunResult, Failure> {
    let registry = Registry::all();
    let master_port = std::env::var("MASTER_PORT").ok().and_then(|port| port.parse().ok());
    let places = Places::new(registry.clone(), master_port);
    let visible_gpus = VisibleGpus::of_environment();
    let gpus = gpus::claimed(args.gpus, &args.command, &visible_gpus)?;
    let mut options = local::Options::new(&args.data_dir, std::env::current_exe()?);
    options.gpus = gpus;
    options.visible_gpus = visible_gpus;
    options.directory_id = Some(dir.id().to_owned());
    options.workdir.clone_from(&args.workdir);
    options.peers = Some(places.of_pods());
    options.port_of = Some(places.port_of_pods());
    let origins = Origins::new(registry.clone());
    options.origin_of = Some(origins.of_pods());
    let workdir = args.workdir.as_deref();
    options.prepare = Some(uploads::of_directory(registry.clone(), origins.clone(), workdir, &args.data_dir));
    let processes = processes(options, args.shows_output(manifests), wake, lines)?;
    let images: Images = Arc::new(Mutex::new(faults::image_pull_faults(&args.faults).into_iter().collect()));
    let runtime = runtime(&processes, &images);
    let nodes = args.nodes.unwrap_or_else(|| if args.command.is_given() { 1 } else { NODES });
    let machine = nodes::Machine { nodes, gpus: gpus.unwrap_or_default() };
    let cluster_file = args.data_dir.join("cluster.json");
    let cluster = nodes::cluster(&cluster_file, machine, local::now(), runtime)?;
    let backend = EmbeddedCluster::serving(cluster, &registry)?.stored_in(&cluster_file);
    let mut session = Session::open(backend, registry, Box::new(log), config(&args.settings())?)?;
    let stop = wake.clone();
    signals::on_stop(move |signal| stop.send(Wake::Stop(StopCause::Signal(signal))).is_ok())?;
    let listens = listen::start(&args.data_dir, dir.opened(), wake.clone())?;
    faults::check(&args.faults, &session, manifests)?;
    let mut progress = Progress::new(local::now(), args.audience());
    progress.begin(session.operator.state());
    // A command is given to be run, however the one before ended.
    let rerun = args.rerun || args.command.is_given();
    let prepared = attempts::prepare(&mut session, manifests, rerun, &mut |line| progress.say(line))?;
    let rejected = apply(&mut session, &prepared)?;
    // By uid: earlier attempts have the same names.
    let mine: BTreeSet<String> = manifests.iter().filter_map(|manifest| session.job_uid(manifest)).collect();
    let others = unfinished(&session, &mine);
    progress.show_ranks(args::is_one_job(manifests) && others.is_empty());
    for key in &others {
        let (name, option) = (jobs::written(key), view::DirOption { data_dir: &args.data_dir }.text());
        progress.say(&format!(
            "{name} of an earlier run is unfinished and continues; to stop it: trainyard stop {name}{option}"
        ));
    }
    if machine.gpus == 0 {
        for line in gpus::hints(manifests) {
            progress.say(&line);
        }
    }
    for object in manifests.iter().cloned().chain(session.cluster().objects().iter().map(|o| (**o).clone())) {
        processes.provide(&object);
        places.add(&object);
    }
    let mut run = Run {
        files: args.watch.then(|| ChangedFiles::new(args.files(), args.lax)),
        mine,
        submitted: BTreeSet::new(),
        is_for_others: false,
        rejected: !rejected.is_empty(),
        deleted: Vec::new(),
        progress,
        processes,
        faults: (!args.faults.is_empty()).then(|| Faults::new(&args.faults)),
        lines: Arc::clone(lines),
        places,
        origins,
        deadline: args.timeout.map(|ms| local::now().plus_ms(ms)),
        stopped: None,
        foreground: args.in_front.then(Foreground::of_parent),
        data_dir: args.data_dir.clone(),
        wake: wake.clone(),
        listens,
    };
    if args.background {
        let names = session.jobs().into_iter().filter(|(key, _)| run.mine.contains(&*key.uid.0));
        let mut names: Vec<String> = names.map(|(key, _)| jobs::written(&key)).collect();
        // Jobs are known once their objects were observed.
        if names.is_empty() {
            let name = |object: &Value| {
                let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
                model::id::name_in(text("namespace"), text("name"))
            };
            names = manifests.iter().filter(|object| session.is_job(object)).map(name).collect();
        }
        detached::started(&args.data_dir, &names)?;
    }
    run.until_done(&mut session, woken).map_err(Failure::of_started)?;
    let stopped_printing = run.last_lines(&session, woken);
    run.progress.update(&mut session, local::now());
    run.progress.finish();
    // On the same terminal or in the same file, the end comes last.
    out::wait_said(END_TIMEOUT);
    let place = view::DirOption { data_dir: &args.data_dir };
    let mine = |key: &JobKey| run.mine.contains(&*key.uid.0);
    if !run.deleted.is_empty() {
        view::deleted(&run.deleted, &place, run.progress.form());
    }
    let failures = || view::failures(session.operator.log());
    let succeeded = view::blocks(session.operator.state(), &failures, &run.progress, &mine, &place)?;
    let images = images.lock().unwrap_or_else(PoisonError::into_inner);
    let of_images = |fault: &&Fault| matches!(&fault.kind, FaultKind::Image { pod } if images.contains_key(pod));
    let all_happened =
        faults::report_missed(run.faults.iter().flat_map(Faults::waiting).chain(args.faults.iter().filter(of_images)));
    Ok(RunResult {
        succeeded: succeeded && all_happened && !run.rejected && run.deleted.is_empty(),
        stopped: run.stopped,
        stopped_printing,
    })
}

/// Returns the runtime of pods: the processes, behind faults of images where some were asked for.
fn runtime(processes: &Processes, images: &Images) -> Box<dyn PodRuntime> {
    if images.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        return Box::new(processes.clone());
    }
    Box::new(ImagePullFaults::new(processes.clone(), Arc::clone(images)))
}

/// Starts the runtime of pods, whose output and warnings wake the loop.
fn processes(
    mut options: local::Options,
    logs: bool,
    wake: &Sender<Wake>,
    lines: &Arc<Lines>,
) -> Result<Processes, Failure> {
    let (sink, lines) = (wake.clone(), Arc::clone(lines));
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
