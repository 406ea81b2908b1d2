//! Several jobs of two APIs, or of three with `MPIJob`s, in two queues of a cohort and in the root queue, on four nodes with GPUs.
//!
//! In half of the walks one queue selects nodes by a label, which comes and goes. In half of them nodes differ, and jobs choose among
//! them. In a quarter the operator has no capacity gate.
//!
//! After every call and every event the audit adds up the GPUs of all pods and compares them with nodes, quotas and cohorts. At rest
//! every gang has all of its pods or none, and nothing waits while nothing runs.

mod at_rest;
mod kinds;

use std::collections::BTreeMap;

use apis::Resource;
use cluster::{CatchUp, NodeState};
use model::{Config, Kind, Phase};
use proptest::test_runner::TestRng;
use serde_json::{Value, json};
use simulator::controllers::mpi_operator;
use simulator::crash::{Crash, LogAfterCrash};
use simulator::scenario::{Boundary, NodeSpec};
use simulator::simulation::Simulation;

use super::{below, core, events, mpi, pick, rng, seeds};

/// Policies of queues without `MPIJob`s.
const POLICIES: [&str; 5] = ["fifo-backfill", "fifo-backfill", "ElasticFIFO", "Tiresias", "ElasticTiresias"];
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
/// GPUs of each node.
const GPUS: u32 = 4;
/// Jobs of one walk.
const JOBS: usize = 6;
/// Rounds of operator and MPI operator until nothing moves.
const MAX_ROUNDS: usize = 100;
/// Steps of one walk.
const STEPS: usize = 60;
pub(super) const RESOURCE: &str = "nvidia.com/gpu";
/// Label of nodes that a queue may select.
const POOL: &str = "pool";

struct Walk {
    rng: TestRng,
    simulation: Simulation,
    /// Jobs in the order in which they are submitted.
    manifests: Vec<Value>,
    submitted: usize,
    /// Set if jobs are deleted. Then no log is lost: a pod counts for the queue of its job, and only the log knows a job that is gone.
    deletes: bool,
    /// Set if nodes differ, and jobs choose among them.
    has_kinds: bool,
    /// Present in walks with `MPIJob`s.
    mpi: Option<mpi::Others>,
    story: Vec<String>,
    stopped: Option<String>,
}

fn queue_type() -> Resource {
    Resource::new("trainyard.dev/v1alpha1", "TrainingQueue")
}

fn queue(rng: &mut TestRng, name: &str, nominal: usize, borrowing: usize, policies: &[&str]) -> Value {
    let within = pick(rng, &["Never", "LowerPriority", "LowerPriority", "Any"]);
    let reclaim = pick(rng, &["Never", "LowerPriority", "Any", "Any"]);
    let seconds = [0, 30, 120][below(rng, 3)];
    let policy = pick(rng, policies);
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
        "spec": {"cohort": "pool", "policy": policy, "quota": {RESOURCE: {"nominal": nominal, "borrowing": borrowing}},
            "preemption": {"withinQueue": within, "reclaim": reclaim, "minRunSeconds": seconds}}})
}

