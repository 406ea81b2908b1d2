//! Names of the MPI operator and of Voda, and this API's words for phases.

use model::Phase;

/// API version.
pub const API_VERSION: &str = "kubeflow.org/v2beta1";
/// API group.
pub(super) const GROUP: &str = "kubeflow.org";
/// Version inside the group.
pub(super) const VERSION: &str = "v2beta1";
/// Kind of the objects.
pub const KIND: &str = "MPIJob";
/// Plural of the resource.
pub(super) const PLURAL: &str = "mpijobs";
/// Replica type of the pods that train.
pub const WORKER: &str = "Worker";
/// Name of their group in the engine.
pub(super) const WORKER_LOWER: &str = "worker";
/// Replica type of the pod that starts the others.
pub const LAUNCHER: &str = "Launcher";
/// Its name in labels of pods, and that of its group.
pub(super) const LAUNCHER_LOWER: &str = "launcher";
/// Member of the manifest with the template of a launcher that requests GPUs.
pub(super) const LAUNCHER_TEMPLATE: &str = "launcherTemplate";
/// Label of every pod of the MPI operator.
pub(super) const OPERATOR_LABEL: &str = "training.kubeflow.org/operator-name";
/// Its value, and that of `runPolicy.managedBy`, where the MPI operator reconciles the job.
pub(super) const OPERATOR: &str = "mpi-operator";
/// Value of `runPolicy.managedBy` that leaves a job to the MPI operator.
pub(super) const MANAGER: &str = "kubeflow.org/mpi-operator";
/// Label of a pod that names its job.
pub(super) const JOB_LABEL: &str = "training.kubeflow.org/job-name";
/// Label of a pod that names its part.
pub(super) const ROLE_LABEL: &str = "training.kubeflow.org/job-role";
/// Label, or node selector of the workers, that names the type of GPU: Voda's mark of a job that it schedules.
pub const ACCELERATOR: &str = "vodascheduler/accelerator";
/// Key of the taints of Voda's nodes: `vodascheduler/hostname=<node>:NoExecute`.
pub(super) const HOSTNAME: &str = "vodascheduler/hostname";
/// Variables of the launcher with the least workers, in both spellings.
pub const MIN_VARIABLES: [&str; 2] = ["MIN_NUM_PROC", "MIN_NP"];
/// Variables of the launcher with the most workers, in both spellings.
pub const MAX_VARIABLES: [&str; 2] = ["MAX_NUM_PROC", "MAX_NP"];
/// Annotation by which a user suspends a job. The MPI operator reads from the field `runPolicy.suspend` what was decided.
pub(super) const SUSPEND: &str = "trainyard.dev/suspend";
/// Annotation with the state of the job in this API's words.
pub const PHASE: &str = "trainyard.dev/phase";
/// Annotation with the reason of that state.
pub(super) const MESSAGE: &str = "trainyard.dev/message";
/// Annotation with the digest of the fields that were written with the mirror.
pub(super) const STEERED: &str = "trainyard.dev/steered";

/// Spells a phase in Voda's words.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        Phase::Pending | Phase::Creating | Phase::Preparing | Phase::Queued => "Waiting",
        Phase::Running | Phase::Restarting | Phase::Terminating => "Running",
        Phase::Succeeded => "Completed",
        Phase::Failed | Phase::TimedOut | Phase::Preempted | Phase::NodeFailed => "Failed",
        Phase::Suspended => "Suspended",
    }
}
