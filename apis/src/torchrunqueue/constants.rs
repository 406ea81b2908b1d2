//! Vocabulary that TorchrunQueue and TorchrunJob share: types, labels, and the phases of a queue.

use model::Phase;

use crate::owned::{Access, OwnedType, Pods};

/// API version of both types.
pub const API_VERSION: &str = "torchrun.ai/v1alpha1";
/// API group of both types.
pub(crate) const GROUP: &str = "torchrun.ai";
/// Version inside the API group.
pub(crate) const VERSION: &str = "v1alpha1";
/// Kind of the queue objects.
pub const KIND: &str = "TorchrunQueue";
/// Plural of the resource.
pub(super) const PLURAL: &str = "torchrunqueues";

/// Label by which every object of both types is watched.
pub(crate) const APP_LABEL: &str = "app";
/// Value of [`APP_LABEL`].
pub(crate) const APP: &str = "torchrun";
/// Label: kind of a claim.
pub(crate) const TYPE_LABEL: &str = "torchrun.ai/type";
/// Label: the queue that an object was made for.
pub(super) const QUEUE_LABEL: &str = "torchrun.ai/queue";
/// Label: the controller that made a KAI Queue.
pub(super) const MANAGED_BY: (&str, &str) = ("torchrun.ai/managed-by", "jobqueue-controller");
/// Label: the controller that made an object of a template.
pub(super) const TEMPLATED: (&str, &str) = ("torchrun.ai/managed-by", "torchrunqueue-controller");
/// Label on a KAI Queue: the queue it was made for.
pub(super) const JOB_QUEUE_LABEL: &str = "torchrun.ai/jobqueue";
/// Label on a KAI Queue: namespace of the queue it was made for.
pub(super) const NAMESPACE_LABEL: &str = "torchrun.ai/jobqueue-namespace";
/// Finalizer on the queue objects.
pub(super) const FINALIZER: &str = "torchrun.ai/queue-protection";
/// Name of the container that trains.
pub(crate) const TRAINER: &str = "trainer";
/// Scheduler that queues ask for where they name none.
pub(crate) const KAI_SCHEDULER: &str = "kai-scheduler";

/// Queues of the KAI scheduler. A cluster without that scheduler lacks the type.
pub(super) const KAI_QUEUE: OwnedType = OwnedType {
    api_version: "scheduling.run.ai/v2",
    kind: "Queue",
    plural: "queues",
    namespaced: false,
    optional: true,
    access: Access::Managed,
    reports: None,
    pods: Pods::Unrelated,
    reason: "A TorchrunQueue has a queue of the KAI scheduler, which is deleted with it.",
};

/// Spells a phase of a queue; empty for one that nothing was decided for.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        Phase::Terminating => "Terminating",
        Phase::Running
        | Phase::Pending
        | Phase::Creating
        | Phase::Restarting
        | Phase::Succeeded
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed
        | Phase::Suspended
        | Phase::Preparing
        | Phase::Queued => "Active",
    }
}
