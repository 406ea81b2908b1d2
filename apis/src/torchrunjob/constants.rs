//! This API's vocabulary: names of its groups and labels, its phases, and reasons of its conditions.

use model::{CauseKind, Phase};

/// Kind of the job objects.
pub const KIND: &str = "TorchrunJob";
/// Plural of the resource.
pub(super) const PLURAL: &str = "torchrunjobs";

/// The group of the pod that fills the workspace.
pub const SYNC: &str = "sync";
/// The group of the pods that train.
pub const WORKER: &str = "worker";

/// Label: the group of a pod.
pub const ROLE_LABEL: &str = "torchrun.ai/role";
/// Label: the index inside the group.
pub(super) const INDEX_LABEL: &str = "torchrun.ai/index";
/// Label and annotation: the run.
pub(super) const ID_LABEL: &str = "torchrun.ai/job-id";
/// Label and annotation: the name of the run.
pub const NAME_LABEL: &str = "torchrun.ai/job-name";
/// Label and annotation: the queue.
pub(super) const QUEUE_LABEL: &str = "torchrun.ai/job-queue";
/// Label: name of the job object.
pub(super) const OBJECT_LABEL: &str = "torchrun-job-name";
/// Label of the workspace's claim: whether it was filled.
pub(super) const SYNCED_LABEL: &str = "torchrun.ai/sync-completed";
/// Label of pods: their queue of the KAI scheduler.
pub(super) const KAI_LABEL: &str = "kai.scheduler/queue";
/// Label of pods: type of their GPUs.
pub(super) const GPU_LABEL: &str = "torchrun.ai/gpu-type";
/// Annotation on a job: generation of its workspace. A raised one fills the workspace again.
pub const GENERATION: &str = "torchrun.ai/workspace-generation";
/// Generation of a workspace without that annotation.
pub(super) const FIRST_GENERATION: &str = "1";

/// Spells a phase; empty for a job nothing was decided for.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        // Its workers are going, before others of another size start.
        Phase::Pending | Phase::Terminating => "Pending",
        Phase::Preparing => "Syncing",
        Phase::Queued | Phase::Creating | Phase::Restarting => "Queued",
        Phase::Running => "Running",
        Phase::Suspended => "Suspended",
        Phase::Succeeded => "Succeeded",
        Phase::Failed | Phase::NodeFailed => "Failed",
        Phase::TimedOut => "TimedOut",
        Phase::Preempted => "Preempted",
    }
}

/// Returns the phase of a word; `None` for one that is none of ours.
pub(super) fn phase_of(word: &str) -> Option<Phase> {
    let phases = [
        Phase::Pending,
        Phase::Preparing,
        Phase::Queued,
        Phase::Running,
        Phase::Suspended,
        Phase::Succeeded,
        Phase::Failed,
        Phase::TimedOut,
        Phase::Preempted,
    ];
    phases.into_iter().find(|phase| phase_word(*phase) == word)
}

/// Returns the reason of the condition `Failed`.
pub(super) const fn failed_reason(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::BudgetSpent => "BackoffLimitExceeded",
        CauseKind::TimeLimit => "DeadlineExceeded",
        CauseKind::Completed
        | CauseKind::Exited
        | CauseKind::PodFailed
        | CauseKind::NodeLost
        | CauseKind::GpuFault
        | CauseKind::CreationFailed
        | CauseKind::EndRequested(_)
        | CauseKind::Resized
        | CauseKind::Suspended
        | CauseKind::ShareLost(_)
        | CauseKind::NotStarted
        | CauseKind::Invalid
        | CauseKind::NotAdmitted
        | CauseKind::NoPods => "WorkersFailed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_a_phase_of_its_name() {
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::New) {
            assert_eq!(phase_of(phase_word(phase)).map(phase_word), Some(phase_word(phase)), "{phase:?}");
        }
        assert_eq!((phase_of(""), phase_of("Deleted")), (None, None));
    }
}
