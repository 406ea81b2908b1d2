//! The operator's parts and its small surface.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, CallId, Observation, ObservedObject, Registry, Views, WatchTarget};
use engine::{FoldError, Record, State, WireError};
use event_log::{Checkpoint, EventLog, Frame, Head, NewRecord};
use model::{Command, Config, JobKey, Kind, ObjectRef, Position, Term, Text, Timestamp};
use serde_json::Value;

use crate::pace::Pace;
use crate::turn::Step;

/// What stops an operator. After any of these nothing is dispatched; open it anew and list every kind again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] event_log::Error),
    /// A record in the log cannot be read.
    #[error("record {at}: {source}")]
    Record {
        /// Its position.
        at: Position,
        /// Why.
        source: WireError,
    },
    /// A record does not follow from those before it.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// A record could not be written down.
    #[error("a record could not be encoded: {0}")]
    Encode(WireError),
    /// The records of the log that is followed do not continue this one.
    #[error("record {at} of the log that is followed does not continue this log, which ends at {head}")]
    Diverged {
        /// The record.
        at: Position,
        /// The last position of this log.
        head: Position,
    },
    /// Another operator has written to a job since; this one must start again from the objects.
    #[error("job {job} carries a mirror ({mirror}) that this log does not contain: start again from the objects")]
    Superseded {
        /// The job.
        job: String,
        /// The stamp of its mirror.
        mirror: String,
    },
    /// The API server's versions went backwards: it was restored from an older copy.
    #[error("the cluster's {kind:?} list is at version {have}, older than version {known} seen before")]
    ClusterWentBack {
        /// The kind listed.
        kind: Kind,
        /// Version of the list.
        have: u64,
        /// Version seen before.
        known: u64,
    },
}

/// What an operator is opened with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Settings that decisions depend on.
    pub config: Config,
    /// No term up to this one is opened: what a Lease says was the last.
    pub last_term: Term,
    /// Whether terms are claimed elsewhere ([`Operator::proposed_term`], [`Operator::grant_term`]) before they begin;
    /// otherwise a turn begins the next one by itself.
    pub claims_terms: bool,
    /// A job's status is written not more often than this, in milliseconds, when nothing but progress is to be told: neither a
    /// phase nor anything that decisions wait for; ten times less often while there is more to do than room for it. Zero: every
    /// change is written.
    pub status_interval_ms: u64,
}

/// What is done about an object at the moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Doing {
    /// Its command is under way.
    Command(Command),
    /// Its name was taken: what holds it is being read.
    ReadTaken(Command),
    /// A status write met a newer job: the job is being read.
    ReadJob,
}

/// A job's manifest, parsed, while there was no room yet for all that is to be made of it.
pub(crate) struct Rendered {
    pub(crate) spec: Arc<model::SpecFact>,
    pub(crate) manifest: Value,
}

/// The turn loop of one process.
pub struct Operator {
    pub(crate) log: Box<dyn EventLog>,
    /// Position of the newest state a start can begin with: the cached one, or the log's checkpoint.
    cached: Position,
    pub(crate) registry: Registry,
    /// What must be listed before a term begins, and which of it shows the objects of which jobs.
    pub(crate) targets: Vec<WatchTarget>,
    pub(crate) views: Views,
    /// Kinds of the APIs that this term leaves out.
    pub(crate) unserved: BTreeSet<Text>,
    pub(crate) options: Options,
    pub(crate) state: State,
    /// The term of this process; zero until every kind has been listed.
    pub(crate) term: Term,
    pub(crate) inbox: VecDeque<Observation<ObservedObject>>,
    pub(crate) answers: VecDeque<(CallId, ApiAnswer)>,
    pub(crate) calls: BTreeMap<CallId, (JobKey, Doing)>,
    pub(crate) under_way: BTreeMap<(JobKey, ObjectRef), CallId>,
    pub(crate) next_call: CallId,
    /// Calls that may be under way at once.
    pub(crate) room: usize,
    /// When statuses are written.
    pub(crate) pace: Pace,
    /// Jobs with something to do that found no room, and the job that was served last.
    pub(crate) owed: BTreeSet<JobKey>,
    pub(crate) served: Option<JobKey>,
    /// The term that was claimed for this process, until it begins.
    pub(crate) granted: Option<Term>,
    pub(crate) rendered: BTreeMap<JobKey, Rendered>,
    pub(crate) seen_specs: BTreeMap<JobKey, Arc<Value>>,
    pub(crate) steps: Vec<Step>,
    pub(crate) pending_events: Vec<ApiCall>,
    pub(crate) read_again: Vec<(JobKey, Doing)>,
    /// A job was read at a version older than the one known: the API server was restored.
    pub(crate) went_back: Option<Error>,
}

