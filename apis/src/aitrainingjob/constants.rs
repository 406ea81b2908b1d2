//! This API's vocabulary: names of its labels, and its spelling of the phases.

use model::Phase;

/// API version of the job objects.
pub const API_VERSION: &str = "elasticdeeplearning.ai/v1";
/// Kind of the job objects.
pub const KIND: &str = "AITrainingJob";
/// API group: also the value of the label `GroupName`.
pub const GROUP: &str = "elasticdeeplearning.ai";
/// Plural of the resource.
pub(super) const PLURAL: &str = "aitrainingjobs";

/// Label: the operator's API group.
pub(super) const GROUP_LABEL: &str = "GroupName";
/// Label: the job.
pub(super) const JOB_LABEL: &str = "TrainingJobName";
/// Label: the job, as other tools of that family look for it.
pub(super) const JOB_LABEL_SHORT: &str = "JobName";
/// Label: the replica group, in lower case.
pub(super) const REPLICA_LABEL: &str = "TrainingJobReplicaName";
/// Label: the replica group, as other tools of that family look for it.
pub(super) const ROLE_LABEL: &str = "PodRole";
/// Label: the index inside the group.
pub(super) const INDEX_LABEL: &str = "TrainingJobReplicaIndex";
/// Label: how many restarts the pod's group had when it was created.
pub(super) const RESTARTS_LABEL: &str = "RestartCount";
/// Label: the job's `spec.priority`.
pub(super) const PRIORITY_LABEL: &str = "priority";

/// Start of the reason of every condition.
pub(super) const REASON_PREFIX: &str = "TrainingJob";

/// Spells a phase as in `status.phase`; empty for a job nothing was decided for.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        // A job that waits without pods waits for them; the original has no word of its own.
        Phase::Pending | Phase::Suspended | Phase::Preparing | Phase::Queued => "Pending",
        Phase::Creating => "Creating",
        Phase::Running => "Running",
        Phase::Restarting => "Restarting",
        Phase::Terminating => "Terminating",
        Phase::Succeeded => "Succeed",
        Phase::Failed => "Failed",
        Phase::TimedOut => "Timeout",
        Phase::Preempted => "Preempted",
        Phase::NodeFailed => "NodeFail",
    }
}

/// Returns the phase of a word; `None` for a word that is no phase.
pub(super) fn phase_of(word: &str) -> Option<Phase> {
    Phase::ALL.into_iter().find(|phase| phase_word(*phase) == word)
}

/// Returns the reason of a phase's condition.
pub(super) fn phase_reason(phase: Phase) -> String {
    format!("{REASON_PREFIX}{}", phase_word(phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_a_word_of_its_own() {
        // Jobs of this API are never in these phases.
        let others = [Phase::Suspended, Phase::Preparing, Phase::Queued];
        for phase in Phase::ALL.into_iter().filter(|phase| !others.contains(phase)) {
            assert_eq!(phase_of(phase_word(phase)), Some(phase));
        }
        assert_eq!(phase_of("Succeeded"), None);
        assert_eq!(phase_reason(Phase::NodeFailed), "TrainingJobNodeFail");
    }
}
