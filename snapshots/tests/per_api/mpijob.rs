//! MPIJob.

use model::Phase;

use super::Api;

pub(super) const API: Api = Api {
    name: "mpijob",
    files: 25,
    crashes: 300,
    repeated: &[],
    // The phase of the queue that it is in is among them.
    phases: &[Phase::New, Phase::Pending, Phase::Running, Phase::Suspended, Phase::Succeeded, Phase::Failed],
    lived_in: &[
        (Phase::Pending, &["Job", "Spec", "JobGone"]),
        (Phase::Running, &["Job", "Spec", "JobGone", "Pod", "PodGone", "NodeChanged"]),
        (Phase::Suspended, &["Job", "Spec", "JobGone"]),
    ],
    happenings: fixtures::phases::mpijob::phases_and_happenings,
    enter,
    group: "worker",
};

fn enter(phase: Phase) -> String {
    let (workers, steps) = match phase {
        Phase::New => (0, ""),
        Phase::Pending => (5, ""),
        Phase::Running => (2, "\n  - run: all"),
        Phase::Suspended => (2, "\n  - annotate: {job: j, set: {trainyard.dev/suspend: \"true\"}}"),
        Phase::Succeeded => (2, "\n  - run: all\n  - exit: {pod: j-launcher, code: 0}"),
        Phase::Failed => (2, "\n  - run: all\n  - exit: {pod: j-launcher, code: 1}"),
        Phase::Creating
        | Phase::Restarting
        | Phase::Terminating
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed
        | Phase::Preparing
        | Phase::Queued => panic!("this API has no phase {phase:?}"),
    };
    // Sizes that cannot be read keep a job from a first phase.
    let size = if workers == 0 { "many".to_owned() } else { workers.to_string() };
    format!(
        "nodes: [{{name: n1, gpus: 4}}]\nwith: [mpi-operator]\nmanifests:\n  - {{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, \
         metadata: {{name: j, namespace: default, labels: {{vodascheduler/accelerator: a100}}}}, spec: {{mpiReplicaSpecs: {{\
         Launcher: {{template: {{spec: {{containers: [{{name: l, image: i, env: [{{name: NUM_PROC, value: \"{size}\"}}]}}]}}}}}}, Worker: {{replicas: 1, \
         template: {{spec: {{containers: [{{name: w, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}}}}}}}}}}}\n\
         steps:\n  - apply:{steps}\n"
    )
}
