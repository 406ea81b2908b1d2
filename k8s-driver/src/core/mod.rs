//! Runs the one thread that owns the operator and its log.
//!
//! It takes observations and answers from channels, runs a turn, and sends the calls. Without input it sleeps until the next
//! deadline. It must not wait for the network. Other tasks read the operator and its log by a [`Request`] through an
//! [`OperatorHandle`], answered between two turns.
//!
//! The thread lives as long as the process, and serves one leadership after another, each with its [`LeadershipChannels`]. Between
//! two of them it holds a standby's operator, which has begun no term and may follow another log.
//!
//! Tests: `core/tests.rs`; `tests/` with a real API server.

pub(crate) mod clock;
pub(crate) mod log_store;
mod thread;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use apis::{ApiAnswer, ApiCall, CallId, Course, Observation, ObservedObject, Registry};
use event_log::{Checkpoint, Frame, Head};
use model::{Kind, Phase, Position, Term, Text};
use operator::{Operator, Options, Step};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use self::thread::OperatorThread;
use crate::core::clock::Clock;
use crate::core::log_store::LogStore;
use crate::metrics::Metrics;

/// Capacity of the channel of requests to the thread.
const REQUEST_CHANNEL_CAPACITY: usize = 64;

/// A batch of records, verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The checkpoint the log begins with, when the batch was asked for from before its first record.
    pub checkpoint: Option<Checkpoint>,
    /// Records, in order. After a checkpoint they begin with the one that follows it.
    pub frames: Vec<Frame>,
    /// The end of the log when the batch was read.
    pub head: Head,
}

impl Batch {
    /// Reads the log from a position on: at most `limit` records, and none after `max_bytes` bytes of bodies.
    fn read(operator: &Operator, from: Position, limit: usize, max_bytes: usize) -> Result<Self, event_log::Error> {
        let log = operator.log();
        let checkpoint = if from < log.first() { log.checkpoint()? } else { None };
        let from = if checkpoint.is_some() { log.first() } else { from };
        let mut frames = Vec::new();
        let mut bytes = 0_usize;
        for frame in log.read(from)?.take(limit) {
            let frame = frame?;
            bytes = bytes.saturating_add(frame.body.len());
            frames.push(frame);
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(Self { checkpoint, frames, head: log.head() })
    }
}

/// End and term of the log, published between turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The end of the log.
    pub head: Head,
    /// Position of the first readable record.
    pub first: Position,
    /// The term that is led; zero if none.
    pub term: Term,
}

/// A request to the thread.
pub(crate) enum Request {
    /// Reads records from a position on: at most `limit`, and about `max_bytes` of their bodies (but at least one).
    ReadFrames {
        /// First position. Records that the log does not hold any more are replaced by its checkpoint.
        from: Position,
        /// Maximum number of records.
        limit: usize,
        /// Bytes of bodies after which no further record is added.
        max_bytes: usize,
        /// Receiver of the answer.
        reply: oneshot::Sender<Result<Batch, event_log::Error>>,
    },
    /// Runs a function on the operator, such as following a log. It must be short.
    WithOperator(Box<dyn FnOnce(&mut Operator) + Send>),
    /// Archives the log and starts an empty one; rejected while leading. Replies where the old one is kept.
    Archive {
        /// The reason, part of the archive's name.
        why: String,
        /// Receiver of the answer.
        reply: oneshot::Sender<Result<String, RequestError>>,
    },
    /// Drops the operator's memory and opens it on its log again; rejected while leading.
    Reopen {
        /// Receiver of the answer.
        reply: oneshot::Sender<Result<(), RequestError>>,
    },
    /// Starts a leadership.
    StartLeadership(Box<LeadershipChannels>),
    /// Grants the proposed term, once it is claimed.
    GrantTerm(Term),
    /// Ends the leadership.
    EndLeadership {
        /// True to record received answers in a last turn; false if leadership was lost.
        last_turn: bool,
        /// Receives the end.
        reply: oneshot::Sender<()>,
    },
}

/// The thread's ends of one leadership's channels.
pub(crate) struct LeadershipChannels {
    /// Lower bound of the term: a greater one is proposed.
    pub last_term: Term,
    /// Kinds of the APIs that its term leaves out.
    pub unserved: BTreeSet<Text>,
    /// Observations of the watches.
    pub news: mpsc::Receiver<Observation<ObservedObject>>,
    /// Answers to calls.
    pub answers: mpsc::UnboundedReceiver<(CallId, ApiAnswer)>,
    /// Calls to make. The channel has no bound because the thread must not wait; `window` bounds what it holds.
    pub calls: mpsc::UnboundedSender<Vec<ApiCall>>,
    /// Maximum number of calls that the dispatcher takes: in flight at the API server, and rendered ahead of it.
    pub window: watch::Receiver<usize>,
    /// Receive whether objects of a kind of [`Kind::ON_DEMAND`] are to be watched.
    pub on_demand: Vec<(Kind, watch::Sender<bool>)>,
    /// Receives the events of the leadership.
    pub events: mpsc::UnboundedSender<LeadershipEvent>,
}

/// An event of a leadership.
#[derive(Debug)]
pub(crate) enum LeadershipEvent {
    /// Every source was listed: claim this term, then grant it.
    TermProposed(Term),
    /// The term has begun.
    TermStarted(Term),
    /// The operator stopped and was reopened on its log; every source must be relisted.
    OperatorStopped(operator::Error),
}

