//! The operator on the embedded cluster in virtual time: jobs of a workload as `MPIJob`s, the scripted MPI operator, and their programs.
//!
//! Owns the passing of time and the order in which things act at one time. Sizes are the decided ones, as the objects show them.

use std::collections::{BTreeMap, BTreeSet};

use apis::objects::{annotated_mirror, at, list_at, name, namespace, text_at};
use apis::{Resource, mpijob};
use model::{Config, Timestamp};
use scheduler::GpuType;
use serde_json::{Value, json};
use simulator::ClusterBackend as _;
use simulator::controllers::mpi_operator;
use simulator::scenario::NodeSpec;
use simulator::simulation::Simulation;
use simulator::trainer::{Program, Trainer};
use studies::input::{Workload, WorkloadJob};

const GPU: &str = "nvidia.com/gpu";
/// Work of one reported unit: a second at the reference speed, as in studies.
const UNIT: u128 = 1_000_000_000 * 1000;
/// Times at which something happens in one session. Reaching it is a defect.
const MAX_STOPS: usize = 100_000;

/// Times that the cluster and the programs take, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latencies {
    /// From a pod's creation until it runs.
    pub(crate) start: u64,
    /// From a pod's deletion until it is gone.
    pub(crate) stop: u64,
    /// Without progress after each change of the workers that run.
    pub(crate) restart: u64,
}

/// Node that a pod is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// The one that was decided for the worker.
    AsDecided,
    /// The first by name that its affinity allows.
    FirstFit,
}

/// A change of a job's size: milliseconds since the origin, place of the job, GPUs from then on.
pub(crate) type Resized = (u64, usize, u32);

/// A workload that was played.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Changes of sizes, ends included, by time and job.
    pub(crate) changes: Vec<Resized>,
    /// Time of the end of each job, by its place.
    pub(crate) ended: BTreeMap<usize, u64>,
    /// Pods that found no room on the nodes of their job when they were created.
    pub(crate) unbound: usize,
}

/// Nodes of a cluster, and the queue that has all of them.
pub(crate) struct Queue {
    pub(crate) nodes: u32,
    pub(crate) gpus: u32,
    pub(crate) policy: String,
}

impl Queue {
    fn object(&self) -> Value {
        json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": "voda"}, "spec": {
            "policy": self.policy,
            "quota": {GPU: {"nominal": self.nodes * self.gpus}},
            "preemption": {"withinQueue": "Any", "minRunSeconds": 0},
        }})
    }
}

struct Session<'a> {
    simulation: Simulation,
    trainer: Trainer,
    workload: &'a Workload,
    latencies: Latencies,
    binding: Binding,
    origin: Timestamp,
    /// Jobs before this one were submitted.
    submitted: usize,
    /// Times from which pods were seen to wait or to be deleted, by uid.
    seen: BTreeMap<(String, bool), Timestamp>,
    /// Pods that found no room at first, by uid.
    unbound: BTreeSet<String>,
    sizes: BTreeMap<usize, u32>,
    played: Played,
}

/// Plays a workload through the operator to the end of its last job.
pub(crate) fn play(workload: &Workload, queue: &Queue, latencies: Latencies, binding: Binding) -> Played {
    let node = |n: u32| NodeSpec { gpus: queue.gpus, ..NodeSpec::new(&format!("n{n:02}")) };
    let nodes: Vec<NodeSpec> = (0..queue.nodes).map(node).collect();
    let mut simulation = Simulation::new(&nodes, Config::default()).unwrap();
    simulation.backend.apply(&queue.object()).unwrap();
    let origin = simulation.backend.now();
    let mut session = Session {
        simulation,
        trainer: Trainer::default(),
        workload,
        latencies,
        binding,
        origin,
        submitted: 0,
        seen: BTreeMap::new(),
        unbound: BTreeSet::new(),
        sizes: BTreeMap::new(),
        played: Played::default(),
    };
    session.settle();
    for _ in 0..MAX_STOPS {
        if session.played.ended.len() == workload.jobs.len() {
            return session.played;
        }
        session.step();
    }
    panic!("no end: {:?}", session.played);
}

