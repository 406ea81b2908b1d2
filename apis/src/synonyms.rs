//! Fields of one API in the words of another: which names mean the same, and where one stands in a schema.
//!
//! Owns the words. Users move manifests between APIs of training jobs, and write what the API before called it. It must not judge
//! values. Tests: `schema/tests.rs`.

use serde_json::Value;

/// Names of the same meaning in the APIs that are served, and in those that their users know.
const SAME: [&[&str]; 13] = [
    &["backoffLimit", "restartLimit", "maxRestarts", "maxRetries", "retryLimit"],
    &["activeDeadlineSeconds", "activeDurations", "timeLimit", "timeout"],
    &["ttlSecondsAfterFinished", "ttlSecondsAfterFinish", "TTLSecondsAfterFinished"],
    &["replicas", "numTasks", "numNodes", "numWorkers", "workers", "parallelism", "numReplicas"],
    &["minReplicas", "minNodes", "numMinReplicas", "minMembers", "minAvailable"],
    &["maxReplicas", "maxNodes", "numMaxReplicas"],
    &["replicaSpecs", "torchTaskSpecs", "mpiReplicaSpecs", "pytorchReplicaSpecs", "tfReplicaSpecs", "tasks"],
    &["cleanPodPolicy", "cleanupPolicy", "cleanUpPolicy"],
    &["numGPUs", "gpus", "numGpus"],
    &["nprocPerNode", "numProcPerNode", "numWorkersPerNode", "slotsPerWorker"],
    &["schedulerName", "scheduler"],
    &["template", "podTemplate"],
    &["rdzvEndpoint", "rendezvousEndpoint"],
];

/// Objects that only hold fields together, which other APIs have at another place.
const HOLDERS: [&str; 4] = ["runPolicy", "elasticPolicy", "reliability", "schedulingPolicy"];

/// Returns the names that mean what `name` means, itself first.
pub(crate) fn of(name: &str) -> impl Iterator<Item = &str> + Clone {
    let others = SAME.iter().find(|names| names.contains(&name)).copied().unwrap_or_default();
    std::iter::once(name).chain(others.iter().copied().filter(move |other| *other != name))
}

/// Returns the members of an object that only holds fields together; none for another one.
pub(crate) fn held<'a>(name: &str, value: &'a Value) -> Vec<&'a str> {
    let members = value.as_object().filter(|_| HOLDERS.contains(&name));
    members.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}
