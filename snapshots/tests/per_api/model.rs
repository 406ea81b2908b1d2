//! Model.

use ::model::Phase;

use super::Api;

pub(super) const API: Api = Api {
    name: "model",
    files: 6,
    crashes: 100,
    repeated: &[],
    // The phases of its versions are among them.
    phases: &[Phase::New, Phase::Pending, Phase::Queued, Phase::Running],
    lived_in: &[(Phase::Running, &["Job", "Spec", "JobGone"])],
    happenings: fixtures::phases::model::phases_and_happenings,
    enter,
    group: "none",
};

fn enter(phase: Phase) -> String {
    if phase != Phase::Running {
        return super::modelversion::enter(phase);
    }
    "manifests:\n  - {apiVersion: model.distributed.io/v1alpha1, kind: Model, metadata: {name: j, namespace: default}, spec: {}}\nsteps:\n  \
     - apply:\n"
        .to_owned()
}