impl Session<'_> {
    fn now(&self) -> Timestamp {
        self.simulation.backend.now()
    }

    fn since_origin(&self) -> u64 {
        self.now().0 - self.origin.0
    }

    /// Goes to the next time at which something happens, and does it.
    fn step(&mut self) {
        let arrival = self.workload.jobs.get(self.submitted).map(|job| self.origin.plus_ms(job.submitted.0 / 1000));
        let next = [arrival, self.trainer.next_end(), self.simulation.next_wake(), self.next_pod()];
        let next = next.into_iter().flatten().min().expect("something is to happen");
        let by = next.0.saturating_sub(self.now().0);
        self.simulation.skip(by);
        let now = self.now();
        self.trainer.advance(now);
        let ended = self.trainer.act(&mut self.simulation.backend).unwrap();
        for job in &ended {
            self.played.ended.insert(place(job), self.since_origin());
        }
        // Those that end at this time have left their GPUs when others come.
        while !ended.is_empty() && self.others() {}
        self.submit();
        self.settle();
    }

    fn submit(&mut self) {
        let now = self.since_origin();
        while let Some(job) = self.workload.jobs.get(self.submitted).filter(|job| job.submitted.0 <= now * 1000) {
            self.simulation.backend.apply(&manifest(self.submitted, job)).unwrap();
            self.trainer.add("default", &job_name(self.submitted), program(job, self.latencies.restart));
            self.submitted += 1;
        }
    }

    /// Has operator, MPI operator and nodes act until nothing moves, and notes what changed.
    fn settle(&mut self) {
        loop {
            self.simulation.settle().unwrap();
            if !self.others() {
                break;
            }
        }
        let now = self.now();
        self.trainer.look(self.simulation.backend.cluster(), now);
        assert_eq!(self.simulation.take_trace().violations, Vec::<String>::new());
        self.note_sizes();
    }

    /// Has the MPI operator and the nodes act. Returns true if something changed.
    fn others(&mut self) -> bool {
        let changed = mpi_operator::reconcile(&mut self.simulation.backend).unwrap();
        self.nodes_act() || changed
    }

    /// Pods start and go, each when it is time.
    fn nodes_act(&mut self) -> bool {
        let (now, mut changed) = (self.now(), false);
        for (pod, deleting) in self.pods() {
            let uid = text_at(&pod, &["metadata", "uid"]).unwrap_or_default().to_owned();
            let since = *self.seen.entry((uid.clone(), deleting)).or_insert(now);
            let (namespace, name) = (namespace(&pod).to_string(), name(&pod));
            if now < since.plus_ms(self.latency(deleting)) {
                continue;
            }
            let before = self.simulation.backend.cluster().revision();
            let node = self.decided_node(&pod).filter(|_| self.binding == Binding::AsDecided && !deleting);
            let act = &mut |cluster: &mut cluster::Cluster| {
                if deleting {
                    cluster.gone(&namespace, &name);
                    return Ok(());
                }
                if let Some(node) = &node {
                    cluster.schedule(&namespace, &name, node)?;
                }
                cluster.run(&namespace, &name)
            };
            match self.simulation.backend.manual(act) {
                // Workers of a job have one template: another job's may have taken the room on the node that was meant for this one.
                Err(cluster::Error::NoRoom { .. }) => {
                    self.unbound.insert(uid);
                    self.played.unbound = self.unbound.len();
                }
                Err(error) => panic!("{error}"),
                Ok(()) => {}
            }
            changed |= self.simulation.backend.cluster().revision() != before;
        }
        changed
    }

    /// Returns the node that was decided for a worker.
    fn decided_node(&self, pod: &Value) -> Option<String> {
        let (job, index) = name(pod).split_once("-worker-").map(|(job, n)| (job.to_owned(), n.parse::<u64>()))?;
        let object = self.simulation.backend.cluster().get(&mpi_operator::resource(), "default", &job)?;
        let mirror = annotated_mirror(&object)?;
        let mut left = index.ok()?;
        for nodes in list_at(&mirror, &["share", "worker"]) {
            let count = nodes[1].as_u64()?;
            if left < count {
                return nodes[0].as_str().map(ToOwned::to_owned);
            }
            left -= count;
        }
        None
    }

    const fn latency(&self, deleting: bool) -> u64 {
        if deleting { self.latencies.stop } else { self.latencies.start }
    }

    fn next_pod(&self) -> Option<Timestamp> {
        let due = |(pod, deleting): (std::sync::Arc<Value>, bool)| {
            let uid = text_at(&pod, &["metadata", "uid"]).unwrap_or_default().to_owned();
            Some(self.seen.get(&(uid, deleting))?.plus_ms(self.latency(deleting)))
        };
        self.pods().into_iter().filter_map(due).filter(|due| *due > self.now()).min()
    }

    /// Pods that wait, or (true) are being deleted.
    fn pods(&self) -> Vec<(std::sync::Arc<Value>, bool)> {
        let pods = self.simulation.backend.cluster().objects_of(&Resource::new("v1", "Pod"));
        let is_deleting = |pod: &Value| at(pod, &["metadata", "deletionTimestamp"]).is_some();
        let waits = |pod: &Value| matches!(text_at(pod, &["status", "phase"]), None | Some("Pending"));
        let each = pods.into_iter().map(|pod| {
            let deleting = is_deleting(&pod);
            (pod, deleting)
        });
        each.filter(|(pod, deleting)| *deleting || waits(pod)).collect()
    }

    fn note_sizes(&mut self) {
        let at_ms = self.since_origin();
        for job in self.simulation.backend.cluster().objects_of(&mpi_operator::resource()) {
            let place = place(&name(&job));
            let suspended = at(&job, &["spec", "runPolicy", "suspend"]).and_then(Value::as_bool).unwrap_or_default();
            let replicas = at(&job, &["spec", "mpiReplicaSpecs", "Worker", "replicas"]).and_then(Value::as_u64);
            let has_ended = self.played.ended.contains_key(&place);
            let size = if suspended || has_ended { 0 } else { u32::try_from(replicas.unwrap_or_default()).unwrap() };
            if self.sizes.insert(place, size).unwrap_or_default() != size {
                self.played.changes.push((at_ms, place, size));
            }
        }
    }
}

