//! The driver's watches, and the certainty that they have reported everything.
//!
//! Each source has one object that belongs to no scenario: a job of each API, a pod, a service and a claim with each API's labels, a
//! node. To
//! know that a watch has reported all that was written so far, its object is written once more: one watch reports in order.
//! Owns these objects and the waiting; observations pass through unchanged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apis::{ApiError, JobApi, Observation, ObservedObject, Registry, WatchTarget, objects};
use http::Method;
use k8s_driver::harness::{
    Definitions, End, ListReporter, Selection, SourceWatch, StatusReporter, collection, sources,
};
use k8s_driver::{JobFilter, Metrics};
use model::{Kind, ResourceVersion, Text};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::server::Server;

/// Name of the jobs that mark how far a watch has come, and end of the names of other such objects.
pub const MARK: &str = "zz-mark";
/// Time limit of a watch to report a write.
const MARK_TIMEOUT: Duration = Duration::from_secs(300);
/// Path of the volumes.
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Path of the priority classes.
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

struct Watch {
    news: mpsc::Receiver<Observation<ObservedObject>>,
    /// One for each source. They end when this is dropped.
    _tasks: JoinSet<End>,
}

/// The watches of one operator process.
pub struct Watches {
    server: Server,
    registry: Registry,
    scope: JobFilter,
    namespace: String,
    node: String,
    kinds: BTreeMap<Kind, Watch>,
    held: BTreeSet<Kind>,
    /// Kinds of which something was written, or that are listed again, since their watches were last complete.
    behind: BTreeSet<Kind>,
    /// Kinds whose watches were begun since then: their first lists are still to come.
    begun: BTreeSet<Kind>,
    waiting: VecDeque<Observation<ObservedObject>>,
    /// Number of times each source's mark was written.
    marks: BTreeMap<(Kind, Option<Text>), u64>,
}

/// Written mark that a source has to report.
struct Awaited {
    target: WatchTarget,
    /// Kinds of the jobs whose objects the source shows; none for nodes.
    jobs: BTreeSet<Text>,
    version: ResourceVersion,
}

impl Watches {
    /// Puts up the marks in `namespace`, with a node called `node`, and begins to watch.
    ///
    /// # Errors
    /// When the server refuses a mark.
    pub fn new(
        server: Server,
        registry: Registry,
        scope: JobFilter,
        namespace: String,
        node: String,
    ) -> Result<Self, ApiError> {
        let mut new = Self {
            server,
            registry,
            scope,
            namespace,
            node,
            kinds: BTreeMap::new(),
            held: BTreeSet::new(),
            behind: BTreeSet::new(),
            begun: BTreeSet::new(),
            waiting: VecDeque::new(),
            marks: BTreeMap::new(),
        };
        new.put_up_marks()?;
        new.begin_again();
        Ok(new)
    }

    /// Begins every watch again, as a new process does.
    pub fn begin_again(&mut self) {
        self.waiting.clear();
        for kind in Kind::ALL {
            self.begin(kind);
        }
    }

    /// Begins one watch again: it starts with a complete list.
    pub fn begin(&mut self, kind: Kind) {
        // A small queue: it slows the driver down while its observations are not taken.
        let (observe_to, news) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        let _runtime = self.server.runtime.enter();
        let definitions = Definitions::watch(self.server.client.clone());
        for source in sources(kind, &self.registry, &self.scope) {
            let watching = SourceWatch {
                client: self.server.client.clone(),
                kind,
                source,
                views: self.registry.job_sources(),
                registry: self.registry.clone(),
                news: observe_to.clone(),
                metrics: Metrics::new(),
                selection: Arc::new(Selection::new(false, 0)),
                status: StatusReporter::default(),
                lists: ListReporter::default(),
                definitions: definitions.clone(),
            };
            tasks.spawn_on(async move { watching.run().await }, &self.server.runtime);
        }
        self.kinds.insert(kind, Watch { news, _tasks: tasks });
        self.behind.insert(kind);
        self.begun.insert(kind);
    }

    /// Something of these kinds is written: their watches have more to report.
    pub fn wrote(&mut self, kinds: &[Kind]) {
        self.behind.extend(kinds);
    }

    /// Holds observations of a kind from now on.
    pub fn hold(&mut self, kind: Kind) {
        self.held.insert(kind);
    }

    /// Its observations are delivered again, in order.
    pub fn release(&mut self, kind: Kind) {
        self.held.remove(&kind);
    }

