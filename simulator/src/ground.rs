//! What a scenario takes place on: the embedded cluster, or something that behaves like it.
//!
//! Owns the list of what [`crate::world::World`] and the verbs need of a cluster, and the embedded cluster's answers. A
//! second implementation stands on a real API server (package `conformance`), so that one runner serves both and what
//! differs between them shows as a difference of outcomes. Tests: every scenario.

use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, ApiError, Observation, Registry, Resource, Seen, Verb, WatchTarget};
use cluster::{CatchUp, Cluster, FailRule, WatcherId};
use model::{Kind, ResourceVersion, Timestamp};
use serde_json::Value;

/// What became of a call of the operator.
#[derive(Debug, Clone)]
pub struct Made {
    /// The answer it got.
    pub answer: ApiAnswer,
    /// Uid of the object, if the call changed it (even where its answer was lost).
    pub changed: Option<String>,
}

/// A cluster that scenarios can take place on.
pub trait Ground {
    /// The cluster as it stands, to be read.
    fn cluster(&self) -> &Cluster;

    /// Time as all of it sees it.
    fn now(&self) -> Timestamp;
    /// Sets that time.
    fn set_now(&mut self, now: Timestamp);
    /// When it wants to be looked at again, if time alone makes something happen.
    fn next_wake(&self) -> Option<Timestamp>;

    /// The operator's process begins to watch every kind; the next news are complete views.
    fn watch_anew(&mut self);
    /// What the watches tell: everything that follows from what was written before this call.
    fn news(&mut self, registry: &Registry) -> Vec<Observation<Seen>>;
    /// Makes a call of the operator.
    fn make(&mut self, call: &ApiCall) -> Made;

    /// Scheduler, kubelets and nodes, by hand: what a verb of [`Cluster`] does to pods and nodes.
    ///
    /// # Errors
    /// What the verb says.
    fn by_hand(
        &mut self,
        act: &mut dyn FnMut(&mut Cluster) -> Result<(), cluster::Error>,
    ) -> Result<(), cluster::Error>;

    /// Applies a manifest as a user.
    ///
    /// # Errors
    /// When the API server refuses it.
    fn apply(&mut self, manifest: &Value) -> Result<(), ApiError>;
    /// Plants an object past validation.
    ///
    /// # Errors
    /// When even so it cannot be stored.
    fn store_unchecked(&mut self, manifest: &Value) -> Result<(), ApiError>;
    /// Merge-patches an object, or its status, as a user.
    ///
    /// # Errors
    /// When the API server refuses it.
    fn merge_patch(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> Result<(), ApiError>;
    /// Deletes an object as a user; what it owns goes with it.
    ///
    /// # Errors
    /// When the API server refuses it.
    fn delete(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        grace_seconds: Option<u32>,
    ) -> Result<(), ApiError>;

    /// Makes the next calls of a kind fail.
    ///
    /// # Errors
    /// When nothing watches the kind whose lists should fail.
    fn fail(&mut self, rule: FailRule) -> Result<(), cluster::Error>;
    /// One kind's watch stands still.
    fn hold(&mut self, kind: Kind);
    /// It catches up.
    fn release(&mut self, kind: Kind);
    /// It starts over with a complete view.
    fn relist(&mut self, kind: Kind);

    /// How far the Kubernetes Events have come; for [`Ground::kubernetes_events_since`].
    fn revision(&self) -> ResourceVersion;
    /// The Kubernetes Events written since.
    fn kubernetes_events_since(&self, revision: ResourceVersion) -> Vec<Arc<Value>>;
}

/// The embedded cluster, and the operator's watch of it.
#[derive(Debug)]
pub struct Embedded {
    /// The cluster.
    pub cluster: Cluster,
    targets: Vec<WatchTarget>,
    watcher: WatcherId,
}

impl Embedded {
    /// Watches a cluster as the operator of a registry's APIs does.
    pub fn new(mut cluster: Cluster, registry: &Registry) -> Self {
        let targets = registry.watch_targets();
        let watcher = cluster.subscribe_to(&targets);
        Self { cluster, targets, watcher }
    }
}

impl Ground for Embedded {
    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    fn set_now(&mut self, now: Timestamp) {
        self.cluster.set_now(now);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.cluster.next_wake()
    }

    fn watch_anew(&mut self) {
        self.cluster.unsubscribe(self.watcher);
        self.watcher = self.cluster.subscribe_to(&self.targets);
    }

    fn news(&mut self, registry: &Registry) -> Vec<Observation<Seen>> {
        self.cluster.watch(self.watcher).into_iter().filter_map(|news| news.read(registry)).collect()
    }

    fn make(&mut self, call: &ApiCall) -> Made {
        let before = self.cluster.revision();
        let find = |cluster: &Cluster| cluster.get(&call.resource, &call.namespace, &call.name);
        let known = find(&self.cluster);
        let answer = self.cluster.execute(call);
        let noted = call.verb != Verb::Get && call.object.is_some() && self.cluster.revision() != before;
        let changed = noted.then(|| find(&self.cluster).or(known).map(|o| uid_of(&o)).unwrap_or_default());
        Made { answer, changed }
    }

    fn by_hand(
        &mut self,
        act: &mut dyn FnMut(&mut Cluster) -> Result<(), cluster::Error>,
    ) -> Result<(), cluster::Error> {
        act(&mut self.cluster)
    }

    fn apply(&mut self, manifest: &Value) -> Result<(), ApiError> {
        self.cluster.apply(manifest).map(|_| ())
    }

    fn store_unchecked(&mut self, manifest: &Value) -> Result<(), ApiError> {
        self.cluster.store_unchecked(manifest).map(|_| ())
    }

    fn merge_patch(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> Result<(), ApiError> {
        self.cluster.merge_patch(resource, namespace, name, patch, status).map(|_| ())
    }

    fn delete(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        grace_seconds: Option<u32>,
    ) -> Result<(), ApiError> {
        self.cluster.delete_as_user(resource, namespace, name, grace_seconds).map(|_| ())
    }

    fn fail(&mut self, rule: FailRule) -> Result<(), cluster::Error> {
        self.cluster.fail(rule)
    }

    fn hold(&mut self, kind: Kind) {
        self.cluster.hold(kind);
    }

    fn release(&mut self, kind: Kind) {
        self.cluster.release(kind, CatchUp::InOrder);
    }

    fn relist(&mut self, kind: Kind) {
        self.cluster.relist(kind);
    }

    fn revision(&self) -> ResourceVersion {
        self.cluster.revision()
    }

    fn kubernetes_events_since(&self, revision: ResourceVersion) -> Vec<Arc<Value>> {
        self.cluster.kubernetes_events_since(revision)
    }
}

/// An object's uid; empty where it has none.
pub fn uid_of(object: &Value) -> String {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}