fn job(rng: &mut TestRng, n: usize, queues: &[&str], has_mpi: bool) -> Value {
    let mut labels = json!({});
    match pick(rng, queues).as_str() {
        "" => {}
        queue => labels["trainyard.dev/queue"] = json!(queue),
    }
    if below(rng, 3) == 0 {
        labels["trainyard.dev/priority"] = json!("10");
    }
    let metadata = json!({"name": format!("j{n}"), "namespace": "default", "labels": labels});
    if has_mpi && below(rng, 4) > 0 {
        return mpi::job(rng, metadata);
    }
    let replicas = 1 + below(rng, 3);
    let limits = json!({RESOURCE: 1 + below(rng, 4)});
    let template = |container: &str| json!({"spec": {"containers": [{"name": container, "image": "i", "resources": {"limits": limits}}]}});
    let is_elastic = below(rng, 2) == 0;
    let (min, max) = (1 + below(rng, replicas), replicas + below(rng, 3));
    if below(rng, 2) == 0 {
        let mut trainer = json!({"replicas": replicas, "completePolicy": "All", "restartPolicy": "OnNodeFailWithExitCode",
            "restartScope": pick(rng, &["All", "Pod"]), "restartLimit": 3, "template": template("aitj-main")});
        if is_elastic {
            trainer["minReplicas"] = json!(min);
            trainer["maxReplicas"] = json!(max);
        }
        let spec = json!({"cleanPodPolicy": "All", "restartingExitCode": "137", "replicaSpecs": {"trainer": trainer}});
        return json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "metadata": metadata, "spec": spec});
    }
    let worker = json!({"replicas": replicas, "restartPolicy": "ExitCode", "template": template("elasticjob-worker")});
    let mut spec =
        json!({"rdzvEndpoint": "e:1", "backoffLimit": 5, "cleanPodPolicy": "All", "replicaSpecs": {"Worker": worker}});
    if is_elastic {
        spec["minReplicas"] = json!(min);
        spec["maxReplicas"] = json!(max);
    }
    json!({"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "metadata": metadata, "spec": spec})
}

/// Returns the template of a job's pods with GPUs.
fn worker_template(manifest: &mut Value) -> Option<&mut Value> {
    let groups = ["/spec/replicaSpecs/trainer", "/spec/replicaSpecs/Worker", "/spec/mpiReplicaSpecs/Worker"];
    let group = groups.into_iter().find(|path| manifest.pointer(path).is_some())?;
    manifest.pointer_mut(&format!("{group}/template"))
}

impl Walk {
    fn new(seed: u64, has_mpi: bool) -> Self {
        let mut rng = rng(seed);
        let labels = std::collections::BTreeMap::from([(POOL.to_owned(), "a".to_owned())]);
        let node = |name: &&str| NodeSpec { gpus: GPUS, labels: labels.clone(), ..NodeSpec::new(name) };
        let mut nodes: Vec<NodeSpec> = NODES.iter().map(node).collect();
        let has_kinds = below(&mut rng, 2) == 0;
        if has_kinds {
            for node in &mut nodes {
                kinds::vary(&mut rng, node);
            }
        }
        let node_grace_ms = if below(&mut rng, 2) == 0 { 0 } else { 20_000 };
        let ignores_capacity = below(&mut rng, 4) == 0;
        let config = Config { node_grace_ms, ignores_capacity, ..Config::default() };
        let mut simulation = Simulation::new(&nodes, config).expect("a simulation can be created");
        simulation.settle().expect("an empty simulation is idle");
        let policies: &[&str] = if has_mpi { &mpi::POLICIES } else { &POLICIES };
        let mut queues = [queue(&mut rng, "a", 8, 4, policies), queue(&mut rng, "b", 4, 8, policies)];
        // Without the gate the workers of an MPIJob may come to run on nodes that their queue does not select.
        if below(&mut rng, 2) == 0 && !(has_mpi && ignores_capacity) {
            queues[1]["spec"]["nodes"] = json!({"selector": {"matchLabels": {POOL: "a"}}});
        }
        // Without the capacity gate jobs of the root queue are not held back, and one may keep another from coming whole for ever.
        let named: &[&str] = if ignores_capacity { &["a", "b"] } else { &["a", "a", "b", "b", ""] };
        let mut manifests: Vec<Value> = (0..JOBS).map(|n| job(&mut rng, n, named, has_mpi)).collect();
        if has_kinds {
            for template in manifests.iter_mut().filter_map(worker_template) {
                kinds::choose(&mut rng, template);
            }
        }
        let story = queues.iter().chain(&manifests).map(ToString::to_string).collect();
        for queue in &queues {
            simulation.backend.cluster.apply(queue).expect("the queue is accepted");
        }
        let deletes = below(&mut rng, 2) == 0;
        let mpi = has_mpi.then(mpi::Others::default);
        Self { rng, simulation, manifests, submitted: 0, deletes, has_kinds, mpi, story, stopped: None }
    }

    fn below(&mut self, n: usize) -> usize {
        below(&mut self.rng, n)
    }

    /// Names of all pods.
    fn pods(&self) -> Vec<String> {
        let pods = self.simulation.backend.cluster.objects_of(&core("Pod"));
        pods.iter().filter_map(|pod| Some(pod.pointer("/metadata/name")?.as_str()?.to_owned())).collect()
    }

    fn step(&mut self) {
        let pods = self.pods();
        let pod = if pods.is_empty() { String::new() } else { pods[self.below(pods.len())].clone() };
        let node = NODES[self.below(NODES.len())];
        let what = self.below(if self.has_kinds { 50 } else { 47 });
        let description = match what {
            // A pod is bound where its share says, and a job is submitted instead.
            6 | 34..=38 => self.submit(),
            26 if self.mpi.is_some() => "nothing".to_owned(),
            39 => self.edit_queue(),
            40 => self.edit_job(),
            46 => {
                let pool = pick(&mut self.rng, &["a", "b"]);
                self.relabel(node, &pool);
                format!("{node} in pool {pool}")
            }
            47.. => kinds::change(&mut self.rng, &mut self.simulation.backend.cluster, node),
            41 => {
                let closed = self.below(2) == 0;
                drop(self.simulation.backend.cluster.cordon(node, closed));
                format!("{node} closed: {closed}")
            }
            29..=31 if self.deletes => {
                let nth = 1 + u32::try_from(self.below(4)).unwrap();
                let (boundary, after) = ([Boundary::Append, Boundary::Call][self.below(2)], self.below(2) == 0);
                let crash = Crash { boundary, after, nth, log_after: LogAfterCrash::SameLog, anywhere: false };
                self.simulation.backend.cluster.release(Kind::Pod, CatchUp::InOrder);
                self.simulation.crash_plan().lock().add(crash);
                format!("crash {boundary:?} {nth} after {after}")
            }
            22 | 23 | 42..=45 => {
                self.advance(200_000);
                "advance 200000".to_owned()
            }
            _ => {
                let (description, passes) = events::happen(&mut self.rng, &mut self.simulation, what, &pod, node);
                if let Some(ms) = passes {
                    self.advance(ms);
                }
                description
            }
        };
        self.story.push(description);
        self.audit();
        if self.below(3) > 0 {
            self.settle();
        }
    }

    fn audit(&mut self) {
        self.note(|simulation| {
            simulation.audit();
            Ok(())
        });
    }

    /// Lets time pass, for programs as well.
    fn advance(&mut self, ms: u64) {
        self.note(|simulation| simulation.advance(ms));
        self.train();
    }

    fn train(&mut self) {
        if let Some(others) = &mut self.mpi {
            others.train(&mut self.simulation);
        }
    }

    /// Has the operator act, and the MPI operator after it, until nothing moves.
    fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            self.note(Simulation::settle);
            if self.mpi.is_none() || self.stopped.is_some() || !mpi::reconcile(&mut self.simulation) {
                return self.train();
            }
            self.audit();
        }
        self.stopped.get_or_insert_with(|| "operator and MPI operator are never idle".to_owned());
    }

    fn submit(&mut self) -> String {
        let Some(manifest) = self.manifests.get(self.submitted) else { return "nothing".to_owned() };
        self.submitted += 1;
        self.simulation.backend.cluster.apply(manifest).expect("the manifest is accepted");
        if let Some(others) = self.mpi.as_mut().filter(|_| Resource::of(manifest) == mpi_operator::resource()) {
            others.submit(&mut self.rng, manifest);
        }
        format!("submit {}", manifest["metadata"]["name"])
    }

    fn edit_queue(&mut self) -> String {
        let name = pick(&mut self.rng, &["a", "b"]);
        let patch = match self.below(4) {
            0 => json!({"paused": true}),
            1 => json!({"paused": false}),
            2 => json!({"quota": {RESOURCE: {"nominal": self.below(3) * 4}}}),
            _ => json!({"weight": 1 + self.below(3)}),
        };
        let cluster = &mut self.simulation.backend.cluster;
        drop(cluster.merge_patch(&queue_type(), "", &name, &json!({"spec": patch}), false));
        format!("queue {name}: {patch}")
    }

    fn relabel(&mut self, node: &str, pool: &str) {
        let patch = json!({"metadata": {"labels": {POOL: pool}}});
        drop(self.simulation.backend.cluster.merge_patch(&core("Node"), "", node, &patch, false));
    }

    fn edit_job(&mut self) -> String {
        let n = self.below(JOBS);
        let Some(manifest) = self.manifests.get(n) else { return String::new() };
        let resource = Resource::of(manifest);
        let name = format!("j{n}");
        match below(&mut self.rng, 4) {
            0 if self.deletes => {
                drop(self.simulation.backend.cluster.delete_as_user(&resource, "default", &name, None));
                format!("delete {name}")
            }
            0 | 1 => {
                let labels = json!({"trainyard.dev/queue": pick(&mut self.rng, &["a", "b", "none"])});
                let patch = json!({"metadata": {"labels": labels}});
                drop(self.simulation.backend.cluster.merge_patch(&resource, "default", &name, &patch, false));
                format!("{name}: {patch}")
            }
            _ if resource == mpi_operator::resource() => {
                let patch = mpi::edit(&mut self.rng);
                drop(self.simulation.backend.cluster.merge_patch(&resource, "default", &name, &patch, false));
                format!("{name}: {patch}")
            }
            _ => {
                let replicas = below(&mut self.rng, 4);
                let group = if &*resource.kind == "ElasticJob" { "Worker" } else { "trainer" };
                let patch = json!({"spec": {"replicaSpecs": {group: {"replicas": replicas}}}});
                drop(self.simulation.backend.cluster.merge_patch(&resource, "default", &name, &patch, false));
                format!("{name} has {replicas} replicas")
            }
        }
    }

    /// Does something with the simulation; its error, or an exceeded limit, ends the walk.
    fn note(&mut self, act: impl FnOnce(&mut Simulation) -> Result<(), simulator::simulation::Error>) {
        if self.stopped.is_some() {
            return;
        }
        let error = act(&mut self.simulation).err().map(|error| error.to_string());
        let violations = self.simulation.take_trace().violations;
        self.stopped = error.or_else(|| violations.into_iter().next());
        if let Some(problem) = &self.stopped {
            self.story.push(format!("stopped: {problem}"));
        }
    }

    /// Stops all faults, submits what is left, and lets time pass until the operator is idle.
    fn heal(&mut self) {
        self.simulation.crash_plan().lock().disarm();
        let cluster = &mut self.simulation.backend.cluster;
        cluster.heal();
        cluster.release(Kind::Pod, CatchUp::InOrder);
        for node in NODES {
            drop(cluster.node(node, NodeState::Ready));
            drop(cluster.cordon(node, false));
        }
        kinds::heal(cluster, &NODES);
        for node in NODES {
            self.relabel(node, "a");
        }
        let cluster = &mut self.simulation.backend.cluster;
        for name in ["a", "b"] {
            drop(cluster.merge_patch(&queue_type(), "", name, &json!({"spec": {"paused": false}}), false));
        }
        while self.submitted < JOBS {
            self.submit();
        }
        // A start has 300 s to come whole, and the back-off after one that does not is up to 600 s.
        for _ in 0..30 {
            self.settle();
            self.simulation.backend.cluster.gone_all();
            self.settle();
            drop(self.simulation.backend.cluster.run_all());
            self.train();
            self.advance(100_000);
        }
        // The end of some pods is the start of others.
        for _ in 0..4 {
            self.settle();
            self.simulation.backend.cluster.gone_all();
        }
        self.settle();
    }
}

