//! `ContainerRecreateRequest` of `OpenKruise`: it restarts containers of a pod in place.
//!
//! Owns the type of object, its body, and when it has done its work. It must not know which pods are restarted, nor how an API marks
//! them. Tests: at the end of this file.

use model::Text;
use serde_json::{Value, json};

use crate::objects::{list_at, text_at};
use crate::owned::{Access, OwnedType, Pods};

/// Type of the requests.
pub const REQUEST: OwnedType = OwnedType {
    api_version: "apps.kruise.io/v1alpha1",
    kind: "ContainerRecreateRequest",
    plural: "containerrecreaterequests",
    namespaced: true,
    optional: true,
    access: Access::Immutable,
    reports: None,
    pods: Pods::Owners,
    reason: "OpenKruise restarts the containers of elastic pods in place.",
};

/// Phases of a request that has done its work.
const DONE: [&str; 2] = ["Completed", "Succeeded"];
/// Phase of a request, or of a container in it, that failed.
const FAILED: &str = "Failed";

/// Renders the specification of a request for these containers of a pod, all at once.
pub(crate) fn spec<'a>(pod: &str, containers: impl Iterator<Item = &'a str>) -> Value {
    let containers: Vec<Value> = containers.map(|name| json!({"name": name})).collect();
    json!({"podName": pod, "containers": containers, "strategy": {"orderedRecreate": false}})
}

/// Renders the reference of a request to its pod.
pub(crate) fn owner(pod: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod,
        "uid": uid,
        "controller": false,
        "blockOwnerDeletion": true,
    })
}

/// Returns whether a request has restarted its containers, and why it did not. `OpenKruise` completes one whose containers failed.
pub(crate) fn state(object: &Value) -> (bool, Option<Text>) {
    let phase = text_at(object, &["status", "phase"]).unwrap_or_default();
    let states = list_at(object, &["status", "containerRecreateStates"]);
    let failed = states.iter().find(|state| text_at(state, &["phase"]) == Some(FAILED));
    let is_done = DONE.contains(&phase);
    if phase == FAILED || (is_done && failed.is_some()) {
        let name = failed.and_then(|state| text_at(state, &["name"])).unwrap_or("a container");
        let message =
            failed.and_then(|state| text_at(state, &["message"])).or_else(|| text_at(object, &["status", "message"]));
        let why = message.filter(|message| !message.is_empty()).map(|message| format!(": {message}"));
        return (false, Some(Text::from(format!("{name} was not restarted{}", why.unwrap_or_default()))));
    }
    (is_done, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_done_once_all_its_containers_were_restarted() {
        let of = |phase: &str, container: &str| {
            let states = json!([{"name": "side", "phase": "Succeeded"}, {"name": "torch", "phase": container, "message": "no image"}]);
            state(&json!({"status": {"phase": phase, "containerRecreateStates": states}}))
        };
        assert_eq!(state(&json!({})), (false, None));
        for (phase, container, done) in [
            ("Pending", "Pending", false),
            ("Recreating", "Failed", false),
            ("Completed", "Succeeded", true),
            ("Succeeded", "Succeeded", true),
        ] {
            assert_eq!(of(phase, container), (done, None), "{phase}");
        }
        for phase in ["Completed", "Failed"] {
            assert_eq!(of(phase, "Failed"), (false, Some("torch was not restarted: no image".into())));
        }
        let bare = state(&json!({"status": {"phase": "Failed", "message": "no agent"}}));
        assert_eq!(bare, (false, Some("a container was not restarted: no agent".into())));
    }
}
