//! The driver's watches, and the certainty that they have reported everything.
//!
//! Each watched namespace has one object of each kind that belongs to no job. To know that a watch has reported
//! all that was written so far, its object is written once more: one watch reports in order. Owns these objects and the
//! waiting; observations pass through unchanged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apis::{ApiError, Observation, ObservedObject, Registry, objects};
use http::Method;
use k8s_driver::harness::{End, ListReporter, Selection, SourceWatch, StatusReporter, collection, sources};
use k8s_driver::{Metrics, Scope};
use model::{Kind, ResourceVersion};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::server::Server;

/// Name of the objects that mark how far a watch has come.
pub const MARK: &str = "zz-mark";
/// Time limit of a watch to report a write.
const MARK_TIMEOUT: Duration = Duration::from_secs(300);

struct Watch {
    news: mpsc::Receiver<Observation<ObservedObject>>,
    /// One for each source. They end when this is dropped.
    _tasks: JoinSet<End>,
}

/// The watches of one operator process.
pub struct Watches {
    server: Server,
    registry: Registry,
    scope: Scope,
    namespace: String,
    node: String,
    kinds: BTreeMap<Kind, Watch>,
    held: BTreeSet<Kind>,
    /// Kinds of which something was written, or that are listed again, since their watches were last complete.
    behind: BTreeSet<Kind>,
    waiting: VecDeque<Observation<ObservedObject>>,
    /// Number of times each kind's mark was written.
    marks: BTreeMap<Kind, u64>,
}

impl Watches {
    /// Puts up the marks in `namespace`, with a node called `node`, and begins to watch.
    ///
    /// # Errors
    /// When the server refuses a mark.
    pub fn new(
        server: Server,
        registry: Registry,
        scope: Scope,
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
            };
            tasks.spawn_on(watching.run(), &self.server.runtime);
        }
        self.kinds.insert(kind, Watch { news, _tasks: tasks });
        self.behind.insert(kind);
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
        // All marks first: while one is written, the watch of the last one reports.
        let marks =
            behind.into_iter().map(|kind| Ok((kind, self.mark(kind)?))).collect::<Result<Vec<_>, ApiError>>()?;
        for (kind, mark) in marks {
            let until = Instant::now() + MARK_TIMEOUT;
            while let Some(watch) = self.kinds.get_mut(&kind) {
                let left = until.saturating_duration_since(Instant::now());
                let next = self.server.runtime.block_on(async { tokio::time::timeout(left, watch.news.recv()).await });
                let Ok(Some(news)) = next else {
                    let message = format!("the watch of {kind:?} does not report version {}", mark.0);
                    return Err(ApiError { code: 0, reason: "".into(), message });
                };
                let reached = reaches(&news, mark);
                self.waiting.extend(news.filter_map(|seen| (!is_mark(&seen)).then_some(seen)));
                if reached {
                    break;
                }
            }
        }
        let (aside, taken) =
            std::mem::take(&mut self.waiting).into_iter().partition(|n| self.held.contains(&kind_of(n)));
        self.waiting = aside;
        Ok(Vec::from(taken))
    }

    fn put_up_marks(&mut self) -> Result<(), ApiError> {
        let Some(api) = self.registry.iter().next().cloned() else { return Ok(()) };
        let resource = api.resource();
        let (api_version, kind) = (&*resource.api_version, &*resource.kind);
        let job =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": MARK}, "spec": {"replicaSpecs": {}}});
        let jobs = collection(api_version, api.plural(), Some(&self.namespace));
        let job = self.server.create(&jobs, &job)?;
        let owner = json!([{"apiVersion": api_version, "kind": kind, "name": MARK,
            "uid": objects::at(&job, &["metadata", "uid"]), "controller": true}]);
        let selector = api.selector();
        let labels: BTreeMap<&str, &str> = selector.labels().map(|(key, value)| (&**key, &**value)).collect();
        let metadata = json!({"name": MARK, "labels": labels, "ownerReferences": owner});
        let container = json!({"name": "c", "image": "none"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}});
        self.server.create(&collection("v1", "pods", Some(&self.namespace)), &pod)?;
        let port = json!({"name": "p", "port": 1});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None", "ports": [port]}});
        self.server.create(&collection("v1", "services", Some(&self.namespace)), &service)?;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}});
        self.server.create("/api/v1/nodes", &node)?;
        Ok(())
    }

    /// Takes the node away again: it is the only mark that is in no namespace.
    pub fn take_down(&mut self) {
        self.kinds.clear();
        let _gone = self.server.send(Method::DELETE, &format!("/api/v1/nodes/{}", self.node), None);
    }

    /// Writes a kind's mark once more; its new version.
    fn mark(&mut self, kind: Kind) -> Result<ResourceVersion, ApiError> {
        let count = self.marks.entry(kind).or_default();
        *count += 1;
        let note = json!({"metadata": {"annotations": {"count": count.to_string()}}});
        let namespace = Some(&*self.namespace);
        let (path, patch) = match kind {
            // Heartbeats of nodes are left out by the driver: it reports conditions.
            Kind::Node => {
                let status = if count.is_multiple_of(2) { "False" } else { "True" };
                let condition = json!({"type": "Mark", "status": status});
                (format!("/api/v1/nodes/{}/status", self.node), json!({"status": {"conditions": [condition]}}))
            }
            Kind::Job => {
                let Some(api) = self.registry.iter().next() else { return Ok(ResourceVersion(0)) };
                (format!("{}/{MARK}", collection(&api.resource().api_version, api.plural(), namespace)), note)
            }
            Kind::Pod => (format!("{}/{MARK}", collection("v1", "pods", namespace)), note),
            Kind::Service => (format!("{}/{MARK}", collection("v1", "services", namespace)), note),
        };
        Ok(objects::resource_version(&self.server.patch(&path, &patch)?))
    }
}

fn kind_of(news: &Observation<ObservedObject>) -> Kind {
    match news {
        Observation::Listed { kind, .. } => *kind,
        Observation::Applied(seen) | Observation::Deleted(seen) => seen.kind(),
    }
}

fn is_mark(seen: &ObservedObject) -> bool {
    match seen {
        ObservedObject::Job(key, _) | ObservedObject::Pod(key, _) | ObservedObject::Service(key, _) => {
            &*key.name == MARK
        }
        ObservedObject::Node(node) => node.name.ends_with(MARK),
    }
}

fn reaches(news: &Observation<ObservedObject>, mark: ResourceVersion) -> bool {
    match news {
        Observation::Listed { rv, .. } => *rv >= mark,
        Observation::Deleted(_) => false,
        Observation::Applied(seen) => {
            is_mark(seen)
                && mark
                    <= match seen {
                        ObservedObject::Job(_, object) => objects::resource_version(object),
                        ObservedObject::Pod(_, pod) => pod.rv,
                        ObservedObject::Service(_, service) => service.rv,
                        ObservedObject::Node(node) => node.rv,
                    }
        }
    }
}

/// Returns whether an object is a mark.
pub fn is_mark_object(object: &Value) -> bool {
    objects::name(object).ends_with(MARK)
}
