//! The cluster itself: construction, the clock, and reading what is stored.
//!
//! Owns the state and the three ways it changes (an object comes, changes, goes), each of which is reported to the watches. It must
//! not hold rules: those of writes are `execute`'s, those of deletion `deletion`'s. Tests: `tests/cluster/*.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::Resource;
use model::{ResourceVersion, Text, Timestamp};
use serde_json::Value;

use crate::error::DefinitionError;
use crate::fault::FailRules;
use crate::kinds::{KindId, Kinds, ServedKind};
use crate::node::NodeSpec;
use crate::runtime::{PodRuntime, VirtualPods};
use crate::store::{Key, Store};
use crate::watch::streams::{Change, Watchers, labels};

/// Maximum number of Kubernetes Events; the oldest are removed first.
const MAX_EVENTS: usize = 20_000;
/// Time, in milliseconds, for which a Kubernetes Event is stored after its last write: kube-apiserver's `--event-ttl`.
const EVENT_TTL_MS: u64 = 3_600_000;

/// Driver of the pods' lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The caller changes each pod: [`Cluster::schedule`], [`Cluster::run`], [`Cluster::exit`], ...
    #[default]
    Manual,
    /// [`Cluster::tick`] binds pods to nodes with room and takes the runtime's reports.
    Automatic,
}

/// Initial state of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Driver of the pods' lives.
    pub mode: Mode,
    /// The clock's first value.
    pub now: Timestamp,
    /// The nodes, all Ready.
    pub nodes: Vec<NodeSpec>,
}

impl Default for Options {
    /// [`Mode::Manual`], 2026-01-01T00:00:00Z, nodes n1, n2 and n3.
    fn default() -> Self {
        let nodes = ["n1", "n2", "n3"].map(NodeSpec::named).to_vec();
        Self { mode: Mode::Manual, now: Timestamp(1_767_225_600_000), nodes }
    }
}

/// Kinds that clusters serve: the built-in ones, and those that were registered. Clusters share what is compiled of them.
#[derive(Debug, Clone)]
pub struct ServedKinds(Kinds);

/// A Kubernetes cluster in memory: API server, watches, garbage collector, and scheduler and kubelet, manual or automatic.
pub struct Cluster {
    pub(crate) mode: Mode,
    pub(crate) now: Timestamp,
    pub(crate) kinds: Kinds,
    pub(crate) store: Store,
    pub(crate) watchers: Watchers,
    pub(crate) faults: FailRules,
    pub(crate) runtime: Box<dyn PodRuntime>,
    /// Last applied manifest of each object: applying again removes members that the new manifest dropped.
    pub(crate) applied: BTreeMap<Key, Arc<Value>>,
    /// Last line that pods printed, by uid, where the caller says what pods do.
    pub(crate) logs: BTreeMap<Text, String>,
    /// Uids of pods of which the runtime said that nothing runs any more.
    pub(crate) ended: BTreeSet<Text>,
    /// True if something changed that may let a waiting pod be bound.
    pub(crate) binding_due: bool,
    /// True if a definition was registered since the cluster was last saved.
    pub(crate) redefined: bool,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("mode", &self.mode)
            .field("now", &self.now)
            .field("revision", &self.store.revision)
            .finish_non_exhaustive()
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new(&Options::default())
    }
}

impl Cluster {
    /// A cluster whose pods do nothing by themselves.
    pub fn new(options: &Options) -> Self {
        Self::with_runtime(options, Box::new(VirtualPods))
    }

    /// A cluster whose pods are run by `runtime`.
    pub fn with_runtime(options: &Options, runtime: Box<dyn PodRuntime>) -> Self {
        let mut cluster = Self::empty(options.mode, options.now, runtime);
        for node in &options.nodes {
            cluster.add_node(node);
        }
        cluster
    }

    pub(crate) fn empty(mode: Mode, now: Timestamp, runtime: Box<dyn PodRuntime>) -> Self {
        Self {
            mode,
            now,
            kinds: Kinds::default(),
            store: Store::default(),
            watchers: Watchers::default(),
            faults: FailRules::default(),
            runtime,
            applied: BTreeMap::new(),
            logs: BTreeMap::new(),
            ended: BTreeSet::new(),
            binding_due: true,
            redefined: true,
        }
    }

    /// Serves the custom kind that a `CustomResourceDefinition` describes; registering it again replaces it. Its objects are
    /// delivered by the watch of [`model::Kind::Job`].
    ///
    /// # Errors
    /// When the definition lacks a name, scope or schema, or its schema makes no sense.
    pub fn register(&mut self, crd: &Value) -> Result<(), DefinitionError> {
        self.redefined = true;
        self.kinds.register(crd)
    }

