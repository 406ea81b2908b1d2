//! Clusters that scenarios run on: the embedded one, or a real API server.
//!
//! Owns the list of what [`crate::simulation::Simulation`] and the verbs need of a cluster, and the embedded cluster's
//! answers. The second implementation uses a real API server (package `conformance`). One runner serves both, so that a
//! difference between them shows as a difference of outcomes. Tests: every scenario.

use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, ApiError, Resource};
use cluster::{CatchUp, Cluster, FailRule};
use embedded::{Backend, EmbeddedCluster};
use model::{Kind, ResourceVersion, Timestamp};
use serde_json::Value;

/// Outcome of a call of the operator.
#[derive(Debug, Clone)]
pub struct Executed {
    /// The answer it got.
    pub answer: ApiAnswer,
    /// Uid of the object, if the call changed it (even where its answer was lost).
    pub changed: Option<String>,
}

/// A cluster that scenarios can run on.
pub trait ClusterBackend: Backend {
    /// The cluster's present objects, for reading.
    fn cluster(&self) -> &Cluster;

    /// The virtual time.
    fn now(&self) -> Timestamp;
    /// Sets the virtual time, without doing what is due by then.
    fn set_now(&mut self, now: Timestamp);

    /// Begins new watches of every kind, as a new process of the operator does: they start with complete lists.
    fn watch_again(&mut self);
    /// Executes a call of the operator.
    fn execute(&mut self, call: &ApiCall) -> Executed;

    /// Changes pods and nodes as scheduler and kubelets would, with the verbs of [`Cluster`].
    ///
    /// # Errors
    /// The verb's.
    fn manual(&mut self, act: &mut dyn FnMut(&mut Cluster) -> Result<(), cluster::Error>)
    -> Result<(), cluster::Error>;

    /// Applies a manifest as a user.
    ///
    /// # Errors
    /// When the API server refuses it.
    fn apply(&mut self, manifest: &Value) -> Result<(), ApiError>;
    /// Stores an object without validation.
    ///
    /// # Errors
    /// When it cannot be stored.
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
    /// Sets an object's replicas as `kubectl scale` does.
    ///
    /// # Errors
    /// When the API server refuses it, or the kind has no subresource `scale`.
    fn scale(&mut self, resource: &Resource, namespace: &str, name: &str, replicas: i32) -> Result<(), ApiError>;
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
    /// Holds the watch of one kind.
    fn hold(&mut self, kind: Kind);
    /// Releases a held watch: it catches up.
    fn release(&mut self, kind: Kind);
    /// Starts a watch over with a complete list.
    fn relist(&mut self, kind: Kind);

    /// The cluster's latest version; for [`ClusterBackend::kubernetes_events_since`].
    fn revision(&self) -> ResourceVersion;
    /// The Kubernetes Events written since a version.
    fn kubernetes_events_since(&self, revision: ResourceVersion) -> Vec<Arc<Value>>;
}

impl ClusterBackend for EmbeddedCluster {
    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    fn set_now(&mut self, now: Timestamp) {
        self.cluster.set_now(now);
    }

    fn watch_again(&mut self) {
        self.watch_again();
    }

    fn execute(&mut self, call: &ApiCall) -> Executed {
        let before = self.cluster.revision();
        let find = |cluster: &Cluster| cluster.get(&call.resource, &call.namespace, &call.name);
        let known = find(&self.cluster);
        let answer = self.cluster.execute(call);
        let noted = !call.verb.is_read() && call.object.is_some() && self.cluster.revision() != before;
        let changed = noted.then(|| find(&self.cluster).or(known).map(|o| uid_of(&o)).unwrap_or_default());
        Executed { answer, changed }
    }

    fn manual(
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

    fn scale(&mut self, resource: &Resource, namespace: &str, name: &str, replicas: i32) -> Result<(), ApiError> {
        self.cluster.scale(resource, namespace, name, replicas).map(|_| ())
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

/// Returns an object's uid; empty if it has none.
pub fn uid_of(object: &Value) -> String {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}
