//! Rendering: commands to API calls.
//!
//! Owns verb, body and preconditions of each call. It must not decide whether a call is made: `dispatch` does. Tests: the
//! snapshots of scenarios hold every call.

use std::collections::VecDeque;

use apis::api::{PodSlot, RenderInput};
use apis::{ApiCall, Resource, Verb};
use model::{Command, FieldError, JobKey, OwnedRef, SlotId, Stamp};
use serde_json::Value;

use crate::in_flight::Purpose;
use crate::operator::Operator;

impl Operator {
    /// Renders the calls that create pods, in the order of their commands. What the pods of a job share is made once.
    pub(crate) fn render_pods(
        &mut self,
        key: &JobKey,
        commands: &[Command],
    ) -> VecDeque<Result<Option<ApiCall>, FieldError>> {
        let wanted = |c: &&Command| matches!(c, Command::CreatePod { .. });
        if !commands.iter().any(|c| wanted(&c)) {
            return VecDeque::new();
        }
        let Some(api) = self.registry.api_of(key).cloned() else { return VecDeque::new() };
        let Some(valid) = self.state.jobs.live(key).and_then(|job| job.valid.clone()) else { return VecDeque::new() };
        let Some(input) = self.manifests.input(key, valid) else { return VecDeque::new() };
        let mut places = Vec::new();
        let mut slots = Vec::new();
        for command in commands.iter().filter(wanted) {
            let Command::CreatePod { slot, incarnation, count } = command else { continue };
            let group = input.spec.group(&slot.group);
            places.push(group.map(|_| slot));
            slots.extend(group.map(|group| PodSlot { slot, group, incarnation: *incarnation, count: *count }));
        }
        let Some(pods) = api.pods() else { return VecDeque::new() };
        let mut bodies = pods.render(input, &slots).into_iter();
        let create = |slot: &SlotId, body| ApiCall {
            body: Some(body),
            ..call(Verb::Create, Resource::new("v1", "Pod"), key, &api.slot_name(key, slot))
        };
        let job = self.state.jobs.live(key);
        let bound = |slot: &SlotId, body: Value| {
            let node = job.and_then(|job| job.allocation.share.node(slot));
            let queue = job.and_then(engine::Job::queue);
            let mut body = body;
            if let Some(node) = node {
                let nodes: &[&str] = if node.is_empty() { &[] } else { &[node] };
                let selector = queue.and_then(|queue| self.state.nodes_of_queue(queue));
                apis::demand::place(&mut body, nodes, queue, selector);
            }
            if let Some(job) = job {
                pods.complete(input, job, slot, &mut body);
                apis::kueue::admit(job, &slot.group, &mut body);
            }
            body
        };
        places
            .into_iter()
            .map(|place| match place {
                None => Ok(None),
                Some(slot) => {
                    bodies.next().map_or(Ok(None), |body| body.map(|body| Some(create(slot, bound(slot, body)))))
                }
            })
            .collect()
    }