impl Operator {
    /// Opens an operator on a log: folds its checkpoint and records. Nothing is decided before every kind has been listed.
    ///
    /// # Errors
    /// When the log cannot be read or does not fold.
    pub fn open(log: Box<dyn EventLog>, registry: Registry, options: Options) -> Result<Self, Error> {
        let (mut state, folded) = match cached(&*log)? {
            Some(cached) => cached,
            None => match log.checkpoint()? {
                None => (State::default(), Position(0)),
                Some(c) => {
                    let state = State::from_checkpoint(&c.state);
                    (state.map_err(|source| Error::Record { at: c.position, source })?, c.position)
                }
            },
        };
        for frame in log.read(folded.next())? {
            let frame = frame?;
            let record = Record::decode(frame.position, frame.term, &frame.body)
                .map_err(|source| Error::Record { at: frame.position, source })?;
            state.fold(&record)?;
        }
        let pace = Pace::new(options.status_interval_ms);
        Ok(Self {
            log,
            cached: folded,
            targets: registry.watch_targets(),
            views: registry.views(),
            unserved: BTreeSet::new(),
            registry,
            options,
            state,
            term: Term::default(),
            inbox: VecDeque::new(),
            answers: VecDeque::new(),
            calls: BTreeMap::new(),
            under_way: BTreeMap::new(),
            next_call: 0,
            room: usize::MAX,
            pace,
            owed: BTreeSet::new(),
            served: None,
            granted: None,
            rendered: BTreeMap::new(),
            seen_specs: BTreeMap::new(),
            steps: Vec::new(),
            pending_events: Vec::new(),
            read_again: Vec::new(),
            went_back: None,
        })
    }

    /// Takes over records that another operator wrote, the next ones after this log's: durably, then into the state. Only
    /// while no term has begun here.
    ///
    /// # Errors
    /// [`Error::Diverged`], with nothing taken over, when the records do not continue this log (or a term has begun
    /// here); after any other error open the operator anew.
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
            self.state.fold(record)?;
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
        let state = State::from_checkpoint(&checkpoint.state)
            .map_err(|source| Error::Record { at: checkpoint.position, source })?;
        self.log.compact(checkpoint)?;
        self.cached = checkpoint.position;
        self.state = state;
        Ok(())
    }

    /// Leaves out the APIs of these kinds in the next term, because one of their sources cannot be listed. Their lists are not
    /// waited for, and what other sources show of their jobs is ignored: without its job's list a pod would look like an
    /// orphan. No deadline of such a job is due and no call is made for it. A later term that serves the API again lists
    /// everything of it. Returns false, with nothing changed, once a term has begun.
    pub fn leave_out(&mut self, kinds: BTreeSet<Text>) -> bool {
        if self.is_ready() {
            return false;
        }
        self.targets = self.registry.watch_targets_without(&kinds);
        self.unserved = kinds;
        true
    }

    /// Returns true if the job's API is served in this term.
    pub(crate) fn serves(&self, job: &JobKey) -> bool {
        !self.unserved.contains(&job.kind)
    }

    /// Takes what a watch reports; the next turn looks at it.
    pub fn handle_event(&mut self, observation: Observation) {
        if let Some(read) = observation.read(&self.registry) {
            self.handle_observed(read);
        }
    }

    /// [`Operator::handle_event`] for whoever has read the objects already, with the same registry.
    pub fn handle_observed(&mut self, observation: Observation<ObservedObject>) {
        self.inbox.push_back(observation);
    }

    /// From now on no more than this many calls are handed out and not yet answered (Kubernetes Events apart). What finds no
    /// room is handed out by later turns, the jobs taking turns as well. Without this there is no limit.
    pub const fn set_in_flight_limit(&mut self, calls: usize) {
        self.room = calls;
    }

    /// Takes the answer to a call; the next turn looks at it. An answer to a call of an earlier process is ignored.
    pub fn handle_answer(&mut self, call: CallId, answer: ApiAnswer) {
        self.answers.push_back((call, answer));
    }

    /// When the next turn is due even if nothing comes in: at once (time zero) when something waits.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let owes = !self.owed.is_empty() && self.calls.len() < self.room;
        if owes || !self.answers.is_empty() || (self.is_ready() && !self.inbox.is_empty()) {
            return Some(Timestamp(0));
        }
        let deadline = self.state.deadlines().find(|(_, job)| self.serves(job)).map(|(at, _)| at);
        let due = [deadline, self.pace.next()];
        due.into_iter().flatten().min().filter(|_| self.is_ready())
    }

    /// Whether every kind has been listed and a term has begun.
    pub const fn is_ready(&self) -> bool {
        self.term.0 > 0
    }

    /// What is known.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The log.
    pub fn log(&self) -> &dyn EventLog {
        &*self.log
    }

    /// Gives the log back, for example to open the next operator on it.
    pub fn into_log(self) -> Box<dyn EventLog> {
        self.log
    }

    /// How many calls are under way.
    pub fn calls_in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Takes the records of the turns since the last call: which job, the phase it was in afterwards.
    pub fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Makes the log begin at the present state: jobs that are gone leave nothing behind but their trail's end.
    ///
    /// # Errors
    /// When the log cannot be written; the old log is then still there.
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
    /// When it cannot be written. The log stays usable, and the next attempt waits for as many records again.
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

    /// The present state, as that of the log's head.
    fn checkpoint(&self) -> Result<Checkpoint, Error> {
        let head = self.log.head();
        let state = self.state.to_checkpoint().map_err(Error::Encode)?;
        Ok(Checkpoint { position: head.position, term: self.state.stamp.term, digest: head.digest, state })
    }
}

/// Returns the cached state and its position, or `None` when there is none that this build can read.
fn cached(log: &dyn EventLog) -> Result<Option<(State, Position)>, Error> {
    let Some(cached) = log.cached_state()? else { return Ok(None) };
    let state = State::from_checkpoint(&cached.state).ok();
    Ok(state.filter(|state| state.stamp.position == cached.position).map(|state| (state, cached.position)))
}