/// A handle of the thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OperatorHandle {
    requests: mpsc::Sender<Request>,
    view: watch::Receiver<View>,
}

/// The thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operator's thread has ended")]
pub struct ThreadEnded;

/// Why the thread did not replace its log or its memory.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It leads: calls are in flight that its memory knows.
    #[error("not while leading")]
    Leading,
    /// The log cannot be moved away.
    #[error(transparent)]
    Archive(#[from] std::io::Error),
    /// The log that is there afterwards cannot be opened.
    #[error(transparent)]
    Open(#[from] Error),
    /// The thread has ended.
    #[error(transparent)]
    Ended(#[from] ThreadEnded),
}

impl OperatorHandle {
    /// Archives the log; see [`Request::Archive`].
    ///
    /// # Errors
    /// If the operator leads, or the log cannot be moved or opened.
    pub(crate) async fn archive(&self, why: &str) -> Result<String, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Archive { why: why.to_owned(), reply }).await?;
        answer.await.map_err(|_| ThreadEnded)?
    }

    /// Opens the operator on its log again; see [`Request::Reopen`].
    ///
    /// # Errors
    /// If the operator leads, or the log cannot be opened.
    pub(crate) async fn reopen(&self) -> Result<(), RequestError> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Reopen { reply }).await?;
        answer.await.map_err(|_| ThreadEnded)?
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) async fn send(&self, request: Request) -> Result<(), ThreadEnded> {
        self.requests.send(request).await.map_err(|_| ThreadEnded)
    }

    /// Reads records; see [`Request::ReadFrames`].
    ///
    /// # Errors
    /// The outer error if the thread has ended, the inner one if the log cannot be read.
    pub(crate) async fn read_frames(
        &self,
        from: Position,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Result<Batch, event_log::Error>, ThreadEnded> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::ReadFrames { from, limit, max_bytes, reply }).await?;
        answer.await.map_err(|_| ThreadEnded)
    }

    /// Runs a function on the operator's thread and returns its result.
    ///
    /// # Errors
    /// If the thread has ended, or has no operator because its log cannot be opened.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Operator) -> T + Send + 'static,
    ) -> Result<T, ThreadEnded> {
        let (reply, answer) = oneshot::channel();
        let act = move |operator: &mut Operator| {
            // The requesting task may be gone.
            let _ = reply.send(act(operator));
        };
        self.send(Request::WithOperator(Box::new(act))).await?;
        answer.await.map_err(|_| ThreadEnded)
    }

    /// Returns a receiver of the log's end.
    pub(crate) fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }
}

/// Configuration of the thread.
pub(crate) struct Config {
    /// Stores the log.
    pub log_store: Box<dyn LogStore>,
    /// The served APIs.
    pub registry: Registry,
    /// Options of the operator; terms are always claimed.
    pub options: Options,
    /// Time.
    pub clock: Arc<Clock>,
    /// Metrics of this process.
    pub metrics: Metrics,
    /// Number of records after which the log is compacted; 0 for never.
    pub compact_after: u64,
    /// Maximum number of records a start has to fold: after as many the state is cached beside the log.
    pub cache_after: u64,
}

impl Config {
    /// Logs and counts a change of phase.
    fn report_transition(&self, step: &Step) {
        let Step { from, phase: to, adopted, gone, .. } = *step;
        if let Some(series) = self.registry.api_of(&step.job).and_then(|api| api.descriptor().series) {
            self.metrics.original(series, Course { from, to, adopted, gone });
            self.metrics.launched(series, step.launch);
        }
        if step.phase == step.from || step.phase == Phase::New {
            return;
        }
        let word = self.registry.api_of(&step.job).map_or("", |api| api.phase_word(step.phase));
        self.metrics.transition(&step.job.kind, word);
        tracing::info!(job = %step.job, uid = %step.job.uid, phase = word, words = &*step.message,
            position = step.position.0, "phase");
    }
}

/// An error of starting the thread.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be opened, or does not fold.
    #[error(transparent)]
    Operator(#[from] operator::Error),
    /// A damaged log cannot be archived.
    #[error("the damaged log ({damage}) cannot be archived; make its directory writable, or move the log away")]
    Archive {
        /// The damage.
        damage: String,
        /// Why it cannot be moved.
        source: std::io::Error,
    },
    /// The system refuses a thread.
    #[error("the operator's thread cannot be started")]
    Thread(#[from] std::io::Error),
}

/// Opens the log and starts the thread, which ends when every [`OperatorHandle`] is dropped. `runtime` needs its timers.
///
/// # Errors
/// If the log cannot be opened.
pub(crate) fn start(config: Config, runtime: Handle) -> Result<(OperatorHandle, JoinHandle<()>), Error> {
    let (requests, received) = mpsc::channel(REQUEST_CHANNEL_CAPACITY);
    let (log_status, view) = watch::channel(View::default());
    let mut thread = OperatorThread::new(config, log_status, runtime);
    thread.open()?;
    let join = std::thread::Builder::new().name("turns".to_owned()).spawn(move || thread.run(received))?;
    Ok((OperatorHandle { requests, view }, join))
}

#[cfg(test)]
mod tests;
