//! Readers of a job object's status that hold for every API.
//!
//! Owns where a status says what scenarios compare. It must not ask for the API of a job: what differs shows in which members
//! are there. Tests: at the end of this file.

use apis::objects::STATE;
use serde_json::Value;

/// Returns the state of a job in its API's own word: its phase or, for an API with conditions alone, the type of the last condition
/// that is True. Remarks stand first in a list of conditions, so they are the word only where there is nothing else.
pub fn word(job: &Value) -> &str {
    if let Some(phase) = job.pointer("/status/phase").and_then(Value::as_str) {
        return phase;
    }
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |condition: &&Value| condition.get("status").and_then(Value::as_str) == Some("True");
    let last = conditions.into_iter().flatten().rev().find(holds);
    last.and_then(|condition| condition.get("type")?.as_str()).unwrap_or_default()
}

/// Returns the restarts by group: as the status shows them, else as the mirror was charged.
pub fn restarts(job: &Value) -> Option<&Value> {
    job.pointer("/status/RestartCount").or_else(|| job.pointer("/status/trainyard/charged"))
}

/// Returns the counters of a group's pods.
pub fn counters<'a>(job: &'a Value, group: &str) -> Option<&'a Value> {
    let counters = job.pointer("/status/replicaStatuses").or_else(|| job.pointer("/status/taskStatuses"));
    counters?.get(group)
}

/// Takes out of a job's mirror what differs from run to run: stamps, and uids that are waited for.
pub fn mask_mirror(job: &mut Value) {
    remove_from_mirror(job, &["term", "position", "waitUids", "waitBelow"]);
}

/// Takes the generation out of a job's conditions: the operator writes that of the object with each write of the status, and an edit
/// that changes nothing else is followed by none.
pub fn mask_generation(job: &mut Value) {
    for condition in job.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("observedGeneration");
        }
    }
}

/// Takes the times, in milliseconds, out of a job's mirror, and the sums of them.
pub fn mask_mirror_times(job: &mut Value) {
    let times = ["admittedAt", "dequeuedAt", "firstRunningAt", "limitPausedAt", "shareAt", "startAfter", "usage"];
    remove_from_mirror(job, &times);
    if let Some(scaling) = job.pointer_mut("/status/trainyard/scaling").and_then(Value::as_object_mut) {
        scaling.remove("at");
    }
}

fn remove_from_mirror(job: &mut Value, members: &[&str]) {
    let remove = |mirror: &mut Value| {
        if let Some(mirror) = mirror.as_object_mut() {
            mirror.retain(|member, _| !members.contains(&member.as_str()));
        }
    };
    if let Some(mirror) = job.pointer_mut("/status/trainyard") {
        remove(mirror);
    }
    let annotations = job.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(Value::String(text)) = annotations.and_then(|all| all.get_mut(STATE))
        && let Ok(mut mirror) = serde_json::from_str::<Value>(text)
    {
        remove(&mut mirror);
        *text = mirror.to_string();
    }
}

/// Returns true for an annotation that holds a mirror, which is compared after [`mask_mirror`].
pub fn holds_mirror(annotation: &str) -> bool {
    annotation == STATE
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_phase_comes_before_conditions_and_the_last_true_condition_counts() {
        let conditions = json!([{"type": "Created", "status": "True"}, {"type": "Restarting", "status": "True"}, {"type": "Running", "status": "False"}]);
        for (status, want) in [
            (json!({"phase": "Running", "conditions": conditions}), "Running"),
            (json!({"phase": "", "conditions": conditions}), ""),
            (json!({"conditions": conditions}), "Restarting"),
            (json!({"conditions": null}), ""),
            (json!({}), ""),
        ] {
            assert_eq!(word(&json!({"status": status})), want, "{status}");
        }
    }

    #[test]
    fn a_mirror_in_an_annotation_is_masked_like_one_in_the_status() {
        let mirror = json!({"term": 1, "position": 2, "waitUids": ["u"], "charged": {"w": 1}});
        let mut job = json!({"metadata": {"annotations": {"trainyard.dev/state": mirror.to_string()}}, "status": {"trainyard": mirror}});
        mask_mirror(&mut job);
        let want = json!({"charged": {"w": 1}});
        assert_eq!(job["status"]["trainyard"], want);
        assert_eq!(job["metadata"]["annotations"]["trainyard.dev/state"], want.to_string());
        assert_eq!(restarts(&job), Some(&json!({"w": 1})));
    }
}
