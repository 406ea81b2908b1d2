//! This API's vocabulary: names of its labels, its types of conditions, and its reasons.

use model::{CauseKind, Phase};

use crate::conditions::{Effect, Rules};

/// API version of the job objects.
pub const API_VERSION: &str = "elastic.pytorch.org/v1alpha1";
/// Version inside the API group.
pub(super) const VERSION: &str = "v1alpha1";
/// Kind of the job objects.
pub const KIND: &str = "ElasticJob";
/// API group: also the value of the label `group-name`.
pub const GROUP: &str = "elastic.pytorch.org";
/// Plural of the resource.
pub(super) const PLURAL: &str = "elasticjobs";

/// Label: the operator's API group.
pub(super) const GROUP_LABEL: &str = "group-name";
/// Label: the job.
pub(super) const JOB_LABEL: &str = "job-name";
/// Label: the replica group, in lower case.
pub(super) const TYPE_LABEL: &str = "replica-type";
/// Label: the index inside the group.
pub(super) const INDEX_LABEL: &str = "replica-index";

/// The replica group that decides about the job, as users spell it.
pub(super) const WORKER: &str = "Worker";
/// The same, as in names of pods.
pub(super) const WORKER_LOWER: &str = "worker";
/// The container that takes part in the rendezvous, where a pod has one of this name.
pub(super) const CONTAINER: &str = "elasticjob-worker";
/// Annotation on a job: the back end of its rendezvous.
pub(super) const BACKEND: &str = "elastic.pytorch.org/rdzv-backend";
/// Annotation on a job, Trainyard's addition: the pods that a failed worker restarts.
pub(super) const RESTART_SCOPE: &str = "trainyard.dev/restart-scope";
/// Value of it: all pods, which `backoffLimit` counts as one retry.
pub(super) const SCOPE_ALL: &str = "All";

/// Start of the reason of every condition.
pub(super) const REASON_PREFIX: &str = "ElasticJob";

/// Spells a phase as the type of a condition; empty for a job nothing was decided for.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        Phase::Pending | Phase::Creating | Phase::Preparing | Phase::Queued => "Created",
        Phase::Running => "Running",
        Phase::Restarting | Phase::Terminating => "Restarting",
        Phase::Suspended => "Suspended",
        Phase::Succeeded => "Succeeded",
        Phase::Failed | Phase::TimedOut | Phase::Preempted | Phase::NodeFailed => "Failed",
    }
}

/// Returns the phase of a type of condition; `None` for a type that is no phase.
fn phase_of(word: &str) -> Option<Phase> {
    let phases = [Phase::Pending, Phase::Running, Phase::Restarting, Phase::Suspended, Phase::Succeeded, Phase::Failed];
    phases.into_iter().find(|phase| phase_word(*phase) == word)
}

/// Returns the effect on an older condition of another one that becomes True.
const fn effect(new: Phase, old: Phase) -> Effect {
    if matches!(old, Phase::Restarting | Phase::Suspended) {
        Effect::Dropped
    } else if matches!(new, Phase::Running) || matches!(old, Phase::Pending) {
        Effect::Stays
    } else {
        Effect::False
    }
}

/// Returns the original's sentence about a job in a phase. `failed`: its failed pods and their group, where they led to it.
pub(super) fn sentence(name: &str, phase: Phase, failed: Option<(usize, &str)>) -> String {
    let state = match phase {
        Phase::Running => "running",
        Phase::Succeeded => "successfully completed",
        Phase::Failed => "failed",
        Phase::Restarting => "restarting",
        Phase::Suspended => "suspended",
        _ => "created",
    };
    let why = failed.map(|(count, group)| format!(" because {count} {group} replica(s) failed")).unwrap_or_default();
    format!("{}{state}{why}.", sentence_start(name))
}

fn sentence_start(name: &str) -> String {
    format!("{KIND} {name} is ")
}

/// Returns the message of a condition: the original's sentence, then the cause. The original's own message stays as it is.
pub(super) fn with_sentence(name: &str, sentence: &str, cause: &str) -> String {
    if cause.starts_with(&sentence_start(name)) {
        cause.to_owned()
    } else {
        format!("{sentence} {cause}").trim_end().to_owned()
    }
}

/// Returns the cause in the message of a condition that was written by [`with_sentence`].
pub(super) fn without_sentence<'a>(name: &str, message: &'a str) -> &'a str {
    if message.starts_with(&sentence_start(name)) {
        message.split_once(". ").map_or("", |(_, cause)| cause)
    } else {
        message
    }
}

/// Changes of the list of conditions, as the original made them: `Running` stays beside what ends or interrupts it, as False.
pub(super) const CONDITIONS: Rules = Rules {
    word: phase_word,
    phase_of,
    effect,
    interrupted: [Phase::Restarting, Phase::Suspended],
    updated: "lastUpdateTime",
};

/// Returns the reason of the condition of a failed job.
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
        | CauseKind::NoPods => "ElasticJobFailed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_condition_is_read_as_a_phase_of_its_name() {
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::New) {
            let word = phase_word(phase);
            assert_eq!(phase_of(word).map(phase_word), Some(word), "{phase:?}");
        }
        assert_eq!((phase_of(""), phase_of("Invalid"), phase_of("running")), (None, None, None));
    }
}
