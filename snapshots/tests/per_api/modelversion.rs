//! ModelVersion.

use ::model::Phase;

use super::Api;

pub(super) const API: Api = Api {
    name: "modelversion",
    files: 30,
    crashes: 800,
    repeated: &[],
    phases: &[Phase::New, Phase::Pending, Phase::Queued, Phase::Running, Phase::Succeeded, Phase::Failed],
    lived_in: &[
        (Phase::Pending, &["Job", "Spec", "Owned"]),
        (Phase::Running, &["Job", "Spec", "JobGone", "Pod", "PodGone", "NodeChanged"]),
    ],
    happenings: fixtures::phases::modelversion::phases_and_happenings,
    enter,
    group: "image-build-m-t",
};

pub(super) fn enter(phase: Phase) -> String {
    const BIND: &str = "\n  - patch: {object: {kind: PersistentVolumeClaim, namespace: default, name: mv-pvc-j}, status: {phase: Bound}}";
    let (storage, steps) = match phase {
        Phase::New => ("null", String::new()),
        Phase::Pending => ("{nfs: {server: s, path: /p}}", String::new()),
        Phase::Queued => ("{nfs: {server: s, path: /p}}", BIND.to_owned()),
        Phase::Running => ("{nfs: {server: s, path: /p}}", format!("{BIND}\n  - run: all")),
        Phase::Succeeded => (
            "{nfs: {server: s, path: /p}}",
            format!("{BIND}\n  - run: all\n  - exit: {{pod: image-build-m-t, code: 0}}"),
        ),
        _ => (
            "{nfs: {server: s, path: /p}}",
            format!("{BIND}\n  - run: all\n  - exit: {{pod: image-build-m-t, code: 1}}"),
        ),
    };
    format!(
        "manifests:\n  - {{apiVersion: model.distributed.io/v1alpha1, kind: ModelVersion, metadata: {{name: j, namespace: default}}, \
         spec: {{modelName: m, imageRepo: r, imageTag: t, storage: {storage}}}}}\nsteps:\n  - apply:{steps}\n"
    )
}
