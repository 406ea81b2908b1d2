//! Random walks: a job's life with random faults, operator crashes and failing calls included. Once the faults stop, the
//! operator becomes idle and the invariants of `docs/invariants.md` hold.
//!
//! A failure prints its seed; `WALK_SEED=n cargo test -p snapshots walks` repeats that walk alone.

use std::collections::BTreeMap;

use apis::Resource;
use cluster::{CatchUp, FailRule, FailVerb, NodeState};
use engine::{Job, Scope, State};
use model::{Config, Fact, JobKey, Kind, NodeFact, Phase, ResourceVersion, Stamp, Term, Timestamp};
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use simulator::crash::{Crash, LogAfterCrash};
use simulator::scenario::{Boundary, NodeSpec};
use simulator::simulation::Simulation;

/// Walks of one run of the tests.
const WALKS: u64 = 400;
/// Steps of one walk.
const STEPS: u32 = 45;

struct Walk {
    rng: TestRng,
    simulation: Simulation,
    story: Vec<String>,
    stopped: Option<String>,
}

fn job(walk: &mut TestRng) -> Value {
    let pick = |rng: &mut TestRng, from: &[&str]| from[below(rng, from.len())].to_owned();
    let groups = 1 + below(walk, 2);
    let mut specs = serde_json::Map::new();
    for name in ["ps", "trainer"].iter().rev().take(groups) {
        let mut spec = json!({
            "replicas": below(walk, 4),
            "restartPolicy": pick(walk, &["Always", "OnFailure", "OnNodeFail", "Never", "ExitCode", "OnNodeFailWithExitCode"]),
            "restartScope": pick(walk, &["All", "Replica", "Pod"]),
            "failPolicy": pick(walk, &["Any", "Rank0", "All", "None"]),
            "completePolicy": pick(walk, &["Any", "Rank0", "All", "None"]),
            "template": {"spec": {"containers": [{"name": pick(walk, &["aitj-main", "main"]), "image": "i"}]}},
        });
        if below(walk, 2) == 0 {
            spec["restartLimit"] = json!(below(walk, 4));
        }
        specs.insert((*name).to_owned(), spec);
    }
    let mut spec = json!({
        "replicaSpecs": specs,
        "restartingExitCode": "137",
        "cleanPodPolicy": pick(walk, &["All", "All", "None"]),
        "failPolicy": pick(walk, &["Any", "Any", "All", "None"]),
        "completePolicy": pick(walk, &["All", "All", "Any", "None"]),
    });
    if below(walk, 4) == 0 {
        spec["timeLimit"] = json!(30 + below(walk, 300));
    }
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "default"}, "spec": spec})
}

fn below(rng: &mut TestRng, n: usize) -> usize {
    use proptest::prelude::Rng as _;
    usize::try_from(rng.next_u64() % u64::try_from(n.max(1)).unwrap()).unwrap()
}

fn resource(kind: &str) -> Resource {
    match kind {
        "Pod" | "Service" => Resource::new("v1", kind),
        _ => Resource::new("elasticdeeplearning.ai/v1", kind),
    }
}

