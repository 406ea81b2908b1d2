//! [`Processes`]: the runtime itself, a table of pods and what they wait for.
//!
//! Tests: `tests/local/processes.rs`, `tests/local/trees.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, fs};

use cluster::runtime::{PodReport, PodRuntime};
use serde_json::Value;

use crate::claims::{Claim, claim};
use crate::error::Error;
use crate::execution::{Execution, Stop};
use crate::gpus::Gpus;
use crate::handle::{Handle, Hub};
use crate::last_words;
use crate::log_files::newest_log;
use crate::mounts::Mounts;
use crate::names::{self, Names};
use crate::object_files::ObjectFiles;
use crate::objects::{ObjectKind, Objects};
use crate::options::{Options, Output, Sink};
use crate::plan::{PlanError, Planner};
use crate::tail::Tail;
use crate::wire::{Order, Program};
use crate::{leftovers, private, status, volumes};

/// Maximum time for which dropping the runtime waits for its pods.
const DROP_TIMEOUT: Duration = Duration::from_secs(20);

/// Pods as processes of this machine. Clones are the same runtime, so that one can be given to the cluster and another
/// can provide objects and faults; when the last is dropped, every process of every pod is ended.
#[derive(Clone)]
pub struct Processes {
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Processes").field("options", &inner.options).field("pods", &inner.pods).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Pod {
    namespace: String,
    name: String,
    handle: Handle,
    /// The programs of its containers and their mounts, by name.
    programs: BTreeMap<String, (Program, Mounts)>,
    /// The files of its volumes that follow their objects.
    files: Vec<ObjectFiles>,
    /// What ends the programs that were started beside them.
    executions: Vec<Stop>,
}

struct Inner {
    options: Options,
    names: Names,
    gpus: Gpus,
    /// Other runs of this machine take other loopback addresses while it is held.
    _network: Option<Claim>,
    objects: Objects,
    pods: BTreeMap<String, Pod>,
    /// Pods that wait for an object they refer to, by uid.
    refused: BTreeMap<String, Value>,
    warned: BTreeSet<String>,
    hub: Option<Hub>,
    reports: Receiver<PodReport>,
    all_gone: Receiver<()>,
}

impl Processes {
    /// Creates a runtime without pods.
    ///
    /// # Errors
    /// When the data directory cannot be made, processes of an earlier run cannot be ended, the supervisor program is not there, or this machine has only one
    /// loopback address.
    pub fn new(mut options: Options) -> Result<Self, Error> {
        let dir = options.data_dir.clone();
        private::keep_files_private();
        // Containers have working directories of their own, so every path they get is made absolute.
        options.data_dir = fs::create_dir_all(&dir)
            .and_then(|()| fs::canonicalize(&dir))
            .map_err(|source| Error::DataDir { path: dir, source })?;
        private::tighten(&options.data_dir);
        let program = options.supervisor_program.clone();
        options.supervisor_program =
            fs::canonicalize(&program).map_err(|source| Error::Supervisor { path: program, source })?;
        if let Some(workdir) = &options.workdir {
            options.workdir = std::path::absolute(workdir).ok();
        }
        options.log_sink = options.log_sink.map(survivable);
        let (names, network) = if let Some(cluster) = &options.cluster {
            // Nodes of a cluster share its addresses, also on one machine.
            (Names::of_cluster(cluster), None)
        } else {
            let (network, claim) = free_network(&options.data_dir.to_string_lossy())?;
            (Names::new(network), Some(claim))
        };
        let gpus = match (options.gpus, &options.cluster) {
            (None, _) => Gpus::none(),
            // Nodes of a cluster are given theirs by the administrator, who may let several stand for one machine.
            (Some(count), Some(_)) => Gpus::unclaimed(count),
            (Some(count), None) => Gpus::claim(count, &options.visible_gpus)?,
        };
        let address = names.sample();
        TcpListener::bind((address, 0)).map_err(|source| Error::Loopback { address, source })?;
        let directory: Arc<str> = match &options.directory_id {
            Some(id) => id.as_str().into(),
            None => options.data_dir.to_string_lossy().into(),
        };
        let leftovers = leftovers::end(&directory, &options.data_dir.join("logs"));
        if !leftovers.left.is_empty() {
            return Err(Error::Leftovers { processes: leftovers::words(&leftovers.left) });
        }
        // Directories of pods that a runner left when it was killed; their processes ended with it.
        let _ = fs::remove_dir_all(options.data_dir.join("pods"));

        let (reports_in, reports) = mpsc::channel();
        let (alive, all_gone) = mpsc::channel();
        let hub = Hub {
            program: options.supervisor_program.clone(),
            directory,
            inherited_variables: options.inherited_variables.as_deref().map(Arc::from),
            environment: None,
            reports: reports_in,
            tail: options.log_sink.clone().map(|sink| Arc::new(Tail::new(sink))),
            waker: options.waker.clone(),
            alive,
        };
        let mut inner = Inner {
            gpus,
            _network: network,
            options,
            names,
            objects: Objects::default(),
            pods: BTreeMap::new(),
            refused: BTreeMap::new(),
            warned: BTreeSet::new(),
            hub: Some(hub),
            reports,
            all_gone,
        };
        for ((namespace, pod), processes) in leftovers.ended {
            let words = leftovers::words(&processes);
            let message = format!("ended processes that an earlier run left when it was killed: {words}");
            inner.warn(&namespace, &pod, &pod, message);
        }
        Ok(Self { inner: Arc::new(Mutex::new(inner)) })
    }

