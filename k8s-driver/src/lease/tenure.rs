//! One period of leadership, as its users see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::Term;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Error;

/// One period of leadership. Cheap to clone; it lasts until it is lost or released, and never comes back.
#[derive(Debug, Clone)]
pub struct Tenure {
    pub(super) shared: Arc<Shared>,
    pub(super) asks: mpsc::Sender<Ask>,
}

/// What a tenure asks of the task that keeps the Lease.
#[derive(Debug)]
pub(super) enum Ask {
    Claim { term: Term, reply: oneshot::Sender<Result<(), Error>> },
    Release { reply: oneshot::Sender<Result<(), Error>> },
}

/// What the keeper's task and the users of a tenure share.
#[derive(Debug)]
pub(super) struct Shared {
    begun: Instant,
    /// Nanoseconds after `begun` at which belief in the last renewal ends.
    ends: AtomicU64,
    over: CancellationToken,
    why: OnceLock<String>,
    last_term: AtomicU64,
}

impl Shared {
    pub(super) fn new(ends: Instant, last_term: Term) -> Arc<Self> {
        let shared = Self {
            begun: Instant::now(),
            ends: AtomicU64::new(0),
            over: CancellationToken::new(),
            why: OnceLock::new(),
            last_term: AtomicU64::new(last_term.0),
        };
        shared.extend(ends);
        Arc::new(shared)
    }

    pub(super) fn extend(&self, ends: Instant) {
        let nanos = u64::try_from(ends.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        self.ends.fetch_max(nanos, Ordering::AcqRel);
    }

    pub(super) fn ends(&self) -> Instant {
        self.begun + Duration::from_nanos(self.ends.load(Ordering::Acquire))
    }

    pub(super) fn end(&self, why: String) {
        // The first reason stands.
        let _ = self.why.set(why);
        self.over.cancel();
    }

    pub(super) fn saw_term(&self, term: Term) {
        self.last_term.fetch_max(term.0, Ordering::AcqRel);
    }

    pub(super) fn last_term(&self) -> Term {
        Term(self.last_term.load(Ordering::Acquire))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    pub(super) fn lost(&self) -> Error {
        let why = self.why.get().cloned();
        Error::Lost { why: why.unwrap_or_else(|| "the lease was not renewed in time".to_owned()) }
    }
}

impl Tenure {
    /// Whether a write may be sent now. Ask immediately before sending.
    pub fn holds(&self) -> bool {
        !self.shared.is_over() && Instant::now() < self.shared.ends()
    }

    /// How long a write may be under way from now on if no renewal succeeds meanwhile; zero when none may be sent.
    pub fn remaining(&self) -> Duration {
        if self.shared.is_over() {
            return Duration::ZERO;
        }
        self.shared.ends().saturating_duration_since(Instant::now())
    }

    /// Waits until the tenure is over.
    pub async fn lost(&self) {
        self.shared.over.cancelled().await;
    }

    /// Why the tenure is over, in words; `None` while it is not.
    pub fn why_lost(&self) -> Option<String> {
        self.shared.is_over().then(|| self.shared.lost().to_string())
    }

    /// Carries out a write for as long as the tenure lasts, renewals included. When it ends first, the write is given up (its
    /// connection closes) and there is no output.
    pub async fn within<F: Future>(&self, write: F) -> Option<F::Output> {
        if !self.holds() {
            return None;
        }
        tokio::select! {
            biased;
            () = self.lost() => None,
            output = write => Some(output),
        }
    }

    /// The greatest term seen in the Lease.
    pub fn last_term(&self) -> Term {
        self.shared.last_term()
    }

    /// Writes a term into the Lease, by compare-and-swap. Nothing of the term may be recorded or written before.
    ///
    /// # Errors
    /// [`Error::TermTaken`] when the Lease carries this term or a greater one; [`Error::Lost`] when leadership is lost.
    pub async fn claim(&self, term: Term) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        if self.asks.send(Ask::Claim { term, reply }).await.is_err() {
            return Err(self.shared.lost());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.lost()))
    }

    /// Ends the tenure and gives the Lease up, so that another process need not wait. To be called when no write is under way
    /// any more.
    ///
    /// # Errors
    /// [`Error::Lost`] when the Lease could not be given up: it then runs out by itself.
    pub async fn release(self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        if self.asks.send(Ask::Release { reply }).await.is_err() {
            return Err(self.shared.lost());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.lost()))
    }
}
