//! TorchrunJob.

use model::Phase;

use super::Api;

pub(super) const API: Api = Api {
    name: "torchrunjob",
    files: 64,
    crashes: 3_000,
    repeated: &[],
    // The phases of its queues are among them.
    phases: &[
        Phase::New,
        Phase::Pending,
        Phase::Preparing,
        Phase::Queued,
        Phase::Running,
        Phase::Restarting,
        Phase::Terminating,
        Phase::Suspended,
        Phase::Succeeded,
        Phase::Failed,
        Phase::TimedOut,
    ],
    lived_in: &[
        (Phase::Pending, &["Job", "Spec", "JobGone"]),
        (Phase::Preparing, &["Job", "Spec", "JobGone", "Pod", "PodGone"]),
        (Phase::Running, VITAL_WITHOUT_SERVICES),
        (Phase::Suspended, &["Job", "Spec", "JobGone", "PodGone"]),
    ],
    happenings: fixtures::phases::torchrunjob::phases_and_happenings,
    enter,
    group: "worker",
};

/// What a job lives on whose pods have no services.
const VITAL_WITHOUT_SERVICES: &[&str] = &["Job", "Spec", "JobGone", "Pod", "PodGone", "NodeChanged"];

pub(super) fn enter(phase: Phase) -> String {
    const FILLED: &str = "\n  - run: all\n  - exit: {pod: j-sync-0, code: 0}\n  - gone: all";
    let started = format!("{FILLED}\n  - run: all");
    let (spec, steps) = match phase {
        Phase::New => ("numGPUs: 4, ", String::new()),
        Phase::Pending => ("queue: none, ", String::new()),
        Phase::Preparing => ("", String::new()),
        Phase::Queued => ("", FILLED.to_owned()),
        Phase::Running => ("", started),
        Phase::Restarting => ("", format!("{started}\n  - exit: {{pod: j-0, code: 1}}")),
        Phase::Terminating => ("", format!("{started}\n  - patch: {{job: j, spec: {{numNodes: 2}}}}")),
        Phase::Suspended => ("suspend: true, ", String::new()),
        Phase::Succeeded => ("", format!("{started}\n  - exit: {{pod: j-0, code: 0}}")),
        Phase::Failed => (
            "reliability: {maxRestarts: 0, restartPolicy: Never}, ",
            format!("{started}\n  - exit: {{pod: j-0, code: 1}}"),
        ),
        Phase::TimedOut => ("reliability: {activeDeadlineSeconds: 60}, ", format!("{started}\n  - advance: 2m")),
        Phase::Creating | Phase::Preempted | Phase::NodeFailed => panic!("this API has no phase {phase:?}"),
    };
    let queue = if spec.starts_with("queue") { "" } else { "queue: q, " };
    let policy = if spec.starts_with("reliability") { "" } else { "reliability: {restartPolicy: Never}, " };
    format!(
        "manifests:\n  - {{apiVersion: torchrun.ai/v1alpha1, kind: TorchrunQueue, metadata: {{name: q, namespace: default}}, spec: \
         {{queue: {{name: q}}, image: i}}}}\n  - {{apiVersion: torchrun.ai/v1alpha1, kind: TorchrunJob, metadata: {{name: j, \
         namespace: default}}, spec: {{{queue}{spec}{policy}command: train}}}}\nsteps:\n  - apply:{steps}\n"
    )
}
