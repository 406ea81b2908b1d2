//! ElasticJob.

use model::Phase;

use super::{Api, VITAL};

pub(super) const API: Api = Api {
    name: "elasticjob",
    files: 164,
    crashes: 6_000,
    repeated: &["many-fail-at-once", "replaced-and-lost-at-once"],
    // A replaced pod leaves the job's phase to its counters, and the end is shown before the clean-up: Terminating is a refit alone.
    phases: &[
        Phase::New,
        Phase::Pending,
        Phase::Running,
        Phase::Restarting,
        Phase::Terminating,
        Phase::Suspended,
        Phase::Succeeded,
        Phase::Failed,
        Phase::TimedOut,
    ],
    lived_in: &[
        // Without a pod that is placed no node concerns a job.
        (Phase::Pending, &["Job", "Spec", "JobGone", "Pod", "PodGone", "ServiceGone"]),
        (Phase::Running, VITAL),
        (Phase::Restarting, VITAL),
        // Its pods are leaving or gone.
        (Phase::Suspended, &["Job", "Spec", "JobGone", "PodGone", "ServiceGone"]),
    ],
    happenings: fixtures::phases::elasticjob::phases_and_happenings,
    enter,
    group: "worker",
};

pub(super) fn enter(phase: Phase) -> String {
    let (spec, replicas, steps) = match phase {
        Phase::New => ("minReplicas: 3, ", 2, ""),
        Phase::Pending => ("", 2, ""),
        Phase::Running => ("", 2, "\n  - run: all"),
        Phase::Restarting => {
            ("minReplicas: 2, maxReplicas: 2, ", 2, "\n  - run: all\n  - exit: {pod: j-worker-0, code: 137}")
        }
        Phase::Terminating => ("", 2, "\n  - run: all\n  - scale: {job: j, replicas: 3}"),
        Phase::Suspended => ("", 0, ""),
        Phase::Succeeded => {
            ("", 2, "\n  - run: all\n  - exit: [{pod: j-worker-0, code: 0}, {pod: j-worker-1, code: 0}]")
        }
        Phase::Failed => ("", 2, "\n  - run: all\n  - exit: {pod: j-worker-0, code: 1}"),
        Phase::TimedOut => ("activeDeadlineSeconds: 60, ", 2, "\n  - run: all\n  - advance: 2m"),
        Phase::Creating | Phase::Preempted | Phase::NodeFailed | Phase::Preparing | Phase::Queued => {
            panic!("this API has no phase {phase:?}")
        }
    };
    format!(
        "manifests:\n  - {{apiVersion: elastic.pytorch.org/v1alpha1, kind: ElasticJob, metadata: {{name: j, namespace: default}}, \
         spec: {{rdzvEndpoint: \"e:1\", {spec}replicaSpecs: {{Worker: {{replicas: {replicas}, restartPolicy: ExitCode, \
         template: {{spec: {{containers: [{{name: elasticjob-worker, image: i}}]}}}}}}}}}}}}\nsteps:\n  - apply:{steps}\n"
    )
}
