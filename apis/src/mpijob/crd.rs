//! The part of the MPI operator's definition of MPIJob that is read here: for checks of manifests, and for clusters in tests.
//!
//! Everything else is kept as written. A cluster gets its definition with the MPI operator.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::constants::{GROUP, KIND, PLURAL, VERSION};
use crate::crd::{self, Names, UnknownFields, Version, column, definition, field, open};

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names = Names { group: GROUP, version: VERSION, kind: KIND, plural: PLURAL, singular: "mpijob", short: &[] };
    let version = Version {
        description: "A job of a launcher and workers, as the MPI operator runs it.",
        subresources: json!({"status": {}}),
        columns: vec![column("Age", "date", ".metadata.creationTimestamp", 0, "When the job was created.")],
        spec: strict_spec(),
        groups: "mpiReplicaSpecs",
        unknown: UnknownFields::Kept,
        status: open("object", "Written by the MPI operator."),
    };
    definition(names, &version)
}

/// Returns the schema of `spec` as it is meant: types, and the fields of pod templates.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

fn strict_spec() -> Value {
    let run_policy = json!({
        "type": "object",
        "description": "Limits and clean-up, which the MPI operator acts on.",
        "properties": {
            "cleanPodPolicy": field("string", "Which pods are deleted when the job has ended: None, Running or All."),
            "ttlSecondsAfterFinished": field("integer", "Seconds after its end at which the job is deleted."),
            "activeDeadlineSeconds": field("integer", "Seconds from its start after which the job fails."),
            "backoffLimit": field("integer", "Retries of the launcher."),
            "schedulingPolicy": open("object", "Read by Volcano and the coscheduling plugin."),
            "suspend": field("boolean", "Set while the job may have no pods. Trainyard writes it."),
            "managedBy": field("string", "The controller of the job."),
        },
    });
    let replica = json!({
        "replicas": {"type": "integer", "minimum": 0, "description": "Number of pods."},
        "restartPolicy": field("string", "Never or OnFailure."),
        "template": crd::pod_template("The pod template, a core/v1 PodTemplateSpec."),
    });
    json!({
        "type": "object",
        "description": "What the job asks for.",
        "required": ["mpiReplicaSpecs"],
        "properties": {
            "slotsPerWorker": field("integer", "Processes of a worker."),
            "runLauncherAsWorker": field("boolean", "Set if the launcher trains as well."),
            "sshAuthMountPath": field("string", "Where the keys are mounted."),
            "launcherCreationPolicy": field("string", "AtStartup or WaitForWorkersReady."),
            "mpiImplementation": field("string", "OpenMPI, Intel or MPICH."),
            "runPolicy": run_policy,
            "mpiReplicaSpecs": {
                "type": "object",
                "description": "The groups Launcher and Worker.",
                "additionalProperties": {"type": "object", "properties": replica},
            },
        },
    })
}
