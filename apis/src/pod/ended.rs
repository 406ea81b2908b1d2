//! When a pod has ended: once its training containers have, though a sidecar runs on.
//!
//! Kubernetes counts every container. A proxy that a mesh adds to a pod never ends by itself, and would keep its job running for
//! ever. Tests: at the end of this file.

use model::PodPhase;
use serde_json::Value;

use crate::api::JobApi;
use crate::node::true_conditions;
use crate::objects::{list_at, text_at};

/// Names of containers that meshes and injectors add to pods. They serve a program and end with nothing.
pub(super) const SIDECARS: [&str; 15] = [
    "cloud-sql-proxy",
    "cloudsql-proxy",
    "consul-connect-envoy-sidecar",
    "consul-dataplane",
    "dapr",
    "daprd",
    "envoy",
    "envoy-sidecar",
    "gke-gcsfuse-sidecar",
    "gke-metadata-server",
    "istio-proxy",
    "kuma-sidecar",
    "linkerd-proxy",
    "vault-agent",
    "vault-agent-sidecar",
];

/// Returns the phase of a pod by its training containers, and whether others of it still run.
pub(super) fn phase(api: &dyn JobApi, object: &Value) -> (PodPhase, bool) {
    let phase = super::phase(object);
    // The pods of another controller's jobs are judged by that.
    let is_open = matches!(phase, PodPhase::Running | PodPhase::Failed) && !api.is_external();
    let Some(result) = is_open.then(|| result(api, object)).flatten() else { return (phase, false) };
    match phase {
        PodPhase::Running => (result, true),
        // A sidecar that failed while it was stopped is no failure. What Kubernetes ended is.
        PodPhase::Failed if result == PodPhase::Succeeded && !is_disrupted(object) => (result, false),
        _ => (phase, false),
    }
}

fn is_disrupted(object: &Value) -> bool {
    let has_reason = text_at(object, &["status", "reason"]).is_some_and(|reason| !reason.is_empty());
    has_reason || true_conditions(object).iter().any(|condition| &**condition == "DisruptionTarget")
}

/// Returns the result of the training containers, where all of them have ended for good and the pod has others.
fn result(api: &dyn JobApi, object: &Value) -> Option<PodPhase> {
    let containers = list_at(object, &["spec", "containers"]);
    let trains = training(api, containers);
    if trains.is_empty() || trains.len() == containers.len() {
        return None;
    }
    let statuses = list_at(object, &["status", "containerStatuses"]);
    let mut result = PodPhase::Succeeded;
    for container in trains {
        let name = text_at(container, &["name"])?;
        let status = statuses.iter().find(|status| text_at(status, &["name"]) == Some(name))?;
        let code = status.get("state")?.get("terminated")?.get("exitCode").and_then(Value::as_i64)?;
        let policy = text_at(container, &["restartPolicy"]).or_else(|| text_at(object, &["spec", "restartPolicy"]));
        let is_final = policy == Some("Never") || (policy == Some("OnFailure") && code == 0);
        if !is_final {
            return None;
        }
        if code != 0 {
            result = PodPhase::Failed;
        }
    }
    Some(result)
}

/// Returns the containers that train: those named so by the API, or else all but sidecars.
fn training<'a>(api: &dyn JobApi, containers: &'a [Value]) -> Vec<&'a Value> {
    let of = |is_wanted: &dyn Fn(&str) -> bool| -> Vec<&'a Value> {
        containers.iter().filter(|each| text_at(each, &["name"]).is_some_and(is_wanted)).collect()
    };
    let named = of(&|name| api.pods().is_some_and(|pods| pods.is_training_name(name)));
    if named.is_empty() { of(&|name| !SIDECARS.contains(&name)) } else { named }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::aitrainingjob::AiTrainingJob;

    /// The phase of a pod whose containers ended with these codes; `None`: it runs.
    fn phase_of(phase: &str, policy: &str, containers: &[(&str, Option<i64>)]) -> (PodPhase, bool) {
        let names: Vec<Value> = containers.iter().map(|(name, _)| json!({"name": name})).collect();
        let statuses: Vec<Value> = containers
            .iter()
            .map(|(name, code)| match code {
                Some(code) => json!({"name": name, "state": {"terminated": {"exitCode": code}}}),
                None => json!({"name": name, "state": {"running": {}}}),
            })
            .collect();
        super::phase(
            &AiTrainingJob,
            &json!({"spec": {"restartPolicy": policy, "containers": names},
                "status": {"phase": phase, "containerStatuses": statuses}}),
        )
    }

    #[test]
    fn a_pod_is_over_once_its_training_containers_are() {
        use PodPhase::{Failed, Running, Succeeded};
        // (phase of Kubernetes, restart policy, containers, phase, lingers)
        for (phase, policy, containers, want, lingers) in [
            ("Running", "Never", vec![("aitj-a", Some(0)), ("istio-proxy", None)], Succeeded, true),
            ("Running", "Never", vec![("aitj-a", Some(1)), ("istio-proxy", None)], Failed, true),
            ("Running", "Never", vec![("aitj-a", Some(0)), ("aitj-b", None), ("x", None)], Running, false),
            ("Running", "Never", vec![("aitj-a", Some(0)), ("aitj-b", Some(3)), ("x", None)], Failed, true),
            ("Running", "Never", vec![("aitj-a", None), ("istio-proxy", Some(0))], Running, false),
            // None is named by the API: all but sidecars train.
            ("Running", "Never", vec![("main", Some(0)), ("istio-proxy", None)], Succeeded, true),
            ("Running", "Never", vec![("main", Some(0)), ("other", None), ("istio-proxy", None)], Running, false),
            ("Running", "Never", vec![("istio-proxy", None)], Running, false),
            // The kubelet starts it again.
            ("Running", "OnFailure", vec![("aitj-a", Some(1)), ("istio-proxy", None)], Running, false),
            ("Running", "OnFailure", vec![("aitj-a", Some(0)), ("istio-proxy", None)], Succeeded, true),
            ("Running", "Always", vec![("aitj-a", Some(0)), ("istio-proxy", None)], Running, false),
            // All have ended: the sidecar's code is no result.
            ("Failed", "Never", vec![("aitj-a", Some(0)), ("istio-proxy", Some(137))], Succeeded, false),
            ("Failed", "Never", vec![("aitj-a", Some(2)), ("istio-proxy", Some(0))], Failed, false),
        ] {
            assert_eq!(phase_of(phase, policy, &containers), (want, lingers), "{phase} {policy} {containers:?}");
        }
    }
}
