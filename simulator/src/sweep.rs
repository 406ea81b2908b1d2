//! The crash sweep: a scenario run again and again, with the operator's process dying at one more point each time.
//!
//! Owns which points there are and what must come out the same: every job's last phase and every object, apart from what
//! rightly differs (uids, versions, stamps, our own annotations). Tests: `snapshots/tests/crashes.rs`.

use std::collections::BTreeMap;

use model::Timestamp;
use serde_json::Value;

use crate::crash::{Crash, LogAfterCrash};
use crate::runner::{Conditions, ScenarioOutcome, run_with};
use crate::scenario::{Action, Boundary, Scenario};
use crate::simulation::Simulation;
use crate::state;
use crate::text::OWN_PREFIX;

/// Result of a sweep.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Points at which the process crashed.
    pub points: usize,
    /// Differences, in words.
    pub failures: Vec<String>,
}

/// Crashes the process before and after every append and every call of a scenario, `stride` apart, once for each of
/// these aftermaths, under these conditions besides. A call that follows an append or another call of its turn has one crash
/// alone, after it: a crash before it is the same as one after the other. A scenario that cannot be run to its end has no points,
/// nor has one whose `expect.crash` says so.
pub fn sweep(scenario: &Scenario, logs_after: &[LogAfterCrash], stride: u32, usual: Conditions) -> Sweep {
    let may = &scenario.expect.crash;
    if may.change_anything.is_some() {
        return Sweep::default();
    }
    let keeps_log = |log_after: &&LogAfterCrash| may.need_the_log.is_none() || **log_after == LogAfterCrash::SameLog;
    let logs_after: Vec<LogAfterCrash> = logs_after.iter().filter(keeps_log).copied().collect();
    let Ok(kinds) = Simulation::served_kinds() else { return Sweep::default() };
    let Ok(undisturbed) = run_with(scenario, usual, &kinds) else { return Sweep::default() };
    // Where API calls fail for a while, a new process tries again at other times than the old one would have.
    let timeless = may.change_times.is_some() || scenario.steps.iter().any(|step| fails_calls(&step.action));
    let final_state =
        |outcome: &ScenarioOutcome| if timeless { final_state(outcome).without_times() } else { final_state(outcome) };
    let wanted = final_state(&undisturbed);
    let (appends, calls) = undisturbed.counted;
    let mut sweep = Sweep::default();
    for (boundary, count) in [(Boundary::Append, appends), (Boundary::Call, calls)] {
        for nth in (1..=count).step_by(usize::try_from(stride.max(1)).unwrap_or(1)) {
            // A crash before such a call is the same as one after what came before it.
            let follows = boundary == Boundary::Call && undisturbed.following_calls.contains(&nth);
            for after in if follows { &[true][..] } else { &[false, true] }.iter().copied() {
                for log_after in &logs_after {
                    let crash = Crash { boundary, after, nth, log_after: *log_after, anywhere: true };
                    sweep.points = sweep.points.saturating_add(1);
                    let differences = match run_with(scenario, Conditions { crash: Some(crash), ..usual }, &kinds) {
                        Ok(outcome) => {
                            let mut differences = differences(&wanted, &final_state(&outcome));
                            differences.extend(outcome.violations);
                            differences
                        }
                        Err(error) => vec![error.to_string()],
                    };
                    if !differences.is_empty() {
                        sweep.failures.push(format!("{}: {}", describe(crash), differences.join("; ")));
                    }
                }
            }
        }
    }
    sweep
}

/// Describes a crash.
pub fn describe(crash: Crash) -> String {
    let side = if crash.after { "after" } else { "before" };
    let what = match crash.boundary {
        Boundary::Append => "append",
        Boundary::Call => "call",
    };
    let then = match crash.log_after {
        LogAfterCrash::SameLog => "",
        LogAfterCrash::NoLog => ", log lost",
        LogAfterCrash::OldLog(_) => ", older log",
        LogAfterCrash::OtherReplica => ", other replica",
    };
    format!("{side} {what} {}{then}", crash.nth)
}

/// Final phases and objects, without what rightly differs between runs.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalState {
    /// The last phase of each job.
    pub phases: BTreeMap<String, String>,
    /// Objects by kind and address.
    pub objects: BTreeMap<String, Value>,
}

