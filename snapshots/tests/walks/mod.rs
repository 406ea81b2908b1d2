//! Random walks: a job's life with random faults, operator crashes and failing calls included. Once the faults stop, the
//! operator becomes idle and the invariants of `docs/invariants.md` hold.
//!
//! A failure prints its seed; `WALK_SEED=n cargo test -p snapshots walks` repeats that walk alone. Each API has a generator of its own
//! (`aitrainingjob`, `elasticjob`, `torchjob`, `torchrunjob`); what must hold in the end is in `rest`, and what each call must obey in the generator. `queues` has
//! several jobs in several queues, those of `mpi` among them, and the audit after every call. What happens to all alike is in `events`.

mod aitrainingjob;
mod elasticjob;
mod events;
mod mpi;
mod queues;
mod rest;
mod torchjob;
mod torchrunjob;

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::{Registry, Resource};
use cluster::{CatchUp, Cluster, NodeState};
use engine::Job;
use model::{Config, Kind, Phase};
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::Value;
use simulator::scenario::NodeSpec;
use simulator::simulation::{ExecutedCall, Simulation};

/// Walks of one run of the tests.
const WALKS: u64 = 400;
/// Steps of one walk.
const STEPS: u32 = 45;

/// Parts of a walk that differ between APIs.
trait WalkedJob {
    /// Returns the type of the job.
    fn resource(&self) -> Resource;
    /// Returns the APIs that are served.
    fn registry(&self) -> Registry {
        Registry::all()
    }
    /// Creates the cluster and its operator.
    ///
    /// # Errors
    /// The operator cannot be opened.
    fn simulation(&self, nodes: &[NodeSpec], config: Config) -> Result<Simulation, simulator::simulation::Error> {
        Simulation::new(nodes, config)
    }
    /// Returns the manifest of job `j`.
    fn manifest(&self, rng: &mut TestRng) -> Value;
    /// Returns the objects that are there before the job.
    fn others(&self) -> Vec<Value> {
        Vec::new()
    }
    /// A user edits the job. Returns what was done, in words.
    fn edit(&self, rng: &mut TestRng, cluster: &mut Cluster) -> String;
    /// Something marks the job or a pod: what then follows is the API's own.
    fn mark(&self, cluster: &mut Cluster, pod: &str);
    /// Checks the operator's calls of some turns, given the objects before them and its job after them.
    ///
    /// # Errors
    /// The first call that must not have been made.
    fn check_calls(&self, _before: &[Arc<Value>], _after: Option<&Job>, _calls: &[ExecutedCall]) -> Result<(), String> {
        Ok(())
    }
    /// Checks a job at rest, and the pods that are left.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, job: &Job, pods: &[Arc<Value>]) -> Result<(), String>;
    /// Returns true if the job's object may be gone in the end.
    fn may_be_gone(&self, _manifest: &Value) -> bool {
        false
    }
}

