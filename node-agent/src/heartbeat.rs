//! Registering the node, and keeping it Ready: a lease renewed often, a status written seldom, as a kubelet does.
//!
//! Must not know pods. Tests: `tests/`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracing::{info, warn};

use crate::api::{RequestError, Server};
use crate::machine::Machine;
use crate::node::{self, LEASE_NAMESPACE, Readiness};
use crate::{Error, Options};
use local::now;

/// How often a status that has not changed is written.
const STATUS_INTERVAL: Duration = Duration::from_secs(300);
/// How long to wait before a registration that did not succeed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// One node of the cluster, which stands for this machine.
pub(crate) struct Heartbeat {
    server: Server,
    options: Arc<Options>,
    machine: Machine,
    status_written: Option<Instant>,
}

impl Heartbeat {
    /// Nothing is written yet.
    pub(crate) fn new(server: Server, options: Arc<Options>, machine: Machine) -> Self {
        Self { server, options, machine, status_written: None }
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.options.node_name)
    }

    /// Creates the node or takes over the one of that name. Waits for an API server that does not answer yet.
    ///
    /// # Errors
    /// When it refuses the node for good.
    pub(crate) async fn register(&mut self) -> Result<(), Error> {
        loop {
            let Err(refusal) = self.try_register().await else { return Ok(()) };
            if !refusal.is_passing() {
                let what = format!("cannot register node {}", self.options.node_name);
                return Err(Error::Api { what, answer: refusal.to_string() });
            }
            warn!(%refusal, "the node is not registered yet");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn try_register(&mut self) -> Result<(), RequestError> {
        let object = node::object(&self.options, &self.machine, now());
        let present = match self.server.create("/api/v1/nodes", &object).await {
            Ok(created) => created,
            Err(refusal) if refusal.code == 409 => {
                self.server.merge(&self.path(), &node::labels_patch(&self.options)).await?
            }
            Err(refusal) => return Err(refusal),
        };
        self.renew(&present).await?;
        // What a creation says of the status is kept by the server, but a node that was there before has its own.
        self.write_status(&present, Readiness::Ready).await?;
        info!(node = %self.options.node_name, "the node is registered");
        Ok(())
    }

    /// Keeps the node Ready until it is dropped.
    pub(crate) async fn keep(&mut self) {
        loop {
            tokio::time::sleep(self.options.lease_interval).await;
            if let Err(refusal) = self.beat().await {
                warn!(%refusal, "no heartbeat");
            }
        }
    }

    async fn beat(&mut self) -> Result<(), RequestError> {
        let node = match self.server.get(&self.path()).await {
            Ok(node) => node,
            // It was removed while the agent works.
            Err(refusal) if refusal.code == 404 => return self.try_register().await,
            Err(refusal) => return Err(refusal),
        };
        self.renew(&node).await?;
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
        if !ready || self.status_written.is_none_or(|at| at.elapsed() >= STATUS_INTERVAL) {
            self.write_status(&node, Readiness::Ready).await?;
        }
        Ok(())
    }

    async fn renew(&self, node: &Value) -> Result<(), RequestError> {
        let (name, uid) = (&self.options.node_name, node["metadata"]["uid"].as_str().unwrap_or_default());
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases");
        match self.server.merge(&format!("{leases}/{name}"), &node::renewal(name, now())).await {
            Err(refusal) if refusal.code == 404 => {
                self.server.create(&leases, &node::lease(name, uid, now())).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    async fn write_status(&mut self, node: &Value, readiness: Readiness) -> Result<(), RequestError> {
        let status = node::status(&self.options, &self.machine, readiness, Some(node), now());
        self.server.merge_by_key(&format!("{}/status", self.path()), &json!({"status": status})).await?;
        self.status_written = Some(Instant::now());
        Ok(())
    }

    /// Says that the node takes no pods any more. Best effort: an expired lease says so later.
    pub(crate) async fn say_stopping(&mut self) {
        let written = match self.server.get(&self.path()).await {
            Ok(node) => self.write_status(&node, Readiness::ShuttingDown).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = written {
            warn!(%refusal, "cannot say that the node stops");
        }
    }
}
