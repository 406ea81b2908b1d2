//! The lines of a record: what was observed, then what was decided. Tests: `snapshots/tests/logs.rs`, and the golden outputs of
//! `history` and `log show`.

use engine::{Body, Record, State};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use crate::events::{job_event_words, queue_event_words};
use crate::facts::{cluster_fact_words, job_fact_words};

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Position of its record.
    pub position: Position,
    /// Time of its record.
    pub at: Timestamp,
    /// Set if it was decided (rather than seen).
    pub decided: bool,
    /// The fact or decision as text.
    pub text: String,
}

impl Line {
    /// Returns the line as an object.
    pub fn to_json(&self) -> Value {
        json!({"position": self.position, "at": self.at.to_rfc3339(), "decided": self.decided, "text": self.text})
    }
}

/// Returns the lines of a record: first its facts, then its decisions. `before`: the state before the record, which knows names.
pub fn lines(record: &Record, before: &State) -> Vec<Line> {
    let line = |decided: bool, text: String| Line { position: record.position, at: record.at, decided, text };
    let (seen, decided): (Vec<String>, Vec<String>) = match &record.body {
        Body::Cluster { facts } => (facts.iter().filter_map(cluster_fact_words).collect(), Vec::new()),
        // What begins a cycle is bookkeeping.
        Body::Queues { events, .. } => (Vec::new(), events.iter().filter_map(queue_event_words).collect()),
        Body::Job { key, facts, events } => {
            let job = before.job(key);
            let words = |fact| job_fact_words(job.as_deref(), fact);
            (facts.iter().filter_map(words).collect(), events.iter().filter_map(job_event_words).collect())
        }
    };
    let seen = seen.into_iter().map(|text| line(false, text));
    let decided = decided.into_iter().map(|text| line(true, text));
    seen.chain(decided).collect()
}

/// Returns true if a record is about a job, by namespace and name.
pub fn concerns(record: &Record, namespace: &str, name: &str) -> bool {
    record.job().is_some_and(|key| &*key.namespace == namespace && &*key.name == name)
}
