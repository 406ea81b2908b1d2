//! The lines of a record: what was observed, then what was decided. Tests: `snapshots/tests/logs.rs`, and the golden outputs of
//! `history` and `log show`.

use engine::{Record, Scope, State};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use crate::events::event_words;
use crate::facts::{fact_words, named};

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
    let job = match &record.scope {
        Scope::Job(key) => before.job(key),
        Scope::Cluster | Scope::Queues => None,
    };
    let seen = record.facts.iter().filter_map(|fact| named(job.as_deref(), fact).or_else(|| fact_words(fact)));
    let seen = seen.map(|text| line(false, text));
    let decided = record.events.iter().filter_map(event_words).map(|text| line(true, text));
    seen.chain(decided).collect()
}

/// Returns true if a record is about a job, by namespace and name.
pub fn concerns(record: &Record, namespace: &str, name: &str) -> bool {
    matches!(&record.scope, Scope::Job(key) if &*key.namespace == namespace && &*key.name == name)
}