    /// Provides an object that pods can refer to, or its newer version: a `ConfigMap` or `Secret`, whose files in the volumes of running
    /// pods follow it; a Service or Pod, whose DNS name is known from then on; anything else stands for the job of pods named `<name>-...`.
    pub fn provide(&self, object: &Value) {
        let inner = &mut *self.lock();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let map = |value: &Value| -> BTreeMap<String, String> {
            let pairs = value.as_object().into_iter().flatten();
            pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let (namespace, name) = (text("namespace"), text("name"));
        match object["kind"].as_str() {
            Some("ConfigMap" | "Secret") => {
                if inner.objects.put(object) {
                    for (_, pod) in std::mem::take(&mut inner.refused) {
                        inner.start(&pod);
                    }
                }
                // Also where it is as before: names in it may have been learnt since.
                inner.write_files(object);
            }
            Some("Service") => inner.names.add_service(namespace, name, map(&object["spec"]["selector"])),
            Some("Pod") => {
                let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let owner = owners.into_iter().find(|owner| owner["controller"] == true);
                let owner = owner.and_then(|owner| owner["name"].as_str());
                inner.names.add_pod(namespace, name, &map(&object["metadata"]["labels"]), owner);
            }
            _ => inner.names.add_owner(namespace, name),
        }
    }

    /// Withdraws an object that was deleted; containers keep the values they have of it.
    pub fn withdraw(&self, object: &Value) {
        let inner = &mut *self.lock();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        match object["kind"].as_str() {
            Some("Service") => inner.names.remove_service(text("namespace"), text("name")),
            Some("Pod") => inner.names.remove_pod(text("namespace"), text("name")),
            _ => inner.objects.remove(object),
        }
    }

    /// The loopback address of a pod or Service, whether it exists yet or not.
    #[must_use]
    pub fn address(&self, namespace: &str, name: &str) -> Ipv4Addr {
        self.lock().names.address(namespace, name)
    }

    /// The address of a pod that was started here and has not ended.
    #[must_use]
    pub fn address_of_running(&self, namespace: &str, name: &str) -> Option<Ipv4Addr> {
        let inner = &mut *self.lock();
        let runs = inner.pods.values().any(|pod| pod.namespace == namespace && pod.name == name);
        runs.then(|| inner.names.address(namespace, name))
    }

    /// Kills what runs of a pod and has its containers count as ended with `code`; when nothing of it runs just now,
    /// as soon as something does.
    ///
    /// # Errors
    /// [`Error::NoSuchPod`] when the pod was not started or has ended.
    pub fn inject_exit(&self, namespace: &str, name: &str, code: i32) -> Result<(), Error> {
        let inner = self.lock();
        let mut pods = inner.pods.values();
        match pods.find(|pod| pod.namespace == namespace && pod.name == name) {
            Some(pod) => {
                pod.handle.order(Order::Exit { code });
                Ok(())
            }
            None => Err(Error::NoSuchPod { namespace: namespace.to_owned(), name: name.to_owned() }),
        }
    }

    /// Claims GPUs until `count` of this machine's are free for the next pods. Returns the number that this run has then, those that
    /// pods have included.
    ///
    /// # Errors
    /// When fewer are free on this machine. Those that were are claimed.
    pub fn claim_gpus(&self, count: u32) -> Result<u32, Error> {
        let inner = &mut *self.lock();
        Ok(inner.gpus.claim_more(count, &inner.options.visible_gpus)?)
    }

    /// Starts a program in a container: with its environment, working directory, user and mounts. It ends with the pod. Returns once it runs.
    ///
    /// # Errors
    /// When the pod does not run here, has no such container, or the program cannot be started.
    pub fn exec(&self, namespace: &str, name: &str, container: &str, command: &[String]) -> Result<Execution, Error> {
        let is_pod = |pod: &Pod| pod.namespace == namespace && pod.name == name;
        let missing = || Error::NoSuchPod { namespace: namespace.to_owned(), name: name.to_owned() };
        let (hub, (mut program, mounts)) = {
            let inner = self.lock();
            let pod = inner.pods.values().find(|pod| is_pod(pod)).ok_or_else(missing)?;
            let program = pod.programs.get(container).cloned().ok_or_else(|| Error::NoSuchContainer {
                pod: format!("{namespace}/{name}"),
                container: container.to_owned(),
            })?;
            (inner.hub.clone().ok_or_else(missing)?, program)
        };
        program.argv = command.iter().map(|word| mounts.rewrite(word)).collect();
        // Others can continue meanwhile.
        let execution = Execution::start(&hub, (namespace, name), container, program)?;
        let mut inner = self.lock();
        let pod = inner.pods.values_mut().find(|pod| is_pod(pod)).ok_or_else(missing)?;
        pod.executions.retain(Stop::is_used);
        pod.executions.push(execution.stopper());
        Ok(execution)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic can only come from a sink or waker of the runner's; the table is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodRuntime for Processes {
    fn start(&mut self, pod: &Value) {
        self.lock().start(pod);
    }

    fn stop(&mut self, namespace: &str, name: &str, uid: &str, grace_seconds: u32) {
        let mut inner = self.lock();
        if let Some(pod) = inner.pods.get(uid) {
            pod.handle.order(Order::Stop { grace_ms: u64::from(grace_seconds) * 1000 });
            return;
        }
        // Never started here, or ended: nothing of it runs. A runner that came back asks about pods of the one before.
        let was_refused = inner.refused.remove(uid).is_some();
        let status = if was_refused {
            status::of_failed("Deleted", "the pod was deleted before it could be started")
        } else {
            Value::Object(serde_json::Map::new())
        };
        inner.report(namespace, name, uid, status, true);
    }

    fn last_line(&self, namespace: &str, name: &str, container: &str) -> Option<String> {
        let path = newest_log(&self.lock().options.data_dir, namespace, name, container, false).ok()??;
        last_words::of_file(&path).lines().next_back().map(str::to_owned)
    }

    fn poll(&mut self) -> Vec<PodReport> {
        let mut inner = self.lock();
        let reports: Vec<PodReport> = inner.reports.try_iter().collect();
        for report in reports.iter().filter(|report| report.ended) {
            if let Some(pod) = inner.pods.remove(&report.uid) {
                pod.executions.iter().for_each(Stop::stop);
            }
            inner.gpus.release(&report.uid);
        }
        reports
    }
}

impl Inner {
    fn start(&mut self, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        if self.pods.contains_key(uid) {
            return;
        }
        let Some(mut hub) = self.hub.clone() else { return };
        let origin = self.options.origin_of.as_ref().and_then(|origin_of| origin_of(object));
        hub.environment = origin.as_ref().map(|origin| Arc::clone(&origin.environment));
        let mut planner = Planner {
            options: &self.options,
            workdir: origin.map(|origin| origin.workdir),
            objects: &self.objects,
            names: &mut self.names,
            gpus: &mut self.gpus,
            files: Vec::new(),
            warnings: Vec::new(),
        };
        let plan = planner.plan(object);
        let files = planner.files;
        for warning in planner.warnings {
            self.warn(namespace, name, &owner_of(object), warning);
        }
        match plan {
            Ok(plan) => {
                let pod_dir = volumes::pod_dir(&self.options.data_dir, uid);
                let containers = plan.init.iter().chain(&plan.main);
                let programs =
                    containers.map(|one| (one.name.clone(), (one.program.clone(), one.mounts.clone()))).collect();
                let handle = Handle::start(hub, plan, pod_dir);
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                let pod = Pod { namespace, name, handle, programs, files, executions: Vec::new() };
                self.pods.insert(uid.to_owned(), pod);
            }
            Err(PlanError::Admission { message }) => {
                self.warn(namespace, name, &owner_of(object), message.clone());
                self.report(namespace, name, uid, status::of_failed("UnexpectedAdmissionError", &message), true);
            }
            Err(PlanError::Container { name: container, message }) => {
                self.warn(namespace, name, &owner_of(object), message.clone());
                let containers = containers_of(object);
                // An init container has no status of its own yet: the others say what is the matter.
                let shown = containers.iter().any(|(name, _)| *name == container);
                let status = status::of_refused(&containers, if shown { &container } else { "" }, &message);
                self.refused.insert(uid.to_owned(), object.clone());
                self.report(namespace, name, uid, status, false);
            }
        }
    }

    /// Has the volumes of running pods show an object as it is now.
    fn write_files(&mut self, object: &Value) {
        let Some((kind, namespace, name)) = ObjectKind::named(object) else { return };
        let mut problems = Vec::new();
        for pod in self.pods.values_mut() {
            for files in pod.files.iter_mut().filter(|files| files.shows(kind, &namespace, &name)) {
                if let Err(problem) = files.write(&self.objects, &mut self.names) {
                    let message = format!("files of {} \"{name}\" stay as they were: {problem}", kind.word());
                    problems.push((pod.namespace.clone(), pod.name.clone(), message));
                }
            }
        }
        for (namespace, pod, message) in problems {
            self.warn(&namespace, &pod, &pod, message);
        }
    }

    fn report(&self, namespace: &str, name: &str, uid: &str, status: Value, ended: bool) {
        if let Some(hub) = &self.hub {
            let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
            hub.report(PodReport { namespace, name, uid, status, ended });
        }
    }

    /// Reports a warning once for all pods of an owner.
    fn warn(&mut self, namespace: &str, pod: &str, owner: &str, message: String) {
        if !self.warned.insert(format!("{namespace}/{owner}: {message}")) {
            return;
        }
        tracing::warn!(namespace, pod, message, "pod differs from what a cluster would run");
        if let Some(sink) = &self.options.log_sink {
            sink(Output::Warning { namespace: namespace.to_owned(), pod: pod.to_owned(), message });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for pod in self.pods.values() {
            pod.handle.abandon();
        }
        // The last sender goes with the last pod's thread, which ends when its supervisor has.
        self.hub = None;
        let _ = self.all_gone.recv_timeout(DROP_TIMEOUT);
    }
}

/// Claims a network of loopback addresses that no other run of this machine has.
fn free_network(seed: &str) -> Result<(u8, Claim), Error> {
    for network in names::networks(seed) {
        if let Ok(claim) = claim(&format!("127.{network}")).map_err(Error::Claim)? {
            return Ok((network, claim));
        }
    }
    Err(Error::NoNetwork)
}

/// A sink that is not asked again once it has panicked (a terminal that is gone): pods continue without being shown.
fn survivable(sink: Sink) -> Sink {
    let works = AtomicBool::new(true);
    Arc::new(move |output| {
        if works.load(Ordering::Relaxed) && catch_unwind(AssertUnwindSafe(|| sink(output))).is_err() {
            works.store(false, Ordering::Relaxed);
        }
    })
}

/// Returns the name of the pod's owner, or its own.
fn owner_of(pod: &Value) -> String {
    let owner = pod["metadata"]["ownerReferences"][0]["name"].as_str();
    owner.or_else(|| pod["metadata"]["name"].as_str()).unwrap_or_default().to_owned()
}

fn containers_of(pod: &Value) -> Vec<(String, String)> {
    let text = |container: &Value, field: &str| container[field].as_str().unwrap_or_default().to_owned();
    let all = pod["spec"]["containers"].as_array().into_iter().flatten();
    all.map(|container| (text(container, "name"), text(container, "image"))).collect()
}
