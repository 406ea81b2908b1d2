//! Doing a scenario's steps, one after the other.
//!
//! Owns what each verb does to a [`World`] and what is noted of each step. It must not judge the outcome (`check` does).
//! Tests: `tests/runner.rs`, and every scenario of `fixtures`.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::{ApiError, Resource};
use cluster::{CatchUp, FailRule, NodeState};
use model::{JobKey, Phase, Text};
use serde_json::{Value, json};

use crate::faults::{Aftermath, Death};
use crate::scenario::{
    Action, Annotate, CrashPoint, DEFAULT_NAMESPACE, Exit, Fail, FailVerb, NodeChange, ObjectName, Patch, Pods,
    RestoreLog, Scenario, Target, in_namespace, names_manifest,
};
use crate::world::{self, Done, World};

/// A scenario that cannot be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step cannot be done.
    #[error("{origin}: step {step} ({verb}): {reason}")]
    Step {
        /// File and line.
        origin: String,
        /// Number of the step.
        step: usize,
        /// Its verb.
        verb: &'static str,
        /// Why not.
        reason: Reason,
    },
    /// The world cannot be set up.
    #[error(transparent)]
    World(#[from] world::Error),
    /// A flag cannot be accepted.
    #[error(transparent)]
    Flags(#[from] crate::flags::Error),
}

/// Why a step cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The cluster has no such thing, or it is not in a state for this.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The API server refuses it.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The operator stopped or never came to rest.
    #[error(transparent)]
    World(#[from] world::Error),
    /// No kind of that name is served.
    #[error("no kind {0} is served")]
    NoSuchKind(String),
    /// No object of that name exists.
    #[error("{kind} {name} does not exist")]
    NoSuchObject {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Objects of that name exist in several namespaces.
    #[error("{kind} {name} exists in several namespaces: write namespace/name")]
    Ambiguous {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Nothing watches that kind.
    #[error("nothing watches objects of kind {0}")]
    NotWatched(String),
    /// The step itself makes no sense.
    #[error("{0}")]
    Meaning(String),
}

/// What a step led to.
#[derive(Debug, Clone, Default)]
pub struct StepOutcome {
    /// Phases entered, by job.
    pub phases: BTreeMap<String, Vec<String>>,
    /// Calls of the operator that changed something, in order.
    pub commands: Vec<Done>,
    /// Kubernetes Events written.
    pub events: Vec<Arc<Value>>,
    /// Every object as it stands after the step.
    pub objects: Vec<Arc<Value>>,
    /// How many times time stopped for somebody.
    pub stops: usize,
}

/// What a run led to.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Each step's.
    pub steps: Vec<StepOutcome>,
    /// Every object as it stands at the end.
    pub objects: Vec<Arc<Value>>,
    /// Consecutive distinct phases of each job.
    pub phases: BTreeMap<String, Vec<String>>,
    /// Records in the log at the end.
    pub log_records: u64,
    /// Digest of the log's last record.
    pub log_digest: String,
    /// Appends and calls that took place.
    pub counted: (u32, u32),
}

/// Runs a scenario.
///
/// # Errors
/// When a step cannot be done; the error names it.
pub fn run(scenario: &Scenario) -> Result<Outcome, Error> {
    run_with(scenario, None)
}

/// Runs a scenario in which the operator's process dies once more than the scenario says: at that point, counted over the
/// whole run.
///
/// # Errors
/// As for [`run`].
pub fn run_with(scenario: &Scenario, death: Option<Death>) -> Result<Outcome, Error> {
    let mut world = World::new(&scenario.nodes, crate::flags::config(&scenario.flags)?)?;
    // The operator is up before anything happens.
    world.settle()?;
    if let Some(death) = death {
        world.fate().lock().add(death);
    }
    Runner { world, scenario, armed: Vec::new(), names: BTreeMap::new() }.run()
}

/// A scenario under way.
struct Runner<'a> {
    world: World,
    scenario: &'a Scenario,
    /// Deaths that come inside the next step.
    armed: Vec<Death>,
    /// What each job is called in the report.
    names: BTreeMap<JobKey, String>,
}

impl Runner<'_> {
    fn run(mut self) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let mut shown: Vec<(JobKey, Phase)> = Vec::new();
        let scenario = self.scenario;
        let mut per_step = Vec::new();
        for (number, step) in scenario.steps.iter().enumerate() {
            let revision = self.world.cluster.revision();
            self.step(&step.action).map_err(|reason| {
                let file = if scenario.origin.is_empty() { "scenario" } else { &scenario.origin };
                let origin = if step.line > 0 { format!("{file}:{}", step.line) } else { file.to_owned() };
                Error::Step { origin, step: number, verb: step.action.verb(), reason }
            })?;
            let happened = self.world.take_happened();
            shown.extend(happened.phases.iter().cloned());
            per_step.push(happened.phases);
            outcome.steps.push(StepOutcome {
                commands: happened.done,
                events: self.world.cluster.kubernetes_events_since(revision),
                objects: self.world.cluster.objects(),
                stops: happened.stops,
                ..StepOutcome::default()
            });
        }
        self.name_jobs(shown.iter().map(|(job, _)| job));
        for (step, phases) in outcome.steps.iter_mut().zip(per_step) {
            for (job, phase) in phases {
                let word = self.word(&job, phase);
                let name = self.names.get(&job).cloned().unwrap_or_default();
                let all = outcome.phases.entry(name.clone()).or_default();
                if !word.is_empty() && all.last() != Some(&word) {
                    all.push(word.clone());
                    step.phases.entry(name).or_default().push(word);
                }
            }
        }
        outcome.phases.retain(|_, phases| !phases.is_empty());
        outcome.objects = self.world.cluster.objects();
        (outcome.log_records, outcome.log_digest) = self.world.log_summary();
        outcome.counted = self.world.fate().lock().counted();
        Ok(outcome)
    }

    fn word(&self, job: &JobKey, phase: Phase) -> String {
        self.world.registry().get(&job.kind).map(|api| api.phase_word(phase).to_owned()).unwrap_or_default()
    }

    /// `namespace/name`, with the kind in front where that alone would be two jobs.
    fn name_jobs<'k>(&mut self, jobs: impl Iterator<Item = &'k JobKey>) {
        let mut kinds: BTreeMap<String, BTreeMap<Text, Vec<JobKey>>> = BTreeMap::new();
        for job in jobs {
            kinds.entry(job.to_string()).or_default().entry(job.kind.clone()).or_default().push(job.clone());
        }
        for (name, by_kind) in kinds {
            let clash = by_kind.len() > 1;
            for (kind, jobs) in by_kind {
                let shown = if clash { format!("{kind}/{name}") } else { name.clone() };
                self.names.extend(jobs.into_iter().map(|job| (job, shown.clone())));
            }
        }
    }

    fn step(&mut self, action: &Action) -> Result<(), Reason> {
        let armed = std::mem::take(&mut self.armed);
        let deadly = !armed.is_empty();
        armed.into_iter().for_each(|death| self.world.fate().lock().add(death));
        let result = self.do_step(action);
        if deadly {
            // A death said to come inside this step comes in it or not at all.
            self.world.fate().lock().relent();
        }
        result
    }

    fn do_step(&mut self, action: &Action) -> Result<(), Reason> {
        match action {
            Action::Advance(by) => self.world.advance(by.0)?,
            Action::Crash(point) => self.die(*point, Aftermath::SameLog)?,
            Action::LoseLog(point) => self.die(*point, Aftermath::NoLog)?,
            Action::SwapLeader(point) => self.die(*point, Aftermath::OtherReplica)?,
            Action::RestoreLog(RestoreLog { position, before, after, nth }) => {
                let point = CrashPoint { before: *before, after: *after, nth: *nth };
                self.die(point, Aftermath::OldLog(*position))?;
            }
            Action::Together(actions) => {
                for action in actions {
                    self.act(action)?;
                }
                self.world.settle()?;
            }
            _ => {
                self.act(action)?;
                self.world.settle()?;
            }
        }
        Ok(())
    }

    fn die(&mut self, point: CrashPoint, aftermath: Aftermath) -> Result<(), Reason> {
        let boundary = match (point.before, point.after) {
            (None, None) => {
                self.world.restart(aftermath)?;
                return Ok(self.world.settle()?);
            }
            (Some(boundary), _) | (None, Some(boundary)) => boundary,
        };
        self.armed.push(Death { boundary, after: point.after.is_some(), nth: point.nth, aftermath, anywhere: false });
        Ok(())
    }

    /// Does one thing to the world, without anybody looking yet.
    fn act(&mut self, action: &Action) -> Result<(), Reason> {
        let cluster = &mut self.world.cluster;
        match action {
            Action::Apply(names) => {
                self.each_manifest(&names.0, |cluster, manifest| cluster.apply(manifest).map(|_| ()))?
            }
            Action::StoreUnchecked(names) => {
                self.each_manifest(&names.0, |cluster, manifest| cluster.store_unchecked(manifest).map(|_| ()))?;
            }
            Action::Schedule(places) => {
                for place in &places.0 {
                    let (namespace, name) = self.pod(&place.pod)?;
                    self.world.cluster.schedule(&namespace, &name, &place.node)?;
                }
            }
            Action::Run(Pods::All) => cluster.run_all()?,
            Action::Run(Pods::Named(pods)) => {
                for pod in pods {
                    let (namespace, name) = self.pod(pod)?;
                    self.world.cluster.run(&namespace, &name)?;
                }
            }
            Action::Wait(waits) => {
                for wait in &waits.0 {
                    let (namespace, name) = self.pod(&wait.pod)?;
                    self.world.cluster.wait(&namespace, &name, &wait.reason, Some(wait.since.0))?;
                }
            }
            Action::Exit(exits) => exits.0.iter().try_for_each(|exit| self.exit(exit))?,
            Action::Evict(Pods::All) => return Err(Reason::Meaning("say which pods".to_owned())),
            Action::Evict(Pods::Named(pods)) => {
                for pod in pods {
                    let (namespace, name) = self.pod(pod)?;
                    self.world.cluster.evict(&namespace, &name)?;
                }
            }
            Action::Gone(Pods::All) => cluster.gone_all(),
            Action::Gone(Pods::Named(pods)) => {
                for pod in pods {
                    let (namespace, name) = self.pod(pod)?;
                    self.world.cluster.gone(&namespace, &name);
                }
            }
            Action::Node(changes) => changes.0.iter().try_for_each(|change| self.node(change))?,
            Action::Annotate(annotate) => self.annotate(annotate)?,
            Action::Patch(patch) => self.patch(patch)?,
            Action::Delete(deletes) => {
                for delete in &deletes.0 {
                    let name = in_namespace(&delete.name, delete.namespace.as_deref());
                    let (resource, namespace, name) = self.object(&delete.kind, &name)?;
                    self.world.cluster.delete_as_user(&resource, &namespace, &name, delete.grace_period_seconds)?;
                }
            }
            Action::Advance(by) => self.world.skip(by.0),
            Action::Fail(fail) => cluster.fail(rule(fail))?,
            Action::Hold(kinds) => self.each_watch(&kinds.0, |cluster, kind| cluster.hold(kind))?,
            Action::Release(kinds) => {
                self.each_watch(&kinds.0, |cluster, kind| cluster.release(kind, CatchUp::InOrder))?;
            }
            Action::Relist(kinds) => self.each_watch(&kinds.0, |cluster, kind| cluster.relist(kind))?,
            Action::Crash(_)
            | Action::LoseLog(_)
            | Action::RestoreLog(_)
            | Action::SwapLeader(_)
            | Action::Together(_) => {
                return Err(Reason::Meaning("cannot be part of what is seen in one turn".to_owned()));
            }
        }
        Ok(())
    }

    fn each_manifest(
        &mut self,
        names: &[String],
        mut act: impl FnMut(&mut cluster::Cluster, &Value) -> Result<(), ApiError>,
    ) -> Result<(), Reason> {
        let scenario = self.scenario;
        if names.is_empty() {
            return Ok(scenario.manifests.iter().try_for_each(|m| act(&mut self.world.cluster, m))?);
        }
        for name in names {
            let manifest = scenario.manifests.iter().find(|m| names_manifest(name, m));
            let manifest = manifest.ok_or_else(|| Reason::Meaning(format!("`{name}` names no manifest")))?;
            act(&mut self.world.cluster, manifest)?;
        }
        Ok(())
    }

    fn each_watch(&mut self, kinds: &[String], act: impl Fn(&mut cluster::Cluster, model::Kind)) -> Result<(), Reason> {
        for name in kinds {
            let kind = self.world.cluster.watch_kind(name).ok_or_else(|| Reason::NotWatched(name.clone()))?;
            act(&mut self.world.cluster, kind);
        }
        Ok(())
    }

    /// The type of object, namespace and name that a step means. An object that does not exist is looked for where the API
    /// server will say so.
    fn object(&self, kind: &str, name: &ObjectName) -> Result<(Resource, String, String), Reason> {
        let resource = self.world.cluster.resource_named(kind).ok_or_else(|| Reason::NoSuchKind(kind.to_owned()))?;
        let namespace = self.namespace(std::slice::from_ref(&resource), name)?.map_or_else(default, |(_, found)| found);
        Ok((resource, namespace, name.name.clone()))
    }

    /// Where an object of one of these types and that name is.
    fn namespace(&self, resources: &[Resource], name: &ObjectName) -> Result<Option<(Resource, String)>, Reason> {
        let mut found = Vec::new();
        for resource in resources {
            for object in self.world.cluster.objects_of(resource) {
                let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let namespace = text("/metadata/namespace");
                let meant = name.namespace.as_deref().is_none_or(|wanted| wanted == namespace || namespace.is_empty());
                if text("/metadata/name") == name.name && meant {
                    found.push((resource.clone(), namespace.to_owned()));
                }
            }
        }
        if found.len() > 1 && name.namespace.is_none() {
            found.retain(|(_, namespace)| namespace == DEFAULT_NAMESPACE);
        }
        if found.len() > 1 {
            let kind = found.first().map(|(resource, _)| resource.kind.to_string()).unwrap_or_default();
            return Err(Reason::Ambiguous { kind, name: name.name.clone() });
        }
        Ok(found.pop().or_else(|| {
            let resource = resources.first()?.clone();
            Some((resource, name.namespace.clone()?))
        }))
    }

    fn pod(&self, name: &ObjectName) -> Result<(String, String), Reason> {
        let found = match &name.namespace {
            Some(namespace) => namespace.clone(),
            None => {
                let namespaces = self.world.cluster.pod_namespaces(&name.name);
                match namespaces.as_slice() {
                    [] => default(),
                    [only] => only.to_string(),
                    several if several.iter().any(|n| &**n == DEFAULT_NAMESPACE) => default(),
                    _ => return Err(Reason::Ambiguous { kind: "Pod".to_owned(), name: name.name.clone() }),
                }
            }
        };
        Ok((found, name.name.clone()))
    }

    /// A job of any served kind.
    fn job(&self, name: &ObjectName) -> Result<(Resource, String, String), Reason> {
        let resources: Vec<Resource> = self.world.registry().iter().map(|api| api.resource()).collect();
        match self.namespace(&resources, name)? {
            Some((resource, namespace)) => Ok((resource, namespace, name.name.clone())),
            None => Err(Reason::NoSuchObject { kind: "job".to_owned(), name: name.name.clone() }),
        }
    }

    fn target(&self, target: &Target) -> Result<(Resource, String, String), Reason> {
        if target.kind.is_empty() { self.job(&target.name) } else { self.object(&target.kind, &target.name) }
    }

    fn exit(&mut self, exit: &Exit) -> Result<(), Reason> {
        let (namespace, name) = self.pod(&exit.pod)?;
        let cluster = &mut self.world.cluster;
        cluster.exit(&namespace, &name, exit.code, exit.container.as_deref())?;
        let Some(message) = &exit.message else { return Ok(()) };
        let resource = Resource::new("v1", "Pod");
        let Some(pod) = cluster.get(&resource, &namespace, &name) else { return Ok(()) };
        let mut statuses = pod.pointer("/status/containerStatuses").cloned().unwrap_or_default();
        for status in statuses.as_array_mut().into_iter().flatten() {
            let named = exit.container.as_deref().is_none_or(|c| status.get("name").and_then(Value::as_str) == Some(c));
            if let Some(ended) = status.pointer_mut("/state/terminated").filter(|_| named)
                && let Some(ended) = ended.as_object_mut()
            {
                ended.insert("message".to_owned(), message.as_str().into());
            }
        }
        let patch = json!({"status": {"containerStatuses": statuses}});
        cluster.merge_patch(&resource, &namespace, &name, &patch, true)?;
        Ok(())
    }

    fn node(&mut self, change: &NodeChange) -> Result<(), Reason> {
        let cluster = &mut self.world.cluster;
        if let Some(word) = &change.ready {
            let state = NodeState::parse(&word.0)
                .ok_or_else(|| Reason::Meaning(format!("`{}` is no state of a node", word.0)))?;
            cluster.node(&change.name, state)?;
        }
        for (kind, status) in &change.conditions {
            cluster.node_condition(&change.name, kind, &status.0, kind, "")?;
        }
        Ok(())
    }

    fn annotate(&mut self, annotate: &Annotate) -> Result<(), Reason> {
        let (resource, namespace, name) = match (&annotate.job, &annotate.pod, &annotate.node) {
            (Some(name), ..) => self.job(name)?,
            (None, Some(name), _) => self.object("Pod", name)?,
            (None, None, Some(name)) => self.object("Node", name)?,
            (None, None, None) => return Err(Reason::Meaning("names no object".to_owned())),
        };
        let set = annotate.set.iter().map(|(key, value)| (key.clone(), Value::from(value.0.as_str())));
        let removed = annotate.remove.0.iter().map(|key| (key.clone(), Value::Null));
        let annotations: serde_json::Map<String, Value> = set.chain(removed).collect();
        let patch = json!({"metadata": {"annotations": annotations}});
        self.world.cluster.merge_patch(&resource, &namespace, &name, &patch, false)?;
        Ok(())
    }

    fn patch(&mut self, patch: &Patch) -> Result<(), Reason> {
        let (target, mut body) = patch.target_and_body().map_err(Reason::Meaning)?;
        let (resource, namespace, name) = self.target(&target)?;
        // The status is another endpoint: a patch that has both is two writes, seen together.
        let status = body.as_object_mut().and_then(|members| members.remove("status"));
        let cluster = &mut self.world.cluster;
        if let Some(status) = status {
            cluster.merge_patch(&resource, &namespace, &name, &json!({"status": status}), true)?;
        }
        if body.as_object().is_some_and(|members| !members.is_empty()) {
            cluster.merge_patch(&resource, &namespace, &name, &body, false)?;
        }
        Ok(())
    }
}

fn default() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

fn rule(fail: &Fail) -> FailRule {
    let verb = match fail.verb {
        FailVerb::Create => cluster::FailVerb::Create,
        FailVerb::Delete => cluster::FailVerb::Delete,
        FailVerb::Patch => cluster::FailVerb::Patch,
        FailVerb::Get => cluster::FailVerb::Get,
        FailVerb::List => cluster::FailVerb::List,
    };
    let kind = fail.kind.as_deref().map(Text::from);
    FailRule { verb, kind, times: fail.times, code: fail.code, applied: fail.applied }
}
