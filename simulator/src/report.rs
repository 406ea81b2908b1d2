//! What is reported of a run: the replay document, a stable interface that outside checks read.
//!
//! Owns its shape and the names in it. It must not mask anything (that is `text`'s and `sweep`'s). Tests: at the end of
//! this file and `tests/runner.rs`.

use apis::{ApiCall, Verb};
use serde_json::{Map, Value, json};

use crate::runner::{ScenarioOutcome, StepOutcome};
use crate::simulation::ExecutedCall;

/// `CreatePod`, `DeleteService`, `PatchAITrainingJob`, ...
pub fn command_kind(call: &ApiCall) -> String {
    let verb = match call.verb {
        Verb::Create => "Create",
        Verb::Delete => "Delete",
        Verb::Patch | Verb::PatchStatus | Verb::ApplyStatus => "Patch",
        Verb::Log => "GetLogOf",
        Verb::List => "List",
        Verb::Get => "Get",
    };
    format!("{verb}{}", call.resource.kind)
}

fn command(done: &ExecutedCall) -> Value {
    let call = &done.call;
    let mut out = Map::new();
    out.insert("kind".to_owned(), command_kind(call).into());
    out.insert("namespace".to_owned(), (*call.namespace).into());
    out.insert("name".to_owned(), (*call.name).into());
    out.insert("uid".to_owned(), done.uid.as_str().into());
    out.insert("attempts".to_owned(), done.attempts.into());
    if let Some(seconds) = call.grace_seconds {
        out.insert("gracePeriodSeconds".to_owned(), seconds.into());
    }
    if let Some(body) = call.body.as_ref().filter(|_| call.verb != Verb::Log) {
        let member = if call.verb == Verb::Create { "object" } else { "patch" };
        out.insert(member.to_owned(), body.clone());
    }
    Value::Object(out)
}

fn step(number: usize, step: &StepOutcome) -> Value {
    json!({
        "step": number,
        "phases": step.phases,
        "commands": step.commands.iter().map(command).collect::<Vec<_>>(),
        "kubernetesEvents": step.events.iter().map(|event| (**event).clone()).collect::<Vec<_>>(),
    })
}

impl ScenarioOutcome {
    /// The replay document.
    pub fn to_json(&self) -> Value {
        json!({
            "steps": self.steps.iter().enumerate().map(|(n, s)| step(n, s)).collect::<Vec<_>>(),
            "objects": self.objects.iter().map(|object| (**object).clone()).collect::<Vec<_>>(),
            "phases": self.phases,
            "log": {"records": self.log_records, "digest": self.log_digest},
        })
    }
}

#[cfg(test)]
mod tests {
    use apis::Resource;
    use model::{JobKey, Uid};

    use super::*;

    #[test]
    fn commands_carry_what_the_interface_promises() {
        let job = JobKey { namespace: "ns".into(), name: "j".into(), kind: "X".into(), uid: Uid::from("u") };
        let call = ApiCall {
            id: 1,
            job,
            object: Some(model::ObjectRef::Status),
            cause: model::Stamp::default(),
            verb: Verb::Create,
            resource: Resource::new("v1", "Pod"),
            namespace: "ns".into(),
            name: "p".into(),
            body: Some(json!({"kind": "Pod"})),
            uid: None,
            rv: None,
            grace_seconds: None,
        };
        let made = |call: ApiCall| command(&ExecutedCall { call, uid: "u1".to_owned(), attempts: 2 });
        assert_eq!(
            made(call.clone()),
            json!({"kind": "CreatePod", "namespace": "ns", "name": "p", "uid": "u1", "attempts": 2, "object": {"kind": "Pod"}})
        );
        let delete = ApiCall { verb: Verb::Delete, body: None, grace_seconds: Some(0), ..call.clone() };
        assert_eq!(
            made(delete),
            json!({"kind": "DeletePod", "namespace": "ns", "name": "p", "uid": "u1", "attempts": 2, "gracePeriodSeconds": 0})
        );
        let patch = ApiCall { verb: Verb::ApplyStatus, resource: Resource::new("a/v1", "X"), ..call };
        assert_eq!(made(patch)["kind"], "PatchX");
    }
}
