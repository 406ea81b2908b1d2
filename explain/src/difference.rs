//! Compares the states at two positions of a log. Decides nothing. Tests: the golden outputs of `diff`, and the digests of frozen logs.

use std::collections::BTreeMap;

use engine::{Job, State, wire};
use serde_json::{Value, json};

/// Returns a state as plain data, for comparing two positions.
pub fn summary(state: &State) -> Value {
    let jobs: BTreeMap<String, Value> =
        state.jobs.iter().map(|(key, job)| (format!("{key} ({})", key.uid), job_summary(&job))).collect();
    let nodes: BTreeMap<&str, &str> =
        state.nodes.values().map(|n| (&*n.fact.name, if n.fact.ready { "ready" } else { "not ready" })).collect();
    json!({ "jobs": jobs, "nodes": nodes, "term": state.stamp.term })
}

fn job_summary(job: &Job) -> Value {
    let groups: BTreeMap<&str, Value> = job
        .groups
        .iter()
        .map(|(name, g)| {
            let c = g.counters;
            let value = json!({
                "replicas": g.replicas, "restarts": g.restarts, "charged": g.charged,
                "pending": c.pending, "scheduled": c.scheduled, "active": c.active,
                "succeeded": c.succeeded, "failed": c.failed,
            });
            (&**name, value)
        })
        .collect();
    let pods: BTreeMap<String, Value> = job
        .pods
        .values()
        .map(|p| {
            let value = json!({
                "uid": p.fact.uid, "phase": wire::pod_phase_value(p.fact.phase), "node": p.fact.node,
                "incarnation": p.fact.incarnation, "leaving": p.is_leaving(),
            });
            (p.fact.name.to_string(), value)
        })
        .collect();
    json!({
        "phase": wire::phase_value(job.phase),
        "decision": wire::decision_value(job.decision.as_ref()),
        "groups": groups,
        "pods": pods,
        "services": job.services.values().map(|s| &*s.name).collect::<Vec<_>>(),
        "planned": job.planned_pods.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "invalid": wire::errors_value(job.invalid()),
        "mirror": job.stamps.acknowledged().to_string(),
    })
}

/// Returns the members that differ between two values: path, before, after.
pub fn differences(before: &Value, after: &Value) -> Vec<(String, Value, Value)> {
    let mut out = Vec::new();
    compare(String::new(), before, after, &mut out);
    out
}

fn compare(path: String, before: &Value, after: &Value, out: &mut Vec<(String, Value, Value)>) {
    if before == after {
        return;
    }
    let (Value::Object(a), Value::Object(b)) = (before, after) else {
        out.push((path, before.clone(), after.clone()));
        return;
    };
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        compare(path, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), out);
    }
}
