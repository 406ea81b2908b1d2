//! `trainyard run`: the manifests' jobs on this machine, pods as real processes.

mod nodes;
mod signals;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apis::{ApiAnswer, ApiCall, Resource, Verb};
use clap::Args;
use cluster::runtime::{PodReport, PodRuntime};
use event_log::disk::SledLog;
use local::{Output, Processes};
use model::{Phase, Timestamp};
use serde_json::{Value, json};

use crate::commands::simulate::{config, flag};
use crate::faults::{self, Fault, Faults};
use crate::manifests;
use crate::out::{self, Failure};
use crate::session::Session;
use crate::view::{self, Progress};

/// How often the screen and timers are looked at when nothing happens.
const LOOK: Duration = Duration::from_millis(500);
/// How long the loop waits for more output when all is over.
const LAST_WORDS: Duration = Duration::from_millis(150);
/// Records after which the log is made to begin at the present state.
const COMPACT_AFTER: u64 = 200_000;

/// Arguments of `trainyard run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Manifest files (YAML or JSON): jobs, and the `ConfigMaps` and Secrets they use.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where the log, the cluster's objects and the pods' output are kept.
    #[arg(long, alias = "data-directory", default_value = "./trainyard-data", value_name = "DIR")]
    data_dir: PathBuf,
    /// Show the pods' output.
    #[arg(long)]
    logs: bool,
    /// GPUs of this machine to hand out.
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Working directory of containers that name none.
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Nodes that this machine stands for.
    #[arg(long, default_value_t = 2, value_name = "N")]
    nodes: u32,
    /// Forget earlier runs in the data directory and start anew.
    #[arg(long)]
    again: bool,
    /// What goes wrong: exit=POD:CODE[@TIME], node=NODE[@TIME], image=POD[@FOR], preempt=JOB[@TIME]. May be repeated.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// A setting of the operator, for example `enable-creating-failed=true`. May be repeated.
    #[arg(long = "flag", value_name = "NAME=VALUE", value_parser = flag)]
    flags: Vec<(String, String)>,
}

/// What wakes the loop.
enum Wake {
    /// A pod has something to say.
    Pods,
    /// A line of a pod, or a warning.
    Output(Output),
    /// The user wants to stop.
    Stop,
}