#[test]
fn after_any_walk_the_queues_are_at_rest() {
    walk(false);
}

#[test]
fn after_any_walk_the_queues_of_mpi_jobs_are_at_rest() {
    walk(true);
}

fn walk(has_mpi: bool) {
    let (seeds, one) = seeds();
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<Phase, u32> = BTreeMap::new();
    let mut halts = 0;
    for seed in &seeds {
        let mut walk = Walk::new(*seed, has_mpi);
        let steps = STEPS / 3 + walk.below(STEPS);
        for _ in 0..steps {
            walk.step();
        }
        walk.heal();
        if let Err(problem) = walk.check() {
            walk.describe();
            wrong.push(format!("seed {seed}: {problem}"));
            if one {
                super::print(&walk.story, &walk.simulation);
            }
        }
        let state = walk.simulation.operator().map(|o| o.state().clone()).unwrap_or_default();
        for (_, job) in state.jobs.summaries() {
            *ends.entry(job.phase).or_default() += 1;
        }
        halts += walk
            .simulation
            .transitions()
            .map_or(0, |all| all.iter().filter(|transition| transition.facts.contains(&"ShareChanged")).count());
    }
    println!("{} walks, {halts} changes of shares, ended as {ends:?}", seeds.len());
    assert!(wrong.is_empty(), "{} of {} walks went wrong:\n{}", wrong.len(), seeds.len(), wrong.join("\n"));
    assert!(one || halts > 2 * seeds.len(), "the walks change few shares: {halts}");
}
