//! Vocabulary that ModelVersion and Model share: types, labels, and the phases of a build.

use model::Phase;

use crate::owned::{Access, OwnedType, Pods};

/// API version of both types.
pub const API_VERSION: &str = "model.distributed.io/v1alpha1";
/// API group of both types: also the value of the label `group-name`.
pub(crate) const GROUP: &str = "model.distributed.io";
/// Version inside the API group.
pub(crate) const VERSION: &str = "v1alpha1";
/// Kind of the objects.
pub const KIND: &str = "ModelVersion";
/// Plural of the resource.
pub(super) const PLURAL: &str = "modelversions";

/// Label by which objects of a build are watched.
pub(super) const GROUP_LABEL: &str = "group-name";
/// Label: the model.
pub(super) const MODEL_LABEL: &str = "model.distributed.io/model-name";
/// Annotation: the pod that builds the image.
pub(super) const POD_ANNOTATION: &str = "model.distributed.io/img-build-pod-name";
/// Annotation on a TorchJob or a version: time of the last round of replaced pods.
pub(crate) const FAILOVER: &str = "distributed.io/last-failover-timestamp";
/// Finalizer: the volume goes with the object.
pub(super) const FINALIZER: &str = "model.distributed.io/volume-protection";

/// Volumes. One cannot have a namespaced object as its owner.
pub(super) const VOLUME: OwnedType = OwnedType {
    api_version: "v1",
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    namespaced: false,
    optional: false,
    access: Access::Immutable,
    reports: None,
    pods: Pods::Unrelated,
    reason: "The storage of a model is a volume of its ModelVersion, which is deleted with it.",
};

/// The Dockerfile of all builds in a namespace.
pub(super) const CONFIG_MAP: OwnedType = OwnedType {
    api_version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    namespaced: true,
    optional: false,
    access: Access::Left,
    reports: None,
    pods: Pods::Unrelated,
    reason: "The Dockerfile of model images is created in a namespace that has none.",
};

/// Spells a phase of a build; empty before the build begins.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New | Phase::Pending | Phase::Preparing | Phase::Suspended => "",
        Phase::Queued | Phase::Creating | Phase::Running | Phase::Restarting | Phase::Terminating => "ImageBuilding",
        Phase::Succeeded => "ImageBuildSucceeded",
        Phase::Failed | Phase::TimedOut | Phase::Preempted | Phase::NodeFailed => "ImageBuildFailed",
    }
}

/// Returns the phase of an object whose status says this, and whose log is not known.
pub(super) fn phase_of(word: &str) -> Option<Phase> {
    [Phase::Queued, Phase::Succeeded, Phase::Failed].into_iter().find(|phase| phase_word(*phase) == word)
}
