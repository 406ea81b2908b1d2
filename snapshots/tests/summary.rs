//! A run as reviewers read it: the steps, the phases, calls and counts that they led to, and how things stand at the end.
//!
//! Owns the form of a scenario's snapshot. Texts of messages are not in it: they lie in one table of each API, see
//! `messages.rs`. What is alike side by side shares a line: calls of one kind, Events of one reason, pods in one state.
//! A `!` behind calls stands for the Event `SuccessfulCreatePod` or alike that each of them has. Fields of a status that are
//! zero or empty are left out, and a condition's reason that ends in its type.
//! The long form, which `trainyard scenario` prints, is `simulator::text::render`. Tests: every snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use apis::Verb;
use model::json::canonical;
use serde_json::Value;
use simulator::runner::StepOutcome;
use simulator::simulation::ExecutedCall;
use simulator::text::{self, OWN_PREFIX};
use simulator::{Scenario, ScenarioOutcome};

/// Renders a run.
pub(crate) fn of(scenario: &Scenario, outcome: &ScenarioOutcome) -> String {
    let mut out = format!("{}\n", scenario.description.trim_end());
    let mut entered: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (number, (step, led_to)) in scenario.steps.iter().zip(&outcome.steps).enumerate() {
        let _ = writeln!(out, "{number} {}", text::describe(&step.action).trim_end());
        for (job, phases) in &led_to.phases {
            let _ = writeln!(out, "  {job}: {}", phases.join(", "));
            entered.entry(job).or_default().extend(phases.iter().cloned());
        }
        let mut reasons = reasons(led_to);
        out.extend(calls(&led_to.commands, &mut reasons).into_lines());
        let reasons = reasons.into_iter();
        let shown = reasons.map(|(reason, times)| if times > 1 { format!("{times} {reason}") } else { reason });
        let line = shown.collect::<Vec<_>>().join(", ");
        if !line.is_empty() {
            let _ = writeln!(out, "  ! {line}");
        }
    }
    out.push_str("end\n");
    // Mostly the steps say it already.
    for (job, phases) in outcome.phases.iter().filter(|(job, phases)| entered.get(job) != Some(phases)) {
        let _ = writeln!(out, "  {job}: {}", phases.join(", "));
    }
    let mut alike = Alike::default();
    for object in &outcome.objects {
        let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let kind = field("/kind");
        let name = match field("/metadata/namespace") {
            "" | "default" => field("/metadata/name").to_owned(),
            namespace => format!("{namespace}/{}", field("/metadata/name")),
        };
        if !matches!(kind, "Node" | "Namespace") {
            alike.add(&format!("  {kind} "), name, &state(kind, object));
        }
    }
    out.extend(alike.into_lines());
    out
}

/// Lines that differ in one name only, side by side.
#[derive(Default)]
struct Alike(Vec<(String, Vec<String>, String)>);

impl Alike {
    fn add(&mut self, before: &str, name: String, after: &str) {
        match self.0.last_mut() {
            Some((known, names, rest)) if known == before && rest == after => names.push(name),
            _ => self.0.push((before.to_owned(), vec![name], after.to_owned())),
        }
    }

    fn into_lines(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(before, names, after)| format!("{before}{}{after}\n", ranges(&names)))
    }
}

