//! TorchJob.

use model::Phase;

use super::{Api, VITAL};

pub(super) const API: Api = Api {
    name: "torchjob",
    files: 162,
    crashes: 9_000,
    repeated: &[],
    // A replaced pod leaves the job's phase to its counters, and the end is shown before the clean-up.
    phases: &[
        Phase::New,
        Phase::Pending,
        Phase::Queued,
        Phase::Running,
        Phase::Restarting,
        Phase::Succeeded,
        Phase::Failed,
        Phase::TimedOut,
    ],
    lived_in: &[
        (Phase::Queued, &["Job", "Spec", "JobGone", "Pod", "PodGone"]),
        (Phase::Running, VITAL),
        (Phase::Restarting, &["Job", "Spec", "JobGone", "Pod", "PodGone", "ServiceGone"]),
    ],
    happenings: fixtures::phases::torchjob::phases_and_happenings,
    enter,
    group: "worker",
};

pub(super) fn enter(phase: Phase) -> String {
    const RUNNING: &str = "\n  - run: all\n  - run: all";
    let (spec, steps) = match phase {
        // A job that cannot be served ends once its status can be written.
        Phase::New => ("minMembers: {Worker: 30}, ", String::new()),
        // Its pods wait for their pod group.
        Phase::Pending | Phase::Queued => ("", String::new()),
        Phase::Running => ("", RUNNING.to_owned()),
        Phase::Restarting => ("", format!("{RUNNING}\n  - exit: {{pod: j-master-0, code: 137}}")),
        Phase::Succeeded => (
            "",
            format!(
                "{RUNNING}\n  - exit: [{{pod: j-worker-0, code: 0}}, {{pod: j-worker-1, code: 0}}, {{pod: j-master-0, code: 0}}]"
            ),
        ),
        Phase::Failed => ("", format!("{RUNNING}\n  - exit: {{pod: j-worker-0, code: 1}}")),
        Phase::TimedOut => ("activeDurations: 60, ", format!("{RUNNING}\n  - advance: 2m")),
        Phase::Creating
        | Phase::Terminating
        | Phase::Preempted
        | Phase::NodeFailed
        | Phase::Suspended
        | Phase::Preparing => panic!("this API has no phase {phase:?}"),
    };
    let before = match phase {
        Phase::New => "\n  - fail: {verb: patch, kind: TorchJob, times: 1000, code: 500}",
        Phase::Pending => "\n  - fail: {verb: create, kind: PodGroup, times: 1000, code: 500}",
        _ => "",
    };
    let template = "template: {spec: {containers: [{name: torch, image: i}]}}";
    format!(
        "manifests:\n  - {{apiVersion: train.distributed.io/v1alpha1, kind: TorchJob, metadata: {{name: j, namespace: default}}, \
         spec: {{{spec}torchTaskSpecs: {{Master: {{{template}}}, Worker: {{numTasks: 2, restartPolicy: ExitCode, {template}}}}}}}}}\n\
         steps:{before}\n  - apply:{steps}\n"
    )
}