    /// Renders the call of a command that creates no pod; `None` when there is nothing to render it from yet.
    pub(crate) fn render(&mut self, key: &JobKey, command: &Command) -> Result<Option<ApiCall>, FieldError> {
        let Some(api) = self.registry.api_of(key).cloned() else { return Ok(None) };
        let pods = || Resource::new("v1", "Pod");
        let services = || Resource::new("v1", "Service");
        Ok(Some(match command {
            Command::CreatePod { .. } => return Ok(None),
            Command::CreateService { slot } => {
                let Some(input) = self.render_input(key) else { return Ok(None) };
                let Some(api_of_pods) = api.pods() else { return Ok(None) };
                let body = api_of_pods.service(input, slot)?;
                ApiCall { body: Some(body), ..call(Verb::Create, services(), key, &api.slot_name(key, slot)) }
            }
            Command::ReadPod { slot } => call(Verb::Get, pods(), key, &api.slot_name(key, slot)),
            Command::DeletePod { uid, name, grace_seconds } => ApiCall {
                uid: Some(uid.clone()),
                grace_seconds: *grace_seconds,
                ..call(Verb::Delete, pods(), key, name)
            },
            Command::DeleteService { uid, name } => {
                ApiCall { uid: Some(uid.clone()), ..call(Verb::Delete, services(), key, name) }
            }
            Command::DeleteJob => {
                ApiCall { uid: Some(key.uid.clone()), ..call(Verb::Delete, api.resource(), key, &key.name) }
            }
            Command::CreateOwned { object } => {
                let Some(body) = self.render_owned(key, object)? else { return Ok(None) };
                ApiCall { body: Some(apis::owned::created(body)), ..self.owned_call(Verb::Create, key, object) }
            }
            Command::UpdateOwned { object, uid, rv } => {
                let Some(body) = self.render_owned(key, object)? else { return Ok(None) };
                ApiCall {
                    body: Some(apis::owned::patch(&body)),
                    uid: Some(uid.clone()),
                    rv: Some(*rv),
                    ..self.owned_call(Verb::Patch, key, object)
                }
            }
            Command::ReportOwned { object, uid, rv, report } => {
                let at = self.state.at;
                let fact = self.state.jobs.live(key).and_then(|job| job.owned.get(object)?.fact.as_ref());
                let contents = fact.and_then(|fact| fact.contents.as_deref()).unwrap_or_default();
                ApiCall {
                    body: Some(apis::kueue::report(contents, *report, at)),
                    uid: Some(uid.clone()),
                    rv: Some(*rv),
                    ..self.owned_call(Verb::PatchStatus, key, object)
                }
            }
            Command::DeleteOwned { object, uid } => {
                ApiCall { uid: Some(uid.clone()), ..self.owned_call(Verb::Delete, key, object) }
            }
            Command::ReadOwned { object } => self.owned_call(Verb::Get, key, object),
            Command::SetFinalizer { on, rv } => {
                let (Some(job), Some(finalizer)) = (self.state.jobs.live(key), api.descriptor().finalizer) else {
                    return Ok(None);
                };
                let others = job.finalizers.iter().filter(|name| &***name != finalizer).map(|name| &**name);
                let all: Vec<&str> = others.chain(on.then_some(finalizer)).collect();
                ApiCall {
                    body: Some(serde_json::json!({"metadata": {"finalizers": all}})),
                    uid: Some(key.uid.clone()),
                    rv: Some(*rv),
                    ..call(Verb::Patch, api.resource(), key, &key.name)
                }
            }
            Command::ReleasePod { uid, name, rv, others } => ApiCall {
                body: Some(serde_json::json!({"metadata": {"finalizers": others}})),
                uid: Some(uid.clone()),
                rv: Some(*rv),
                ..call(Verb::Patch, pods(), key, name)
            },
            Command::WriteAnnotations { notes, rv } => {
                let at = self.state.at;
                let (Some(annotations), Some(input)) = (api.annotations(), self.render_input(key)) else {
                    return Ok(None);
                };
                ApiCall {
                    body: Some(annotations.notes_patch(input, notes, at)),
                    uid: Some(key.uid.clone()),
                    rv: Some(*rv),
                    ..call(Verb::Patch, api.resource(), key, &key.name)
                }
            }
            Command::MarkPod { uid, name, mark } => {
                let Some(annotations) = api.annotations() else { return Ok(None) };
                ApiCall {
                    body: Some(annotations.pod_mark(mark)),
                    uid: Some(uid.clone()),
                    ..call(Verb::Patch, pods(), key, name)
                }
            }
            Command::ReadLog { pod } => {
                let Some(scaling) = api.scaling() else { return Ok(None) };
                ApiCall {
                    body: Some(serde_json::json!({"container": scaling.log_container()})),
                    ..call(Verb::Log, pods(), key, pod)
                }
            }
            Command::FindNode => list_page(key, false, ""),
            Command::WriteEndAnnotation => {
                let job = self.state.jobs.live(key);
                let Some(patch) = job.and_then(|job| api.annotations()?.end_annotation(key, job)) else {
                    return Ok(None);
                };
                ApiCall {
                    body: Some(patch),
                    uid: Some(key.uid.clone()),
                    ..call(Verb::Patch, api.resource(), key, &key.name)
                }
            }
            Command::WriteStatus { rv, .. } => {
                let Some(job) = self.state.jobs.live(key) else { return Ok(None) };
                let (verb, body) = if let Some(external) = api.external() {
                    let source = job.valid.clone().and_then(|valid| self.manifests.input(key, valid));
                    (Verb::Patch, external.state_patch(key, job, source))
                } else {
                    let mut status = api.status(key, job);
                    if let Some(generation) = self.specs.generation(key) {
                        apis::conditions::observe_generation(&mut status, generation);
                    }
                    (Verb::ApplyStatus, serde_json::json!({ "status": status }))
                };
                ApiCall {
                    body: Some(body),
                    uid: Some(key.uid.clone()),
                    rv: Some(*rv),
                    ..call(verb, api.resource(), key, &key.name)
                }
            }
        }))
    }

