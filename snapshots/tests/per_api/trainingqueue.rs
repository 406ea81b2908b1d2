//! TrainingQueue.

use model::Phase;

use super::Api;

pub(super) const API: Api = Api {
    name: "trainingqueue",
    files: 59,
    crashes: 1000,
    repeated: &[],
    // The phases of the jobs in the queue are among them.
    phases: &[
        Phase::New,
        Phase::Pending,
        Phase::Preparing,
        Phase::Queued,
        Phase::Creating,
        Phase::Running,
        Phase::Restarting,
        Phase::Terminating,
        Phase::Succeeded,
        Phase::Failed,
        Phase::TimedOut,
        Phase::Suspended,
    ],
    lived_in: &[(Phase::Running, &["Job", "Spec", "JobGone", "QueueReported"])],
    happenings: fixtures::phases::trainingqueue::phases_and_happenings,
    enter,
    group: "none",
};

fn enter(phase: Phase) -> String {
    let policy = match phase {
        Phase::New => "none",
        Phase::Running => "fifo-backfill",
        // Of the jobs in it.
        Phase::Suspended => return super::elasticjob::enter(phase),
        Phase::Preparing | Phase::Queued => return super::torchrunjob::enter(phase),
        Phase::Pending
        | Phase::Creating
        | Phase::Restarting
        | Phase::Terminating
        | Phase::Succeeded
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed => return super::aitrainingjob::enter(phase),
    };
    format!(
        "manifests:\n  - {{apiVersion: trainyard.dev/v1alpha1, kind: TrainingQueue, metadata: {{name: j}}, spec: {{policy: {policy}, \
         quota: {{nvidia.com/gpu: {{nominal: 8}}}}}}}}\nsteps:\n  - apply:\n"
    )
}