    /// Everything that follows from what was written before this call.
    ///
    /// # Errors
    /// When a mark cannot be written, or a watch does not report it in time.
    pub fn observe(&mut self) -> Result<Vec<Observation<ObservedObject>>, ApiError> {
        let behind = std::mem::take(&mut self.behind);
        let begun = std::mem::take(&mut self.begun);
        let targets = self.registry.watch_targets().into_iter().filter(|target| behind.contains(&target.kind));
        // The server lacks the types of other products: only that they were listed can be waited for.
        let lacks = |target: &WatchTarget| target.kind == Kind::Owned && target.optional;
        let (lacking, targets): (Vec<_>, Vec<_>) = targets.partition(lacks);
        let listed = |target: WatchTarget| Awaited { target, jobs: BTreeSet::new(), version: ResourceVersion(0) };
        let lists = lacking.into_iter().filter(|target| begun.contains(&target.kind)).map(listed);
        // All marks first: while one is written, the watch of the last one reports.
        let marks = targets.into_iter().map(|target| self.mark(target));
        let mut awaited = marks.collect::<Result<Vec<_>, ApiError>>()?;
        awaited.extend(lists);
        for kind in behind {
            let until = Instant::now() + MARK_TIMEOUT;
            while awaited.iter().any(|mark| mark.target.kind == kind)
                && let Some(watch) = self.kinds.get_mut(&kind)
            {
                let left = until.saturating_duration_since(Instant::now());
                let next = self.server.runtime.block_on(async { tokio::time::timeout(left, watch.news.recv()).await });
                let Ok(Some(news)) = next else {
                    let missing = awaited.iter().find(|mark| mark.target.kind == kind);
                    let of = missing.and_then(|mark| mark.target.of.clone()).unwrap_or_default();
                    let version = missing.map_or(0, |mark| mark.version.0);
                    let message = format!("the watch of {kind:?} {of} does not report version {version}");
                    return Err(ApiError { code: 0, reason: "".into(), message });
                };
                awaited.retain(|mark| !mark.is_reached_by(&news));
                self.waiting.extend(news.filter_map(|seen| (!is_mark(&seen)).then_some(seen)));
            }
        }
        let (aside, taken) =
            std::mem::take(&mut self.waiting).into_iter().partition(|n| self.held.contains(&kind_of(n)));
        self.waiting = aside;
        Ok(Vec::from(taken))
    }

    fn put_up_marks(&mut self) -> Result<(), ApiError> {
        let apis: Vec<Arc<dyn JobApi>> = self.registry.iter().cloned().collect();
        for api in apis {
            self.put_up_marks_of(&*api)?;
        }
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}});
        self.server.create("/api/v1/nodes", &node)?;
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": self.node}, "value": 0});
        self.server.create(CLASSES, &class)?;
        Ok(())
    }

    /// A job, a pod, a service and owned objects as an API's sources select them.
    fn put_up_marks_of(&self, api: &dyn JobApi) -> Result<(), ApiError> {
        let resource = api.resource();
        let (api_version, kind) = (&*resource.api_version, &*resource.kind);
        // What the definitions require; a member that one of them does not know is dropped.
        let spec = json!({"replicaSpecs": {}, "rdzvEndpoint": "none:1", "mpiReplicaSpecs": {}, "command": "none"});
        let job = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": MARK}, "spec": spec});
        let jobs = collection(api_version, api.descriptor().plural, Some(&self.namespace));
        let job = self.server.create(&jobs, &job)?;
        let owner = json!([{"apiVersion": api_version, "kind": kind, "name": MARK,
            "uid": objects::at(&job, &["metadata", "uid"]), "controller": true}]);
        let selector = api.selector();
        let labels: BTreeMap<&str, &str> = selector.labels().map(|(key, value)| (&**key, &**value)).collect();
        let metadata = json!({"name": mark_of(api), "labels": labels, "ownerReferences": owner});
        if api.has_coordinator() {
            let quota =
                json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": MARK}, "spec": {"hard": {}}});
            self.server.create(&collection("v1", "resourcequotas", Some(&self.namespace)), &quota)?;
        }
        let container = json!({"name": "c", "image": "none"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}});
        self.server.create(&collection("v1", "pods", Some(&self.namespace)), &pod)?;
        let port = json!({"name": "p", "port": 1});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None", "ports": [port]}});
        self.server.create(&collection("v1", "services", Some(&self.namespace)), &service)?;
        if api.descriptor().owned_types.contains(&apis::owned::CLAIM) {
            let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
            let claim =
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
            self.server.create(&collection("v1", "persistentvolumeclaims", Some(&self.namespace)), &claim)?;
        }
        if api.descriptor().owned_types.iter().any(|owned| owned.plural == "persistentvolumes") {
            let uid = objects::at(&job, &["metadata", "uid"]).and_then(Value::as_str).unwrap_or_default();
            let owner = format!("{}/{kind}/{MARK}/{uid}", self.namespace);
            let metadata = json!({"name": self.node, "labels": labels, "annotations": {objects::OWNED_BY: owner}});
            let spec = json!({"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}});
            let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec});
            self.server.create(VOLUMES, &volume)?;
        }
        if api.descriptor().owned_types.iter().any(|owned| owned.plural == "configmaps") {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            self.server.create(&collection("v1", "configmaps", Some(&self.namespace)), &map)?;
        }
        Ok(())
    }

    /// Takes the marks away again that are in no namespace: a node, and a priority class and a volume of its name.
    pub fn take_down(&mut self) {
        self.kinds.clear();
        for path in ["/api/v1/nodes", CLASSES, VOLUMES].map(|all| format!("{all}/{}", self.node)) {
            let _gone = self.server.send(Method::DELETE, &path, None);
        }
    }

    /// Writes a source's mark once more.
    fn mark(&mut self, target: WatchTarget) -> Result<Awaited, ApiError> {
        let count = self.marks.entry((target.kind, target.of.clone())).or_default();
        *count += 1;
        let note = json!({"metadata": {"annotations": {"count": count.to_string()}}});
        let namespace = Some(&*self.namespace);
        let jobs = self.registry.shown_by(&target);
        let path =
            |name: String| format!("{}/{name}", collection(&target.resource.api_version, target.plural, namespace));
        let api = self.registry.iter().find(|api| jobs.contains(&api.resource().kind));
        let (path, patch) = match (target.kind, api) {
            (Kind::Job | Kind::Quota, _) => (path(MARK.to_owned()), note),
            (Kind::Owned, Some(_)) if !target.namespaced => (format!("{VOLUMES}/{}", self.node), note),
            (Kind::Pod | Kind::Service | Kind::Owned, Some(api)) => (path(mark_of(&**api)), note),
            (Kind::Class, _) => (format!("{CLASSES}/{}", self.node), note),
            // Heartbeats of nodes are left out by the driver: it reports conditions.
            (Kind::Node | Kind::Pod | Kind::Service | Kind::Owned | Kind::Foreign | Kind::Namespace, _) => {
                let status = if count.is_multiple_of(2) { "False" } else { "True" };
                let condition = json!({"type": "Mark", "status": status});
                (format!("/api/v1/nodes/{}/status", self.node), json!({"status": {"conditions": [condition]}}))
            }
        };
        let version = objects::resource_version(&self.server.patch(&path, &patch)?);
        Ok(Awaited { target, jobs, version })
    }
}

