//! Many jobs on an embedded cluster in virtual time: the log of a real cluster, without waiting for it.
//!
//! Owns the agents (a scheduler and kubelets with delays of their own for each pod, so that most records are about one pod),
//! and the mix of normal lives, restarts and lost nodes. Everything follows from a fixed seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{Observation, Registry, Resource};
use cluster::{Cluster, Mode, NodeSpec, NodeState, WatcherId};
use embedded::{EmbeddedCluster, Session};
use engine::State;
use event_log::{EventLog, MemoryLog};
use model::{Config, Timestamp};
use serde_json::{Value, json};

use crate::AnyError;
use crate::uids::mix;

/// Pods of each job.
pub(crate) const PODS: u32 = 8;
const NODES: u64 = 24;

/// An action of a user, scheduler or kubelet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Apply(u32),
    Bind(Pod),
    Run(Pod),
    Exit(Pod, i32),
    Remove(Pod),
    NodeDown(String),
    NodeUp(String),
    DeleteJob(String),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    name: String,
    uid: String,
}

/// Progress of an agent with a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    seen: bool,
    bound: bool,
    deleting: bool,
}

/// Fault in a job's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobFault {
    /// No fault.
    None,
    /// One pod is killed.
    PodKilled,
    /// One pod's node is lost for a while.
    NodeLost,
}

/// Cluster, operator and agents.
pub(crate) struct Workload {
    session: Session,
    agents: WatcherId,
    due: BTreeSet<(Timestamp, u64, Action)>,
    known: BTreeMap<String, Known>,
    down: BTreeSet<String>,
    ending: BTreeSet<String>,
    faults: fn(u32) -> JobFault,
    /// Number of jobs created so far, and of jobs removed.
    pub(crate) jobs: (u32, u32),
    sequence: u64,
    random: u64,
}

/// Returns the faults of a mix: in ten jobs, two with a killed pod and one with a lost node.
pub(crate) fn mixed(job: u32) -> JobFault {
    match job % 10 {
        3 | 6 => JobFault::PodKilled,
        9 => JobFault::NodeLost,
        _ => JobFault::None,
    }
}

impl Workload {
    /// Creates a workload whose jobs have the faults that `faults` returns.
    pub(crate) fn new(faults: fn(u32) -> JobFault) -> Result<Self, AnyError> {
        let nodes = (0..NODES).map(|n| NodeSpec::named(&format!("gpu-worker-{n:02}"))).collect();
        let cluster = Cluster::new(&cluster::Options { mode: Mode::Manual, nodes, ..cluster::Options::default() });
        let registry = Registry::all();
        let mut backend = EmbeddedCluster::serving(cluster, &registry)?;
        let agents = backend.cluster.subscribe();
        let session = Session::open(backend, registry, Box::new(MemoryLog::new()), Config::default())?;
        let mut workload = Self {
            session,
            agents,
            due: BTreeSet::new(),
            known: BTreeMap::new(),
            down: BTreeSet::new(),
            ending: BTreeSet::new(),
            faults,
            jobs: (0, 0),
            sequence: 0,
            random: 0x5eed,
        };
        workload.settle()?;
        Ok(workload)
    }

    /// Plans the creation of one more job, `after_ms` from now.
    pub(crate) fn next_job(&mut self, after_ms: u64) {
        let job = self.jobs.0;
        self.jobs.0 += 1;
        self.plan(after_ms, Action::Apply(job));
    }

    /// Performs the next actions. Returns false if none is left.
    pub(crate) fn step(&mut self) -> Result<bool, AnyError> {
        let act = self.due.first().map(|(at, ..)| *at);
        let Some(next) = [act, self.session.operator.next_wake()].into_iter().flatten().min() else { return Ok(false) };
        let now = next.max(self.now());
        self.session.cluster_mut().set_now(now);
        while let Some(entry) = self.due.first().filter(|(at, ..)| *at <= self.now()).cloned() {
            self.due.remove(&entry);
            self.act(entry.2)?;
        }
        self.settle()?;
        Ok(true)
    }

    fn plan(&mut self, after_ms: u64, act: Action) {
        self.sequence += 1;
        self.due.insert((self.now().plus_ms(after_ms), self.sequence, act));
    }

