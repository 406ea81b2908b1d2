//! Effects become API calls, at most one under way per object.

use std::collections::VecDeque;
use std::sync::Arc;

use apis::api::{PodSlot, RenderInput};
use apis::{ApiCall, Resource, Verb};
use model::{Command, Effect, FieldError, JobKey, ObjectRef, SlotId, Stamp, Timestamp};
use serde_json::Value;

use crate::operator::{Doing, Operator, Rendered};

impl Operator {
    /// Hands out what is to be done for a job and not under way, as following from the record `cause`; says whether there
    /// was room for all of it.
    pub(crate) fn hand_out(&mut self, key: &JobKey, cause: Stamp, now: Timestamp, calls: &mut Vec<ApiCall>) -> bool {
        let first = calls.len();
        self.read_again(key, calls);
        let room = self.room.saturating_sub(self.calls.len());
        let mut commands = Vec::new();
        let mut whole = true;
        for effect in self.state.effects_of(key) {
            let Effect::Dispatch(command) = effect else { continue };
            if self.under_way.contains_key(&(key.clone(), command.object())) {
                continue;
            }
            if commands.len() >= room {
                whole = false;
                break;
            }
            if matches!(command, Command::WriteStatus { .. })
                && let Some(job) = self.state.job(key)
                && !self.pace.lets(key, &job, self.state.stamp.term, now)
            {
                continue;
            }
            commands.push(command);
        }
        let mut pods = self.render_pods(key, &commands);
        for command in commands {
            let rendered = if matches!(command, Command::CreatePod { .. }) {
                pods.pop_front().unwrap_or(Ok(None))
            } else {
                self.render(key, &command)
            };
            match rendered {
                Ok(Some(call)) => calls.push(self.send(key, call, Doing::Command(command))),
                Ok(None) => {}
                Err(error) => {
                    // What cannot be rendered is refused like what the API refuses: users are told, nothing else stops.
                    let id = self.register(key, Doing::Command(command));
                    let refused = apis::ApiError { code: 422, reason: "Invalid".into(), message: error.to_string() };
                    self.answers.push_back((id, Err(refused)));
                }
            }
        }
        for call in calls.iter_mut().skip(first) {
            call.cause = cause;
        }
        if whole {
            // Parsed again when pods are made again: as a tree a manifest takes more room than all else that is known of a job.
            self.rendered.remove(key);
        }
        whole
    }

    fn read_again(&mut self, key: &JobKey, calls: &mut Vec<ApiCall>) {
        let (mine, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.read_again).into_iter().partition(|(k, _)| k == key);
        self.read_again = others;
        for (key, doing) in mine {
            if self.under_way.contains_key(&(key.clone(), doing.object())) {
                continue;
            }
            let Some(api) = self.registry.get(&key.kind) else { continue };
            let call = match &doing {
                Doing::ReadTaken(Command::CreatePod { slot, .. }) => {
                    call(Verb::Get, Resource::new("v1", "Pod"), &key, &api.slot_name(&key, slot))
                }
                Doing::ReadTaken(Command::CreateService { slot }) => {
                    call(Verb::Get, Resource::new("v1", "Service"), &key, &api.slot_name(&key, slot))
                }
                Doing::ReadJob | Doing::ReadTaken(_) | Doing::Command(_) => {
                    call(Verb::Get, api.resource(), &key, &key.name)
                }
            };
            calls.push(self.send(&key, call, doing));
        }
    }

    fn register(&mut self, key: &JobKey, doing: Doing) -> u64 {
        self.next_call = self.next_call.saturating_add(1);
        self.under_way.insert((key.clone(), doing.object()), self.next_call);
        self.calls.insert(self.next_call, (key.clone(), doing));
        self.next_call
    }

    fn send(&mut self, key: &JobKey, call: ApiCall, doing: Doing) -> ApiCall {
        let object = Some(doing.object());
        let id = self.register(key, doing);
        ApiCall { id, object, ..call }
    }

