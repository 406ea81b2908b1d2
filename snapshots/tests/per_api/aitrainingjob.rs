//! AITrainingJob.

use model::Phase;

use super::{Api, VITAL};

pub(super) const API: Api = Api {
    name: "aitrainingjob",
    files: 290,
    crashes: 15_000,
    repeated: &["restart-beats-completion", "restart-scope-all"],
    phases: &[
        Phase::New,
        Phase::Pending,
        Phase::Creating,
        Phase::Running,
        Phase::Restarting,
        Phase::Terminating,
        Phase::Succeeded,
        Phase::Failed,
        Phase::TimedOut,
        Phase::Preempted,
        Phase::NodeFailed,
    ],
    lived_in: &[
        // Without a pod that is placed no node concerns a job.
        (Phase::Pending, &["Job", "Spec", "JobGone", "Pod", "PodGone", "ServiceGone"]),
        (Phase::Creating, VITAL),
        (Phase::Running, VITAL),
        (Phase::Restarting, VITAL),
        (Phase::Terminating, VITAL),
    ],
    happenings: fixtures::phases::aitrainingjob::phases_and_happenings,
    enter,
    group: "trainer",
};

pub(super) fn enter(phase: Phase) -> String {
    let (spec, steps) = match phase {
        Phase::New => ("replicaSpecs: {}", ""),
        Phase::Pending => (GOOD, ""),
        Phase::Creating => {
            (GOOD, "\n  - schedule: {pod: j-trainer-0, node: n1}\n  - schedule: {pod: j-trainer-1, node: n2}")
        }
        Phase::Running => (GOOD, "\n  - run: all"),
        Phase::Restarting => (RESTARTS, "\n  - run: all\n  - exit: {pod: j-trainer-0, code: 1}\n  - gone: all"),
        Phase::Terminating => (GOOD, "\n  - run: all\n  - exit: {pod: j-trainer-0, code: 1}"),
        Phase::Succeeded => (
            GOOD,
            "\n  - run: all\n  - exit: {pod: j-trainer-0, code: 0}\n  - exit: {pod: j-trainer-1, code: 0}\n  - gone: all",
        ),
        Phase::Failed => (GOOD, "\n  - run: all\n  - exit: {pod: j-trainer-0, code: 1}\n  - gone: all"),
        Phase::TimedOut => (LIMITED, "\n  - run: all\n  - advance: 2m\n  - gone: all"),
        Phase::Preempted => (GOOD, "\n  - run: all\n  - annotate: {job: j, set: {Preempted: x}}\n  - gone: all"),
        Phase::Suspended | Phase::Preparing | Phase::Queued => panic!("jobs of this API are never {phase:?}"),
        Phase::NodeFailed => (GOOD, "\n  - run: all\n  - node: {name: n1, ready: removed}\n  - gone: all"),
    };
    format!(
        "manifests:\n  - {{apiVersion: elasticdeeplearning.ai/v1, kind: AITrainingJob, metadata: {{name: j, namespace: default}}, \
         spec: {{{spec}}}}}\nsteps:\n  - apply:{steps}\n"
    )
}

const GOOD: &str =
    "replicaSpecs: {trainer: {replicas: 2, template: {spec: {containers: [{name: aitj-main, image: i}]}}}}";
const RESTARTS: &str = "replicaSpecs: {trainer: {replicas: 2, restartPolicy: OnFailure, \
    template: {spec: {containers: [{name: aitj-main, image: i}]}}}}";
const LIMITED: &str = "timeLimit: 60, replicaSpecs: {trainer: {replicas: 2, \
    template: {spec: {containers: [{name: aitj-main, image: i}]}}}}";
