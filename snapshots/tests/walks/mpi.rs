//! `MPIJob`s in the walks of queues: random sizes in all spellings, the scripted MPI operator that makes their pods, and programs that
//! make progress while time passes, report it and end.
//!
//! The MPI operator acts after the operator, and sometimes late. Watches of pods are not held: workers that another controller made and
//! that were never seen count for nothing. What happens to all jobs is in `queues`.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::mpijob::{API_VERSION, KIND};
use engine::Job;
use model::JobKey;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};
use simulator::controllers::mpi_operator::{self, JOB, ROLE};
use simulator::simulation::Simulation;
use simulator::trainer::{Program, Trainer};

use super::queues::RESOURCE;
use super::{below, core, has_ended, pick};

/// Policies of queues with `MPIJob`s: those of Voda.
pub(super) const POLICIES: [&str; 9] = [
    "FIFO",
    "ElasticFIFO",
    "SRJF",
    "ElasticSRJF",
    "Tiresias",
    "ElasticTiresias",
    "ElasticTiresias",
    "FfDLOptimizer",
    "AFS-L",
];

/// Controllers and programs of `MPIJob`s.
#[derive(Default)]
pub(super) struct Others {
    trainer: Trainer,
}

fn env(values: &[(&str, usize)]) -> Value {
    values.iter().map(|(name, value)| json!({"name": name, "value": value.to_string()})).collect()
}

/// Returns the environment of a launcher: no sizes, one, or a range.
fn sizes(rng: &mut TestRng, replicas: usize) -> Value {
    let (min, max) = (1 + below(rng, replicas), replicas + below(rng, 3));
    match below(rng, 5) {
        0 => json!([]),
        1 => env(&[("NUM_PROC", replicas)]),
        2 => env(&[("MIN_NP", min), ("MAX_NP", max), ("EPOCHS", 1 + below(rng, 40))]),
        _ => env(&[("MIN_NUM_PROC", min), ("NUM_PROC", replicas), ("MAX_NUM_PROC", max), ("EPOCHS", 20)]),
    }
}

/// Returns the manifest of a job with this metadata.
pub(super) fn job(rng: &mut TestRng, mut metadata: Value) -> Value {
    let (replicas, width) = (1 + below(rng, 3), 1 + below(rng, 2));
    metadata["labels"]["trainyard.dev/category"] = json!(pick(rng, &["vgg", "bert"]));
    // One without a queue is scheduled because it names a type of GPU.
    metadata["labels"]["vodascheduler/accelerator"] = json!("a100");
    let launcher = json!({"name": "mpi", "image": "i", "env": sizes(rng, replicas)});
    let worker = json!({"name": "mpi", "image": "i", "resources": {"limits": {RESOURCE: width}}});
    json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {
        "slotsPerWorker": 1,
        "runPolicy": {"cleanPodPolicy": pick(rng, &["Running", "Running", "All", "None"]), "suspend": true},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
            "Worker": {"replicas": replicas, "template": {"spec": {"containers": [worker]}}},
        },
    }})
}

/// Returns a random edit of a job.
pub(super) fn edit(rng: &mut TestRng) -> Value {
    match below(rng, 3) {
        0 => json!({"metadata": {"annotations": {"trainyard.dev/suspend": pick(rng, &["true", "false"])}}}),
        1 => json!({"metadata": {"annotations": {"trainyard.dev/suspend": null}}}),
        _ => {
            let replicas = 1 + below(rng, 3);
            let launcher = json!({"name": "mpi", "image": "i", "env": sizes(rng, replicas)});
            json!({"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": [launcher]}}}}}})
        }
    }
}

impl Others {
    /// Takes over the program of a job that was submitted.
    pub(super) fn submit(&mut self, rng: &mut TestRng, manifest: &Value) {
        let seconds = 100 + below(rng, 4000);
        let width = &manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
        let width = width["resources"]["limits"][RESOURCE].as_u64().and_then(|width| u32::try_from(width).ok());
        let program = Program {
            work: 1000 * 1000 * u128::try_from(seconds).unwrap(),
            unit: 1000 * 1000 * 30,
            speeds: vec![0, 1000, 1800, 2500, 2900, 3000],
            width: width.unwrap_or(1),
            restart_ms: 10_000,
        };
        self.trainer.add("default", manifest["metadata"]["name"].as_str().unwrap(), program);
    }

    /// Has the programs continue until now. Those that are done end.
    pub(super) fn train(&mut self, simulation: &mut Simulation) {
        let now = simulation.backend.cluster.now();
        self.trainer.advance(now);
        drop(self.trainer.act(&mut simulation.backend));
        self.trainer.look(&simulation.backend.cluster, now);
    }
}

/// Has the MPI operator act. Returns true if it changed something.
pub(super) fn reconcile(simulation: &mut Simulation) -> bool {
    mpi_operator::reconcile(&mut simulation.backend).expect("the API server takes what the MPI operator writes")
}

/// Returns true if a job runs. It has a pod for each of its places, and none without places.
pub(super) fn whole_or_nothing(simulation: &Simulation, key: &JobKey, job: &Job) -> Result<bool, String> {
    let pods = simulation.backend.cluster.objects_of(&core("Pod"));
    let is_worker =
        |pod: &&Arc<Value>| pod["metadata"]["labels"][JOB] == *key.name && pod["metadata"]["labels"][ROLE] == "worker";
    let (ended, live): (Vec<&Arc<Value>>, Vec<&Arc<Value>>) =
        pods.iter().filter(is_worker).partition(|pod| has_ended(pod));
    let share = job.allocation.share.len();
    let object = simulation.backend.cluster.get(&mpi_operator::resource(), &key.namespace, &key.name);
    let is_suspended = object.is_some_and(|object| object["spec"]["runPolicy"]["suspend"] == true);
    if is_suspended != (share == 0) {
        return Err(format!("{}: {:?} with {share} places, and suspend is {is_suspended}", key.name, job.phase));
    }
    if live.len() > share || live.len() + ended.len() < share {
        let (live, ended) = (live.len(), ended.len());
        return Err(format!("{}: {:?} with {live} workers and {ended} ended, of {share}", key.name, job.phase));
    }
    let mut nodes: BTreeMap<&str, i64> = BTreeMap::new();
    for (_, node) in job.allocation.share.cells() {
        *nodes.entry(node).or_default() += 1;
    }
    for pod in live {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *nodes.entry(node).or_default() -= 1;
        }
    }
    // Places without a pod are those of workers that have ended. Nodes of a job without a named queue are preferred alone.
    let beyond = nodes.into_iter().find(|(_, n)| *n < 0).filter(|_| job.queue().is_some());
    match beyond {
        Some((node, n)) => Err(format!("{}: {} more workers on {node} than places", key.name, -n)),
        None => Ok(share > 0),
    }
}

/// Returns the number of live workers of jobs that have ended.
pub(super) fn left(simulation: &Simulation) -> usize {
    let cluster = &simulation.backend.cluster;
    let has_ended_job = |pod: &&Arc<Value>| {
        let name = pod["metadata"]["labels"][JOB].as_str();
        let job = name.and_then(|name| cluster.get(&mpi_operator::resource(), "default", name));
        let conditions = job.and_then(|job| job["status"]["conditions"].as_array().cloned()).unwrap_or_default();
        let is_end = |condition: &Value| matches!(condition["type"].as_str(), Some("Succeeded" | "Failed"));
        conditions.iter().any(is_end)
    };
    cluster.objects_of(&core("Pod")).iter().filter(has_ended_job).filter(|pod| !has_ended(pod)).count()
}
