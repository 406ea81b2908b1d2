//! Folding whole records: recovery folds what was decided, replay decides again and compares.

use model::{Event, Position};

use crate::state::{ApplyError, Behaviour, Scope, State};
use crate::wire::Record;

/// A record that does not follow from the ones before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
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
        /// Why.
        source: ApplyError,
    },
}

/// Returns true if a record of the queues decided targets.
fn asks_for_round(facts: &[model::Fact]) -> bool {
    facts.iter().any(|fact| matches!(fact, model::Fact::SchedulingCycle { round: true }))
}

impl State {
    /// Folds a record: its facts, then the events decided from them, by the behaviour it was written with.
    ///
    /// # Errors
    /// Returns an error if it does not follow from the state.
    pub fn fold(&mut self, record: &Record) -> Result<(), FoldError> {
        self.behaviour = Behaviour(record.behaviour);
        let folded = self.fold_as_recorded(record);
        self.behaviour = Behaviour::default();
        folded
    }

    fn fold_as_recorded(&mut self, record: &Record) -> Result<(), FoldError> {
        self.take_facts(record)?;
        for event in &record.events {
            self.apply(&record.scope, event).map_err(|source| FoldError::Apply { at: record.position, source })?;
        }
        if let Scope::Job(key) = &record.scope {
            self.finish_record(key);
        }
        Ok(())
    }

    /// Folds a record's facts and decides again. Returns the events that this build would have recorded.
    ///
    /// # Errors
    /// Returns an error if it does not follow from the state.
    pub fn redecide(&mut self, record: &Record) -> Result<Vec<Event>, FoldError> {
        self.take_facts(record)?;
        Ok(match &record.scope {
            Scope::Cluster => Vec::new(),
            Scope::Queues => crate::queues::step(self, asks_for_round(&record.facts)),
            Scope::Job(key) => crate::decide::step(self, key),
        })
    }

    fn take_facts(&mut self, record: &Record) -> Result<(), FoldError> {
        if record.position != self.stamp.position.next() {
            return Err(FoldError::Gap { have: record.position, after: self.stamp.position });
        }
        self.begin(record.stamp(), record.at);
        for fact in &record.facts {
            self.take_in(&record.scope, fact);
        }
        Ok(())
    }

    /// Takes a fact in; one that cannot be applied puts its job in quarantine, and the others go on.
    pub fn take_in(&mut self, scope: &Scope, fact: &model::Fact) -> crate::state::Dirty {
        self.format = self.format.max(crate::wire::format::of_fact(fact));
        match self.observe(scope, fact) {
            Ok(dirty) => dirty,
            Err(error) => {
                if let Scope::Job(key) = scope
                    && let Some(job) = self.jobs.get_mut(key)
                {
                    job.quarantine = Some(error.to_string().into());
                    job.status_stamp = self.stamp;
                }
                crate::state::Dirty::new()
            }
        }
    }
}
