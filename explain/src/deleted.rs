//! Jobs whose objects were deleted, found in the records of a log: its state holds no job of which nothing is left.
//!
//! Owns which jobs a log shows as deleted, and how one of them is listed. Tests: `cli/tests/local/deleted.rs`.

use apis::Registry;
use engine::{Job, Record, State};
use model::{JobFact, JobKey, Timestamp};

use crate::phases::{DELETED, end_word};
use crate::row::Row;

/// A job that was deleted, as it was before its last record.
#[derive(Debug)]
pub struct Deleted {
    /// The job.
    pub key: JobKey,
    /// Its state before its last record.
    pub job: Job,
    /// Time of that record.
    pub at: Timestamp,
}

impl Deleted {
    /// Returns its row in a list of jobs.
    pub fn row(&self, state: &State) -> Row {
        let row = Row::new(state, &self.key, &self.job);
        Row {
            phase: DELETED.to_owned(),
            ready: 0,
            ended: self.job.ended_at.or(Some(self.at)),
            reason: self.last_words(),
            ..row
        }
    }

    /// Returns the phase that it was in, and why.
    pub fn last_words(&self) -> String {
        let word = end_word(&Registry::all(), &self.key, self.job.phase);
        let why = self.job.milestones.back().map(|milestone| &*milestone.message).filter(|why| !why.is_empty());
        why.map_or_else(|| format!("it was {word}"), |why| format!("it was {word}: {why}"))
    }
}

/// Collects the deleted jobs from the records of a log.
#[derive(Debug, Default)]
pub struct Deletions {
    found: Vec<Deleted>,
    /// The job of the record before, if its object is gone: it is deleted once the state has forgotten it.
    last: Option<Deleted>,
}

impl Deletions {
    /// Adds the next record. `before`: the state before it.
    pub fn take(&mut self, before: &State, record: &Record) {
        self.settle(before);
        let Some(key) = record.job() else { return };
        let is_going =
            |job: &Job| job.object.is_known() && (job.object.is_gone() || record.job_facts().contains(&JobFact::Gone));
        let job = before.job(key).filter(|job| is_going(job) && Registry::all().is_job(&key.kind));
        self.last = job.map(|job| Deleted { key: key.clone(), job: job.into_owned(), at: record.at });
    }

    /// Returns the jobs that were deleted, in the order of their last records. `end` is the state after the last record.
    pub fn finish(mut self, end: &State) -> Vec<Deleted> {
        self.settle(end);
        self.found
    }

    fn settle(&mut self, state: &State) {
        self.found.extend(self.last.take().filter(|deleted| state.job(&deleted.key).is_none()));
    }
}
