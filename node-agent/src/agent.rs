//! The loop: watches, the runtime's reports, answers and timers in; what [`Pods`] says is to be done out.
//!
//! Decides nothing. Tests: `tests/`.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cluster::runtime::PodRuntime;
use futures_util::StreamExt;
use local::now;
use local::{Output, Processes};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::access::{self, Gate};
use crate::api::{News, RequestError, Server};
use crate::heartbeat::Heartbeat;
use crate::pods::{Answer, Call, Effect, Pods};
use crate::references::{self, Reference};
use crate::serve::{self, Endpoint, Running};
use crate::{Error, Options, machine};

/// Maximum interval between two checks of timers.
const POD_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Variables that pods get of the agent's own environment: where programs are. The rest may hold its credentials.
const INHERITED: [&str; 1] = ["PATH"];

/// Runs the node until `stop` is ready, then ends its pods and says that it is no longer Ready.
///
/// # Errors
/// When the API server cannot be found or refuses the node, or this machine cannot run pods.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let _lock = lock(&options.data_directory)?;
    let options = Arc::new(options);
    let server = Server::connect(options.kubeconfig.clone()).await?;
    let endpoint = Endpoint::bind().await?;
    let machine = machine::read(&options.data_directory, endpoint.port());
    let mut heartbeat = Heartbeat::new(server.clone(), Arc::clone(&options), machine);
    let mut stop = pin!(stop);
    tokio::select! {
        registered = heartbeat.register() => registered?,
        () = &mut stop => return Ok(()),
    }
    let acceptor = serve::acceptor(access::authorities(&server, options.client_ca_file.as_deref()).await?.as_deref())?;
    let gate = Gate::new(server.clone(), options.node_name.clone());
    let woken = Arc::new(Notify::new());
    let processes = processes(&options, cluster_id(&server).await?, &woken)?;
    let running = Running::default();
    let mut agent = Agent {
        server,
        processes: processes.clone(),
        pods: Pods::default(),
        running: Arc::clone(&running),
        calls: JoinSet::new(),
        reads: JoinSet::new(),
    };
    {
        let files = (options.data_directory.clone(), running);
        let serving = endpoint.serve(acceptor, gate, files, processes);
        let mut background = pin!(async { tokio::join!(heartbeat.keep(), serving) });
        agent.work(&options, &woken, &mut stop, &mut background).await;
    }
    heartbeat.say_stopping().await;
    agent.wind_down(&options, &woken).await;
    info!("the node agent has stopped");
    Ok(())
}

