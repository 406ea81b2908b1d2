//! Manual nodes.
//!
//! Owns how node objects look and change. Removing one leaves its pods, which must be deleted.
//! Tests: `tests/cluster/kubelet.rs`.

use std::collections::BTreeMap;

use apis::ApiAnswer;
use model::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::deletion::DeleteOptions;
use crate::error::Error;
use crate::kinds::KindId;
use crate::merge::{items, object_mut, text};
use crate::store::Key;

/// A node to be added.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Resources that pods on it can request, as Kubernetes quantities. `cpu`, `memory`, `ephemeral-storage` and `pods` are unlimited where
    /// absent; any other resource is then missing.
    pub resources: BTreeMap<String, String>,
    /// Labels besides `kubernetes.io/hostname`.
    pub labels: BTreeMap<String, String>,
    /// Set if it is cordoned: it takes no new pods.
    pub closed: bool,
}

/// State of a node's `Ready` condition, or a deleted node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// `True`.
    Ready,
    /// `False`.
    NotReady,
    /// `Unknown`: nothing is heard of it.
    Unknown,
    /// The object is deleted.
    Removed,
}

impl NodeState {
    /// The state a scenario writes as `True`, `False`, `Unknown` or `removed`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "True" | "true" => Some(Self::Ready),
            "False" | "false" => Some(Self::NotReady),
            "Unknown" | "unknown" => Some(Self::Unknown),
            "removed" | "Removed" => Some(Self::Removed),
            _ => None,
        }
    }
}

impl NodeSpec {
    /// A node of that name that has room for every pod that asks for nothing special.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The same with so much of a resource, for example `("nvidia.com/gpu", "8")`.
    #[must_use]
    pub fn with(mut self, resource: &str, quantity: &str) -> Self {
        self.resources.insert(resource.to_owned(), quantity.to_owned());
        self
    }
}

/// Returns whether a node's `Ready` condition is True.
pub(crate) fn is_ready(node: &Value) -> bool {
    let mut conditions = items(node, &["status", "conditions"]).iter();
    conditions.any(|c| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True")
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now.to_rfc3339()})
}

fn ready(state: NodeState, now: Timestamp) -> Value {
    let (status, reason, message) = match state {
        NodeState::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
        NodeState::NotReady => ("False", "KubeletNotReady", "container runtime is down"),
        NodeState::Unknown | NodeState::Removed => {
            ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        }
    };
    condition("Ready", status, reason, message, now)
}

impl Cluster {
    /// Adds a Ready node. One that exists stays, with these resources and labels.
    pub fn add_node(&mut self, node: &NodeSpec) {
        let mut labels = node.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), node.name.clone());
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": labels},
            "spec": if node.closed { json!({"unschedulable": true}) } else { json!({}) },
            "status": {
                "capacity": node.resources,
                "allocatable": node.resources,
                "conditions": [ready(NodeState::Ready, self.now)],
            },
        });
        // The node is stored under any name the caller chose.
        let _: ApiAnswer = self.store_unchecked(&manifest);
    }

    /// Sets a node's `Ready` condition, or removes the node. A node that does not exist is added in that state.
    ///
    /// # Errors
    /// When a node is to be removed that does not exist.
    pub fn node(&mut self, name: &str, state: NodeState) -> Result<(), Error> {
        let key = Key::new(KindId::NODE, "", name);
        let exists = self.store.get(&key).is_some();
        match state {
            NodeState::Removed if !exists => Err(Error::NoSuchNode { name: name.to_owned() }),
            NodeState::Removed => {
                if let Some(kind) = self.kind_of(&key) {
                    self.delete(&kind, &key, DeleteOptions::default())?;
                }
                Ok(())
            }
            NodeState::Ready | NodeState::NotReady | NodeState::Unknown => {
                if !exists {
                    self.add_node(&NodeSpec::named(name));
                }
                self.set_condition(&key, ready(state, self.now));
                Ok(())
            }
        }
    }

    /// Cordons a node, so that it takes no new pods, or opens it again, as `kubectl cordon` and `uncordon` do.
    ///
    /// # Errors
    /// When the node does not exist.
    pub fn cordon(&mut self, name: &str, closed: bool) -> Result<(), Error> {
        let key = Key::new(KindId::NODE, "", name);
        let (Some(kind), true) = (self.kind_of(&key), self.store.get(&key).is_some()) else {
            return Err(Error::NoSuchNode { name: name.to_owned() });
        };
        self.commit_edit(&kind, &key, |node| {
            let spec = object_mut(node, "spec");
            if closed {
                spec.insert("unschedulable".into(), true.into());
            } else {
                spec.remove("unschedulable");
            }
        });
        Ok(())
    }

    /// Sets any condition of a node, for example `GpuUnhealthy` to `True`.
    ///
    /// # Errors
    /// When the node does not exist.
    pub fn node_condition(
        &mut self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), Error> {
        let key = Key::new(KindId::NODE, "", name);
        if self.store.get(&key).is_none() {
            return Err(Error::NoSuchNode { name: name.to_owned() });
        }
        self.set_condition(&key, condition(kind, status, reason, message, self.now));
        Ok(())
    }

    /// Sets a condition; one that says the same already keeps its time, and nothing is written.
    fn set_condition(&mut self, key: &Key, new: Value) {
        let (Some(kind), Some(node)) = (self.kind_of(key), self.store.get(key)) else { return };
        let mut conditions = items(node, &["status", "conditions"]).to_vec();
        let same = |a: &Value, fields: &[&str]| fields.iter().all(|f| text(a, &[f]) == text(&new, &[f]));
        match conditions.iter_mut().find(|c| same(c, &["type"])) {
            Some(old) if same(old, &["status", "reason", "message"]) => return,
            Some(old) => *old = new,
            None => conditions.push(new),
        }
        self.commit_edit(&kind, key, |node| {
            object_mut(node, "status").insert("conditions".into(), conditions.into());
        });
    }
}
