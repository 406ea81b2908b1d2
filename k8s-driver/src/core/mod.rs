//! The one thread that owns the operator and its log.
//!
//! It takes what comes in from bounded queues, does a turn, and hands the calls out; it sleeps until the next deadline when
//! nothing comes in, and never waits for the network. Whoever else wants to know something of the operator or its log asks
//! through [`OperatorHandle`] and gets the answer between two turns.
//!
//! The thread lives as long as the process; leaderships come and go as [`LeadershipChannels`]s. Between two of them it holds an operator
//! that was opened on the log and has begun no term: a standby's, which may follow another's log.
//!
//! Tests: `core/tests.rs`; `tests/` with a real API server.

pub(crate) mod clock;
pub(crate) mod log_store;
mod thread;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use apis::{ApiAnswer, ApiCall, CallId, Observation, ObservedObject, Registry};
use event_log::{Checkpoint, Frame, Head};
use model::{Phase, Position, Term, Text};
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
    /// What the log holds from a position on: up to so many records, and none after so many bytes.
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

/// What the thread tells between turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The end of the log.
    pub head: Head,
    /// The first record it can still give.
    pub first: Position,
    /// The term that is led; zero when none.
    pub term: Term,
}

/// What can be asked of the thread.
pub(crate) enum Request {
    /// Records from a position on, at most `limit` of them and about `max_bytes` of their bodies (but at least one).
    ReadFrames {
        /// First position wanted. What the log does not hold any more comes as its checkpoint.
        from: Position,
        /// Most records.
        limit: usize,
        /// Bytes of bodies after which no further record is added.
        max_bytes: usize,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<Batch, event_log::Error>>,
    },
    /// Something that needs the operator itself: following a log, looking at state. It must be short.
    WithOperator(Box<dyn FnOnce(&mut Operator) + Send>),
    /// Puts the log out of the way and begins an empty one; refused while leading. Gives where the old one is kept.
    Archive {
        /// Why, in a few words.
        why: String,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// Drops what the operator holds in memory and opens it on its log again; refused while leading.
    Reopen {
        /// Where the answer goes.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// A leadership begins.
    StartLeadership(Box<LeadershipChannels>),
    /// The term that was proposed is claimed.
    GrantTerm(Term),
    /// The leadership is over.
    EndLeadership {
        /// Whether answers that came in are put down in a last turn. Not when leadership was lost.
        last_turn: bool,
        /// Told when it is.
        reply: oneshot::Sender<()>,
    },
}

/// The thread's ends of one leadership's queues.
pub(crate) struct LeadershipChannels {
    /// No term up to this one is proposed.
    pub last_term: Term,
    /// Kinds of the APIs that its term leaves out.
    pub unserved: BTreeSet<Text>,
    /// What watches report.
    pub news: mpsc::Receiver<Observation<ObservedObject>>,
    /// Answers to calls.
    pub answers: mpsc::UnboundedReceiver<(CallId, ApiAnswer)>,
    /// Calls to make. The channel has no bound because the thread must not wait; `window` bounds what it holds.
    pub calls: mpsc::UnboundedSender<Vec<ApiCall>>,
    /// Maximum number of calls that the dispatcher takes: in flight at the API server, and rendered ahead of it.
    pub window: watch::Receiver<usize>,
    /// What happens on the way.
    pub events: mpsc::UnboundedSender<LeadershipEvent>,
}

/// What a leadership tells of itself.
#[derive(Debug)]
pub(crate) enum LeadershipEvent {
    /// Every kind was listed: this term is to be claimed, then granted.
    TermProposed(Term),
    /// The term has begun.
    TermStarted(Term),
    /// The operator stopped; it was opened anew on its log, and every kind must be listed again.
    OperatorStopped(operator::Error),
}

/// A way to the thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OperatorHandle {
    requests: mpsc::Sender<Request>,
    view: watch::Receiver<View>,
}

/// The thread is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operator's thread has ended")]
pub struct ThreadEnded;

impl OperatorHandle {
    /// Asks something.
    ///
    /// # Errors
    /// When the thread has ended.
    pub(crate) async fn send(&self, request: Request) -> Result<(), ThreadEnded> {
        self.requests.send(request).await.map_err(|_| ThreadEnded)
    }

    /// Asks for records; see [`Request::ReadFrames`].
    ///
    /// # Errors
    /// The outer error when the thread has ended, the inner one when the log cannot be read.
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

    /// Does something with the operator on its thread and gives what came of it.
    ///
    /// # Errors
    /// When the thread has ended, or there is no operator because its log cannot be opened.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Operator) -> T + Send + 'static,
    ) -> Result<T, ThreadEnded> {
        let (reply, answer) = oneshot::channel();
        let act = move |operator: &mut Operator| {
            // Whoever asked may have gone away; then nobody is interested.
            let _ = reply.send(act(operator));
        };
        self.send(Request::WithOperator(Box::new(act))).await?;
        answer.await.map_err(|_| ThreadEnded)
    }

    /// What the thread told last: follows the log's end.
    pub(crate) fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }
}

/// What the thread is made of.
pub(crate) struct Config {
    /// Where the log is kept.
    pub log_store: Box<dyn LogStore>,
    /// The served APIs.
    pub registry: Registry,
    /// What the operator is opened with; terms are always claimed.
    pub options: Options,
    /// Time.
    pub clock: Arc<Clock>,
    /// What is counted.
    pub metrics: Metrics,
    /// Records after which the log is made to begin at the present state; 0 for never.
    pub compact_after: u64,
    /// Maximum number of records a start has to fold: after as many the state is cached beside the log.
    pub cache_after: u64,
}

impl Config {
    /// Tells and counts a change of phase.
    fn report_transition(&self, step: &Step) {
        if step.phase == step.from || step.phase == Phase::New {
            return;
        }
        let word = self.registry.get(&step.job.kind).map_or("", |api| api.phase_word(step.phase));
        self.metrics.transition(&step.job.kind, word);
        tracing::info!(job = %step.job, uid = %step.job.uid, phase = word, words = &*step.message,
            position = step.position.0, "phase");
    }
}

/// Why the thread could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be opened, or does not fold.
    #[error(transparent)]
    Operator(#[from] operator::Error),
    /// A damaged log cannot be put out of the way.
    #[error("the damaged log ({damage}) cannot be set aside")]
    Archive {
        /// What is damaged.
        damage: String,
        /// Why it cannot.
        source: std::io::Error,
    },
    /// The system gives no thread.
    #[error("no thread for the operator")]
    Thread(#[from] std::io::Error),
}

/// Opens the log and starts the thread. It ends when every [`OperatorHandle`] is dropped. `runtime` needs its timers.
///
/// # Errors
/// When the log cannot be opened.
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
