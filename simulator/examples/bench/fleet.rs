//! Many jobs on an embedded cluster in virtual time: what a real cluster would write into a log, without waiting for it.
//!
//! Owns the agents (a scheduler and kubelets that take a while, each pod at its own moment, so that most records tell of
//! one pod), the mix of normal lives, restarts and lost nodes, and turning the cluster's short uids into ones as long as
//! Kubernetes'. Everything follows from a fixed seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use apis::{Observation, Registry, Resource, Verb};
use cluster::{Cluster, Mode, NodeSpec, NodeState, WatcherId};
use event_log::{EventLog, MemoryLog, NewRecord, jsonl};
use model::Timestamp;
use operator::Operator;
use serde_json::{Value, json};

use crate::AnyError;

/// Jobs that live at the same time.
const LIVE_JOBS: u32 = 32;
/// Pods of each job.
pub(crate) const PODS: u32 = 8;
const NODES: u64 = 24;
const MAX_ROUNDS: u32 = 10_000;

/// Something that will happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Apply(u32),
    Bind(Pod),
    Run(Pod),
    Exit(Pod, i32),
    Gone(Pod),
    NodeDown(String),
    NodeUp(String),
    DeleteJob(String),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    name: String,
    uid: String,
}

/// How far an agent has come with a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    seen: bool,
    bound: bool,
    dying: bool,
}

/// What becomes of a job besides its normal life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Story {
    /// Nothing.
    Normal,
    /// One pod is killed.
    PodKilled,
    /// One pod's node is lost for a while.
    NodeLost,
}

/// Cluster, operator and agents.
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
    pub(crate) operator: Operator,
    watcher: WatcherId,
    agents: WatcherId,
    due: BTreeSet<(Timestamp, u64, Act)>,
    known: BTreeMap<String, Known>,
    down: BTreeSet<String>,
    ending: BTreeSet<String>,
    stories: fn(u32) -> Story,
    /// Jobs that came so far, and that went.
    pub(crate) jobs: (u32, u32),
    sequence: u64,
    random: u64,
}

/// Seven normal lives, two killed pods and one lost node in ten.
pub(crate) fn mixed(job: u32) -> Story {
    match job % 10 {
        3 | 6 => Story::PodKilled,
        9 => Story::NodeLost,
        _ => Story::Normal,
    }
}

impl Fleet {
    /// A fleet whose jobs live as `stories` says.
    pub(crate) fn new(stories: fn(u32) -> Story) -> Result<Self, AnyError> {
        let nodes = (0..NODES).map(|n| NodeSpec::named(&format!("gpu-worker-{n:02}"))).collect();
        let mut cluster = Cluster::new(&cluster::Options { mode: Mode::ByHand, nodes, ..cluster::Options::default() });
        let registry = Registry::all();
        for api in registry.iter() {
            cluster.register(&api.crd())?;
        }
        let (watcher, agents) = (cluster.subscribe_to(&registry.watch_targets()), cluster.subscribe());
        let operator = Operator::open(Box::new(MemoryLog::new()), registry, operator::Options::default())?;
        let mut fleet = Self {
            cluster,
            operator,
            watcher,
            agents,
            due: BTreeSet::new(),
            known: BTreeMap::new(),
            down: BTreeSet::new(),
            ending: BTreeSet::new(),
            stories,
            jobs: (0, 0),
            sequence: 0,
            random: 0x5eed,
        };
        fleet.settle()?;
        Ok(fleet)
    }

    /// Has one more job applied at a time from now.
    pub(crate) fn next_job(&mut self, after_ms: u64) {
        let job = self.jobs.0;
        self.jobs.0 += 1;
        self.plan(after_ms, Act::Apply(job));
    }

    /// Does what comes next. `false` when nothing will happen any more.
    pub(crate) fn step(&mut self) -> Result<bool, AnyError> {
        let act = self.due.first().map(|(at, ..)| *at);
        let Some(next) = [act, self.operator.next_wake()].into_iter().flatten().min() else { return Ok(false) };
        self.cluster.set_now(next.max(self.cluster.now()));
        while let Some(entry) = self.due.first().filter(|(at, ..)| *at <= self.cluster.now()).cloned() {
            self.due.remove(&entry);
            self.act(entry.2)?;
        }
        self.settle()?;
        Ok(true)
    }

    fn plan(&mut self, after_ms: u64, act: Act) {
        self.sequence += 1;
        self.due.insert((self.cluster.now().plus_ms(after_ms), self.sequence, act));
    }

