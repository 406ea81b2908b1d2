//! Reads the request of a job to the coordinator: its queue and priority, and the amounts that its pods request, by the names of
//! `ResourceQuota`.
//!
//! It must not decide which job is dequeued: `engine::queues` does. Tests: `tests/spec.rs`, scenarios `to24-*` to `to27-*`.

use std::collections::BTreeMap;

use model::{Coordination, Text};
use serde_json::Value;

use super::pod_groups::{amounts, totals};
use super::run_policy::RunPolicy;
use super::tasks::TaskSpec;
use crate::demand::created;
use crate::objects::{at, namespace};

/// Returns the request of a job. Spot tasks count for no quota.
pub(super) fn of(object: &Value, tasks: &[TaskSpec<'_>], run: &RunPolicy<'_>) -> Coordination {
    let mut request: BTreeMap<Text, u64> = BTreeMap::new();
    let mut add = |name: String, amount: i128, pods: u32| {
        let all = u64::try_from(amount.max(0).saturating_mul(i128::from(pods))).unwrap_or(u64::MAX);
        let sum = request.entry(Text::from(name)).or_default();
        *sum = sum.saturating_add(all);
    };
    for task in tasks {
        let spot = at(task.spec, &["spotTaskSpec", "numSpotTasks"]).and_then(Value::as_u64);
        let pods = task.replicas.saturating_sub(spot.and_then(|spot| u32::try_from(spot).ok()).unwrap_or_default());
        for name in ["pods", "count/pods"] {
            add(name.to_owned(), 1000, pods);
        }
        let Some(spec) = at(task.spec, &["template", "spec"]) else { continue };
        for (name, amount) in totals(spec, requested) {
            add(format!("requests.{name}"), amount, pods);
            add(name, amount, pods);
        }
        for (name, amount) in totals(spec, |container| amounts(at(container, &["resources", "limits"]))) {
            add(format!("limits.{name}"), amount, pods);
        }
    }
    Coordination {
        tenant: run.queue.map_or_else(|| namespace(object), Text::from),
        priority: run.priority,
        class: run.priority_class.map(Text::from),
        tasks: tasks.iter().fold(0, |sum, task| sum.saturating_add(task.replicas)),
        request,
        submitted: created(object),
    }
}

/// Returns what a container requests. The API server takes a limit for a request that is not written.
fn requested(container: &Value) -> Vec<(String, i128)> {
    let mut requests = amounts(at(container, &["resources", "requests"]));
    for (name, limit) in amounts(at(container, &["resources", "limits"])) {
        if !requests.iter().any(|(known, _)| *known == name) {
            requests.push((name, limit));
        }
    }
    requests
}
