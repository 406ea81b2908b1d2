//! The handle of a held Lease: it answers whether a write may be sent, claims terms, and releases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::Term;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Error;

/// A held Lease. Cheap to clone. It lasts until it is lost or released, and is never held again.
#[derive(Debug, Clone)]
pub struct LeaseHold {
    pub(super) shared: Arc<Shared>,
    pub(super) requests: mpsc::Sender<Request>,
}

/// A request to the task that renews the Lease.
#[derive(Debug)]
pub(super) enum Request {
    Claim { term: Term, reply: oneshot::Sender<Result<(), Error>> },
    Release { reply: oneshot::Sender<Result<(), Error>> },
}

/// State shared by the renewer's task and the clones of a hold.
#[derive(Debug)]
pub(super) struct Shared {
    created_at: Instant,
    /// Nanoseconds after `created_at` at which the renew deadline of the last renewal passes.
    ends: AtomicU64,
    over: CancellationToken,
    why: OnceLock<String>,
    last_term: AtomicU64,
}

impl Shared {
    pub(super) fn new(ends: Instant, last_term: Term) -> Arc<Self> {
        let shared = Self {
            created_at: Instant::now(),
            ends: AtomicU64::new(0),
            over: CancellationToken::new(),
            why: OnceLock::new(),
            last_term: AtomicU64::new(last_term.0),
        };
        shared.extend(ends);
        Arc::new(shared)
    }

    pub(super) fn extend(&self, ends: Instant) {
        let nanos = u64::try_from(ends.saturating_duration_since(self.created_at).as_nanos()).unwrap_or(u64::MAX);
        self.ends.fetch_max(nanos, Ordering::AcqRel);
    }

    pub(super) fn ends(&self) -> Instant {
        self.created_at + Duration::from_nanos(self.ends.load(Ordering::Acquire))
    }

    pub(super) fn end(&self, why: String) {
        // The first reason is kept.
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

impl LeaseHold {
    /// Returns true if a write may be sent now. Call it immediately before sending.
    pub fn holds(&self) -> bool {
        !self.shared.is_over() && Instant::now() < self.shared.ends()
    }

    /// Returns how long a write may stay in flight if no further renewal succeeds; zero if none may be sent.
    pub fn remaining(&self) -> Duration {
        if self.shared.is_over() {
            return Duration::ZERO;
        }
        self.shared.ends().saturating_duration_since(Instant::now())
    }

    /// Waits until the hold has ended.
    pub async fn lost(&self) {
        self.shared.over.cancelled().await;
    }

    /// Runs writes while the hold lasts, renewals included. Drops them when it ends first, which closes their streams, and
    /// returns `None`.
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

    /// Returns the greatest term read from the Lease.
    pub fn last_term(&self) -> Term {
        self.shared.last_term()
    }

    /// Writes a term into the Lease, by compare-and-swap. Nothing of the term may be recorded or sent before.
    ///
    /// # Errors
    /// [`Error::TermTaken`] if the Lease carries this term or a greater one; [`Error::Lost`] if leadership is lost.
    pub async fn claim(&self, term: Term) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Claim { term, reply }).await.is_err() {
            return Err(self.shared.lost());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.lost()))
    }

    /// Ends the hold and releases the Lease, so that another process need not wait. No write may be in flight any more.
    ///
    /// # Errors
    /// [`Error::Lost`] if the Lease could not be released: it then expires.
    pub async fn release(self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Release { reply }).await.is_err() {
            return Err(self.shared.lost());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.lost()))
    }
}
