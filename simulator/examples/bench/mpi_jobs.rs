//! A queue with 200 `MPIJob`s under Voda's policies: the time of one round, beside one of the same jobs that are not resized, and the
//! writes by which jobs are resized.
//!
//! The scripted MPI operator makes the pods, and those run that find room. Each job asks for 1 to 8 workers of one GPU; there are 512 GPUs.

use std::collections::BTreeMap;

use apis::{Registry, Resource, Verb, mpijob};
use cluster::{Cluster, NodeSpec};
use embedded::EmbeddedCluster;
use engine::State;
use model::{Config, JobKey};
use serde_json::{Value, json};
use simulator::controllers::mpi_operator;
use simulator::simulation::Simulation;

use crate::AnyError;
use crate::queues::{after, running, time};
use crate::table::{aimed, row, topic};

const JOBS: u32 = 200;
const NODES: u32 = 64;
const GPUS_PER_NODE: u32 = 8;
/// The policy that resizes no job, which the others are compared with, and those of Voda.
const POLICIES: [&str; 6] =
    ["fifo-backfill", "ElasticFIFO", "ElasticSRJF", "ElasticTiresias", "FfDLOptimizer", "AFS-L"];
/// Of how many running jobs one ends before a round with news.
const ENDING: usize = 20;
/// Rounds of operator and MPI operator until nothing moves.
const MAX_ROUNDS: usize = 1000;

/// Measures each policy.
pub(crate) fn run() -> Result<(), AnyError> {
    topic(&format!("mpi: one round of a queue with {JOBS} MPIJobs and {} GPUs", NODES * GPUS_PER_NODE));
    let mut plain = None;
    let mut writes = Vec::new();
    for policy in POLICIES {
        let mut simulation = simulation(policy)?;
        let state = simulation.operator().map(|operator| operator.state().clone()).ok_or("no operator")?;
        let known = running(&state);
        let ended: Vec<&JobKey> = known.iter().step_by(ENDING).collect();
        let took = |ended: &[&JobKey]| time(&after(&state, ended), true).0;
        let (quiet, news) = (took(&[]), took(&ended));
        let (plain_quiet, plain_news) = *plain.get_or_insert((quiet, news));
        for (what, took, plain) in [("no news", quiet, plain_quiet), ("5 % ended", news, plain_news)] {
            let measured = format!("{took:.2} ms ({:.2})", took / plain);
            row(&format!("{policy}, {} jobs run: {what} (of fifo-backfill's)", known.len()), &measured);
        }
        if policy != "fifo-backfill" {
            writes.push((policy, count(&mut simulation, &state)?));
        }
    }
    topic("mpi: merge patches of MPIJobs for each resize, after 5 % of the jobs ended");
    for (policy, counted) in writes {
        let each = f64::from(counted.patches) / f64::from(counted.resized.max(1));
        let what = format!("{policy}, {} jobs resized: patches with a new size", counted.resized);
        aimed(&what, &format!("{each:.2}"), "1", (each - 1.0).abs() < f64::EPSILON);
        let other = f64::from(counted.other) / f64::from(counted.resized.max(1));
        row("  other patches", &format!("{other:.2}"));
    }
    Ok(())
}

/// Patches of jobs that continued.
struct Counted {
    resized: u32,
    /// Patches that wrote another number of workers.
    patches: u32,
    other: u32,
}

/// Ends some jobs, and counts the patches of the others.
fn count(simulation: &mut Simulation, state: &State) -> Result<Counted, AnyError> {
    let before = sizes(simulation);
    simulation.take_trace();
    let ended: Vec<String> = running(state).iter().step_by(ENDING).map(|key| key.name.to_string()).collect();
    for name in &ended {
        simulation.backend.cluster.exit("default", &format!("{name}-launcher"), 0, None)?;
    }
    settle(simulation)?;
    let after = sizes(simulation);
    let resized = after.iter().filter(|(name, size)| !ended.contains(name) && before.get(*name) != Some(size)).count();
    let mut counted = Counted { resized: u32::try_from(resized)?, patches: 0, other: 0 };
    let mut known = before;
    for done in simulation.take_trace().done {
        let call = &done.call;
        let name = call.name.to_string();
        if &*call.resource.kind != "MPIJob" || call.verb != Verb::Patch || ended.contains(&name) {
            continue;
        }
        let size = call.body.as_ref().and_then(size);
        if size.is_some() && known.insert(name, size.unwrap_or_default()) != size {
            counted.patches += 1;
        } else {
            counted.other += 1;
        }
    }
    Ok(counted)
}