/// Runs.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let manifests = manifests::read(&args.files)?;
    if args.again {
        forget(&args.data_dir)?;
    }
    fs::create_dir_all(&args.data_dir).map_err(|e| at(&args.data_dir, &e))?;
    let log = SledLog::open(args.data_dir.join("log"), event_log::disk::Options::default())?;
    let (wake, woken) = mpsc::channel();
    let processes = processes(args, &wake)?;
    let spoilt = faults::spoilt_images(&args.faults).into_iter();
    let runtime =
        Spoiling { inner: processes.clone(), images: spoilt.collect(), later: Vec::new(), reports: Vec::new() };
    let machine = nodes::Machine { nodes: args.nodes, gpus: args.gpus.unwrap_or_default() };
    let cluster = nodes::cluster(&args.data_dir.join("cluster.json"), machine, now(), Box::new(runtime))?;
    let mut session =
        Session::open(cluster, Box::new(log), config(&args.flags)?, Some(args.data_dir.join("cluster.json")))?;
    let stop = wake.clone();
    signals::on_stop(move || stop.send(Wake::Stop).is_ok())?;
    let refused = session.apply(&manifests)?;
    for object in manifests.iter().cloned().chain(session.cluster.objects().iter().map(|o| (**o).clone())) {
        processes.provide(&object);
    }
    let mine: BTreeSet<(String, String)> = manifests.iter().filter(|m| session.is_job(m)).map(address).collect();
    let mut run = Run { progress: Progress::new(now()), processes, faults: Faults::new(&args.faults), stops: 0 };
    run.until_done(&mut session, &woken)?;
    // What the pods wrote last may still be on its way.
    while let Ok(wake) = woken.recv_timeout(LAST_WORDS) {
        run.woken(wake, &mut session)?;
    }
    run.progress.finish();
    let well = view::outcomes(&session, &|key| mine.contains(&(key.namespace.to_string(), key.name.to_string())));
    let stopped = run.stops > 0;
    Ok(if well && !stopped && refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

struct Run {
    progress: Progress,
    processes: Processes,
    faults: Faults,
    stops: u32,
}

impl Run {
    fn until_done(&mut self, session: &mut Session, woken: &Receiver<Wake>) -> Result<(), Failure> {
        loop {
            let at = now();
            let processes = self.processes.clone();
            session.pump(&mut now, &mut |call, answer| provide(&processes, call, answer))?;
            self.faults.strike(session, at, &mut |_, namespace, pod, code| {
                // A pod that has just ended cannot be made to: the next of its name is not meant any more.
                let _ = processes.inject_exit(namespace, pod, code);
                Ok(())
            })?;
            session.pump(&mut now, &mut |call, answer| provide(&processes, call, answer))?;
            self.progress.update(session, at);
            if session.operator.log().records() > COMPACT_AFTER {
                session.operator.compact()?;
            }
            let pods = || session.cluster.objects_of(&Resource::new("v1", "Pod"));
            let jobs = session.jobs();
            let ended = if self.stops > 0 {
                jobs.is_empty() && pods().is_empty()
            } else {
                let swept = |job: &model::JobKey| session.operator.state().job(job).is_none_or(|j| j.doomed.is_empty());
                let over = |key: &model::JobKey, phase: Phase| {
                    let hopeless = session
                        .operator
                        .state()
                        .job(key)
                        .is_some_and(|j| j.phase == Phase::New && j.invalid().is_some());
                    (phase.is_terminal() || hopeless) && swept(key)
                };
                session.operator.is_ready() && jobs.iter().all(|(key, phase)| over(key, *phase))
            };
            if ended {
                return Ok(());
            }
            let wait = session.next_wake().map_or(LOOK, |wake| Duration::from_millis(wake.since_ms(now())).min(LOOK));
            match woken.recv_timeout(wait) {
                Ok(wake) => self.woken(wake, session)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("the pods' runtime has ended")),
            }
            while let Ok(wake) = woken.try_recv() {
                self.woken(wake, session)?;
            }
        }
    }

    fn woken(&mut self, wake: Wake, session: &mut Session) -> Result<(), Failure> {
        match wake {
            Wake::Pods => {}
            Wake::Output(Output::Line { pod, container: _, text, .. }) => {
                let hue = pod.bytes().fold(0u8, u8::wrapping_add) % 6 + 31;
                let colour = std::io::IsTerminal::is_terminal(&std::io::stdout());
                let line = if colour { format!("\x1b[{hue}m{pod}\x1b[0m | {text}") } else { format!("{pod} | {text}") };
                self.progress.say(&line);
            }
            Wake::Output(Output::Warning { pod, message, .. }) => {
                self.progress.say(&format!("warning: pod {pod}: {message}"));
            }
            Wake::Stop => {
                self.stops += 1;
                if self.stops > 1 {
                    self.progress.finish();
                    // The supervisors end every pod as soon as this process is gone.
                    std::process::exit(i32::from(out::FOUND));
                }
                self.progress.say("stopping: deleting the jobs; Ctrl-C kills their pods at once");
                for (key, _) in session.jobs() {
                    if let Some(resource) = session.cluster.resource_named(&key.kind) {
                        session.cluster.delete_as_user(&resource, &key.namespace, &key.name, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The runtime learns the names of what is created, so that they can stand for addresses.
fn provide(processes: &Processes, call: &ApiCall, answer: &ApiAnswer) {
    if let (Verb::Create, Ok(object)) = (call.verb, answer)
        && matches!(&*call.resource.kind, "Pod" | "Service")
    {
        processes.provide(object);
    }
}

fn processes(args: &RunArgs, wake: &Sender<Wake>) -> Result<Processes, Failure> {
    let mut options = local::Options::new(&args.data_dir, std::env::current_exe()?);
    options.gpus = args.gpus;
    options.workdir.clone_from(&args.workdir);
    let (logs, sink) = (args.logs, wake.clone());
    options.log_sink = Some(Arc::new(move |output| {
        if logs || matches!(output, Output::Warning { .. }) {
            // The loop ends before the runtime does; what is said after that has no reader.
            let _ = sink.send(Wake::Output(output));
        }
    }));
    let waker = wake.clone();
    options.waker = Some(Arc::new(move || {
        let _ = waker.send(Wake::Pods);
    }));
    Ok(Processes::new(options)?)
}

fn forget(dir: &Path) -> Result<(), Failure> {
    for name in ["log", "cluster.json", "logs", "pods", "claims"] {
        let path = dir.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(at(&path, &error));
        }
    }
    Ok(())
}

fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

fn address(manifest: &Value) -> (String, String) {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Real pods, but for images that cannot be pulled the first time, for a while or for good.
struct Spoiling {
    inner: Processes,
    images: BTreeMap<String, Option<u64>>,
    /// Pods whose image can be pulled from a time on.
    later: Vec<(Timestamp, Value)>,
    reports: Vec<PodReport>,
}

impl PodRuntime for Spoiling {
    fn start(&mut self, pod: &Value) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        match self.images.remove(&text("/metadata/name")) {
            None => return self.inner.start(pod),
            Some(None) => {}
            Some(Some(ms)) => self.later.push((now().plus_ms(ms), pod.clone())),
        }
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "told so by --fault"}});
        let statuses: Vec<Value> = containers
            .map(|c| json!({"name": c["name"], "ready": false, "restartCount": 0, "state": waiting}))
            .collect();
        self.reports.push(PodReport {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            status: json!({"phase": "Pending", "startTime": now().to_rfc3339(), "containerStatuses": statuses}),
            ended: true,
        });
    }

    fn stop(&mut self, namespace: &str, name: &str, uid: &str, grace_seconds: u32) {
        self.later.retain(|(_, pod)| pod.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid));
        self.inner.stop(namespace, name, uid, grace_seconds);
    }

    fn poll(&mut self) -> Vec<PodReport> {
        let at = now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(from, _)| *from <= at);
        self.later = later;
        Vec::into_iter(due).for_each(|(_, pod): (Timestamp, Value)| self.inner.start(&pod));
        let mut reports = std::mem::take(&mut self.reports);
        reports.extend(self.inner.poll());
        reports
    }
}
