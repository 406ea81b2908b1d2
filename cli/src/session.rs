//! The embedded cluster and the operator, taking turns; for runs on this machine and for simulated ones.
//!
//! Owns the order in which they are served. What a pod is comes with the cluster's runtime, what time is from the caller.

use std::path::PathBuf;

use apis::{ApiAnswer, ApiCall, Registry, Verb};
use cluster::{Cluster, ClusterFile, WatcherId};
use event_log::EventLog;
use model::{Config, JobKey, Phase, Timestamp};
use operator::{Operator, Options, Step};
use serde_json::Value;

use crate::out::{self, Failure};

/// Rounds without rest after which something is wrong.
const MOST_ROUNDS: u32 = 100_000;

/// Cluster and operator.
pub(crate) struct Session {
    pub(crate) cluster: Cluster,
    pub(crate) operator: Operator,
    registry: Registry,
    watcher: WatcherId,
    /// The file that the cluster is kept in.
    kept: Option<ClusterFile>,
    steps: Vec<Step>,
}

impl Session {
    /// Serves every API of this build on `cluster`, with an operator on `log`.
    pub(crate) fn open(
        mut cluster: Cluster,
        log: Box<dyn EventLog>,
        config: Config,
        keep: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let registry = Registry::all();
        for api in registry.iter() {
            cluster.register(&api.crd())?;
        }
        let operator = Operator::open(log, registry.clone(), Options { config, ..Options::default() })?;
        let watcher = cluster.subscribe_to(&registry.watch_targets());
        let kept = keep.map(|path| ClusterFile::new(&path));
        Ok(Self { cluster, operator, registry, watcher, kept, steps: Vec::new() })
    }

    /// Lets everything that is due take its course, by `clock`. `saw` is shown every call that was answered.
    pub(crate) fn pump(
        &mut self,
        clock: &mut dyn FnMut() -> Timestamp,
        saw: &mut dyn FnMut(&ApiCall, &ApiAnswer),
    ) -> Result<(), Failure> {
        for _ in 0..MOST_ROUNDS {
            let now = clock();
            self.cluster.set_now(now);
            let moved = self.cluster.tick();
            self.keep()?;
            let news = self.cluster.watch(self.watcher);
            let quiet = !moved && news.is_empty();
            for observation in news {
                self.operator.offer(observation);
            }
            let calls = self.operator.turn(now)?;
            self.steps.extend(self.operator.take_steps());
            if quiet && calls.is_empty() && self.operator.next_wake().is_none_or(|at| at > now) {
                return Ok(());
            }
            let answers: Vec<ApiAnswer> = calls.iter().map(|call| self.cluster.execute(call)).collect();
            // What the operator hears of, a crash must not take back: an API server has stored it before it answers.
            self.keep()?;
            for (call, answer) in calls.iter().zip(answers) {
                saw(call, &answer);
                if call.verb != Verb::Get || call.object.is_some() {
                    self.operator.answered(call.id, answer);
                }
            }
        }
        Err(Failure::new("the operator does not come to rest: please report this with the log"))
    }

    fn keep(&mut self) -> Result<(), Failure> {
        if let Some(file) = &mut self.kept {
            file.keep(&mut self.cluster)?;
        }
        Ok(())
    }

    /// When something is due next.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        [self.operator.next_wake(), self.cluster.next_wake()].into_iter().flatten().min()
    }

    /// Applies manifests as `kubectl apply` would: one that is refused does not keep the others out. Gives what was refused.
    pub(crate) fn apply(&mut self, manifests: &[Value]) -> Result<Vec<String>, Failure> {
        let mut refused = Vec::new();
        for manifest in manifests {
            let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let kind = manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
            if let Err(error) = self.cluster.apply(manifest) {
                refused.push(format!("{kind} {name}: {error}"));
            }
        }
        self.keep()?;
        if refused.len() == manifests.len() {
            return Err(Failure::new(refused.join("\ntrainyard: ")));
        }
        for line in &refused {
            out::warn(line);
        }
        Ok(refused)
    }

    /// Phases that jobs passed through since the last call.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Whether a manifest is a job of a served API.
    pub(crate) fn is_job(&self, manifest: &Value) -> bool {
        let resource = apis::Resource::of(manifest);
        self.registry.get(&resource.kind).is_some_and(|api| api.resource() == resource)
    }

    /// Uid of the stored job that a manifest names.
    pub(crate) fn job_uid(&self, manifest: &Value) -> Option<String> {
        let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = apis::Resource::of(manifest);
        let object = self.cluster.get(&resource, text("/metadata/namespace"), text("/metadata/name"))?;
        self.is_job(manifest).then(|| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// A phase in the words of the job's API.
    pub(crate) fn phase_word(&self, key: &JobKey, phase: Phase) -> &'static str {
        self.registry.get(&key.kind).map_or("", |api| api.phase_word(phase))
    }

    /// The jobs that exist, by key.
    pub(crate) fn jobs(&self) -> Vec<(JobKey, Phase)> {
        let jobs = self.operator.state().jobs.briefs().filter(|(_, job)| job.known && !job.gone);
        jobs.map(|(key, job)| (key.clone(), job.phase)).collect()
    }
}
