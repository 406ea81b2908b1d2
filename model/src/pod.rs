//! Facts about pods and their containers, reduced to what decisions read.
//!
//! Plain values. `apis::pod` reads them from objects; `engine::wire` says how they are written.

use std::collections::BTreeMap;

use crate::id::{Incarnation, ResourceVersion, SlotId, Text, Timestamp, Uid};

/// Phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Accepted, not all containers have started.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// Its node cannot be reached.
    Unknown,
}

impl PodPhase {
    /// Its name as Kubernetes spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns true if the pod has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A pod, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFact {
    /// Its uid.
    pub uid: Uid,
    /// Its name.
    pub name: Text,
    /// Its group and index; `None` when its labels name no slot.
    pub slot: Option<SlotId>,
    /// Its version.
    pub rv: ResourceVersion,
    /// Which creation decision of the slot it came from.
    pub incarnation: Incarnation,
    /// Its phase. It has ended once its training containers have, see [`PodFact::lingers`].
    pub phase: PodPhase,
    /// The node it is bound to.
    pub node: Option<Text>,
    /// Time at which its node accepted it.
    pub started: Option<Timestamp>,
    /// Its deletionTimestamp: when its grace period is over.
    pub deleting: Option<Timestamp>,
    /// Its normal containers.
    pub containers: Vec<ContainerFact>,
    /// Its init containers that failed or wait for something else than their turn. No rule reads them: they show why a pod does not
    /// start.
    pub init: Vec<ContainerFact>,
    /// Its status reason, for example `Evicted`.
    pub reason: Option<Text>,
    /// Its status message, or why it cannot be scheduled.
    pub message: Option<Text>,
    /// Condition types that are True, other than the usual progress conditions.
    pub conditions: Vec<Text>,
    /// Restarts of its containers by the kubelet, init containers included.
    pub restarts: u32,
    /// The shape it was made in, where its API shows shapes.
    pub shape: Option<Text>,
    /// Number of pods that it was started with, where its API notes that on it.
    pub size: Option<Text>,
    /// Other finalizers of a pod that its API's finalizer holds back; `None` for a pod that has not that one.
    pub protected: Option<Vec<Text>>,
    /// Set if it ended by its training containers while others of it run. To Kubernetes such a pod is running.
    pub lingers: bool,
    /// What it holds, where no spec of its job says so: its job may be gone.
    pub holds: Option<Box<PodHolding>>,
}

/// What a pod holds of a queue and of its node, as its own object says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodHolding {
    /// Queue that its label names.
    pub queue: Option<Text>,
    /// GPUs that it requests, by resource.
    pub gpus: BTreeMap<Text, u32>,
}

impl PodFact {
    /// Returns the fact about a pod of a slot that was just accepted: pending, without a node.
    pub const fn accepted(uid: Uid, name: Text, slot: Option<SlotId>, rv: ResourceVersion) -> Self {
        Self {
            uid,
            name,
            slot,
            rv,
            incarnation: Incarnation(0),
            phase: PodPhase::Pending,
            node: None,
            started: None,
            deleting: None,
            containers: Vec::new(),
            init: Vec::new(),
            reason: None,
            message: None,
            conditions: Vec::new(),
            restarts: 0,
            shape: None,
            size: None,
            protected: None,
            lingers: false,
            holds: None,
        }
    }
}

/// Condition of a pod that Kubernetes ends: evicted, preempted, collected, or on a node that goes down.
const DISRUPTION: &str = "DisruptionTarget";

/// Reason of a container whose end no kubelet saw, for example because its node started again.
const UNSEEN_END: &str = "ContainerStatusUnknown";

/// First letters of the reasons of pods for which a node had too little of a resource, for example `OutOfcpu`.
const OUT_OF: &str = "OutOf";

