//! The records that led to the present state of a job, cause before effect. Decides nothing. Tests: at the end of this file,
//! `snapshots/tests/logs.rs`, and the golden outputs of `explain`.

use std::collections::BTreeMap;

use engine::Record;
use model::command::Outcome;
use model::{JobEvent, JobFact, PodPhase};

use crate::events::job_event_words;
use crate::facts::{job_fact_words, pod_words};
use crate::timeline::Line;

/// The lines that led to the present state of a job: the records that matter, cause before effect.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    lines: Vec<Line>,
    /// The line that first showed the failure, loss or end of each pod.
    ends: BTreeMap<String, Line>,
}

/// Maximum number of lines kept while a chain is built: enough for every restart and phase of a present attempt.
const MAX_CHAIN: usize = 64;

impl Chain {
    /// Adds the next record of the job.
    pub fn take(&mut self, record: &Record) {
        for fact in record.job_facts() {
            if let JobFact::Pod(pod) = fact
                && (pod.phase.is_terminal() || pod.phase == PodPhase::Unknown || !pod.failures().is_empty())
            {
                let line = Line { position: record.position, at: record.at, decided: false, text: pod_words(pod) };
                self.ends.insert(pod.slot.as_ref().map_or_else(|| pod.name.to_string(), ToString::to_string), line);
            }
        }
        let notable = |fact: &&JobFact| {
            matches!(fact, JobFact::Adopted(_) | JobFact::NodeChanged { .. } | JobFact::Spec(_) | JobFact::Gone)
                || matches!(fact, JobFact::Object(job) if job.deleting || !job.end_requests.is_empty())
                || matches!(fact, JobFact::Answered { outcome: Outcome::Refused { .. } | Outcome::Taken { .. }, .. })
        };
        for text in record.job_facts().iter().filter(notable).filter_map(|fact| job_fact_words(None, fact)) {
            self.push(Line { position: record.position, at: record.at, decided: false, text });
        }
        // Words of a decision of this record: a change of phase that repeats them says the rest alone.
        let mut known = None;
        for event in record.job_events() {
            if let JobEvent::Decided(decision) = event {
                known = Some(&*decision.cause().message);
                let seen: Vec<Line> =
                    decision.cause().slots.iter().filter_map(|slot| self.ends.remove(&slot.to_string())).collect();
                for line in seen {
                    self.push(line);
                }
            }
            let leads = matches!(
                event,
                JobEvent::Decided(_)
                    | JobEvent::RestartCleared
                    | JobEvent::Ended { .. }
                    | JobEvent::PhaseChanged { .. }
            );
            if let Some(text) = job_event_words(event).filter(|_| leads) {
                let repeats = matches!(event, JobEvent::PhaseChanged { .. });
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

    /// Returns the lines, oldest first.
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
