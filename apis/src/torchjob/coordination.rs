//! Reads the request of a job to the coordinator: its queue and priority, and the amounts that its pods request, by the names of
//! `ResourceQuota`.
//!
//! It must not decide which job is dequeued: `engine::queues` does. Tests: `tests/spec.rs`, scenarios `quota-*` and `queues-*`.

use std::collections::BTreeMap;

use kube_model::resources::{limits, pod_requests, requested, totals};
use model::coordination::sum;
use model::{Coordination, ScopedRequest, Text};
use serde_json::{Value, json};

use super::run_policy::RunPolicy;
use super::tasks::TaskSpec;
use crate::demand::created;
use crate::objects::{at, list_at, namespace, text_at};

/// Returns the request of a job. Spot tasks count for no quota.
pub(super) fn of(object: &Value, tasks: &[TaskSpec<'_>], run: &RunPolicy<'_>) -> Coordination {
    let mut scoped: Vec<ScopedRequest> = Vec::new();
    for task in tasks {
        let spot = at(task.spec, &["spotTaskSpec", "numSpotTasks"]).and_then(Value::as_u64);
        let pods = task.replicas.saturating_sub(spot.and_then(|spot| u32::try_from(spot).ok()).unwrap_or_default());
        if pods == 0 {
            continue;
        }
        let spec = at(task.spec, &["template", "spec"]).unwrap_or(&Value::Null);
        let (scopes, request) = (scopes(spec), request(spec, pods));
        match scoped.iter_mut().find(|part| part.scopes == scopes) {
            Some(part) => part.request = sum([std::mem::take(&mut part.request), request]),
            None => scoped.push(ScopedRequest { scopes, request }),
        }
    }
    let request = sum(scoped.iter().map(|part| part.request.clone()));
    Coordination {
        queue: run.queue.map_or_else(|| namespace(object), Text::from),
        priority: run.priority,
        class: run.priority_class.map(Text::from),
        tasks: tasks.iter().fold(0, |sum, task| sum.saturating_add(task.replicas)),
        request,
        scoped,
        submitted: created(object),
    }
}

/// Returns what a number of pods request, in thousandths, by the names of a quota.
fn request(spec: &Value, pods: u32) -> BTreeMap<Text, u64> {
    let mut request = BTreeMap::new();
    let mut set = |name: String, amount: i128| {
        let all = u64::try_from(amount.max(0).saturating_mul(i128::from(pods))).unwrap_or(u64::MAX);
        request.insert(Text::from(name), all);
    };
    for name in ["pods", "count/pods"] {
        set(name.to_owned(), 1000);
    }
    for (name, amount) in pod_requests(spec) {
        set(format!("requests.{name}"), amount);
        set(name, amount);
    }
    for (name, amount) in totals(spec, limits) {
        set(format!("limits.{name}"), amount);
    }
    request
}

/// Returns the scopes that a pod is in, by the rules of Kubernetes.
fn scopes(spec: &Value) -> BTreeMap<Text, Text> {
    let counts = |name: &str| ["cpu", "memory"].contains(&name);
    let asks = |of: &dyn Fn(&Value) -> Vec<(String, i128)>| {
        let pod = json!({"resources": spec.get("resources")});
        totals(spec, of).into_iter().chain(of(&pod)).any(|(name, amount)| counts(&name) && amount > 0)
    };
    let is_best_effort = !asks(&requested) && !asks(&limits);
    let ends = spec.get("activeDeadlineSeconds").is_some_and(Value::is_number);
    let mut scopes = vec![
        (if is_best_effort { "BestEffort" } else { "NotBestEffort" }, ""),
        (if ends { "Terminating" } else { "NotTerminating" }, ""),
    ];
    if let Some(class) = text_at(spec, &["priorityClassName"]).filter(|class| !class.is_empty()) {
        scopes.push(("PriorityClass", class));
    }
    if names_namespaces(spec) {
        scopes.push(("CrossNamespacePodAffinity", ""));
    }
    scopes.into_iter().map(|(scope, value)| (Text::from(scope), Text::from(value))).collect()
}

/// Returns true for a pod that is placed by pods of other namespaces.
fn names_namespaces(spec: &Value) -> bool {
    let kinds = ["podAffinity", "podAntiAffinity"].into_iter().filter_map(|kind| at(spec, &["affinity", kind]));
    kinds.into_iter().any(|kind| {
        let required = list_at(kind, &["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = list_at(kind, &["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        let terms = required.chain(preferred.filter_map(|weighted| weighted.get("podAffinityTerm")));
        terms.into_iter().any(|term| {
            !list_at(term, &["namespaces"]).is_empty()
                || term.get("namespaceSelector").is_some_and(|one| !one.is_null())
        })
    })
}