/// Returns the final phases and objects of a run.
pub fn final_state(outcome: &ScenarioOutcome) -> FinalState {
    let last = outcome.phases.iter().filter_map(|(job, phases)| Some((job.clone(), phases.last()?.clone())));
    let objects = outcome.objects.iter().map(|object| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let address = format!("{}/{}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        (address, masked(object))
    });
    FinalState { phases: last.collect(), objects: objects.collect() }
}

/// An object without uids, versions, stamps, and annotations of ours.
pub fn masked(object: &Value) -> Value {
    let mut object = object.clone();
    state::mask_mirror(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for member in ["uid", "resourceVersion", "generation", "managedFields"] {
            metadata.remove(member);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !key.starts_with(OWN_PREFIX) || state::holds_mirror(key));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(owner) = owner.as_object_mut() {
                owner.remove("uid");
            }
        }
    }
    state::mask_generation(&mut object);
    object
}

fn fails_calls(action: &Action) -> bool {
    match action {
        Action::Fail(_) => true,
        Action::Together(actions) => actions.iter().any(fails_calls),
        _ => false,
    }
}

impl FinalState {
    /// The same without any time in it, as text or as the milliseconds of a mirror.
    #[must_use]
    pub fn without_times(mut self) -> Self {
        fn blank(value: &mut Value) {
            match value {
                Value::String(text) if Timestamp::parse_rfc3339(text).is_some() => "<time>".clone_into(text),
                Value::Array(items) => items.iter_mut().for_each(blank),
                Value::Object(map) => map.values_mut().for_each(blank),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        for object in self.objects.values_mut() {
            blank(object);
            state::mask_mirror_times(object);
        }
        self
    }
}

/// Returns the differences of two final states, in words; of one object at most four places.
pub fn differences(wanted: &FinalState, found: &FinalState) -> Vec<String> {
    let mut differences = Vec::new();
    for (job, phase) in &wanted.phases {
        let have = found.phases.get(job).map_or("nothing", String::as_str);
        if have != phase {
            differences.push(format!("{job} ends as {have}, not {phase}"));
        }
    }
    let addresses: std::collections::BTreeSet<&String> = wanted.objects.keys().chain(found.objects.keys()).collect();
    for address in addresses {
        match (wanted.objects.get(address), found.objects.get(address)) {
            (Some(wanted), Some(found)) if wanted == found => {}
            (Some(wanted), Some(found)) => {
                let mut inside = Vec::new();
                compare(wanted, found, &mut address.clone(), &mut inside);
                differences.extend(inside.into_iter().take(4));
            }
            (Some(_), None) => differences.push(format!("{address} is missing")),
            (None, _) => differences.push(format!("{address} is there")),
        }
    }
    differences
}

/// Every place in which two values differ.
fn compare(wanted: &Value, found: &Value, path: &mut String, differences: &mut Vec<String>) {
    let length = path.len();
    let mut step = |part: &str, wanted: &Value, found: &Value| {
        path.push_str(part);
        compare(wanted, found, path, differences);
        path.truncate(length);
    };
    match (wanted, found) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                step(&format!(".{key}"), &side(a), &side(b));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                step(&format!("[{n}]"), a, b);
            }
        }
        _ if wanted == found => {}
        _ => differences.push(format!("{path}: {found} instead of {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_rightly_differs_is_masked() {
        let object = json!({
            "kind": "X",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "annotations": {"trainyard.dev/x": "1", "k": "v"},
                "ownerReferences": [{"uid": "o", "name": "n"}]},
            "status": {"phase": "P", "trainyard": {"term": 1, "position": 2, "phase": "Running"},
                "conditions": [{"type": "Running", "observedGeneration": 2}]},
        });
        let want = json!({
            "kind": "X",
            "metadata": {"name": "a", "annotations": {"k": "v"}, "ownerReferences": [{"name": "n"}]},
            "status": {"phase": "P", "trainyard": {"phase": "Running"}, "conditions": [{"type": "Running"}]},
        });
        assert_eq!(masked(&object), want);
    }

    #[test]
    fn differences_name_jobs_and_objects() {
        let final_state = |phase: &str, objects: &[(&str, Value)]| FinalState {
            phases: [("j".to_owned(), phase.to_owned())].into(),
            objects: objects.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        };
        let wanted = final_state("Succeed", &[("a", json!({"x": 1})), ("b", json!({}))]);
        let found = final_state("Failed", &[("a", json!({"x": 2, "y": 3})), ("c", json!({}))]);
        let found = differences(&wanted, &found);
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(found[0], "j ends as Failed, not Succeed");
        assert!(differences(&wanted, &wanted).is_empty());
    }
}