struct Walk {
    api: &'static dyn WalkedJob,
    manifest: Value,
    rng: TestRng,
    simulation: Simulation,
    story: Vec<String>,
    stopped: Option<String>,
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Returns the seeds of one run of the tests, and true if it is one that was asked for.
fn seeds() -> (Vec<u64>, bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("WALK_SEED") {
        Some(seed) => (vec![seed], true),
        None => ((0..number("WALKS").unwrap_or(WALKS)).collect(), false),
    }
}

/// Prints what happened, and the log.
fn print(story: &[String], simulation: &Simulation) {
    println!("{}", story.join("\n"));
    for frame in
        simulation.operator().iter().flat_map(|o| o.log().read(o.log().first()).into_iter().flatten().flatten())
    {
        println!("{} {}", frame.position, String::from_utf8_lossy(&frame.body));
    }
}

fn core(kind: &str) -> Resource {
    Resource::new("v1", kind)
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn pick(rng: &mut TestRng, from: &[&str]) -> String {
    from[below(rng, from.len())].to_owned()
}

fn below(rng: &mut TestRng, n: usize) -> usize {
    use proptest::prelude::Rng as _;
    usize::try_from(rng.next_u64() % u64::try_from(n.max(1)).unwrap()).unwrap()
}

impl Walk {
    fn new(api: &'static dyn WalkedJob, seed: u64) -> Self {
        let mut rng = rng(seed);
        let nodes: Vec<NodeSpec> = ["n1", "n2", "n3"].iter().map(|n| NodeSpec::new(n)).collect();
        let config = Config {
            creating_failed: below(&mut rng, 2) == 0,
            creating_restart_ms: if below(&mut rng, 2) == 0 { 0 } else { 1_200_000 },
            creating_timeout_ms: 60_000,
            node_grace_ms: if below(&mut rng, 2) == 0 { 0 } else { 20_000 },
            ..Config::default()
        };
        let mut simulation = api.simulation(&nodes, config).expect("a simulation can be created");
        simulation.settle().expect("an empty simulation is idle");
        let manifest = api.manifest(&mut rng);
        let story = vec![manifest["spec"].to_string()];
        for object in api.others().iter().chain([&manifest]) {
            simulation.backend.cluster.apply(object).expect("the manifest is accepted");
        }
        Self { api, manifest, rng, simulation, story, stopped: None }
    }

    fn below(&mut self, n: usize) -> usize {
        below(&mut self.rng, n)
    }

    fn pods(&self) -> Vec<String> {
        let pods = self.simulation.backend.cluster.objects_of(&core("Pod"));
        pods.iter().filter_map(|p| Some(p.pointer("/metadata/name")?.as_str()?.to_owned())).collect()
    }

    /// One thing happens. Verbs on pods that do not allow them are no events.
    fn step(&mut self) {
        let pods = self.pods();
        let pod = if pods.is_empty() { String::new() } else { pods[self.below(pods.len())].clone() };
        let node = ["n1", "n2", "n3"][self.below(3)];
        let what = self.below(34);
        let cluster = &mut self.simulation.backend.cluster;
        match what {
            22 => {
                let description = self.api.edit(&mut self.rng, cluster);
                self.story.push(description);
            }
            23 => {
                if below(&mut self.rng, 6) == 0 {
                    self.api.mark(&mut self.simulation.backend.cluster, &pod);
                    self.story.push(format!("mark {pod}"));
                }
            }
            _ => {
                let (description, passes) = events::happen(&mut self.rng, &mut self.simulation, what, &pod, node);
                self.story.push(description);
                if let Some(ms) = passes {
                    self.note(|simulation| simulation.advance(ms));
                }
            }
        }
        if self.below(3) > 0 {
            self.note(Simulation::settle);
        }
    }

    /// Does something with the simulation; its error, or a call that must not have been made, ends the walk.
    fn note(&mut self, act: impl FnOnce(&mut Simulation) -> Result<(), simulator::simulation::Error>) {
        if self.stopped.is_some() {
            return;
        }
        let before = self.simulation.backend.cluster.objects();
        self.stopped = act(&mut self.simulation).err().map(|error| error.to_string());
        let calls = self.simulation.take_trace().done;
        let state = self.simulation.operator().map(operator::Operator::state);
        let kind = self.api.resource().kind;
        let is_job = |key: &model::JobKey, job: &Job| key.kind == kind && job.object.exists();
        let job = state.and_then(|state| state.jobs.iter().find(|(key, job)| is_job(key, job)));
        let checked = self.api.check_calls(&before, job.as_ref().map(|(_, job)| &**job), &calls);
        if let Err(problem) = checked.and_then(|()| self.ended_stays_ended(&before)) {
            self.stopped.get_or_insert(problem);
        }
    }

    /// An ended job shows the same state for good.
    fn ended_stays_ended(&self, before: &[Arc<Value>]) -> Result<(), String> {
        let resource = self.api.resource();
        let job = before.iter().find(|object| Resource::of(object) == resource);
        let now = self.simulation.backend.cluster.get(&resource, "default", "j");
        let (Some(before), Some(now)) = (job, now) else { return Ok(()) };
        let (was, is) = (simulator::state::word(before), simulator::state::word(&now));
        let ended = |word: &str| {
            let registry = self.api.registry();
            let api = registry.job_key(&now).and_then(|key| registry.api_of(&key).cloned());
            let mut phases = Phase::ALL.into_iter().filter(|phase| phase.is_terminal());
            api.is_some_and(|api| phases.any(|phase| api.phase_word(phase) == word))
        };
        if was != is && ended(was) { Err(format!("{was} became {is}")) } else { Ok(()) }
    }

    /// Stops all faults, and lets time pass until the operator is idle.
    fn heal(&mut self) {
        self.simulation.crash_plan().lock().disarm();
        self.simulation.backend.cluster.heal();
        self.simulation.backend.cluster.release(Kind::Pod, CatchUp::InOrder);
        for node in ["n1", "n2", "n3"] {
            drop(self.simulation.backend.cluster.node(node, NodeState::Ready));
        }
        for _ in 0..6 {
            self.note(Simulation::settle);
            self.simulation.backend.cluster.gone_all();
            drop(self.simulation.backend.cluster.run_all());
            self.note(|simulation| simulation.advance(400_000));
        }
    }
}

#[test]
fn after_any_walk_the_job_is_idle() {
    walk(&aitrainingjob::AiTrainingJob);
}

#[test]
fn after_any_walk_an_elastic_job_is_idle() {
    walk(&elasticjob::ORIGINAL);
}

#[test]
fn after_any_walk_a_job_of_a_copied_kind_is_idle() {
    walk(&elasticjob::COPY);
}

#[test]
fn after_any_walk_a_torch_job_is_idle() {
    walk(&torchjob::TorchJob);
}

#[test]
fn after_any_walk_a_torchrun_job_is_idle() {
    walk(&torchrunjob::TorchrunJob);
}

fn walk(api: &'static dyn WalkedJob) {
    let (seeds, one) = seeds();
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<Phase, u32> = BTreeMap::new();
    for seed in &seeds {
        let mut walk = Walk::new(api, *seed);
        let steps = 5 + walk.below(STEPS as usize);
        for _ in 0..steps {
            walk.step();
        }
        walk.heal();
        if let Err(problem) = walk.check() {
            wrong.push(format!("seed {seed}: {problem}"));
            if one {
                print(&walk.story, &walk.simulation);
            }
        }
        let state = walk.simulation.operator().map(|o| o.state().clone()).unwrap_or_default();
        for (_, job) in state.jobs.summaries() {
            *ends.entry(job.phase).or_default() += 1;
        }
    }
    println!("{} walks, ended as {ends:?}", seeds.len());
    assert!(wrong.is_empty(), "{} of {} walks went wrong:\n{}", wrong.len(), seeds.len(), wrong.join("\n"));
    assert!(one || ends.len() > 4, "the walks reach few phases: {ends:?}");
}
