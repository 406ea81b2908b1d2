//! Turns one job's part of a log into the steps of a scenario, record by record.
//!
//! Owns the beginning, the cluster around the job, and the order of steps. The job's own records are [`super::job`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::JobApi;
use engine::{Body, Record, State};
use model::{ClusterFact, Config, JobFact, JobKey, NodeFact, Position, SpecFact, Text, Timestamp};
use serde_json::{Value, json};

use super::manifest::{Manifests, Unknown};
use super::nodes;
use super::recorded::{NOT_APPLIED, RecordedScenario, RecordedStep};

/// The steps so far.
pub struct Recording {
    pub(super) key: JobKey,
    pub(super) api: Arc<dyn JobApi>,
    pub(super) manifests: Manifests,
    /// Flags by which specs were translated: no record holds them.
    pub(super) given: BTreeMap<String, Value>,
    pub(super) steps: Vec<RecordedStep>,
    pub(super) first: Option<Value>,
    /// Nodes as they stood when the job came.
    pub(super) nodes_before: BTreeMap<Text, NodeFact>,
    pub(super) used_nodes: BTreeSet<Text>,
    pub(super) config: Config,
    pub(super) has_gpus: bool,
    pub(super) externally_managed: bool,
    pub(super) shares_queues: bool,
    pub(super) end: (Position, Timestamp),
    pub(super) phases: Vec<&'static str>,
    /// Latest spec that a step led to.
    pub(super) spec: Option<SpecFact>,
}

impl Recording {
    /// Begins a recording of a job. `flags` are those by which its manifests were translated.
    pub fn new(key: &JobKey, api: Arc<dyn JobApi>, manifests: Manifests, flags: BTreeMap<String, Value>) -> Self {
        Self {
            key: key.clone(),
            api,
            manifests,
            given: flags,
            steps: Vec::new(),
            first: None,
            nodes_before: BTreeMap::new(),
            used_nodes: BTreeSet::new(),
            config: Config::default(),
            has_gpus: false,
            externally_managed: false,
            shares_queues: false,
            end: (Position(0), Timestamp(0)),
            phases: Vec::new(),
            spec: None,
        }
    }

    /// Takes a record in; `state` is that before it.
    ///
    /// # Errors
    /// Returns an error if the job begins and its manifest is not known.
    pub fn take(&mut self, state: &State, record: &Record) -> Result<(), Unknown> {
        match &record.body {
            Body::Cluster { facts } => self.cluster(state, record, facts),
            Body::Job { key, .. } if *key == self.key => {
                self.end = (record.position, record.at);
                self.job(state, record)?;
            }
            Body::Job { key, facts, .. } => {
                let changed = |fact: &JobFact| matches!(fact, JobFact::Spec(_) | JobFact::Gone);
                let known = state.job(key).is_some_and(|job| job.spec.is_some());
                if self.first.is_some()
                    && known
                    && self.manifests.has_other(&key.kind, &key.name)
                    && facts.iter().any(changed)
                {
                    self.remark(record, format!("{} {} was edited or deleted", key.kind, key.name));
                }
                let shares = facts.iter().any(|fact| matches!(fact, JobFact::ShareChanged(_)));
                if self.first.is_some() && self.has_gpus && shares && !std::mem::replace(&mut self.shares_queues, true)
                {
                    self.remark(record, "other jobs held GPUs as well; the scenario has this job alone".to_owned());
                }
            }
            Body::Queues { .. } => {}
        }
        Ok(())
    }

    /// Looks at the state after a record.
    pub fn after(&mut self, state: &State, record: &Record) {
        if record.job() != Some(&self.key) {
            return;
        }
        let word = state.job(&self.key).map(|job| self.api.phase_word(job.phase)).unwrap_or_default();
        if !word.is_empty() && self.phases.last() != Some(&word) {
            self.phases.push(word);
        }
    }

    /// Ends the recording; `None` if the log has no beginning of the job.
    pub fn finish(mut self, state: &State) -> Option<RecordedScenario> {
        let first = self.first.take()?;
        let job = state.job(&self.key);
        let shown = job.filter(|job| !job.object.is_gone()).map(|job| {
            let status = json!({"status": self.api.status(&self.key, &job)});
            crate::state::word(&status).to_owned()
        });
        let counts = |name: &Text, fact: Option<&NodeFact>| {
            self.used_nodes.contains(name) || (self.has_gpus && fact.is_some_and(|fact| !fact.gpus.is_empty()))
        };
        let before = std::mem::take(&mut self.nodes_before);
        let mut listed: BTreeMap<Text, Option<&NodeFact>> = before
            .iter()
            .filter(|(name, fact)| counts(name, Some(fact)))
            .map(|(name, fact)| (name.clone(), Some(fact)))
            .collect();
        let came = |step: &RecordedStep| step.node.clone();
        let later: BTreeSet<Text> = self.steps.iter().filter_map(came).collect();
        for name in &self.used_nodes {
            // A node that no record names was there from the start.
            if !later.contains(name) {
                listed.entry(name.clone()).or_insert(None);
            }
        }
        let mut steps = std::mem::take(&mut self.steps);
        steps.retain(|step| step.node.as_ref().is_none_or(|name| self.has_gpus || self.used_nodes.contains(name)));
        let stood: Vec<Value> = listed.values().flatten().flat_map(|fact| nodes::at_the_start(fact)).collect();
        if let Some(RecordedStep { position, at, .. }) = steps.first().filter(|_| !stood.is_empty()) {
            let (position, at) = (*position, *at);
            let start = RecordedStep { position, at, actions: stood, node: None, remarks: Vec::new(), overdue: 0 };
            steps.insert(0, start);
        }
        let (mut flags, unset) = settings::flags::of(&self.config);
        flags.extend(self.given);
        if let (Some(unset), Some(start)) = (unset, steps.first_mut()) {
            start.remarks.push(format!("no flag sets this of the operator's configuration: {unset}"));
        }
        Some(RecordedScenario {
            flags,
            of_mpi_operator: self.externally_managed,
            nodes: listed.iter().map(|(name, fact)| nodes::listed(name, *fact)).collect(),
            manifests: self.manifests.others().iter().cloned().chain([first]).collect(),
            steps,
            end: self.end,
            phases: self.phases,
            state: shown,
            key: self.key,
        })
    }