/// Locks the data directory for as long as the file is open.
fn lock(directory: &Path) -> Result<File, Error> {
    let failed = |source| Error::DataDirectory { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    let file = File::create(directory.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// What distinguishes this cluster from every other and never changes: by convention the uid of the namespace `kube-system`.
async fn cluster_id(server: &Server) -> Result<String, Error> {
    let what = "cannot read namespace kube-system, whose uid names the cluster".to_owned();
    let namespace = server.get("/api/v1/namespaces/kube-system").await;
    let namespace = namespace.map_err(|refusal| Error::Api { what, answer: refusal.to_string() })?;
    Ok(namespace["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

fn processes(options: &Options, cluster: String, woken: &Arc<Notify>) -> Result<Processes, Error> {
    let mut settings = local::Options::new(&options.data_directory, &options.program);
    settings.gpus = Some(options.gpus);
    settings.workdir.clone_from(&options.workdir);
    settings.cluster = Some(cluster);
    settings.inherited_variables = Some(INHERITED.map(str::to_owned).to_vec());
    settings.refuse_unhonoured = true;
    settings.log_sink = Some(Arc::new(|output| match output {
        Output::Line { namespace, pod, container, text } => debug!(namespace, pod, container, text, "printed"),
        // The runtime has logged it.
        Output::Warning { .. } => {}
    }));
    let woken = Arc::clone(woken);
    settings.waker = Some(Arc::new(move || woken.notify_one()));
    Ok(Processes::new(settings)?)
}

/// What reading the objects of one pod came to.
struct Read {
    uid: String,
    namespace: String,
    objects: Result<Vec<(Reference, Option<Value>)>, RequestError>,
}

struct Agent {
    server: Server,
    processes: Processes,
    pods: Pods,
    /// What of them runs, for those who follow their output.
    running: Running,
    calls: JoinSet<(Call, Answer, Option<RequestError>)>,
    reads: JoinSet<Read>,
}

impl Agent {
    async fn work(
        &mut self,
        options: &Options,
        woken: &Notify,
        stop: &mut (impl Future<Output = ()> + Unpin),
        background: &mut (impl Future + Unpin),
    ) {
        let mut pods = pin!(self.server.pods(&options.node_name));
        let mut services = pin!(self.server.services());
        let (mut listed, mut known_services) = (Vec::new(), Services::default());
        loop {
            tokio::select! {
                () = &mut *stop => return,
                _ = &mut *background => {}
                Some(news) = pods.next() => self.pod_news(news, &mut listed),
                Some(news) = services.next() => self.service_news(news, &mut known_services),
                () = self.next_of_own(woken) => {}
            }
            self.settle();
        }
    }

    /// Ends every pod, reports what came of each, and returns when all is reported or time is up.
    async fn wind_down(&mut self, options: &Options, woken: &Notify) {
        let seconds = u32::try_from(options.shutdown_grace.as_secs()).unwrap_or(u32::MAX);
        self.pods.shut_down(seconds);
        self.settle();
        // After the grace period processes are killed, and the last words need a moment to be heard.
        let limit = options.shutdown_grace + Duration::from_secs(5);
        let all_reported = async {
            while !self.pods.is_at_rest() {
                self.next_of_own(woken).await;
                self.settle();
            }
        };
        if tokio::time::timeout(limit, all_reported).await.is_err() {
            warn!("not every pod's end could be reported in time");
        }
    }

    /// Waits for the next thing to happen that is not news of a watch, and takes it in.
    async fn next_of_own(&mut self, woken: &Notify) {
        let wait = self
            .pods
            .next_wake(now())
            .map_or(POD_POLL_INTERVAL, |at| Duration::from_millis(at.since_ms(now())).min(POD_POLL_INTERVAL));
        tokio::select! {
            () = woken.notified() => {}
            () = tokio::time::sleep(wait) => {}
            Some(answered) = self.calls.join_next() => {
                if let Ok((call, answer, refusal)) = answered {
                    if let Some(refusal) = refusal {
                        warn!(namespace = %call.namespace, pod = %call.name, %refusal, "to be tried again");
                    }
                    self.pods.answered(&call, answer, now());
                }
            }
            Some(read) = self.reads.join_next() => {
                if let Ok(read) = read {
                    self.take_read(read);
                }
            }
        }
    }

    fn settle(&mut self) {
        for report in self.processes.poll() {
            debug!(namespace = %report.namespace, pod = %report.name, ended = report.ended, "reported");
            self.pods.reported(report);
        }
        for effect in self.pods.settle(now()) {
            match effect {
                Effect::Fetch { pod } => self.fetch(&pod),
                Effect::Start { pod } => {
                    let metadata = &pod["metadata"];
                    info!(namespace = %metadata["namespace"], pod = %metadata["name"], "starting");
                    self.processes.start(&references::without_token_volume((*pod).clone()));
                }
                Effect::Stop { namespace, name, uid, grace_seconds } => {
                    info!(namespace, pod = name, grace_seconds, "stopping");
                    self.processes.stop(&namespace, &name, &uid, grace_seconds);
                }
                Effect::Call(call) => {
                    let server = self.server.clone();
                    self.calls.spawn(async move {
                        let (answer, refusal) = server.perform(&call).await;
                        (call, answer, refusal)
                    });
                }
            }
        }
        let running = self.pods.running().map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running.collect();
    }

    fn fetch(&mut self, pod: &Arc<Value>) {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, uid, wanted) = (text("namespace"), text("uid"), references::of(pod));
        let server = self.server.clone();
        self.reads.spawn(async move {
            let mut objects = Vec::new();
            for reference in wanted {
                match server.referred(&namespace, &reference).await {
                    Ok(object) => objects.push((reference, object)),
                    Err(refusal) => return Read { uid, namespace, objects: Err(refusal) },
                }
            }
            Read { uid, namespace, objects: Ok(objects) }
        });
    }

    fn take_read(&mut self, read: Read) {
        match read.objects {
            Ok(objects) => {
                for ((kind, name), object) in objects {
                    match object {
                        Some(object) => self.processes.provide(&object),
                        // One that was there for an earlier pod is there no more.
                        None => self.processes.withdraw(&named(kind.name(), &read.namespace, &name)),
                    }
                }
                self.pods.fetched(&read.uid, now());
            }
            Err(refusal) => {
                warn!(namespace = %read.namespace, %refusal, "cannot read what a pod refers to");
                self.pods.not_fetched(&read.uid, now());
            }
        }
    }

    fn pod_news(&mut self, news: News, listed: &mut Vec<String>) {
        match news {
            News::Listing => listed.clear(),
            News::Applied { object, .. } | News::Deleted(object) if !is_plainly_named(&object) => {
                let metadata = &object["metadata"];
                warn!(namespace = %metadata["namespace"], pod = %metadata["name"], "left alone: it has no name as pods have");
            }
            News::Applied { object, listing } => {
                if listing {
                    listed.push(object["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
                }
                self.processes.provide(&object);
                self.pods.seen(object, now());
            }
            News::Deleted(object) => {
                self.processes.withdraw(&object);
                self.pods.gone(&object);
            }
            News::Listed => self.pods.listed(listed),
            News::Broken(error) => warn!(error, "the watch of pods broke; it is taken up again"),
        }
    }

    /// Services are names that stand for addresses.
    fn service_news(&mut self, news: News, services: &mut Services) {
        let key = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("namespace"), text("name"))
        };
        match news {
            News::Listing => services.listed.clear(),
            News::Applied { object, listing } => {
                if listing {
                    services.listed.insert(key(&object));
                }
                services.known.insert(key(&object));
                self.processes.provide(&object);
            }
            News::Deleted(object) => {
                services.known.remove(&key(&object));
                self.processes.withdraw(&object);
            }
            News::Listed => {
                for (namespace, name) in services.known.difference(&services.listed) {
                    self.processes.withdraw(&named("Service", namespace, name));
                }
                services.known.clone_from(&services.listed);
            }
            News::Broken(error) => warn!(error, "the watch of services broke; it is taken up again"),
        }
    }
}

/// The Services there are, and those of the view that is being taken.
#[derive(Default)]
struct Services {
    known: BTreeSet<(String, String)>,
    listed: BTreeSet<(String, String)>,
}

/// Whether a pod's names can be parts of paths, as all that an API server accepts can.
fn is_plainly_named(pod: &Value) -> bool {
    ["namespace", "name", "uid"].iter().all(|field| pod["metadata"][*field].as_str().is_some_and(local::is_plain_name))
}

/// An object that is nothing but its name.
fn named(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere() {
        let pod = |namespace: &str, name: &str, uid: &str| json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}});
        assert!(is_plainly_named(&pod("ns", "j-w-0", "0f3c-9")));
        for odd in [pod("../x", "p", "u"), pod("ns", "..", "u"), pod("ns", "p", "a/b"), pod("ns", "", "u"), json!({})] {
            assert!(!is_plainly_named(&odd), "{odd}");
        }
    }
}