/// Returns the number of workers that an object or a patch names, 0 of a suspended one.
fn size(object: &Value) -> Option<u64> {
    let replicas = object.pointer("/spec/mpiReplicaSpecs/Worker/replicas")?.as_u64()?;
    let is_suspended = object.pointer("/spec/runPolicy/suspend") == Some(&json!(true));
    Some(if is_suspended { 0 } else { replicas })
}

fn sizes(simulation: &Simulation) -> BTreeMap<String, u64> {
    let jobs = simulation.backend.cluster.objects_of(&mpi_operator::resource());
    let name = |job: &Value| job.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    jobs.iter().map(|job| (name(job), size(job).unwrap_or_default())).collect()
}

/// A cluster on which all jobs run that find room.
fn simulation(policy: &str) -> Result<Simulation, AnyError> {
    let node = |n: u32| NodeSpec::named(&format!("gpu-{n:03}")).with("nvidia.com/gpu", &GPUS_PER_NODE.to_string());
    let nodes = (0..NODES).map(node).collect();
    let cluster = Cluster::new(&cluster::Options { nodes, ..cluster::Options::default() });
    let backend = EmbeddedCluster::serving(cluster, &Registry::all())?;
    let mut simulation = Simulation::on(backend, Config::default())?;
    simulation.backend.cluster.apply(&json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingQueue",
        "metadata": {"name": "voda"},
        "spec": {
            "policy": policy,
            "quota": {"nvidia.com/gpu": {"nominal": NODES * GPUS_PER_NODE}},
            "preemption": {"withinQueue": "Any", "minRunSeconds": 0},
        },
    }))?;
    for n in 0..JOBS {
        simulation.backend.cluster.apply(&job(n))?;
    }
    settle(&mut simulation)?;
    simulation.advance(60_000)?;
    settle(&mut simulation)?;
    Ok(simulation)
}

/// Has operator, MPI operator and nodes act until nothing moves.
fn settle(simulation: &mut Simulation) -> Result<(), AnyError> {
    for _ in 0..MAX_ROUNDS {
        simulation.settle()?;
        let before = simulation.backend.cluster.revision();
        mpi_operator::reconcile(&mut simulation.backend)?;
        simulation.backend.cluster.gone_all();
        run_pods(&mut simulation.backend.cluster);
        if simulation.backend.cluster.revision() == before {
            return Ok(());
        }
    }
    Err("operator and MPI operator are never idle".into())
}

/// Starts every pod that finds room. Workers of one job may be on any of its nodes, so that a worker of another may wait for its node.
fn run_pods(cluster: &mut Cluster) {
    for pod in cluster.objects_of(&Resource::new("v1", "Pod")) {
        let is_waiting = pod.pointer("/status/phase").and_then(Value::as_str).is_none_or(|phase| phase == "Pending");
        if let Some(name) = pod.pointer("/metadata/name").and_then(Value::as_str).filter(|_| is_waiting) {
            let _waits = cluster.run("default", name);
        }
    }
}

fn job(n: u32) -> Value {
    let variable = |name: &str, value: u32| json!({"name": name, "value": value.to_string()});
    let env = [variable("MIN_NUM_PROC", 1), variable("NUM_PROC", 1 + n % 2), variable("MAX_NUM_PROC", 4 + n % 5)];
    let launcher = json!({"name": "mpi", "image": "horovod:1", "env": env});
    let worker = json!({"name": "mpi", "image": "horovod:1", "resources": {"limits": {"nvidia.com/gpu": 1}}});
    json!({
        "apiVersion": mpijob::API_VERSION,
        "kind": mpijob::KIND,
        "metadata": {"name": format!("resnet-{n:03}"), "namespace": "default", "labels": {"trainyard.dev/queue": "voda"}},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running", "suspend": true},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": 1, "template": {"spec": {"containers": [worker]}}},
            },
        },
    })
}
