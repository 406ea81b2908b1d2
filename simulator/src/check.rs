//! Comparing a run with what its scenario expects.
//!
//! Owns the meaning of every member of `expect`. Reports all that differs, not only the first. Tests: at the end of this
//! file.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::Verb;
use serde_json::Value;

use crate::expect::{Checks, Phases};
use crate::pattern;
use crate::report::command_kind;
use crate::runner::{Error, ScenarioOutcome};
use crate::scenario::{DEFAULT_NAMESPACE, Scenario};
use crate::simulation::ExecutedCall;
use crate::state;
use crate::text::{grace_words, restart_count};

/// Returns the differences between a run and its scenario's expectations, in words.
pub fn failures(scenario: &Scenario, run: &Result<ScenarioOutcome, Error>) -> Vec<String> {
    let mut found = Vec::new();
    match (run, &scenario.expect.error) {
        (Err(error), Some(wanted)) => {
            let text = error.to_string();
            match error {
                Error::Step { step, .. } if *step == wanted.step => {}
                _ => found.push(format!("wanted step {} to fail, got: {text}", wanted.step)),
            }
            let missing = wanted.says.iter().filter(|words| !text.contains(words.as_str()));
            found.extend(missing.map(|words| format!("the error does not say {words:?}: {text}")));
        }
        (Err(error), None) => found.push(error.to_string()),
        (Ok(_), Some(wanted)) => found.push(format!("step {} did not fail", wanted.step)),
        (Ok(outcome), None) => check_outcome(scenario, outcome, &mut found),
    }
    found
}

fn check_outcome(scenario: &Scenario, outcome: &ScenarioOutcome, found: &mut Vec<String>) {
    found.extend(outcome.violations.iter().map(|violation| format!("audit: {violation}")));
    match &scenario.expect.phases {
        None => {}
        Some(Phases::Only(wanted)) => {
            let jobs: Vec<_> = outcome.phases.iter().collect();
            match jobs.as_slice() {
                [] => check_phases("the job", wanted, &[], found),
                [(job, phases)] => check_phases(job, wanted, phases, found),
                _ => found.push(format!("phases: several jobs, say which: {:?}", outcome.phases.keys())),
            }
        }
        Some(Phases::ByJob(jobs)) => {
            for (job, wanted) in jobs {
                let name = if job.contains('/') { job.clone() } else { format!("{DEFAULT_NAMESPACE}/{job}") };
                check_phases(&name, wanted, outcome.phases.get(&name).map_or(&[], Vec::as_slice), found);
            }
        }
    }
    for (number, checks) in &scenario.expect.steps {
        let Some(step) = outcome.steps.get(*number) else {
            found.push(format!("step {number}: there is no such step"));
            continue;
        };
        let view =
            View { done: step.commands.iter().collect(), events: step.events.iter().collect(), objects: &step.objects };
        check(checks, &view, &format!("step {number}"), found);
        if let Some(most) = checks.most_stops
            && step.wakes > most
        {
            found.push(format!("step {number}: time stopped {} times, wanted at most {most}", step.wakes));
        }
    }
    let view = View {
        done: outcome.steps.iter().flat_map(|step| &step.commands).collect(),
        events: outcome.steps.iter().flat_map(|step| &step.events).collect(),
        objects: &outcome.objects,
    };
    check(&scenario.expect.last, &view, "end", found);
}

fn check_phases(job: &str, wanted: &[String], phases: &[String], found: &mut Vec<String>) {
    if !phases_fit(wanted, phases) {
        found.push(format!("phases of {job}: wanted {}, found {}", wanted.join(", "), phases.join(", ")));
    }
}

/// Returns whether phases are as wanted, where a wanted phase in parentheses may be missing.
pub fn phases_fit(wanted: &[String], phases: &[String]) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return phases.is_empty() };
    let optional = first.strip_prefix('(').and_then(|w| w.strip_suffix(')'));
    let taken = phases.split_first().filter(|(phase, _)| *phase == optional.unwrap_or(first));
    taken.is_some_and(|(_, left)| phases_fit(rest, left)) || (optional.is_some() && phases_fit(rest, phases))
}

/// Part of a run that is checked: a step, or the whole run.
struct View<'a> {
    done: Vec<&'a ExecutedCall>,
    events: Vec<&'a Arc<Value>>,
    objects: &'a [Arc<Value>],
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn address(namespace: &str, name: &str) -> String {
    if matches!(namespace, "" | DEFAULT_NAMESPACE) { name.to_owned() } else { format!("{namespace}/{name}") }
}

