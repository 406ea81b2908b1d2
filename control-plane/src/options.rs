//! What a control plane is to be like.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::component::Component;
use crate::error::Error;

/// Options of a control plane.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of simulated nodes, `node-0` and so on. They need [`Options::kwok`].
    pub nodes: u32,
    /// `nvidia.com/gpu` of each of these.
    pub gpus: u32,
    /// Directory of data, certificates and logs; created if absent. `None`: a temporary directory that is removed at the end,
    /// unless the environment variable `TRAINYARD_CONTROL_PLANE_KEEP` is set. One plane at a time may use a directory;
    /// what an earlier one left there is removed.
    pub directory: Option<PathBuf>,
    /// True if kube-scheduler runs. Without it pods stay unscheduled unless a test binds them.
    pub scheduler: bool,
    /// Address of an [extender] of kube-scheduler that is asked, by HTTP at `/filter`, which of the nodes that pass its filters a pod
    /// may use. `None`: there is none.
    ///
    /// [extender]: https://kubernetes.io/docs/concepts/extend-kubernetes/#scheduling-extensions
    pub scheduler_extender: Option<SocketAddr>,
    /// True if kube-controller-manager runs. Without it there are no service accounts for pods (admission does not ask for any
    /// then), no garbage collection, no namespace deletion and no node lifecycle.
    pub controller_manager: bool,
    /// True if kwok runs: heartbeats of simulated nodes, and their pods.
    pub kwok: bool,
    /// After how long without a heartbeat a node counts as not ready. Simulated nodes send one every fifth of it. `None`: 50 s,
    /// the default of Kubernetes, or more with more than 100 nodes, so that there are at most ten heartbeats a second.
    pub node_grace: Option<Duration>,
    /// Further arguments, given to a component after those of this crate. The last of two equal flags wins, so that any of
    /// them can be changed.
    pub arguments: BTreeMap<Component, Vec<String>>,
    /// Timeout of the start until all is ready, without building the programs.
    pub ready_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 0,
            gpus: 8,
            directory: None,
            scheduler: true,
            scheduler_extender: None,
            controller_manager: true,
            kwok: true,
            node_grace: None,
            arguments: BTreeMap::new(),
            ready_within: Duration::from_secs(120),
        }
    }
}

/// Each node has a pod network of its own, 10.0.0.0/24 to 10.63.255.0/24.
const MAX_NODES: u32 = 64 * 256;
const SHORTEST_GRACE: Duration = Duration::from_secs(5);

impl Options {
    /// The components to start, in order.
    pub(crate) fn components(&self) -> Vec<Component> {
        let wanted = |component: &Component| match component {
            Component::Etcd | Component::ApiServer => true,
            Component::ControllerManager => self.controller_manager,
            Component::Scheduler => self.scheduler,
            Component::Kwok => self.kwok,
        };
        Component::ALL.into_iter().filter(wanted).collect()
    }

    /// The field [`Options::node_grace`], or what it is by default.
    pub(crate) fn node_grace(&self) -> Duration {
        let spread = Duration::from_millis(u64::from(self.nodes) * 500);
        self.node_grace.unwrap_or_else(|| spread.max(Duration::from_secs(50)))
    }

    /// Returns whether these can be met.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |option, value: String, why| Err(Error::Option { option, value, why });
        if self.nodes > 0 && !self.kwok {
            return wrong("nodes", self.nodes.to_string(), "simulated nodes need kwok");
        }
        if self.nodes > MAX_NODES {
            return wrong("nodes", self.nodes.to_string(), "at most 16384");
        }
        if self.node_grace.is_some_and(|grace| grace < SHORTEST_GRACE) {
            return wrong("node_grace", format!("{:?}", self.node_grace.unwrap_or_default()), "at least 5s");
        }
        Ok(())
    }
}