    /// The calls that create pods, in the order of their commands; what the pods of a job share is made once.
    fn render_pods(&mut self, key: &JobKey, commands: &[Command]) -> VecDeque<Result<Option<ApiCall>, FieldError>> {
        let wanted = |c: &&Command| matches!(c, Command::CreatePod { .. });
        if !commands.iter().any(|c| wanted(&c)) {
            return VecDeque::new();
        }
        let Some(api) = self.registry.get(&key.kind).cloned() else { return VecDeque::new() };
        let Some(source) = self.source(key) else { return VecDeque::new() };
        let mut places = Vec::new();
        let mut slots = Vec::new();
        for command in commands.iter().filter(wanted) {
            let Command::CreatePod { slot, incarnation, count } = command else { continue };
            let group = source.spec.group(&slot.group);
            places.push(group.map(|_| slot));
            slots.extend(group.map(|group| PodSlot { slot, group, incarnation: *incarnation, count: *count }));
        }
        let mut bodies = api.pods(source, &slots).into_iter();
        let create = |slot: &SlotId, body| ApiCall {
            body: Some(body),
            ..call(Verb::Create, Resource::new("v1", "Pod"), key, &api.slot_name(key, slot))
        };
        places
            .into_iter()
            .map(|place| match place {
                None => Ok(None),
                Some(slot) => bodies.next().map_or(Ok(None), |body| body.map(|body| Some(create(slot, body)))),
            })
            .collect()
    }

    /// The call a command stands for; `None` when there is nothing to render it from (yet).
    fn render(&mut self, key: &JobKey, command: &Command) -> Result<Option<ApiCall>, FieldError> {
        let Some(api) = self.registry.get(&key.kind).cloned() else { return Ok(None) };
        let pods = || Resource::new("v1", "Pod");
        let services = || Resource::new("v1", "Service");
        Ok(Some(match command {
            Command::CreatePod { .. } => return Ok(None),
            Command::CreateService { slot } => {
                let Some(source) = self.source(key) else { return Ok(None) };
                let body = api.service(source, slot)?;
                ApiCall { body: Some(body), ..call(Verb::Create, services(), key, &api.slot_name(key, slot)) }
            }
            Command::ReadPod { slot } => call(Verb::Get, pods(), key, &api.slot_name(key, slot)),
            Command::DeletePod { uid, name, force } => ApiCall {
                uid: Some(uid.clone()),
                grace_seconds: force.then_some(0),
                ..call(Verb::Delete, pods(), key, name)
            },
            Command::DeleteService { uid, name } => {
                ApiCall { uid: Some(uid.clone()), ..call(Verb::Delete, services(), key, name) }
            }
            Command::WriteMarker => {
                let Some(patch) = self.state.job(key).and_then(|job| api.marker(key, &job)) else { return Ok(None) };
                ApiCall {
                    body: Some(patch),
                    uid: Some(key.uid.clone()),
                    ..call(Verb::Patch, api.resource(), key, &key.name)
                }
            }
            Command::WriteStatus { rv, .. } => {
                let Some(job) = self.state.job(key) else { return Ok(None) };
                let body = serde_json::json!({ "status": api.status(key, &job) });
                ApiCall {
                    body: Some(body),
                    uid: Some(key.uid.clone()),
                    rv: Some(*rv),
                    ..call(Verb::ApplyStatus, api.resource(), key, &key.name)
                }
            }
        }))
    }

    /// What rendering needs of a job; its manifest is parsed once for all that is made of it.
    fn source<'a>(&'a mut self, key: &'a JobKey) -> Option<RenderInput<'a>> {
        let fact = self.state.job(key)?.valid.clone()?;
        let fresh = self.rendered.get(key).is_some_and(|r| Arc::ptr_eq(&r.spec, &fact));
        if !fresh {
            let manifest = serde_json::from_str::<Value>(&fact.manifest).ok()?;
            self.rendered.insert(key.clone(), Rendered { spec: fact, manifest });
        }
        let rendered = self.rendered.get(key)?;
        Some(RenderInput { job: key, spec: rendered.spec.spec.as_ref().ok()?, manifest: &rendered.manifest })
    }
}

/// A call without body and preconditions, about an object in the job's namespace.
pub(crate) fn call(verb: Verb, resource: Resource, key: &JobKey, name: &str) -> ApiCall {
    ApiCall {
        id: 0,
        job: key.clone(),
        object: None::<ObjectRef>,
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
