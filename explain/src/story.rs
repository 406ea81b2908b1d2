//! A job by its name: where it is, why, what it waits for, and the lines that led there. It may have been deleted.
//!
//! Owns the choice among jobs that had the same name, and the lines of records that were not read. Decides nothing. Tests: the golden
//! outputs of `explain`, and `cli/tests/local/deleted.rs`.

use apis::Registry;
use engine::{Job, Record, State};
use model::{JobKey, Position, Timestamp, Uid};
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::deleted::{Deleted, Deletions};
use crate::phases::{DELETED, phase_word};
use crate::timeline::{Line, concerns};
use crate::waits::waits_for;

/// The state of one job.
#[derive(Debug)]
pub struct Story {
    /// Its key.
    pub key: JobKey,
    /// The job; a deleted one as it was before its last record.
    pub job: Job,
    /// Set if its object is gone.
    pub is_deleted: bool,
    /// Its phase in its API's words.
    pub word: &'static str,
    /// Time of its last change of phase, or of its deletion.
    pub since: Option<Timestamp>,
    /// Message of that change.
    pub why: String,
    /// The conditions that it waits for.
    pub waits: Vec<String>,
}

impl Story {
    /// Returns the story of a job of a state.
    fn of(state: &State, key: JobKey) -> Option<Self> {
        let job = state.job(&key)?.into_owned();
        let last = job.milestones.back();
        let (since, why) = (last.map(|last| last.at), last.map(|last| last.message.to_string()).unwrap_or_default());
        let word = phase_word(&Registry::all(), &key, job.phase);
        Some(Self { is_deleted: job.object.is_gone(), word, since, why, waits: waits_for(state, &key), key, job })
    }

    /// Returns the story of a job that the state does not hold any more.
    fn deleted(deleted: Deleted) -> Self {
        let why = deleted.last_words();
        let word = phase_word(&Registry::all(), &deleted.key, deleted.job.phase);
        let (since, waits) = (Some(deleted.at), Vec::new());
        Self { key: deleted.key, job: deleted.job, is_deleted: true, word, since, why, waits }
    }

    /// Returns its phase, or that it was deleted; empty where it was not started.
    pub const fn shown(&self) -> &'static str {
        if self.is_deleted { DELETED } else { self.word }
    }

    /// Returns the story as an object, as of a position.
    pub fn to_json(&self, position: Position, lines: &[Line]) -> Value {
        json!({
            "job": self.key.to_string(), "uid": self.key.uid, "kind": &*self.key.kind, "phase": self.shown(),
            "since": self.since.map(Timestamp::to_rfc3339), "position": position,
            "chain": lines.iter().map(Line::to_json).collect::<Value>(), "waitsFor": self.waits,
        })
    }
}

/// Collects the lines that led to the state of a job, from the records that are read.
#[derive(Debug, Default)]
pub struct StoryReader {
    namespace: String,
    name: String,
    chain: Chain,
    deletions: Deletions,
    uid: Option<Uid>,
    /// Position before the first record.
    begin: Option<Position>,
}

impl StoryReader {
    /// Returns a reader for the jobs of a name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..Self::default() }
    }

    /// Adds the next record. `before`: the state before it.
    pub fn take(&mut self, before: &State, record: &Record) {
        self.begin.get_or_insert(before.stamp.position);
        if !concerns(record, &self.namespace, &self.name) {
            return;
        }
        if let Some(key) = record.job()
            && self.uid.replace(key.uid.clone()).is_some_and(|known| known != key.uid)
            && self.newest(before).is_some_and(|n| n == *key)
        {
            self.chain = Chain::default();
        }
        self.deletions.take(before, record);
        self.chain.take(record);
    }

    /// Returns the story of the newest job of the name that a state holds: several may have had it.
    pub fn story(&self, state: &State) -> Option<Story> {
        self.newest(state).and_then(|key| Story::of(state, key))
    }

    fn newest(&self, state: &State) -> Option<JobKey> {
        let of_name = |key: &&JobKey| *key.namespace == *self.namespace && *key.name == *self.name;
        state
            .jobs
            .iter()
            .filter(|(key, _)| of_name(key))
            .max_by_key(|(_, job)| (job.object.exists(), job.object.rv()))
            .map(|(key, _)| key.clone())
    }

    /// Returns the story of the last job of the name that was deleted. `end`: the state after the last record.
    pub fn deleted(&mut self, end: &State) -> Option<Story> {
        std::mem::take(&mut self.deletions).finish(end).pop().map(Story::deleted)
    }

    /// Returns the lines that led to the state of a job, as of a position.
    pub fn lines(&self, job: &Job, end: Position) -> Vec<Line> {
        let mut lines: Vec<Line> = self.earlier(job, end).chain(self.chain.lines().iter().cloned()).collect();
        lines.sort_by_key(|line| line.position);
        lines
    }

    /// Returns true if some of the lines are of records that were not read.
    pub fn has_earlier(&self, job: &Job, end: Position) -> bool {
        self.earlier(job, end).next().is_some()
    }

    /// Returns the lines of records that were not read, up to a cached state or a checkpoint: they are in the job's trail.
    fn earlier(&self, job: &Job, end: Position) -> impl Iterator<Item = Line> {
        let begin = self.begin.unwrap_or(end);
        job.trail.iter().filter(move |entry| entry.stamp.position <= begin).map(|entry| Line {
            position: entry.stamp.position,
            at: entry.at,
            decided: true,
            text: entry.text.to_string(),
        })
    }
}