    /// A number from `low` up to but not including `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        low + mix(self.random) % (high - low)
    }

    fn settle(&mut self) -> Result<(), AnyError> {
        for _ in 0..MAX_ROUNDS {
            let news = self.cluster.watch(self.watcher);
            let quiet = news.is_empty();
            for observation in news {
                self.operator.handle_event(observation);
            }
            let calls = self.operator.turn(self.cluster.now())?;
            self.operator.take_steps();
            if quiet && calls.is_empty() && self.operator.next_wake().is_none_or(|at| at > self.cluster.now()) {
                self.look();
                return Ok(());
            }
            for call in calls {
                let answer = self.cluster.execute(&call);
                if call.verb != Verb::Get || call.object.is_some() {
                    self.operator.handle_answer(call.id, answer);
                }
            }
        }
        Err("the operator does not come to rest".into())
    }

    /// Lets scheduler, kubelets and users see what is new, and plan what they do about it.
    fn look(&mut self) {
        for observation in self.cluster.watch(self.agents) {
            let (object, deleted) = match &observation {
                Observation::Applied(object) => (object, false),
                Observation::Deleted(object) => (object, true),
                Observation::Listed { .. } => continue,
            };
            match object["kind"].as_str() {
                Some("Pod") => self.look_at_pod(object, deleted),
                Some("AITrainingJob") if deleted => {
                    self.ending.remove(text(object, "/metadata/name"));
                    self.jobs.1 += 1;
                }
                Some("AITrainingJob") => {
                    let name = text(object, "/metadata/name").to_owned();
                    let over = matches!(text(object, "/status/phase"), "Succeed" | "Failed" | "NodeFail");
                    if over && self.ending.insert(name.clone()) {
                        self.plan(60_000, Act::DeleteJob(name));
                    }
                }
                _ => {}
            }
        }
    }

    fn look_at_pod(&mut self, object: &Arc<Value>, deleted: bool) {
        let pod =
            Pod { name: text(object, "/metadata/name").to_owned(), uid: text(object, "/metadata/uid").to_owned() };
        if deleted {
            self.known.remove(&pod.uid);
            return;
        }
        let bound = !text(object, "/spec/nodeName").is_empty();
        let dying = object.pointer("/metadata/deletionTimestamp").is_some();
        let before = self.known.get(&pod.uid).copied().unwrap_or_default();
        self.known.insert(pod.uid.clone(), Known { seen: true, bound, dying });
        if dying && !before.dying {
            let after = self.between(500, 3000);
            self.plan(after, Act::Gone(pod));
        } else if bound && !before.bound {
            let after = self.between(2000, 20_000);
            self.plan(after, Act::Run(pod));
        } else if !before.seen {
            let after = self.between(50, 1500);
            self.plan(after, Act::Bind(pod));
        }
    }

    fn act(&mut self, act: Act) -> Result<(), AnyError> {
        match act {
            Act::Apply(job) => {
                self.cluster.apply(&manifest(job))?;
            }
            Act::DeleteJob(name) => {
                if let Some(resource) = self.cluster.resource_named("AITrainingJob") {
                    self.cluster.delete_as_user(&resource, "research", &name, None)?;
                }
            }
            Act::NodeDown(node) => {
                self.cluster.node(&node, NodeState::NotReady)?;
                self.down.insert(node.clone());
                self.plan(300_000, Act::NodeUp(node));
            }
            Act::NodeUp(node) => {
                self.down.remove(&node);
                self.cluster.node(&node, NodeState::Ready)?;
            }
            Act::Bind(pod) => self.bind(&pod)?,
            Act::Run(pod) => {
                if self.reachable(&pod).is_some() {
                    self.cluster.run("research", &pod.name)?;
                    let run_ms = self.between(600_000, 660_000);
                    self.fate(&pod, run_ms);
                    self.plan(run_ms, Act::Exit(pod, 0));
                }
            }
            Act::Exit(pod, code) => {
                let ended = |object: &Value| matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
                if self.reachable(&pod).is_some_and(|object| !ended(&object)) {
                    self.cluster.exit("research", &pod.name, code, None)?;
                }
            }
            Act::Gone(pod) => {
                if self.reachable(&pod).is_some() {
                    self.cluster.gone("research", &pod.name);
                }
            }
        }
        Ok(())
    }

    fn bind(&mut self, pod: &Pod) -> Result<(), AnyError> {
        if self.reachable(pod).is_none() {
            return Ok(());
        }
        let mut node = self.between(0, NODES);
        while self.down.contains(&format!("gpu-worker-{node:02}")) {
            node = (node + 1) % NODES;
        }
        Ok(self.cluster.schedule("research", &pod.name, &format!("gpu-worker-{node:02}"))?)
    }

    /// Plans what goes wrong with a job: its first pod of index 0 or 3 to run sets it off.
    fn fate(&mut self, pod: &Pod, run_ms: u64) {
        let Some((job, index)) = pod.name.strip_prefix("llama-finetune-").and_then(|n| n.split_once("-trainer-"))
        else {
            return;
        };
        let Ok(job) = job.parse::<u32>() else { return };
        let object = self.reachable(pod);
        let restarts = object.as_ref().map(|o| text(o, "/metadata/labels/RestartCount").to_owned());
        let first_try = restarts.is_none_or(|n| n.is_empty() || n == "0");
        match (self.stories)(job) {
            Story::PodKilled if index == "3" && first_try => self.plan(run_ms / 2, Act::Exit(pod.clone(), 137)),
            Story::NodeLost if index == "0" && first_try => {
                let node = object.map(|o| text(&o, "/spec/nodeName").to_owned()).unwrap_or_default();
                if !self.down.contains(&node) {
                    self.plan(run_ms / 2, Act::NodeDown(node));
                }
            }
            Story::Normal | Story::PodKilled | Story::NodeLost => {}
        }
    }

    /// The pod, if it is still the same one and its node can be reached.
    fn reachable(&self, pod: &Pod) -> Option<Arc<Value>> {
        let object = self.cluster.get(&Resource::new("v1", "Pod"), "research", &pod.name)?;
        let there = text(&object, "/metadata/uid") == pod.uid && !self.down.contains(text(&object, "/spec/nodeName"));
        there.then_some(object)
    }
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// A job as users write them: one container with a port, some environment, a volume, limits.
pub(crate) fn manifest(job: u32) -> Value {
    json!({
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": format!("llama-finetune-{job:05}"), "namespace": "research", "labels": {"team": "language"}},
        "spec": {
            "priority": "high",
            "replicaSpecs": {"trainer": {
                "replicas": PODS,
                "restartPolicy": "Always",
                "restartScope": "All",
                "restartLimit": 10,
                "template": {"spec": {
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{
                        "name": "aitj-main",
                        "image": "registry.example.com/training/llama:24.10",
                        "command": ["torchrun", "train.py"],
                        "args": ["--config=configs/llama-7b.yaml", "--checkpoint-dir=/checkpoints"],
                        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "OMP_NUM_THREADS", "value": "8"}],
                        "ports": [{"name": "aitj-rendezvous", "containerPort": 29500}],
                        "resources": {"limits": {"cpu": "16", "memory": "128Gi"}},
                        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                    }],
                    "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}}],
                }},
            }},
        },
    })
}