    /// Renders a read that follows an answer; `None` when the job's API is not served.
    pub(crate) fn render_read(&self, key: &JobKey, purpose: &Purpose) -> Option<ApiCall> {
        let api = self.registry.api_of(key)?;
        let get = |kind: &str, name: &str| call(Verb::Get, Resource::new("v1", kind), key, name);
        Some(match purpose {
            Purpose::ReadBefore { next: (resource, name), .. } => {
                ApiCall { namespace: "".into(), ..call(Verb::Get, resource.clone(), key, name) }
            }
            Purpose::ReadTaken(Command::CreatePod { slot, .. }) => get("Pod", &api.slot_name(key, slot)),
            Purpose::ReadTaken(Command::CreateService { slot }) => get("Service", &api.slot_name(key, slot)),
            Purpose::ReadTaken(Command::CreateOwned { object })
            | Purpose::ReadPatched(Command::UpdateOwned { object, .. } | Command::ReportOwned { object, .. }) => {
                self.owned_call(Verb::Get, key, object)
            }
            Purpose::ReadPatched(Command::MarkPod { name, .. }) => get("Pod", name),
            Purpose::ListPage { pods, page, .. } => list_page(key, *pods, page),
            Purpose::ReadJob { .. } | Purpose::ReadTaken(_) | Purpose::ReadPatched(_) | Purpose::Command(_) => {
                call(Verb::Get, api.resource(), key, &key.name)
            }
        })
    }

    /// Renders an object that the job owns; `None` when there is nothing to render it from yet.
    pub(crate) fn render_owned(&mut self, key: &JobKey, object: &OwnedRef) -> Result<Option<Value>, FieldError> {
        let Some(api) = self.registry.api_of(key).cloned() else { return Ok(None) };
        let Some(spec) = self.state.jobs.live(key).and_then(|job| job.spec_of_owned(object)) else { return Ok(None) };
        let Some(input) = self.manifests.input(key, spec) else { return Ok(None) };
        let Some(job) = self.state.jobs.live(key) else { return Ok(None) };
        let body = apis::owned::render(&*api, input, job, object)?;
        let wanted = input.spec.owned.iter().find(|owned| owned.object == *object);
        let digest = wanted.and_then(|owned| job.owned_digest(owned));
        Ok(Some(apis::owned::complete(input, &api.resource().api_version, object, body, digest.as_deref())))
    }

    /// Returns a call about an object that the job owns: in the job's namespace, unless its type has none.
    fn owned_call(&self, verb: Verb, key: &JobKey, object: &OwnedRef) -> ApiCall {
        let resource = Resource { api_version: object.api_version.clone(), kind: object.kind.clone() };
        let owned_types = self.registry.api_of(key).map_or(&[][..], |api| api.descriptor().owned_types);
        let is_namespaced =
            owned_types.iter().find(|owned| owned.resource() == resource).is_none_or(|owned| owned.namespaced);
        let found = call(verb, resource, key, &object.name);
        if is_namespaced { found } else { ApiCall { namespace: "".into(), ..found } }
    }

    fn render_input<'a>(&'a mut self, key: &'a JobKey) -> Option<RenderInput<'a>> {
        let spec = self.state.jobs.live(key)?.valid.clone()?;
        self.manifests.input(key, spec)
    }
}

/// Renders the list of a page of nodes, or of the pods that have not ended, of all namespaces.
fn list_page(key: &JobKey, pods: bool, page: &str) -> ApiCall {
    let mut query = serde_json::json!({ "continue": page });
    if let Some(query) = query.as_object_mut().filter(|_| pods) {
        query.insert("fieldSelector".to_owned(), Value::from("status.phase!=Succeeded,status.phase!=Failed"));
    }
    let resource = Resource::new("v1", if pods { "Pod" } else { "Node" });
    ApiCall { body: Some(query), namespace: "".into(), ..call(Verb::List, resource, key, "") }
}

/// Returns a call without body and preconditions, about an object in the job's namespace.
pub(crate) fn call(verb: Verb, resource: Resource, key: &JobKey, name: &str) -> ApiCall {
    ApiCall {
        id: 0,
        job: key.clone(),
        object: None,
        cause: Stamp::default(),
        verb,
        resource,
        namespace: key.namespace.clone(),
        name: name.into(),
        body: None,
        uid: None,
        rv: None,
        grace_seconds: None,
    }
}
