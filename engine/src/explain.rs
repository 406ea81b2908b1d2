//! A job's life in words: what came in, what was decided from it, why it is where it is, and what it waits for.
//!
//! | module | subject |
//! |---|---|
//! | [`facts`] | facts in words |
//! | [`events`] | events in words |
//! | [`waits`] | what a job waits for |
//! | [`difference`] | what is known at one position and not at another |
//!
//! Reads records and state; decides nothing. `cli` prints what is made here.

mod difference;
mod events;
mod facts;
mod waits;

use std::collections::BTreeMap;

use model::command::Outcome;
use model::{Event, Fact, PodPhase, Position, Timestamp};

pub use self::difference::differences;
pub use self::events::{event_words, share_words};
pub use self::facts::fact_words;
use self::facts::{named, pod_words};
pub use self::waits::{refusals, waits_for};
use crate::state::{Scope, State};
use crate::wire::Record;

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The record it comes from.
    pub position: Position,
    /// When.
    pub at: Timestamp,
    /// Set if it was decided (rather than seen).
    pub decided: bool,
    /// In words.
    pub text: String,
}

/// The lines of one record: first what came in, then what was decided. `before` is the state it came upon: it knows names.
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

/// Why a job is in the state it is in: the records that matter, cause before effect.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    lines: Vec<Line>,
    /// Record that first showed the failure, loss or end of each pod.
    ends: BTreeMap<String, Line>,
}

/// Lines kept while a chain is built: enough for every restart and phase of a present attempt.
const MAX_CHAIN: usize = 64;

impl Chain {
    /// Takes one more record of the job in.
    pub fn take(&mut self, record: &Record) {
        for fact in &record.facts {
            if let Fact::Pod(pod) = fact
                && (pod.phase.is_terminal() || pod.phase == PodPhase::Unknown || !pod.failures().is_empty())
            {
                let line = Line { position: record.position, at: record.at, decided: false, text: pod_words(pod) };
                self.ends.insert(pod.slot.as_ref().map_or_else(|| pod.name.to_string(), ToString::to_string), line);
            }
        }
        let notable = |fact: &&Fact| {
            matches!(fact, Fact::Adopted(_) | Fact::NodeChanged { .. } | Fact::Spec(_) | Fact::JobGone)
                || matches!(fact, Fact::Job(job) if job.deleting || !job.end_requests.is_empty())
                || matches!(fact, Fact::Answered { outcome: Outcome::Refused { .. } | Outcome::Taken { .. }, .. })
        };
        for text in record.facts.iter().filter(notable).filter_map(fact_words) {
            self.push(Line { position: record.position, at: record.at, decided: false, text });
        }
        // Words of a decision of this record: a change of phase that repeats them says the rest alone.
        let mut known = None;
        for event in &record.events {
            if let Event::Decided(decision) = event {
                known = Some(&*decision.cause().message);
                let seen: Vec<Line> =
                    decision.cause().slots.iter().filter_map(|slot| self.ends.remove(&slot.to_string())).collect();
                for line in seen {
                    self.push(line);
                }
            }
            let tells = matches!(
                event,
                Event::Decided(_) | Event::RestartCleared | Event::Ended { .. } | Event::PhaseChanged { .. }
            );
            if let Some(text) = event_words(event).filter(|_| tells) {
                let repeats = matches!(event, Event::PhaseChanged { .. });
                let text = known.filter(|_| repeats).map_or_else(|| text.clone(), |known| without(&text, known));
                self.push(Line { position: record.position, at: record.at, decided: true, text });
            }
        }
    }

    fn push(&mut self, line: Line) {
        if self.lines.len() >= MAX_CHAIN {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }

    /// The chain, oldest first.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// Returns a text without words that are known, and without what joined them to the rest.
fn without(text: &str, known: &str) -> String {
    match text.split_once(known).filter(|_| !known.is_empty()) {
        Some((before, after)) => {
            let (before, after) = (before.trim_end_matches([':', ' ']), after.trim_start_matches([';', ' ']));
            if after.is_empty() { before.to_owned() } else { format!("{before}: {after}") }
        }
        None => text.to_owned(),
    }
}

/// Returns true if a record is about a job, by namespace and name.
pub fn concerns(record: &Record, namespace: &str, name: &str) -> bool {
    matches!(&record.scope, Scope::Job(key) if &*key.namespace == namespace && &*key.name == name)
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_change_of_phase_does_not_repeat_its_cause() {
        assert_eq!(
            without("phase Terminating: pod p failed; deleting pods", "pod p failed"),
            "phase Terminating: deleting pods"
        );
        assert_eq!(
            without("phase T: restart 1 of w: pod p failed; deleting p", "pod p failed"),
            "phase T: restart 1 of w: deleting p"
        );
        assert_eq!(without("phase Failed: pod p failed", "pod p failed"), "phase Failed");
        assert_eq!(without("phase Failed: ended", "pod p failed"), "phase Failed: ended");
        assert_eq!(without("phase Failed", ""), "phase Failed");
    }
}