/// A job that has ended is finished, with or without pods that stay; and rightly so: no change of a node touches it, and when
/// it wakes in another term, just before its deadline or long after, there is nothing to be done about it.
fn rests(state: &State, key: &JobKey, job: &Job) -> Result<(), String> {
    if !job.phase.is_terminal() {
        return Ok(());
    }
    if !state.jobs.is_finished(key) {
        return Err(format!("{:?}, and not finished", job.phase));
    }
    let mut state = state.clone();
    let stamp = Stamp { term: Term(state.stamp.term.0 + 1), position: state.stamp.position.next() };
    let last = job.deadline.map_or(Timestamp(u64::MAX >> 1), |deadline| Timestamp(deadline.0 - 1));
    state.begin(stamp, state.at.plus_ms(1 << 40).min(last));
    let nodes: Vec<NodeFact> = state.nodes.values().map(|node| node.fact.clone()).collect();
    for node in nodes {
        let (name, rv) = (node.name.clone(), ResourceVersion(node.rv.0 + 1));
        let worse = NodeFact { rv, ready: false, conditions: vec!["Xid".into()], ..node };
        for fact in [Fact::Node(Box::new(worse)), Fact::NodeGone { name }] {
            if state.take_in(&Scope::Cluster, &fact).contains_key(key) {
                return Err(format!("finished, and touched by {fact:?}"));
            }
        }
    }
    state.take_in(&Scope::Job(key.clone()), &Fact::Due);
    if state.jobs.is_finished(key) {
        return Err("finished, and does not wake".to_owned());
    }
    let (events, effects) = (engine::step(&mut state, key), state.effects_of(key));
    if !events.is_empty() || !effects.is_empty() || !state.jobs.is_finished(key) {
        return Err(format!("finished with something to do: {events:?}, {effects:?}"));
    }
    Ok(())
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let nodes: Vec<NodeSpec> =
            ["n1", "n2", "n3"].iter().map(|n| NodeSpec { name: (*n).to_owned(), gpus: 0 }).collect();
        let config = Config {
            creating_failed: below(&mut rng, 2) == 0,
            creating_restart_ms: if below(&mut rng, 2) == 0 { 0 } else { 1_200_000 },
            creating_timeout_ms: 60_000,
            node_grace_ms: if below(&mut rng, 2) == 0 { 0 } else { 20_000 },
            ..Config::default()
        };
        let mut simulation = Simulation::new(&nodes, config).expect("a simulation can be created");
        simulation.settle().expect("an empty simulation is idle");
        let manifest = job(&mut rng);
        let story = vec![manifest["spec"].to_string()];
        simulation.backend.cluster.apply(&manifest).expect("the manifest is accepted");
        Self { rng, simulation, story, stopped: None }
    }

    fn below(&mut self, n: usize) -> usize {
        below(&mut self.rng, n)
    }

    fn pods(&self) -> Vec<String> {
        let pods = self.simulation.backend.cluster.objects_of(&resource("Pod"));
        pods.iter().filter_map(|p| Some(p.pointer("/metadata/name")?.as_str()?.to_owned())).collect()
    }

    /// One thing happens. Verbs on pods that do not allow them are no events.
    fn step(&mut self) {
        let pods = self.pods();
        let pod = if pods.is_empty() { String::new() } else { pods[self.below(pods.len())].clone() };
        let node = ["n1", "n2", "n3"][self.below(3)];
        let what = self.below(34);
        let cluster = &mut self.simulation.backend.cluster;
        let mut description = format!("{what} {pod} {node}");
        match what {
            0..=3 => drop(cluster.run_all()),
            4..=5 => drop(cluster.run("default", &pod)),
            6 => drop(cluster.schedule("default", &pod, node)),
            7..=8 => drop(cluster.exit("default", &pod, 0, None)),
            9 => drop(cluster.exit("default", &pod, 1, None)),
            10 => drop(cluster.exit("default", &pod, 137, None)),
            11 => drop(cluster.evict("default", &pod)),
            12 => drop(cluster.wait("default", &pod, "ErrImagePull", Some(120_000))),
            13..=15 => cluster.gone_all(),
            16 => cluster.gone("default", &pod),
            17 => drop(cluster.node(node, NodeState::Unknown)),
            18..=19 => drop(cluster.node(node, NodeState::Ready)),
            20 => drop(cluster.delete_as_user(&resource("Pod"), "default", &pod, None)),
            21 => drop(cluster.delete_as_user(&resource("Service"), "default", &pod, None)),
            22 => {
                let replicas = below(&mut self.rng, 5);
                let patch = json!({"spec": {"replicaSpecs": {"trainer": {"replicas": replicas}}}});
                drop(self.simulation.backend.cluster.merge_patch(
                    &resource("AITrainingJob"),
                    "default",
                    "j",
                    &patch,
                    false,
                ));
                description = format!("trainer has {replicas} replicas");
            }
            23 if below(&mut self.rng, 6) == 0 => {
                let patch = json!({"metadata": {"annotations": {"Preempted": "x"}}});
                drop(self.simulation.backend.cluster.merge_patch(
                    &resource("AITrainingJob"),
                    "default",
                    "j",
                    &patch,
                    false,
                ));
            }
            24..=25 => {
                let verb =
                    [FailVerb::Create, FailVerb::Delete, FailVerb::Patch, FailVerb::Get][below(&mut self.rng, 4)];
                let code = [500, 504, 429, 0, 409][below(&mut self.rng, 5)];
                let applied = below(&mut self.rng, 2) == 0 && code != 429 && code != 409;
                let times = 1 + u32::try_from(below(&mut self.rng, 3)).unwrap();
                description = format!("next {times} {verb:?} fail with {code}, applied {applied}");
                let code = if code == 409 { 500 } else { code };
                drop(self.simulation.backend.cluster.fail(FailRule { verb, kind: None, times, code, applied }));
            }
            26 => cluster.hold(Kind::Pod),
            27 => cluster.release(Kind::Pod, CatchUp::InOrder),
            28 => cluster.relist([Kind::Pod, Kind::Job, Kind::Service][below(&mut self.rng, 3)]),
            29..=31 => {
                let log_after = match below(&mut self.rng, 5) {
                    0 => LogAfterCrash::NoLog,
                    1 => LogAfterCrash::OldLog(1 + u64::try_from(below(&mut self.rng, 20)).unwrap()),
                    2 => LogAfterCrash::OtherReplica,
                    _ => LogAfterCrash::SameLog,
                };
                let boundary = if below(&mut self.rng, 2) == 0 { Boundary::Append } else { Boundary::Call };
                let after = below(&mut self.rng, 2) == 0;
                let nth = 1 + u32::try_from(below(&mut self.rng, 4)).unwrap();
                description = format!("crash {boundary:?} {nth} after {after}, {log_after:?}");
                // A held watch would keep the next process waiting for its first list.
                self.simulation.backend.cluster.release(Kind::Pod, CatchUp::InOrder);
                self.simulation.crash_plan().lock().add(Crash { boundary, after, nth, log_after, anywhere: false });
            }
            _ => {
                let ms = 1000 * u64::try_from(1 + below(&mut self.rng, 90)).unwrap();
                description = format!("advance {ms}");
                self.note(|simulation| simulation.advance(ms));
            }
        }
        self.story.push(description);
        if self.below(3) > 0 {
            self.note(Simulation::settle);
        }
    }

    /// Does something with the simulation; its error ends the walk.
    fn note(&mut self, act: impl FnOnce(&mut Simulation) -> Result<(), simulator::simulation::Error>) {
        if self.stopped.is_none() {
            self.stopped = act(&mut self.simulation).err().map(|error| error.to_string());
        }
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

    /// The invariants, at rest.
    fn check(&mut self) -> Result<(), String> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        let operator = self.simulation.operator().ok_or("no operator")?;
        let state = operator.state();
        let Some((key, job)) = state.jobs.iter().find(|(_, j)| j.known && !j.gone) else {
            return Err("the job is lost".into());
        };
        if let Some(why) = &job.quarantine {
            return Err(format!("quarantined: {why}"));
        }
        let wanted: BTreeMap<String, u32> =
            job.spec().map(|s| s.groups.iter().map(|g| (g.name.to_string(), g.replicas)).collect()).unwrap_or_default();
        let pods = self.pods();
        let kept = job.ending().is_some_and(|(_, clean, _)| !clean);
        match job.phase {
            phase if phase.is_terminal() && !kept && !pods.is_empty() => {
                return Err(format!("{phase:?} with pods {pods:?}"));
            }
            phase if phase.is_terminal() => {}
            Phase::Terminating => return Err("still terminating".into()),
            phase => {
                let done: usize = job.groups.values().map(|g| g.done.len()).sum();
                let total: u32 = wanted.values().sum();
                if pods.len() > total as usize || pods.len() + done < total as usize {
                    return Err(format!("{phase:?}: {} pods and {done} done of {total}: {pods:?}", pods.len()));
                }
            }
        }
        let status = &self
            .simulation
            .backend
            .cluster
            .get(&resource("AITrainingJob"), "default", "j")
            .ok_or("no object")?["status"];
        let api = apis::Registry::all();
        let word = api.api_of(key).map_or("", |api| api.phase_word(job.phase));
        if status["phase"].as_str().unwrap_or_default() != word {
            return Err(format!("status says {}, state {word}", status["phase"]));
        }
        let shows = api.api_of(key).map(|api| api.status(key, &job)).unwrap_or_default();
        // Waits only shrink, which is not worth a write; what an ended job shows is final, even if its spec changes later.
        let matters = |path: &String| {
            let last_word = path.starts_with("replicaStatuses") || path.starts_with("conditions");
            !(path.starts_with("trainyard.wait") || job.phase.is_terminal() && last_word)
        };
        let mut differences = engine::explain::differences(status, &shows);
        differences.retain(|(path, ..)| matters(path));
        if !differences.is_empty() {
            return Err(format!("written status, state: {differences:?}"));
        }
        if !job.planned_pods.is_empty() || !job.deleting_pods.is_empty() || operator.calls_in_flight() > 0 {
            return Err(format!("not at rest: {:?} {:?}", job.planned_pods, job.deleting_pods));
        }
        rests(state, key, &job)?;
        for (name, group) in &job.groups {
            let limit = job.spec().and_then(|s| s.group(name)?.restart_limit);
            if limit.is_some_and(|limit| group.charged > limit) {
                return Err(format!("{name} was charged {} of {limit:?}", group.charged));
            }
        }
        self.replay()
    }

    /// The log folds to the state, re-decides alike, and a checkpoint anywhere with the rest folds to the same.
    fn replay(&mut self) -> Result<(), String> {
        let operator = self.simulation.operator().ok_or("no operator")?;
        let text = |state: &engine::State| String::from_utf8(state.to_checkpoint().unwrap()).unwrap();
        let records: Vec<engine::Record> = operator
            .log()
            .read(operator.log().first())
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| e.to_string())?
            .iter()
            .map(|f| engine::Record::decode(f.position, f.term, &f.body).map_err(|e| e.to_string()))
            .collect::<Result<_, _>>()?;
        let end = text(operator.state());
        let cut = records.len() / 2;
        let (mut folded, mut decided) = (engine::State::default(), engine::State::default());
        for (n, record) in records.iter().enumerate() {
            if n == cut {
                folded = engine::State::from_checkpoint(text(&folded).as_bytes()).map_err(|e| e.to_string())?;
            }
            folded.fold(record).map_err(|e| e.to_string())?;
            let events = decided.redecide(record).map_err(|e| e.to_string())?;
            if events != record.events {
                return Err(format!("record {} decides {events:?}, not {:?}", record.position, record.events));
            }
        }
        for (name, state) in [("folded", &folded), ("decided again", &decided)] {
            if text(state) != end {
                return Err(format!("{name}: not the operator's state"));
            }
        }
        Ok(())
    }
}