impl View<'_> {
    fn calls(&self, verb: Verb, kind: &str) -> Vec<String> {
        let calls = self.done.iter().filter(|done| done.call.verb == verb && &*done.call.resource.kind == kind);
        let mut names: Vec<String> = calls
            .map(|done| {
                let call = &done.call;
                let name = address(&call.namespace, &call.name);
                let count = call.body.as_ref().filter(|_| kind == "Pod").and_then(restart_count);
                count.map_or_else(|| format!("{name}{}", grace_words(call)), |count| format!("{name}#{count}"))
            })
            .collect();
        names.sort_unstable();
        names
    }

    fn of_kind(&self, kind: &str) -> Vec<String> {
        let objects = self.objects.iter().filter(|object| text(object, "/kind") == kind);
        let mut names: Vec<String> = objects
            .map(|object| {
                let name = address(text(object, "/metadata/namespace"), text(object, "/metadata/name"));
                let count =
                    restart_count(object).filter(|_| kind == "Pod").map(|c| format!("#{c}")).unwrap_or_default();
                let leaving = object.pointer("/metadata/deletionTimestamp").map_or("", |_| " terminating");
                format!("{name}{count}{leaving}")
            })
            .collect();
        names.sort_unstable();
        names
    }

    fn object(&self, kind_and_name: &str) -> Option<&Value> {
        let (kind, name) = kind_and_name.split_once('/')?;
        self.objects
            .iter()
            .find(|object| {
                text(object, "/kind") == kind
                    && address(text(object, "/metadata/namespace"), text(object, "/metadata/name")) == name
            })
            .map(|object| &**object)
    }

    /// The job checks are about: the named one, or the only one.
    fn job(&self, named: Option<&str>) -> Option<&Value> {
        let served = apis::Registry::all();
        let mut jobs = self.objects.iter().filter(|object| {
            served.get(&apis::Resource::of(object)).is_some()
                && named.is_none_or(|name| {
                    address(text(object, "/metadata/namespace"), text(object, "/metadata/name")) == name
                })
        });
        let first = jobs.next()?;
        if jobs.next().is_some() { None } else { Some(first) }
    }
}

fn check(checks: &Checks, view: &View<'_>, place: &str, found: &mut Vec<String>) {
    let lists = [
        ("created", &checks.created, view.calls(Verb::Create, "Pod")),
        ("deleted", &checks.deleted, view.calls(Verb::Delete, "Pod")),
        ("createdServices", &checks.created_services, view.calls(Verb::Create, "Service")),
        ("deletedServices", &checks.deleted_services, view.calls(Verb::Delete, "Service")),
        ("pods", &checks.pods, view.of_kind("Pod")),
        ("services", &checks.services, view.of_kind("Service")),
    ];
    for (what, wanted, actual) in lists {
        let Some(wanted) = wanted else { continue };
        let mut wanted = wanted.clone();
        wanted.sort_unstable();
        if wanted != actual {
            found.push(format!("{place}: {what}: wanted [{}], found [{}]", wanted.join(", "), actual.join(", ")));
        }
    }
    if let Some(wanted) = &checks.commands {
        let shown = |done: &&ExecutedCall| {
            format!("{} {}", command_kind(&done.call), address(&done.call.namespace, &done.call.name))
        };
        let actual: Vec<String> = view.done.iter().map(shown).collect();
        if *wanted != actual {
            found.push(format!("{place}: commands: wanted [{}], found [{}]", wanted.join(", "), actual.join(", ")));
        }
    }
    for (reason, wanted) in &checks.events {
        let actual = view.events.iter().filter(|event| text(event, "/reason") == reason).count();
        if actual != *wanted {
            found.push(format!("{place}: events {reason}: wanted {wanted}, found {actual}"));
        }
    }
    for (name, wanted) in &checks.objects {
        let differences = pattern::differences(wanted, view.object(name));
        found.extend(differences.into_iter().map(|d| format!("{place}: {name}{d}")));
    }
    check_job(checks, view, place, found);
}

fn check_job(checks: &Checks, view: &View<'_>, place: &str, found: &mut Vec<String>) {
    let asks = checks.phase.is_some()
        || checks.state.is_some()
        || checks.restarts.is_some()
        || checks.counters.is_some()
        || checks.status.is_some()
        || !checks.message.is_empty()
        || !checks.conditions.is_empty();
    if !asks {
        return;
    }
    let Some(job) = view.job(checks.job.as_deref()) else {
        found.push(format!("{place}: no such job, or several: {:?}", checks.job));
        return;
    };
    let status = job.get("status");
    if let Some(wanted) = &checks.phase {
        let actual = text(job, "/status/phase");
        if wanted != actual {
            found.push(format!("{place}: phase: wanted {wanted:?}, found {actual:?}"));
        }
    }
    if let Some(wanted) = &checks.state {
        let actual = state::word(job);
        if wanted != actual {
            found.push(format!("{place}: state: wanted {wanted:?}, found {actual:?}"));
        }
    }
    if let Some(wanted) = &checks.restarts {
        check_numbers(wanted, state::restarts(job), &format!("{place}: restarts"), found);
    }
    for (group, wanted) in checks.counters.iter().flatten() {
        let actual = state::counters(job, group);
        check_numbers(wanted, actual, &format!("{place}: counters of {group}"), found);
    }
    if let Some(wanted) = &checks.status {
        let differences = pattern::differences(wanted, status);
        found.extend(differences.into_iter().map(|d| format!("{place}: status{d}")));
    }
    let empty = Vec::new();
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array).unwrap_or(&empty);
    if !checks.message.is_empty() {
        let state = state::word(job);
        let current = conditions.iter().rev().find(|c| text(c, "/type") == state).map_or("", |c| text(c, "/message"));
        let missing = checks.message.iter().filter(|words| !current.contains(words.as_str()));
        found.extend(missing.map(|words| format!("{place}: message: wanted {words:?} in {current:?}")));
    }
    for (kind, words) in &checks.conditions {
        let condition = conditions.iter().find(|c| text(c, "/type") == kind && text(c, "/status") == "True");
        let (words, condition) = match (words, condition) {
            (Some(words), Some(condition)) => (words, condition),
            (None, None) => continue,
            (Some(_), None) => {
                found.push(format!("{place}: there is no condition {kind}"));
                continue;
            }
            (None, Some(condition)) => {
                found.push(format!("{place}: there is a condition {kind}: {:?}", text(condition, "/message")));
                continue;
            }
        };
        let message = text(condition, "/message");
        let missing = words.iter().filter(|words| !message.contains(words.as_str()));
        found.extend(missing.map(|words| format!("{place}: condition {kind}: wanted {words:?} in {message:?}")));
    }
}