/// Makes a log of at least so many records and exports it.
pub(crate) fn write_log(records: u64, to: &Path) -> Result<(), AnyError> {
    let mut fleet = Fleet::new(mixed)?;
    for n in 0..LIVE_JOBS {
        fleet.next_job(u64::from(n) * 20_000);
    }
    while fleet.operator.log().head().position.0 < records {
        let (came, went) = fleet.jobs;
        for _ in came.saturating_sub(went)..LIVE_JOBS {
            let after = fleet.between(1000, 30_000);
            fleet.next_job(after);
        }
        if !fleet.step()? {
            return Err("the fleet stands still".into());
        }
    }
    let log = with_long_uids(fleet.operator.log(), records)?;
    jsonl::export(&log, File::create(to)?, jsonl::Digests::Every)?;
    let (came, went) = fleet.jobs;
    println!("{} records of {came} jobs ({went} of them over), {} bytes", log.head().position, log.stats().body_bytes);
    Ok(())
}

/// The first records of a log, the cluster's counted uids replaced by ones of Kubernetes' length.
pub(crate) fn with_long_uids(log: &dyn EventLog, records: u64) -> Result<MemoryLog, AnyError> {
    let mut out = MemoryLog::new();
    let count = usize::try_from(records)?;
    for frame in log.read(log.first())?.take(count) {
        let frame = frame?;
        let body = long_uids(std::str::from_utf8(&frame.body)?);
        out.append(&[NewRecord { term: frame.term, body: body.as_bytes() }])?;
    }
    Ok(out)
}

/// Counted uids (`"pod-000017"`) as long as random ones. The count stays in front: some events list uids in their order.
pub(crate) fn long_uids(body: &str) -> String {
    let mut out = String::with_capacity(body.len() * 3 / 2);
    for (n, part) in body.split('"').enumerate() {
        if n > 0 {
            out.push('"');
        }
        match part.rsplit_once('-') {
            Some(("pod" | "service" | "aitrainingjob", count))
                if count.len() >= 6 && count.bytes().all(|b| b.is_ascii_digit()) =>
            {
                let number = count.parse::<u64>().unwrap_or_default();
                let salt = part.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
                let (high, low) = (mix(salt), mix(salt ^ 1));
                // Writing to a string cannot fail.
                let _ = write!(
                    out,
                    "{number:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
                    high & 0xffff,
                    (high >> 16) & 0xfff,
                    (high >> 28) & 0xfff,
                    low & 0xffff_ffff_ffff
                );
            }
            _ => out.push_str(part),
        }
    }
    out
}

/// Finalizer of `SplitMix64` (Steele, Lea, Flood): spreads the bits of a counter.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
