//! The operator's log: reading it at the start, following another operator's, caching and compacting it.
//!
//! Owns the position that a start begins with. It must not decide: [`crate::turn`] appends decisions.

use engine::{Record, State};
use event_log::{Checkpoint, EventLog, Frame, Head, NewRecord};
use model::Position;

use crate::error::Error;
use crate::operator::Operator;

impl Operator {
    /// Appends the next records of another operator's log to this one, durably, and folds them. Only while no term has begun
    /// here.
    ///
    /// # Errors
    /// [`Error::Diverged`], with nothing appended, when the records do not continue this log or a term has begun here. After
    /// any other error open the operator again.
    pub fn follow(&mut self, frames: &[Frame]) -> Result<(), Error> {
        let mut head = self.log.head();
        let mut records = Vec::with_capacity(frames.len());
        for frame in frames {
            if self.is_ready() || !frame.follows(&head) {
                return Err(Error::Diverged { at: frame.position, head: self.log.head().position });
            }
            let record = Record::decode(frame.position, frame.term, &frame.body)
                .map_err(|source| Error::Record { at: frame.position, source })?;
            records.push(record);
            head = frame.head();
        }
        let group: Vec<NewRecord<'_>> = frames.iter().map(|f| NewRecord { term: f.term, body: &f.body }).collect();
        self.log.append(&group)?;
        for record in &records {
            self.state.replay(record)?;
        }
        Ok(())
    }

    /// Begins an empty log with the checkpoint of the log that is followed.
    ///
    /// # Errors
    /// [`Error::Diverged`] when this log is not empty; when the checkpoint cannot be read or written.
    pub fn follow_from(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let head = self.log.head();
        if self.is_ready() || head != Head::default() {
            return Err(Error::Diverged { at: checkpoint.position, head: head.position });
        }
        let state = decode(checkpoint)?;
        self.log.compact(checkpoint)?;
        self.cached = checkpoint.position;
        self.state = state;
        Ok(())
    }

    /// Makes the log begin with a checkpoint of the present state. Records of jobs that are gone are dropped.
    ///
    /// # Errors
    /// Returns an error if the log cannot be written; the old log is then still there.
    pub fn compact(&mut self) -> Result<(), Error> {
        let checkpoint = self.checkpoint()?;
        self.log.compact(&checkpoint)?;
        self.cached = checkpoint.position;
        Ok(())
    }

    /// Caches the present state beside the log, so that the next [`Operator::open`] folds only newer records. Does nothing
    /// without new records.
    ///
    /// # Errors
    /// Returns an error if it cannot be written. The log stays usable, and the next attempt waits for as many records again.
    pub fn cache_state(&mut self) -> Result<(), Error> {
        if self.uncached() == 0 {
            return Ok(());
        }
        self.cached = self.log.head().position;
        let checkpoint = self.checkpoint()?;
        self.log.cache_state(checkpoint)?;
        Ok(())
    }

    /// Returns the number of records that a start would fold.
    pub fn uncached(&self) -> u64 {
        self.log.head().position.0.saturating_sub(self.cached.0)
    }

    /// Returns the present state as a checkpoint at the log's head.
    ///
    /// # Errors
    /// Returns an error if it cannot be encoded.
    pub fn checkpoint(&self) -> Result<Checkpoint, Error> {
        let head = self.log.head();
        let state = self.state.to_checkpoint().map_err(Error::Encode)?;
        Ok(Checkpoint { position: head.position, term: self.state.stamp.term, digest: head.digest, state })
    }
}

/// Folds a log's cached state or checkpoint and the records after it. Returns the state, and the position of the cached state
/// or checkpoint.
pub(crate) fn read(log: &dyn EventLog) -> Result<(State, Position), Error> {
    let (mut state, cached) = match cached(log)? {
        Some(cached) => cached,
        None => match log.checkpoint()? {
            None => (State::default(), Position(0)),
            Some(checkpoint) => (decode(&checkpoint)?, checkpoint.position),
        },
    };
    for frame in log.read(cached.next())? {
        let frame = frame?;
        let record = Record::decode(frame.position, frame.term, &frame.body)
            .map_err(|source| Error::Record { at: frame.position, source })?;
        state.replay(&record)?;
    }
    Ok((state, cached))
}

fn decode(checkpoint: &Checkpoint) -> Result<State, Error> {
    let state = State::from_checkpoint(&checkpoint.state);
    state.map_err(|source| Error::Record { at: checkpoint.position, source })
}

/// Returns the cached state and its position, or `None` when there is none that this build can read.
fn cached(log: &dyn EventLog) -> Result<Option<(State, Position)>, Error> {
    let Some(cached) = log.cached_state()? else { return Ok(None) };
    let state = State::from_checkpoint(&cached.state).ok();
    Ok(state.filter(|state| state.stamp.position == cached.position).map(|state| (state, cached.position)))
}