/// Every number as wanted; one that is not shown is 0, and one that is not wanted must be 0.
fn check_numbers(wanted: &BTreeMap<String, u64>, actual: Option<&Value>, what: &str, found: &mut Vec<String>) {
    let shown = actual.and_then(Value::as_object);
    let keys = shown.into_iter().flat_map(|map| map.keys()).chain(wanted.keys());
    let differs = keys.into_iter().any(|key| {
        let have = shown.and_then(|map| map.get(key)).and_then(Value::as_u64).unwrap_or_default();
        have != wanted.get(key).copied().unwrap_or_default()
    });
    if differs {
        let shown = actual.map_or_else(|| "nothing".to_owned(), ToString::to_string);
        found.push(format!("{what}: wanted {wanted:?}, found {shown}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn phases_in_parentheses_may_be_missing() {
        for (wanted, phases, fits) in [
            (&["A", "B"][..], &["A", "B"][..], true),
            (&["A", "(B)", "C"], &["A", "C"], true),
            (&["A", "(B)", "C"], &["A", "B", "C"], true),
            (&["(A)", "(B)", "(A)"], &["A"], true),
            (&["A", "(B)", "C"], &["A", "B"], false),
            (&["A"], &[], false),
            (&[], &["A"], false),
            (&["A", "B"], &["B", "A"], false),
        ] {
            assert_eq!(phases_fit(&list(wanted), &list(phases)), fits, "{wanted:?} {phases:?}");
        }
    }

    #[test]
    fn numbers_that_are_not_shown_are_zero() {
        let check = |wanted: Value, actual: Value| {
            let mut found = Vec::new();
            check_numbers(&serde_json::from_value(wanted).unwrap(), Some(&actual), "x", &mut found);
            found.is_empty()
        };
        assert!(check(json!({"a": 0, "b": 1}), json!({"b": 1})));
        assert!(check(json!({}), json!({"b": 0})));
        assert!(!check(json!({}), json!({"b": 1})));
        assert!(!check(json!({"a": 2}), json!({"a": 1})));
    }

    #[test]
    fn everything_that_differs_is_reported() {
        let job = json!({
            "apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "default"},
            "status": {"phase": "Failed", "RestartCount": {"t": 1}, "conditions": [
                {"type": "Invalid", "status": "True", "message": "spec.x"},
                {"type": "Failed", "status": "True", "message": "pod j-t-0"}]},
        });
        let pod = json!({"kind": "Pod", "metadata": {"name": "j-t-0", "namespace": "default", "labels": {"RestartCount": "1"}}});
        let objects = [Arc::new(job), Arc::new(pod)];
        let view = View { done: vec![], events: vec![], objects: &objects };
        let run = |checks: Value| {
            let mut found = Vec::new();
            check(&serde_json::from_value(checks).unwrap(), &view, "end", &mut found);
            found
        };
        let good = json!({"phase": "Failed", "state": "Failed", "restarts": {"t": 1}, "pods": ["j-t-0#1"], "message": ["j-t-0"], "created": [],
            "conditions": {"Invalid": ["spec"], "Degraded": null}, "objects": {"Pod/j-t-0": {"kind": "Pod"}, "Pod/j-t-1": null}, "commands": [],
            "status": {"phase": "<set>"}, "events": {"X": 0}});
        assert_eq!(run(good), Vec::<String>::new());
        let bad = json!({"phase": "Succeed", "state": "", "restarts": {"t": 2}, "pods": [], "message": ["j-t-1"], "created": ["x"],
            "conditions": {"Invalid": ["spec.y"], "NameTaken": [], "Failed": null}, "objects": {"Pod/j-t-0": null}, "commands": ["CreatePod x"],
            "status": {"phase": "<absent>"}, "events": {"X": 1}, "counters": {"t": {"active": 1}}});
        assert_eq!(run(bad).len(), 14);
        assert_eq!(run(json!({"job": "k", "phase": ""})), ["end: no such job, or several: Some(\"k\")"]);
    }
}
