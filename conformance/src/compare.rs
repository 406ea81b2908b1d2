//! What has to come out the same on both grounds.
//!
//! Phases, step by step, and at the end the objects: which there are, and what the operator wrote into them. What the server
//! adds (defaults, uids, versions, times of its own) is not compared: every member of the embedded cluster's object has to
//! be in the server's with the same value. Tests: at the end of this file.

use serde_json::Value;
use simulator::runner::ScenarioOutcome;
use simulator::sweep::{FinalState, final_state};

/// Members of an object's metadata that the server alone sets.
const SERVERS_OWN: [&str; 3] = ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
/// Kinds that are the ground's, not the operator's.
const GROUND: [&str; 5] = ["Node/", "Namespace/", "Event/", "PriorityClass/", "ResourceQuota/"];

/// Returns the differences of two runs of a scenario, in words: first that on the embedded cluster, then that on the real one.
pub fn differences(embedded: &ScenarioOutcome, real: &ScenarioOutcome) -> Vec<String> {
    let mut differences = Vec::new();
    if embedded.phases != real.phases {
        differences.push(format!("phases {:?}, on the real server {:?}", embedded.phases, real.phases));
    }
    for (number, (a, b)) in embedded.steps.iter().zip(&real.steps).enumerate() {
        if a.phases != b.phases {
            differences.push(format!("step {number} enters {:?}, on the real server {:?}", a.phases, b.phases));
        }
    }
    let (wanted, found) = (ours(embedded), uids_of(real).renamed(ours(real)));
    for (address, wanted) in &wanted.objects {
        match found.objects.get(address) {
            None => differences.push(format!("{address} is missing on the real server")),
            Some(found) => missing(wanted, found, address, &mut differences),
        }
    }
    let more = found.objects.keys().filter(|address| !wanted.objects.contains_key(*address));
    differences.extend(more.map(|address| format!("{address} is there on the real server only")));
    differences
}

/// Digits of a uid that names hold: of versions of models and of the pods that build them.
const UID_DIGITS: usize = 5;

/// Beginnings of uids on the real server, and what the embedded cluster has there: the kind.
struct Uids(Vec<(String, String)>);

/// Returns the uids of objects that names hold.
fn uids_of(real: &ScenarioOutcome) -> Uids {
    let begin = |text: &str| text.get(..UID_DIGITS).map(str::to_owned);
    let pair = |object: &Value| {
        let kind = object["kind"].as_str().filter(|kind| ["TorchJob", "ModelVersion"].contains(kind))?;
        Some((begin(object.pointer("/metadata/uid")?.as_str()?)?, begin(&kind.to_lowercase())?))
    };
    Uids(real.objects.iter().filter_map(|object| pair(object)).collect())
}

impl Uids {
    /// Returns a state with the embedded cluster's beginnings of uids in its names.
    fn renamed(&self, state: FinalState) -> FinalState {
        let rename = |text: String| {
            self.0.iter().fold(text, |text, (from, to)| {
                ["-", ":"]
                    .iter()
                    .fold(text, |text, before| text.replace(&format!("{before}{from}"), &format!("{before}{to}")))
            })
        };
        let object = |object: Value| serde_json::from_str(&rename(object.to_string())).unwrap_or(object);
        FinalState {
            phases: state.phases.into_iter().map(|(job, phase)| (rename(job), phase)).collect(),
            objects: state.objects.into_iter().map(|(address, found)| (rename(address), object(found))).collect(),
        }
    }
}

fn ours(outcome: &ScenarioOutcome) -> FinalState {
    let mut final_state = final_state(outcome);
    final_state.objects.retain(|address, _| !GROUND.iter().any(|kind| address.starts_with(kind)));
    for object in final_state.objects.values_mut() {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !SERVERS_OWN.contains(&key.as_str()));
        }
        // The state of an MPIJob names the uid of its object, and a volume that of its claim: they are the server's own as well.
        if let Some(Value::String(text)) = object["metadata"]["annotations"].get_mut(apis::objects::STATE)
            && let Ok(Value::Object(mut state)) = serde_json::from_str(text)
        {
            state.remove("uid");
            *text = Value::Object(state).to_string();
        }
        if let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
            claim.remove("uid");
        }
    }
    final_state
}

/// Every member that is wanted and not found, or found with another value.
fn missing(wanted: &Value, found: &Value, path: &str, differences: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, value) in wanted {
                missing(value, found.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"), differences);
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (n, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                missing(wanted, found, &format!("{path}[{n}]"), differences);
            }
        }
        // The server adds tolerations of its own.
        (Value::Array(wanted), Value::Array(found))
            if path.ends_with(".tolerations") && wanted.iter().all(|each| found.contains(each)) => {}
        // Empty and absent are the same on the wire.
        (Value::Object(wanted), Value::Null) if wanted.is_empty() => {}
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => {}
        (Value::String(wanted), Value::Null) if wanted.is_empty() && path.contains(".env[") => {}
        (Value::String(wanted), Value::Null) if wanted.is_empty() && path.ends_with(".storageClassName") => {}
        // Quantities become texts.
        (Value::Number(wanted), Value::String(found))
            if path.contains(".resources.") && wanted.to_string() == *found => {}
        // 1.0 and 1 are one number.
        (Value::Number(wanted), Value::Number(found)) if wanted.as_f64() == found.as_f64() => {}
        _ if wanted == found => {}
        _ => differences.push(format!("{path}: {wanted}, on the real server {found}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_adds_is_no_difference_and_what_it_lacks_is() {
        let mut differences = Vec::new();
        missing(
            &json!({"a": {"b": [1, {"c": 2}]}, "e": {}}),
            &json!({"a": {"b": [1, {"c": 2, "d": 3}], "x": 1}}),
            "o",
            &mut differences,
        );
        assert!(differences.is_empty(), "{differences:?}");
        missing(&json!({"a": [1, 2], "b": "x"}), &json!({"a": [1], "b": "y"}), "o", &mut differences);
        assert_eq!(differences, ["o.a: [1,2], on the real server [1]", "o.b: \"x\", on the real server \"y\""]);
    }
}