    /// Returns the kinds that it serves.
    pub fn kinds(&self) -> ServedKinds {
        ServedKinds(self.kinds.clone())
    }

    /// Serves these kinds, and no others.
    pub fn set_kinds(&mut self, kinds: &ServedKinds) {
        self.redefined = true;
        self.kinds = kinds.0.clone();
    }

    /// The virtual clock.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets the virtual clock; every timestamp written from here on is this one.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// An object as it stands. The namespace of a cluster-scoped kind is ignored.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let served = self.kinds.served(resource)?;
        self.store.get(&address(&served.kind, namespace, name)).cloned()
    }

    /// Objects of one type, by namespace and name; none of a type that is not served.
    pub fn objects_of(&self, resource: &Resource) -> Vec<Arc<Value>> {
        let served = self.kinds.served(resource);
        served.into_iter().flat_map(|s| self.store.of_kind(s.kind.id)).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// Every object but the Kubernetes Events, by kind, namespace and name.
    pub fn objects(&self) -> Vec<Arc<Value>> {
        let mut kinds: Vec<&Arc<ServedKind>> = self.kinds.iter().filter(|kind| kind.id != KindId::EVENT).collect();
        kinds.sort_by_key(|kind| (&kind.name, &kind.group));
        kinds.iter().flat_map(|kind| self.store.of_kind(kind.id)).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The Kubernetes Events that were created after a resourceVersion, in the order of their creation.
    pub fn kubernetes_events_since(&self, rv: ResourceVersion) -> Vec<Arc<Value>> {
        self.store.events_after(rv.0).map(|(_, event)| Arc::clone(event)).collect()
    }

    /// The type of object a kind name stands for (`Pod`, `AITrainingJob`, ...), if it is served; built-in kinds first.
    pub fn resource_named(&self, kind: &str) -> Option<Resource> {
        self.kinds.resource_named(kind).cloned()
    }

    /// Namespaces in which a pod of that name exists.
    pub fn pod_namespaces(&self, name: &str) -> Vec<Text> {
        let pods = self.store.of_kind(KindId::POD);
        pods.filter(|(key, _)| &*key.name == name).map(|(key, _)| key.namespace.clone()).collect()
    }

    /// The kind of an object that is stored.
    pub(crate) fn kind_of(&self, key: &Key) -> Option<Arc<ServedKind>> {
        self.kinds.get(key.kind).cloned()
    }

    /// A new object came.
    pub(crate) fn commit_new(&mut self, kind: &ServedKind, key: &Key, object: Value) -> Arc<Value> {
        let object = self.store.insert(key, object);
        self.notify(kind, &object, &Change::Created);
        if kind.id == KindId::EVENT
            && let Some(oldest) = self.store.surplus_event(MAX_EVENTS)
        {
            self.store.remove(&oldest);
        }
        object
    }

    /// An object changed.
    pub(crate) fn commit_edit(
        &mut self,
        kind: &ServedKind,
        key: &Key,
        edit: impl FnOnce(&mut Value),
    ) -> Option<Arc<Value>> {
        let selected = self.watchers.select(kind);
        let labels = selected.then(|| self.store.get(key).and_then(|object| labels(object))).flatten();
        let object = self.store.edit(key, edit)?;
        self.notify(kind, &object, &Change::Edited { labels });
        Some(object)
    }

    /// An object went. What follows from that is `deletion`'s.
    pub(crate) fn commit_removal(&mut self, kind: &ServedKind, key: &Key) -> Option<Arc<Value>> {
        let object = self.store.remove(key)?;
        self.notify(kind, &object, &Change::Removed);
        self.applied.remove(key);
        Some(object)
    }

    /// Removes the Kubernetes Events whose time is over. No watch delivers them.
    pub(crate) fn expire_events(&mut self) {
        let oldest = Timestamp(self.now.0.saturating_sub(EVENT_TTL_MS));
        while let Some(key) = self.store.event_written_before(oldest) {
            self.store.remove(&key);
            self.applied.remove(&key);
        }
    }

    fn notify(&mut self, kind: &ServedKind, object: &Arc<Value>, change: &Change) {
        self.watchers.notify(kind, self.store.revision, object, change);
        self.binding_due |= matches!(kind.id, KindId::POD | KindId::NODE);
    }
}

/// Returns the path of an object of a kind.
pub(crate) fn address(kind: &ServedKind, namespace: &str, name: &str) -> Key {
    Key::new(kind.id, if kind.namespaced { namespace } else { "" }, name)
}