#[test]
fn after_any_walk_the_job_is_idle() {
    let one = std::env::var("WALK_SEED").ok().and_then(|seed| seed.parse().ok());
    let walks = std::env::var("WALKS").ok().and_then(|n| n.parse().ok()).unwrap_or(WALKS);
    let seeds: Vec<u64> = one.map_or_else(|| (0..walks).collect(), |seed| vec![seed]);
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<Phase, u32> = BTreeMap::new();
    for seed in &seeds {
        let mut walk = Walk::new(*seed);
        let steps = 5 + walk.below(STEPS as usize);
        for _ in 0..steps {
            walk.step();
        }
        walk.heal();
        if let Err(problem) = walk.check() {
            wrong.push(format!("seed {seed}: {problem}"));
            if one.is_some() {
                println!("{}", walk.story.join("\n"));
                let operator = walk.simulation.operator();
                for frame in operator.iter().flat_map(|o| o.log().read(o.log().first()).into_iter().flatten().flatten())
                {
                    println!("{} {}", frame.position, String::from_utf8_lossy(&frame.body));
                }
            }
        }
        let state = walk.simulation.operator().map(|o| o.state().clone()).unwrap_or_default();
        for (_, job) in state.jobs.summaries() {
            *ends.entry(job.phase).or_default() += 1;
        }
    }
    println!("{} walks, ended as {ends:?}", seeds.len());
    assert!(wrong.is_empty(), "{} of {} walks went wrong:\n{}", wrong.len(), seeds.len(), wrong.join("\n"));
    assert!(
        one.is_some() || Timestamp(u64::try_from(ends.len()).unwrap()) > Timestamp(4),
        "the walks reach few phases: {ends:?}"
    );
}