fn job_name(place: usize) -> String {
    format!("j{place:03}")
}

fn place(name: &str) -> usize {
    name[1..].parse().unwrap()
}

fn program(job: &WorkloadJob, restart_ms: u64) -> Program {
    let speeds = (0..=job.max).map(|gpus| job.speed(GpuType(0), gpus).0).collect();
    // Studies count in microseconds.
    Program { work: job.work.0.div_ceil(1000), unit: UNIT, speeds, width: 1, restart_ms }
}

fn manifest(place: usize, job: &WorkloadJob) -> Value {
    let variable = |name: &str, value: u128| json!({"name": name, "value": value.to_string()});
    let num = job.requested.clamp(job.min, job.max);
    let env = [
        variable("MIN_NUM_PROC", job.min.into()),
        variable("NUM_PROC", num.into()),
        variable("MAX_NUM_PROC", job.max.into()),
        variable("EPOCHS", job.work.0 / 1000 / UNIT),
    ];
    let container = |resources: Value| json!({"name": "mpi", "image": "i", "resources": resources});
    let mut launcher = container(json!({}));
    launcher["env"] = json!(env);
    json!({
        "apiVersion": mpijob::API_VERSION,
        "kind": mpijob::KIND,
        "metadata": {"name": job_name(place), "namespace": "default", "labels": {
            "trainyard.dev/queue": "voda",
            "trainyard.dev/category": job.category.replace('/', "-"),
        }},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running", "suspend": true},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": num, "template": {"spec": {"containers": [container(json!({"limits": {GPU: 1}}))]}}},
            },
        },
    })
}