    /// A number from `low` up to but not including `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        low + mix(self.random) % (high - low)
    }

    fn settle(&mut self) -> Result<(), AnyError> {
        let now = self.now();
        self.session.settle(&mut || now, &mut |_, _| {})?;
        // The steps are not read: they would only take memory.
        self.session.take_steps();
        self.plan_agents();
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.session.cluster().now()
    }

    /// The operator's log.
    pub(crate) fn log(&self) -> &dyn EventLog {
        self.session.operator.log()
    }

    /// The operator's state.
    pub(crate) const fn state(&self) -> &State {
        self.session.operator.state()
    }

    /// Plans what scheduler, kubelets and users do about the latest changes.
    fn plan_agents(&mut self) {
        for observation in self.session.cluster_mut().watch(self.agents) {
            let (object, deleted) = match &observation {
                Observation::Applied(object) => (object, false),
                Observation::Deleted(object) => (object, true),
                Observation::Listed { .. } => continue,
            };
            match object["kind"].as_str() {
                Some("Pod") => self.plan_pod(object, deleted),
                Some("AITrainingJob") if deleted => {
                    self.ending.remove(text(object, "/metadata/name"));
                    self.jobs.1 += 1;
                }
                Some("AITrainingJob") => {
                    let name = text(object, "/metadata/name").to_owned();
                    let over = matches!(text(object, "/status/phase"), "Succeed" | "Failed" | "NodeFail");
                    if over && self.ending.insert(name.clone()) {
                        self.plan(60_000, Action::DeleteJob(name));
                    }
                }
                _ => {}
            }
        }
    }

    fn plan_pod(&mut self, object: &Arc<Value>, deleted: bool) {
        let pod =
            Pod { name: text(object, "/metadata/name").to_owned(), uid: text(object, "/metadata/uid").to_owned() };
        if deleted {
            self.known.remove(&pod.uid);
            return;
        }
        let bound = !text(object, "/spec/nodeName").is_empty();
        let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
        let before = self.known.get(&pod.uid).copied().unwrap_or_default();
        self.known.insert(pod.uid.clone(), Known { seen: true, bound, deleting });
        if deleting && !before.deleting {
            let after = self.between(500, 3000);
            self.plan(after, Action::Remove(pod));
        } else if bound && !before.bound {
            let after = self.between(2000, 20_000);
            self.plan(after, Action::Run(pod));
        } else if !before.seen {
            let after = self.between(50, 1500);
            self.plan(after, Action::Bind(pod));
        }
    }

    fn act(&mut self, act: Action) -> Result<(), AnyError> {
        match act {
            Action::Apply(job) => {
                self.session.cluster_mut().apply(&manifest(job))?;
            }
            Action::DeleteJob(name) => {
                if let Some(resource) = self.session.cluster().resource_named("AITrainingJob") {
                    self.session.cluster_mut().delete_as_user(&resource, "research", &name, None)?;
                }
            }
            Action::NodeDown(node) => {
                self.session.cluster_mut().node(&node, NodeState::NotReady)?;
                self.down.insert(node.clone());
                self.plan(300_000, Action::NodeUp(node));
            }
            Action::NodeUp(node) => {
                self.down.remove(&node);
                self.session.cluster_mut().node(&node, NodeState::Ready)?;
            }
            Action::Bind(pod) => self.bind(&pod)?,
            Action::Run(pod) => {
                if self.reachable(&pod).is_some() {
                    self.session.cluster_mut().run("research", &pod.name)?;
                    let run_ms = self.between(600_000, 660_000);
                    self.plan_fault(&pod, run_ms);
                    self.plan(run_ms, Action::Exit(pod, 0));
                }
            }
            Action::Exit(pod, code) => {
                let ended = |object: &Value| matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
                if self.reachable(&pod).is_some_and(|object| !ended(&object)) {
                    self.session.cluster_mut().exit("research", &pod.name, code, None)?;
                }
            }
            Action::Remove(pod) => {
                if self.reachable(&pod).is_some() {
                    self.session.cluster_mut().gone("research", &pod.name);
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
        Ok(self.session.cluster_mut().schedule("research", &pod.name, &format!("gpu-worker-{node:02}"))?)
    }

    /// Plans a job's fault when its first pod of index 0 or 3 runs.
    fn plan_fault(&mut self, pod: &Pod, run_ms: u64) {
        let Some((job, index)) = pod.name.strip_prefix("llama-finetune-").and_then(|n| n.split_once("-trainer-"))
        else {
            return;
        };
        let Ok(job) = job.parse::<u32>() else { return };
        let object = self.reachable(pod);
        let restarts = object.as_ref().map(|o| text(o, "/metadata/labels/RestartCount").to_owned());
        let first_try = restarts.is_none_or(|n| n.is_empty() || n == "0");
        match (self.faults)(job) {
            JobFault::PodKilled if index == "3" && first_try => self.plan(run_ms / 2, Action::Exit(pod.clone(), 137)),
            JobFault::NodeLost if index == "0" && first_try => {
                let node = object.map(|o| text(&o, "/spec/nodeName").to_owned()).unwrap_or_default();
                if !self.down.contains(&node) {
                    self.plan(run_ms / 2, Action::NodeDown(node));
                }
            }
            JobFault::None | JobFault::PodKilled | JobFault::NodeLost => {}
        }
    }

    /// The pod, if it is still the same one and its node can be reached.
    fn reachable(&self, pod: &Pod) -> Option<Arc<Value>> {
        let object = self.session.cluster().get(&Resource::new("v1", "Pod"), "research", &pod.name)?;
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
