//! Guards writes: by a held Lease, or by a leader election that is switched off.

use std::time::Duration;

use model::Term;

use crate::client::exchange::error_chain;
use crate::lease::{Error, LeaseHold};

/// Write permission.
#[derive(Debug, Clone)]
pub(crate) enum WriteGuard {
    /// A held Lease.
    Lease(LeaseHold),
    /// No election: this is the only process, or a dry run.
    NoElection,
}

impl WriteGuard {
    /// Returns true if a write may be sent now.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::Lease(hold) => hold.holds(),
            Self::NoElection => true,
        }
    }

    /// Waits until the permission is lost.
    pub(crate) async fn lost(&self) {
        match self {
            Self::Lease(hold) => hold.lost().await,
            Self::NoElection => std::future::pending().await,
        }
    }

    /// Returns the greatest claimed term; zero without an election.
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

    /// Releases the Lease; waits at most `limit` for the API server.
    pub(crate) async fn release(self, limit: Duration) {
        let Self::Lease(hold) = self else { return };
        match tokio::time::timeout(limit, hold.release()).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the Lease was not released; it expires after its duration"
                );
            }
            Err(_) => tracing::warn!("the Lease was not released in time; it expires after its duration"),
        }
    }
}
