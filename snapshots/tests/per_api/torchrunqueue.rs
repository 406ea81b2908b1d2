//! TorchrunQueue.

use model::Phase;

use super::Api;

pub(super) const API: Api = Api {
    name: "torchrunqueue",
    files: 20,
    crashes: 150,
    repeated: &[],
    // The phases of a job that needs the queue are among them.
    phases: &[
        Phase::New,
        Phase::Pending,
        Phase::Preparing,
        Phase::Queued,
        Phase::Running,
        Phase::Succeeded,
        Phase::Terminating,
    ],
    lived_in: &[
        (Phase::Running, &["Job", "Spec", "JobGone", "Owned", "OwnedGone"]),
        (Phase::Terminating, &["Job", "JobGone"]),
    ],
    happenings: fixtures::phases::torchrunqueue::phases_and_happenings,
    enter,
    group: "none",
};

fn enter(phase: Phase) -> String {
    let (name, steps) = match phase {
        Phase::New => ("\"A B\"", ""),
        Phase::Running => ("k", ""),
        Phase::Terminating => ("k", "\n  - delete: {kind: TorchrunQueue, name: j}"),
        // Of the job that needs it.
        Phase::Pending
        | Phase::Preparing
        | Phase::Queued
        | Phase::Succeeded
        | Phase::Creating
        | Phase::Restarting
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed
        | Phase::Suspended => return super::torchrunjob::enter(phase),
    };
    format!(
        "manifests:\n  - {{apiVersion: torchrun.ai/v1alpha1, kind: TorchrunQueue, metadata: {{name: j, namespace: default}}, spec: \
         {{queue: {{name: {name}}}, image: i}}}}\n  - {{apiVersion: torchrun.ai/v1alpha1, kind: TorchrunJob, metadata: {{name: user, \
         namespace: default}}, spec: {{queue: j, command: train}}}}\nsteps:\n  - apply:{steps}\n"
    )
}
