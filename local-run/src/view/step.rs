//! One step of progress: a line for people, and an event for programs.
//!
//! Owns both forms. It must not know when a step is reported. Tests: `cli/tests/local/events.rs`.

use model::{JobKey, Timestamp};
use serde_json::{Value, json};
use terminal::out;

/// One line of progress.
pub(crate) struct Step {
    /// True if it belongs to what was printed before it.
    is_detail: bool,
    text: String,
    event: Value,
}

impl Step {
    /// A job has come to a phase.
    pub(super) fn phase(key: &JobKey, word: &str, message: &str) -> Self {
        let separator = if message.is_empty() { "" } else { ": " };
        let event =
            json!({"event": "phase", "job": key.to_string(), "kind": &*key.kind, "phase": word, "message": message});
        Self { is_detail: false, text: format!("{key}  {word}{separator}{message}"), event }
    }

    /// Something else about a job.
    pub(super) fn job(key: &JobKey, words: &str) -> Self {
        let event = json!({"event": "job", "job": key.to_string(), "kind": &*key.kind, "message": words});
        Self { is_detail: false, text: format!("{key}  {words}"), event }
    }

    /// A pod has changed; its name has its namespace before it.
    pub(super) fn pod(name: &str, words: &str) -> Self {
        let short = name.rsplit('/').next().unwrap_or(name);
        let event = json!({"event": "pod", "pod": name, "message": words});
        Self { is_detail: true, text: format!("pod {short} {words}"), event }
    }

    /// What can be done about what was printed before.
    pub(super) fn advice(words: &str) -> Self {
        Self { is_detail: true, text: words.to_owned(), event: json!({"event": "message", "message": words}) }
    }

    /// A message of the run.
    pub(super) fn message(words: &str) -> Self {
        Self { is_detail: false, text: words.to_owned(), event: json!({"event": "message", "message": words}) }
    }

    /// A line that a pod wrote.
    pub(super) fn output(pod: &str, line: &str) -> Self {
        let event = json!({"event": "output", "pod": pod, "line": line});
        Self { is_detail: true, text: format!("{pod} | {line}"), event }
    }

    /// Returns the line, with its end.
    pub(super) fn line(&self, age: &str) -> String {
        let indent = if self.is_detail { "    " } else { "  " };
        format!("{age}{indent}{}\n", self.text)
    }

    /// Returns the event.
    pub(super) fn to_json(&self, at: Timestamp) -> Value {
        let mut event = self.event.clone();
        event["at"] = out::instant(at).into();
        event
    }
}
