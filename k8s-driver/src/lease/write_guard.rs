//! Whether this process may write: the lease, or the word of whoever started it that there is no other.

use std::time::Duration;

use model::Term;

use crate::client::exchange::error_chain;
use crate::lease::{Error, LeaseHold};

/// Leave to write.
#[derive(Debug, Clone)]
pub(crate) enum WriteGuard {
    /// For as long as the lease is held.
    Lease(LeaseHold),
    /// For as long as the process lives: it was told that it is the only one, or it writes nothing.
    NoElection,
}

impl WriteGuard {
    /// Whether a write may be sent now.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::Lease(hold) => hold.holds(),
            Self::NoElection => true,
        }
    }

    /// Waits until the leave is withdrawn.
    pub(crate) async fn lost(&self) {
        match self {
            Self::Lease(hold) => hold.lost().await,
            Self::NoElection => std::future::pending().await,
        }
    }

    /// The greatest term that is known to have been claimed; zero when nobody keeps it.
    pub(crate) fn last_term(&self) -> Term {
        match self {
            Self::Lease(hold) => hold.last_term(),
            Self::NoElection => Term(0),
        }
    }

    /// Claims a term.
    ///
    /// # Errors
    /// See [`LeaseHold::claim`].
    pub(crate) async fn claim(&self, term: Term) -> Result<(), Error> {
        match self {
            Self::Lease(hold) => hold.claim(term).await,
            Self::NoElection => Ok(()),
        }
    }

    /// Gives the leave back; waits at most `limit` for that to be known.
    pub(crate) async fn release(self, limit: Duration) {
        let Self::Lease(hold) = self else { return };
        match tokio::time::timeout(limit, hold.release()).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => {
                tracing::warn!(error = error_chain(&error), "the lease was not released; it runs out by itself");
            }
            Err(_) => tracing::warn!("the lease was not released in time; it runs out by itself"),
        }
    }
}
