//! API calls that were refused or not answered, as steps that make them fail again.

use engine::Job;
use model::{ObjectRef, Outcome};
use serde_json::{Value, json};

/// Part of a scenario that an answer becomes.
#[derive(Debug, PartialEq)]
pub(super) enum CallStep {
    /// None: the cluster of a scenario answers alike.
    Usual,
    /// The call fails.
    Fails(Value),
    /// No step leads to it: a remark.
    Inexpressible(String),
}

/// Reads an answer about an object of a job.
pub(super) fn read(object: &ObjectRef, outcome: &Outcome, job: Option<&Job>, kind: &str) -> CallStep {
    let code = match outcome {
        Outcome::Done | Outcome::Forced | Outcome::Gone => return CallStep::Usual,
        Outcome::Taken { .. } => {
            return CallStep::Inexpressible(format!("the name of {object} was taken by an object of another owner"));
        }
        Outcome::Refused { code, .. } | Outcome::Unknown { code } => *code,
    };
    let (verb, kind) = match object {
        ObjectRef::Pod(slot) => {
            // A creation that was given up is read before it is tried again; a read follows no other call.
            let planned = job.is_none_or(|job| job.planned_pods.contains(slot));
            (if planned { "create" } else { "get" }, "Pod")
        }
        ObjectRef::Service(_) => ("create", "Service"),
        ObjectRef::PodUid(_) => ("delete", "Pod"),
        ObjectRef::ServiceUid(_) => ("delete", "Service"),
        ObjectRef::Status | ObjectRef::EndAnnotation | ObjectRef::Finalizer | ObjectRef::Annotations => ("patch", kind),
        ObjectRef::Log => return CallStep::Inexpressible("the log of a pod could not be read".to_owned()),
        ObjectRef::StorageNode => ("list", "Node"),
        ObjectRef::Job => ("delete", kind),
        ObjectRef::Owned(owned) => {
            let planned = job.and_then(|job| job.owned.get(owned)).is_some_and(|owned| owned.planned);
            (if planned { "create" } else { "patch" }, &*owned.kind)
        }
    };
    CallStep::Fails(json!({"fail": {"verb": verb, "kind": kind, "code": code}}))
}
