//! Replays whole records: recovery applies what was decided; [`State::redecide`] decides again, for a comparison.

use model::{Event, Position, QueueFact};

use crate::events::ApplyError;
use crate::record::{Body, Record};
use crate::state::{Behaviour, State};

/// A record that does not follow from the ones before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Records are missing or out of order.
    #[error("record {have} follows record {after}")]
    Gap {
        /// Position of the record.
        have: Position,
        /// Position of the record before it.
        after: Position,
    },
    /// A recorded event does not fit.
    #[error("record {at}: {source}")]
    Apply {
        /// Position of the record.
        at: Position,
        /// Cause of the error.
        source: ApplyError,
    },
}

impl State {
    /// Replays a record: applies its facts, then the events decided from them, by the behaviour it was written with.
    ///
    /// # Errors
    /// Returns an error if it does not follow from the state.
    pub fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        self.behaviour = Behaviour(record.behaviour);
        let replayed = self.replay_as_recorded(record);
        self.behaviour = Behaviour::default();
        replayed
    }

    fn replay_as_recorded(&mut self, record: &Record) -> Result<(), ReplayError> {
        self.apply_facts(record)?;
        match &record.body {
            Body::Cluster { .. } => {}
            Body::Queues { events, .. } => events.iter().for_each(|event| self.apply_queue_event(event)),
            Body::Job { key, events, .. } => {
                for event in events {
                    let applied = self.apply_job_event(key, event);
                    applied.map_err(|source| ReplayError::Apply { at: record.position, source })?;
                }
                self.finish_record(key);
            }
        }
        Ok(())
    }

    /// Applies a record's facts and decides again. Returns the events that this build would have recorded.
    ///
    /// # Errors
    /// Returns an error if it does not follow from the state.
    pub fn redecide(&mut self, record: &Record) -> Result<Vec<Event>, ReplayError> {
        self.apply_facts(record)?;
        Ok(match &record.body {
            Body::Cluster { .. } => Vec::new(),
            Body::Queues { facts, .. } => {
                let round = facts.iter().any(|fact| matches!(fact, QueueFact::SchedulingCycle { round: true }));
                crate::queues::step(self, round).into_iter().map(Event::Queue).collect()
            }
            Body::Job { key, .. } => crate::decide::step(self, key).into_iter().map(Event::Job).collect(),
        })
    }

    fn apply_facts(&mut self, record: &Record) -> Result<(), ReplayError> {
        if record.position != self.stamp.position.next() {
            return Err(ReplayError::Gap { have: record.position, after: self.stamp.position });
        }
        self.begin(record.stamp(), record.at);
        match &record.body {
            Body::Cluster { facts } => {
                for fact in facts {
                    self.apply_cluster_fact(fact);
                }
            }
            Body::Queues { facts, .. } => facts.iter().for_each(|fact| self.apply_queue_fact(fact)),
            Body::Job { key, facts, .. } => facts.iter().for_each(|fact| self.apply_job_fact(key, fact)),
        }
        Ok(())
    }
}
