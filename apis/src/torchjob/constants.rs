//! This API's vocabulary: names of its types of tasks, labels and annotations.

use crate::series::Series;

/// API version of the job objects.
pub const API_VERSION: &str = "train.distributed.io/v1alpha1";
/// Version inside the API group.
pub(super) const VERSION: &str = "v1alpha1";
/// Kind of the job objects.
pub const KIND: &str = "TorchJob";
/// API group: also the value of the label `group-name`.
pub const GROUP: &str = "train.distributed.io";
/// Plural of the resource.
pub(super) const PLURAL: &str = "torchjobs";

/// Label: the operator's API group.
pub(super) const GROUP_LABEL: &str = "group-name";
/// Label: the job.
pub(super) const JOB_LABEL: &str = "job-name";
/// Label: the type of task, in lower case.
pub(super) const TYPE_LABEL: &str = "task-type";
/// Label: the index inside the type.
pub(super) const INDEX_LABEL: &str = "task-index";
/// Label of the master's pod.
pub(super) const ROLE_LABEL: &str = "task-role";

/// Annotation on a job: `ready` lets Master and Worker start.
pub(super) const AIMASTER_READY: (&str, &str) = ("aimaster", "ready");
/// Annotation on a job: `host` puts its pods on the network of their nodes.
pub(super) const NETWORK_MODE: (&str, &str) = ("distributed.io/network-mode", "host");
/// Annotation on a job: `true` makes it elastic.
pub(super) const ELASTIC: (&str, &str) = ("distributed.io/enable-elastic-training", "true");

/// The container that trains.
pub(super) const CONTAINER: &str = "torch";
/// Its port at which the master meets the workers.
pub(super) const PORT_NAME: &str = "torchjob-port";
/// Number of that port where the template names none.
pub(super) const PORT: u16 = 23_456;
/// Volume that holds the model.
pub(super) const MODEL_VOLUME: &str = "modelvolume";

/// Metrics of the original.
pub(super) const SERIES: Series = Series {
    kind: "torchjob",
    created: "torch_on_k8s_jobs_created",
    deleted: "torch_on_k8s_jobs_deleted",
    successful: "torch_on_k8s_jobs_successful",
    failed: "torch_on_k8s_jobs_failed",
    restarted: "torch_on_k8s_jobs_restarted",
    running: "torch_on_k8s_jobs_running",
    pending: "torch_on_k8s_jobs_pending",
    delays_kind: KIND,
    first_pod_delay: "torch_on_k8s_jobs_first_pod_launch_delay_seconds",
    all_pods_delay: "torch_on_k8s_jobs_all_pods_launch_delay_seconds",
};

/// Type of task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Decides when the others start, and may end the job.
    AiMaster,
    /// Rank 0.
    Master,
    /// Ranks from 1 on.
    Worker,
}

impl Task {
    /// Every type, in the order in which they start.
    pub(super) const ALL: [Self; 3] = [Self::AiMaster, Self::Master, Self::Worker];

    /// Returns its name in manifests and in the status.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AiMaster => "AIMaster",
            Self::Master => "Master",
            Self::Worker => "Worker",
        }
    }

    /// Returns its name in names of pods and in labels.
    pub(super) const fn lower(self) -> &'static str {
        match self {
            Self::AiMaster => "aimaster",
            Self::Master => "master",
            Self::Worker => "worker",
        }
    }

    /// Returns the type that a key of a manifest names. Only Master and Worker may be written in any case.
    pub(super) fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| match task {
            Self::AiMaster => key == task.name(),
            Self::Master | Self::Worker => key.eq_ignore_ascii_case(task.name()),
        })
    }

    /// Returns the type of a group.
    pub(super) fn of_group(group: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.lower() == group)
    }
}