    pub(super) fn push(&mut self, record: &Record, actions: Vec<Value>, remarks: Vec<String>, node: Option<Text>) {
        if !actions.is_empty() || !remarks.is_empty() {
            let (position, at) = (record.position, record.at);
            self.steps.push(RecordedStep { position, at, actions, node, remarks, overdue: 0 });
        }
    }

    pub(super) fn remark(&mut self, record: &Record, remark: String) {
        self.push(record, Vec::new(), vec![remark], None);
    }

    /// Takes in a record about the cluster.
    fn cluster(&mut self, state: &State, record: &Record, facts: &[ClusterFact]) {
        let started = self.first.is_some();
        for fact in facts {
            match fact {
                ClusterFact::TermBegan { .. } if started => {
                    self.push(record, vec![json!({"crash": {}})], Vec::new(), None);
                }
                ClusterFact::Configured(config) if started && **config != self.config => {
                    self.remark(record, "the operator's configuration changed".to_owned());
                }
                ClusterFact::Configured(config) => self.config = (**config).clone(),
                ClusterFact::Node(fact) if started => {
                    let before = state.nodes.get(&fact.name).map(|node| &node.fact);
                    self.push(record, nodes::change(before, fact), Vec::new(), Some(fact.name.clone()));
                }
                ClusterFact::NodeGone { name } if started => {
                    let gone = json!({"node": {"name": &**name, "ready": "removed"}});
                    self.push(record, vec![gone], Vec::new(), Some(name.clone()));
                }
                ClusterFact::Node(fact) => {
                    self.nodes_before.insert(fact.name.clone(), (**fact).clone());
                }
                ClusterFact::NodeGone { name } => {
                    self.nodes_before.remove(name);
                }
                ClusterFact::ForeignUse { .. } if started && self.has_gpus => {
                    self.remark(record, "pods of others held GPUs".to_owned());
                }
                ClusterFact::Quota(_)
                | ClusterFact::QuotaGone { .. }
                | ClusterFact::Class(_)
                | ClusterFact::ClassGone { .. }
                | ClusterFact::Namespace(_)
                | ClusterFact::NamespaceGone { .. }
                    if started =>
                {
                    self.remark(record, format!("a {} was observed; it is not in the scenario", fact.name()));
                }
                _ => {}
            }
        }
    }

    pub(super) fn begin(&mut self, record: &Record, spec: &SpecFact) -> Result<(), Unknown> {
        self.first = Some(self.manifests.first(spec, record.at)?);
        self.spec = Some(spec.clone());
        self.has_gpus = spec.spec.as_ref().is_ok_and(|spec| spec.gpu_groups().next().is_some());
        self.externally_managed = spec.spec.as_ref().is_ok_and(|spec| spec.externally_managed);
        let others: Vec<String> = self.manifests.others().iter().map(address).collect();
        if !others.is_empty() {
            self.push(record, vec![json!({"apply": others})], Vec::new(), None);
        }
        let mut remarks = Vec::new();
        if !self.manifests.knows_queue() {
            remarks.push("the TrainingQueue of the job is not known: give its manifest with --manifest".to_owned());
        }
        let name = format!("{}/{}/{}", self.key.kind, self.key.namespace, self.key.name);
        self.push(record, vec![json!({"apply": [name]})], remarks, None);
        Ok(())
    }

    /// Has a call fail: before the step that led to it, behind others that fail there.
    pub(super) fn fail(&mut self, record: &Record, step: Value) {
        let is_fail = |step: &RecordedStep| step.actions.first().is_some_and(|action| action.get("fail").is_some());
        let led = self.steps.iter().rposition(|step| !step.actions.is_empty() && !is_fail(step)).unwrap_or_default();
        let at = self.steps.get(led).map_or(record.at, |step| step.at);
        let remarks = if step.pointer("/fail/code").and_then(Value::as_u64).is_some_and(|code| code == 0 || code >= 500)
        {
            vec![NOT_APPLIED.to_owned()]
        } else {
            Vec::new()
        };
        self.steps.insert(
            led,
            RecordedStep { position: record.position, at, actions: vec![step], node: None, remarks, overdue: 0 },
        );
    }

    /// The operator began its term without the records of the job.
    pub(super) fn log_was_lost(&mut self, record: &Record) {
        let crash = self
            .steps
            .iter_mut()
            .rev()
            .find_map(|step| step.actions.first_mut().filter(|action| action.get("crash").is_some()));
        match crash {
            Some(action) => *action = json!({"loseLog": {}}),
            None => self.push(record, vec![json!({"loseLog": {}})], Vec::new(), None),
        }
    }
}

/// Returns the name by which `apply` means an object.
fn address(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match text("/metadata/namespace") {
        "" => format!("{}/{}", text("/kind"), text("/metadata/name")),
        namespace => format!("{}/{namespace}/{}", text("/kind"), text("/metadata/name")),
    }
}