/// Other reasons by which a kubelet, or the control plane, ends a pod or does not admit it to its node. Those that another node
/// would repeat, such as `SysctlForbidden`, are not among them.
const DISRUPTIONS: [&str; 15] = [
    "Evicted",
    "NodeAffinity",
    "NodeLost",
    "NodeName",
    "NodePorts",
    "NodeShutdown",
    "NodeUnschedulable",
    "Preempted",
    "Preempting",
    "Shutdown",
    "TaintToleration",
    "Terminated",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "UnexpectedPredicateFailureType",
];

impl PodFact {
    /// Returns true if all of its containers have ended, so that it uses nothing of its node.
    pub const fn is_finished(&self) -> bool {
        self.phase.is_terminal() && !self.lingers
    }

    /// Returns true if Kubernetes ends it, as its condition says.
    pub fn has_disruption(&self) -> bool {
        self.conditions.iter().any(|condition| &**condition == DISRUPTION)
    }

    /// Returns true if it failed by its node or by Kubernetes, and not by its program: it was evicted, preempted or collected, its
    /// node shut down or started again, or the kubelet did not admit it.
    pub fn is_disrupted(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default();
        let is_listed = reason.starts_with(OUT_OF) || DISRUPTIONS.contains(&reason);
        let mut failed = self.containers.iter().filter_map(|container| match &container.state {
            ContainerState::Terminated(end) if end.code != 0 => Some(&*end.reason),
            ContainerState::Terminated(_) | ContainerState::Waiting { .. } | ContainerState::Running => None,
        });
        let mut is_unseen =
            || failed.next().is_some_and(|first| first == UNSEEN_END) && failed.all(|r| r == UNSEEN_END);
        self.phase == PodPhase::Failed && (is_listed || self.has_disruption() || is_unseen())
    }
}

impl PodFact {
    /// Returns the last failure of each of its containers that failed, the one first that came first. A container whose failure
    /// followed from that of another pod comes after those that failed by themselves, one whose result does not count after both.
    pub fn failures(&self) -> Vec<(&ContainerFact, &ContainerEnd)> {
        let init = self.init.iter().map(|container| (true, container));
        let all = init.chain(self.containers.iter().map(|container| (container.main, container)));
        let failed = all.filter_map(|(counts, container)| Some((counts, container, container.failure()?)));
        let mut failed: Vec<_> = failed.collect();
        failed.sort_by_key(|(counts, _, end)| (!counts, end.lost_peer, end.finished));
        failed.into_iter().map(|(_, container, end)| (container, end)).collect()
    }
}

/// A container, reduced to what decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFact {
    /// Its name.
    pub name: Text,
    /// Set if its result counts for the pod.
    pub main: bool,
    /// Its state.
    pub state: ContainerState,
    /// The end of its run before the present one, where it was started again in its pod.
    pub last: Option<Box<ContainerEnd>>,
}

impl ContainerFact {
    /// Returns its newest end, where that was a failure: that of its present run, or else of the run before.
    pub fn failure(&self) -> Option<&ContainerEnd> {
        let end = match &self.state {
            ContainerState::Terminated(end) => Some(end),
            ContainerState::Waiting { .. } | ContainerState::Running => self.last.as_deref(),
        };
        end.filter(|end| end.code != 0)
    }
}

/// State of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// Not started.
    Waiting {
        /// Why, for example `ImagePullBackOff`.
        reason: Text,
        /// The node's words on it, cut when long.
        message: Option<Text>,
    },
    /// Running.
    Running,
    /// Ended.
    Terminated(ContainerEnd),
}

/// End of one run of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerEnd {
    /// Exit code; 128 and more stand for a signal, see [`crate::exit`].
    pub code: i32,
    /// Why, for example `OOMKilled`; empty when it is not said.
    pub reason: Text,
    /// Its termination message, condensed. Kept of a failure, and where it names a possible device failure.
    pub message: Option<Text>,
    /// Time of its failure; absent where it did not fail, or the time is unknown.
    pub finished: Option<Timestamp>,
    /// Set if it failed because another pod was gone, as its message says.
    pub lost_peer: bool,
}
