//! The texts that an API's objects and Events show people, each once: one table for each API.
//!
//! Owns what counts as one text: two that differ in names and numbers only are the same one, shown as the first scenario
//! has it. So a reviewer reads every text, and a change of one changes one line. Which scenario shows which reason is in
//! the snapshots of scenarios. Tests: the tables under `messages/`, compared in `scenarios.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use simulator::ScenarioOutcome;
use simulator::text::OWN_PREFIX;

use crate::summary;

/// Messages under their reason, each under its text without names and numbers.
#[derive(Default)]
pub(crate) struct Messages(BTreeMap<String, BTreeMap<String, String>>);

impl Messages {
    /// Adds the messages that were to be read after any step of a run.
    pub(crate) fn add(&mut self, outcome: &ScenarioOutcome) {
        let objects = || outcome.steps.iter().flat_map(|step| &step.objects);
        let metadata = objects().filter_map(|object| object.get("metadata"));
        let names: BTreeSet<&str> = metadata
            .flat_map(|metadata| ["name", "namespace"].map(|key| metadata.get(key).and_then(Value::as_str)))
            .flatten()
            .collect();
        for event in outcome.steps.iter().flat_map(|step| &step.events) {
            let field = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
            self.insert(field("reason"), field("message"), &names);
        }
        for object in objects() {
            // What pods and nodes say was put there by the scenario.
            if !matches!(object.get("kind").and_then(Value::as_str), Some("Pod" | "Node" | "Namespace")) {
                self.add_nested(object.get("status").unwrap_or(&Value::Null), &names);
            }
            let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
            for (key, value) in annotations.into_iter().flatten().filter(|(key, _)| !key.starts_with(OWN_PREFIX)) {
                if let Some(value) = value.as_str().filter(|value| summary::is_text(value)) {
                    self.insert(&format!("annotation {key}"), value, &names);
                }
            }
        }
    }

    fn add_nested(&mut self, value: &Value, names: &BTreeSet<&str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add_nested(item, names)),
            Value::Object(map) => {
                let field = |key: &str| map.get(key).and_then(Value::as_str);
                if let Some(message) = field("message") {
                    self.insert(field("reason").or_else(|| field("phase")).unwrap_or_default(), message, names);
                }
                map.values().for_each(|item| self.add_nested(item, names));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn insert(&mut self, reason: &str, message: &str, names: &BTreeSet<&str>) {
        if !message.is_empty() {
            let known = self.0.entry(reason.to_owned()).or_default();
            known.entry(shape(message, names)).or_insert_with(|| message.to_owned());
        }
    }

    /// Renders the table: reasons, and below each its messages.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        for (reason, messages) in &self.0 {
            let _ = writeln!(out, "{reason}");
            for message in messages.values() {
                let _ = writeln!(out, "  {message}");
            }
        }
        out
    }
}

/// Returns a message with `#` in place of each name of the run and of each word with a digit.
fn shape(message: &str, names: &BTreeSet<&str>) -> String {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    let mut out = String::new();
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_of_name(c) != is_of_name(first)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        let word = part.trim_end_matches('.');
        let is_variable = names.contains(word) || word.contains(|c: char| c.is_ascii_digit());
        out.push_str(if is_variable { "#" } else { word });
        out.push_str(&part[word.len()..]);
        rest = after;
    }
    out
}