/// Returns the name of an API's pod and service that mark how far a watch has come.
fn mark_of(api: &dyn JobApi) -> String {
    format!("{}-{MARK}", api.descriptor().plural)
}

fn kind_of(news: &Observation<ObservedObject>) -> Kind {
    match news {
        Observation::Listed { kind, .. } => *kind,
        Observation::Applied(seen) | Observation::Deleted(seen) => seen.kind(),
    }
}

fn is_mark(seen: &ObservedObject) -> bool {
    match seen {
        ObservedObject::Job(key, _)
        | ObservedObject::Pod(key, _)
        | ObservedObject::Service(key, _)
        | ObservedObject::Owned(key, _) => &*key.name == MARK,
        ObservedObject::Node(node) => node.name.ends_with(MARK),
        ObservedObject::Class(class) => class.name.ends_with(MARK),
        ObservedObject::Quota(quota) => &*quota.name == MARK,
        ObservedObject::Foreign(_) | ObservedObject::Namespace(_) => false,
    }
}

impl Awaited {
    /// Returns true if the source has reported the mark.
    fn is_reached_by(&self, news: &Observation<ObservedObject>) -> bool {
        match news {
            Observation::Listed { kind, of, rv, .. } => {
                *kind == self.target.kind && *of == self.target.of && *rv >= self.version
            }
            Observation::Deleted(_) => false,
            Observation::Applied(seen) => {
                let (job, rv) = match seen {
                    ObservedObject::Job(key, object) => (Some(key), objects::resource_version(object)),
                    ObservedObject::Pod(key, pod) => (Some(key), pod.rv),
                    ObservedObject::Service(key, service) => (Some(key), service.rv),
                    ObservedObject::Owned(key, owned) => (Some(key), owned.rv),
                    ObservedObject::Node(node) => (None, node.rv),
                    ObservedObject::Class(class) => (None, class.rv),
                    ObservedObject::Quota(quota) => (None, quota.rv),
                    ObservedObject::Namespace(namespace) => (None, namespace.rv),
                    ObservedObject::Foreign(pod) => (None, pod.rv),
                };
                let own = job.is_none_or(|key| self.jobs.contains(&key.kind));
                let own = own
                    && match seen {
                        ObservedObject::Owned(_, fact) => fact.object.kind == self.target.resource.kind,
                        _ => true,
                    };
                seen.kind() == self.target.kind && own && is_mark(seen) && rv >= self.version
            }
        }
    }
}

/// Returns whether an object is a mark.
pub fn is_mark_object(object: &Value) -> bool {
    objects::name(object).ends_with(MARK)
}
