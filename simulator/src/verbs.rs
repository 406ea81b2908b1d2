//! What each verb does to the simulation.
//!
//! Owns finding the objects that steps name, and the doing. When the operator gets to see it is `runner`'s.
//! Tests: `tests/runner.rs`, and every scenario of `fixtures`.

use apis::{ApiError, Resource};
use cluster::{Cluster, NodeState};
use model::Measurement;
use serde_json::{Value, json};

use crate::backend::ClusterBackend;
use crate::runner::{Reason, Runner};
use crate::scenario::{
    Action, Annotate, DEFAULT_NAMESPACE, Exit, NodeChange, ObjectName, Patch, PatchTarget, Pods, Report, in_namespace,
    names_manifest,
};

impl<G: ClusterBackend> Runner<'_, G> {
    /// Does one action, without running the operator.
    pub(crate) fn act(&mut self, action: &Action) -> Result<(), Reason> {
        match action {
            Action::Apply(names) => self.each_manifest(&names.0, ClusterBackend::apply)?,
            Action::StoreUnchecked(names) => self.each_manifest(&names.0, ClusterBackend::store_unchecked)?,
            Action::Schedule(places) => {
                for place in &places.0 {
                    let (namespace, name) = self.pod(&place.pod)?;
                    self.manual(|c| c.schedule(&namespace, &name, &place.node))?;
                }
            }
            Action::Run(Pods::All) => self.manual(Cluster::run_all)?,
            Action::Run(Pods::Named(pods)) => {
                for pod in pods {
                    let (namespace, name) = self.pod(pod)?;
                    self.manual(|c| c.run(&namespace, &name))?;
                }
            }
            Action::Wait(waits) => {
                for wait in &waits.0 {
                    let (namespace, name) = self.pod(&wait.pod)?;
                    self.manual(|c| c.wait(&namespace, &name, &wait.reason, Some(wait.since.0)))?;
                }
            }
            Action::Exit(exits) => exits.0.iter().try_for_each(|exit| self.exit(exit))?,
            Action::Evict(Pods::All) => return Err(Reason::Meaning("say which pods".to_owned())),
            Action::Evict(Pods::Named(pods)) => {
                for pod in pods {
                    let (namespace, name) = self.pod(pod)?;
                    self.manual(|c| c.evict(&namespace, &name))?;
                }
            }
            Action::Gone(Pods::All) => self.manual(|c| {
                c.gone_all();
                Ok(())
            })?,
            Action::Gone(Pods::Named(pods)) => {
                for pod in pods {
                    let (namespace, name) = self.pod(pod)?;
                    self.manual(|c| {
                        c.gone(&namespace, &name);
                        Ok(())
                    })?;
                }
            }
            Action::Node(changes) => changes.0.iter().try_for_each(|change| self.node(change))?,
            Action::Annotate(annotate) => self.annotate(annotate)?,
            Action::Progress(reports) => reports.0.iter().try_for_each(|report| self.report(report))?,
            Action::Log(logs) => {
                for log in &logs.0 {
                    let (namespace, name) = self.pod(&log.pod)?;
                    if let Some(line) = log.lines.last().filter(|_| log.times > 0) {
                        self.manual(|c| c.print(&namespace, &name, line))?;
                    }
                }
            }
            Action::Patch(patch) => self.patch(patch)?,
            Action::Scale(scales) => {
                for scale in &scales.0 {
                    let (resource, namespace, name) = self.job(&scale.job)?;
                    self.simulation.backend.scale(&resource, &namespace, &name, scale.replicas)?;
                }
            }
            Action::Delete(deletes) => {
                for delete in &deletes.0 {
                    let name = in_namespace(&delete.name, delete.namespace.as_deref());
                    let (resource, namespace, name) = self.object(&delete.kind, &name)?;
                    self.simulation.backend.delete(&resource, &namespace, &name, delete.grace_period_seconds)?;
                }
            }
            Action::Advance(by) => self.simulation.skip(by.0),
            Action::Fail(fail) => self.simulation.backend.fail(fail.clone())?,
            Action::Hold(kinds) => self.each_watch(&kinds.0, ClusterBackend::hold)?,
            Action::Release(kinds) => {
                self.each_watch(&kinds.0, ClusterBackend::release)?;
            }
            Action::Relist(kinds) => self.each_watch(&kinds.0, ClusterBackend::relist)?,
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
        mut act: impl FnMut(&mut G, &Value) -> Result<(), ApiError>,
    ) -> Result<(), Reason> {
        let scenario = self.scenario;
        if names.is_empty() {
            return Ok(scenario.manifests.iter().try_for_each(|m| act(&mut self.simulation.backend, m))?);
        }
        for name in names {
            let manifest = scenario.manifests.iter().find(|m| names_manifest(name, m));
            let manifest = manifest.ok_or_else(|| Reason::Meaning(format!("`{name}` names no manifest")))?;
            act(&mut self.simulation.backend, manifest)?;
        }
        Ok(())
    }

    fn each_watch(&mut self, kinds: &[String], act: impl Fn(&mut G, model::Kind)) -> Result<(), Reason> {
        for name in kinds {
            let kind =
                self.simulation.backend.cluster().watch_kind(name).ok_or_else(|| Reason::NotWatched(name.clone()))?;
            act(&mut self.simulation.backend, kind);
        }
        Ok(())
    }

    /// The type of object, namespace and name that a step means. An object that does not exist is looked for where the API
    /// server will say so.
    fn object(&self, kind: &str, name: &ObjectName) -> Result<(Resource, String, String), Reason> {
        let resource = self
            .simulation
            .backend
            .cluster()
            .resource_named(kind)
            .ok_or_else(|| Reason::NoSuchKind(kind.to_owned()))?;
        let namespace = self.namespace(std::slice::from_ref(&resource), name)?.map_or_else(default, |(_, found)| found);
        Ok((resource, namespace, name.name.clone()))
    }

    /// Returns type and namespace of an object of one of these types and that name.
    fn namespace(&self, resources: &[Resource], name: &ObjectName) -> Result<Option<(Resource, String)>, Reason> {
        let mut found = Vec::new();
        for resource in resources {
            for object in self.simulation.backend.cluster().objects_of(resource) {
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
        let found = if let Some(namespace) = &name.namespace {
            namespace.clone()
        } else {
            let namespaces = self.simulation.backend.cluster().pod_namespaces(&name.name);
            match namespaces.as_slice() {
                [] => default(),
                [only] => only.to_string(),
                several if several.iter().any(|n| &**n == DEFAULT_NAMESPACE) => default(),
                _ => return Err(Reason::Ambiguous { kind: "Pod".to_owned(), name: name.name.clone() }),
            }
        };
        Ok((found, name.name.clone()))
    }

    /// A job of any served kind.
    fn job(&self, name: &ObjectName) -> Result<(Resource, String, String), Reason> {
        let resources: Vec<Resource> = self.simulation.registry().iter().map(|api| api.resource()).collect();
        match self.namespace(&resources, name)? {
            Some((resource, namespace)) => Ok((resource, namespace, name.name.clone())),
            None => Err(Reason::NoSuchObject { kind: "job".to_owned(), name: name.name.clone() }),
        }
    }

    fn target(&self, target: &PatchTarget) -> Result<(Resource, String, String), Reason> {
        if target.kind.is_empty() { self.job(&target.name) } else { self.object(&target.kind, &target.name) }
    }

    fn manual(&mut self, mut act: impl FnMut(&mut Cluster) -> Result<(), cluster::Error>) -> Result<(), Reason> {
        Ok(self.simulation.backend.manual(&mut act)?)
    }

    fn exit(&mut self, exit: &Exit) -> Result<(), Reason> {
        let (namespace, name) = self.pod(&exit.pod)?;
        self.manual(|cluster| {
            cluster.exit(&namespace, &name, exit.code, exit.container.as_deref())?;
            let Some(message) = &exit.message else { return Ok(()) };
            let resource = Resource::new("v1", "Pod");
            let Some(pod) = cluster.get(&resource, &namespace, &name) else { return Ok(()) };
            let mut statuses = pod.pointer("/status/containerStatuses").cloned().unwrap_or_default();
            for status in statuses.as_array_mut().into_iter().flatten() {
                let own = status.get("name").and_then(Value::as_str);
                let named = exit.container.as_deref().is_none_or(|c| own == Some(c));
                // A container that was restarted shows its end as its last state.
                let mut ended = ["/state/terminated", "/lastState/terminated"].into_iter();
                let ended = ended.find(|place| named && status.pointer(place).is_some_and(Value::is_object));
                if let Some(ended) = ended.and_then(|place| status.pointer_mut(place)?.as_object_mut()) {
                    ended.insert("message".to_owned(), message.as_str().into());
                }
            }
            let patch = json!({"status": {"containerStatuses": statuses}});
            cluster.merge_patch(&resource, &namespace, &name, &patch, true)?;
            Ok(())
        })
    }

    fn node(&mut self, change: &NodeChange) -> Result<(), Reason> {
        let state = match &change.ready {
            None => None,
            Some(word) => Some(
                NodeState::parse(&word.0)
                    .ok_or_else(|| Reason::Meaning(format!("`{}` is no state of a node", word.0)))?,
            ),
        };
        self.manual(|cluster| {
            if let Some(state) = state {
                cluster.node(&change.name, state)?;
            }
            if let Some(closed) = change.closed {
                cluster.cordon(&change.name, closed)?;
            }
            for (kind, status) in &change.conditions {
                cluster.node_condition(&change.name, kind, &status.0, kind, "")?;
            }
            Ok(())
        })
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
        self.simulation.backend.merge_patch(&resource, &namespace, &name, &patch, false)?;
        Ok(())
    }

    /// Adds to the progress that a job's object shows.
    fn report(&mut self, report: &Report) -> Result<(), Reason> {
        let (resource, namespace, name) = self.job(&report.job)?;
        let object = self.simulation.backend.cluster().get(&resource, &namespace, &name);
        let mut progress = object.and_then(|object| apis::progress::read(&object)).unwrap_or_default();
        let units = report.done.saturating_sub(progress.done);
        progress.sizes.entry(report.gpus).or_default().add(Measurement { units, took_ms: report.took.0 });
        progress.done = report.done;
        progress.total = report.total.or(progress.total);
        let patch = apis::progress::patch(&progress);
        self.simulation.backend.merge_patch(&resource, &namespace, &name, &patch, false)?;
        Ok(())
    }

    fn patch(&mut self, patch: &Patch) -> Result<(), Reason> {
        let (target, mut body) = patch.target_and_body().map_err(Reason::Meaning)?;
        let (resource, namespace, name) = self.target(&target)?;
        // The status is another endpoint: a patch that has both is two writes, seen together.
        let status = body.as_object_mut().and_then(|members| members.remove("status"));
        if let Some(status) = status {
            self.simulation.backend.merge_patch(&resource, &namespace, &name, &json!({"status": status}), true)?;
        }
        if body.as_object().is_some_and(|members| !members.is_empty()) {
            self.simulation.backend.merge_patch(&resource, &namespace, &name, &body, false)?;
        }
        Ok(())
    }
}

fn default() -> String {
    DEFAULT_NAMESPACE.to_owned()
}