/// Returns names side by side; `p-0..3` stands for `p-0 p-1 p-2 p-3`.
fn ranges(names: &[String]) -> String {
    let numbered = |name: &str| {
        let (stem, number) = name.rsplit_once('-')?;
        Some((stem.to_owned(), number.parse::<u64>().ok()?))
    };
    let mut runs: Vec<(&String, u64)> = Vec::new();
    for name in names {
        let follows = |(first, more): &(&String, u64)| {
            let (stem, number) = numbered(first)?;
            Some(numbered(name)? == (stem, number + more + 1))
        };
        match runs.last_mut() {
            Some(run) if follows(run) == Some(true) => run.1 += 1,
            _ => runs.push((name, 0)),
        }
    }
    let shown = runs.into_iter().map(|(first, more)| match numbered(first) {
        Some((_, number)) if more > 0 => format!("{first}..{}", number + more),
        _ => first.clone(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Creations and deletions in their order, then patches with their number. Takes out the reasons of Events of which each call
/// of a kind has one.
fn calls(commands: &[ExecutedCall], reasons: &mut Vec<(String, usize)>) -> Alike {
    let mut reported = BTreeSet::new();
    for (verb, action) in [(Verb::Create, "Create"), (Verb::Delete, "Delete")] {
        let of_verb = || commands.iter().filter(|done| done.call.verb == verb);
        for kind in of_verb().map(|done| &*done.call.resource.kind).collect::<BTreeSet<_>>() {
            let times = of_verb().filter(|done| &*done.call.resource.kind == kind).count();
            let event = (format!("Successful{action}{kind}"), times);
            if let Some(at) = reasons.iter().position(|known| *known == event) {
                reasons.remove(at);
                reported.insert((verb == Verb::Create, kind));
            }
        }
    }
    let mut alike = Alike::default();
    let mut patches: Vec<(&str, &str, u32)> = Vec::new();
    for done in commands {
        let (kind, name) = (&*done.call.resource.kind, &*done.call.name);
        if matches!(done.call.verb, Verb::Patch | Verb::PatchStatus | Verb::ApplyStatus) {
            match patches.iter_mut().find(|(known, of, _)| *known == kind && *of == name) {
                Some((_, _, times)) => *times += 1,
                None => patches.push((kind, name, 1)),
            }
            continue;
        }
        let is_creation = done.call.verb == Verb::Create;
        let sign = if is_creation { '+' } else { '-' };
        let count = done.call.body.as_ref().and_then(text::restart_count);
        let mut after = count.map(|count| format!(" #{count}")).unwrap_or_default();
        after.push_str(&text::grace_words(&done.call));
        if done.attempts > 1 {
            let _ = write!(after, " (attempt {})", done.attempts);
        }
        if reported.contains(&(is_creation, kind)) {
            after.push_str(" !");
        }
        alike.add(&format!("  {sign} {kind} "), name.to_owned(), &after);
    }
    for (kind, name, times) in patches {
        let after = if times > 1 { format!(" ({times} times)") } else { String::new() };
        alike.add(&format!("  ~ {kind} "), name.to_owned(), &after);
    }
    alike
}

/// Reasons of the Events with their numbers, in the order in which each was written first; a Normal one has no type in front.
fn reasons(step: &StepOutcome) -> Vec<(String, usize)> {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for event in &step.events {
        let field = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let reason = match field("type") {
            "Normal" => field("reason").to_owned(),
            other => format!("{other} {}", field("reason")),
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, times)) => *times += 1,
            None => reasons.push((reason, 1)),
        }
    }
    reasons
}

/// Renders the state behind an object's name: of a pod, its phase and node; of another object, lines of status and annotations.
fn state(kind: &str, object: &Value) -> String {
    let mut out = String::new();
    let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let leaving = if object.pointer("/metadata/deletionTimestamp").is_some() { " terminating" } else { "" };
    if kind == "Pod" {
        let count = text::restart_count(object).map(|count| format!(" #{count}")).unwrap_or_default();
        let node = field("/spec/nodeName");
        let on = if node.is_empty() { "" } else { " on " };
        let _ = write!(out, "{count} {}{on}{node}{leaving}", field("/status/phase"));
        let restarts = text::container_restarts(object);
        if restarts > 0 {
            let _ = write!(out, ", containers restarted {restarts} times");
        }
        return out;
    }
    out.push_str(leaving);
    let Some(status) = object.get("status").and_then(Value::as_object).filter(|_| kind != "Service") else {
        return out;
    };
    let fields: BTreeMap<&String, Value> = (status.iter())
        .filter(|(key, _)| !matches!(key.as_str(), "conditions" | "trainyard" | "message"))
        .map(|(key, value)| (key, without_messages(&text::relative(value))))
        .collect();
    for (key, value) in fields.into_iter().filter(|(_, value)| !is_empty(value)) {
        let _ = write!(out, "\n    {key}: {}", value.as_str().map_or_else(|| canonical(&value), str::to_owned));
    }
    for condition in status.get("conditions").and_then(Value::as_array).into_iter().flatten().map(text::relative) {
        let word = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        let reason = if word("reason").ends_with(word("type")) { "" } else { word("reason") };
        let words = [word("type"), word("status"), reason, word("lastTransitionTime")];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let _ = write!(out, "\n    {}", words.join(" "));
    }
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    for (key, value) in annotations.filter(|(key, _)| !key.starts_with(OWN_PREFIX)) {
        let value = value.as_str().filter(|value| !is_text(value)).unwrap_or_default();
        let _ = write!(out, "\n    annotation {key}: {value}");
        out.truncate(out.trim_end().len());
    }
    out
}

/// Returns true for an annotation's value that is a sentence for people.
pub(crate) fn is_text(value: &str) -> bool {
    value.contains(' ') && !value.starts_with(['{', '['])
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn without_messages(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_messages).collect(),
        Value::Object(map) => {
            let fields = map.iter().filter(|(key, _)| *key != "message");
            fields.map(|(key, value)| (key.clone(), without_messages(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
