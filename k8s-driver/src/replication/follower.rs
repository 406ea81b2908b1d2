//! Follows the leader's log, so that a standby has its history when it takes over.
//!
//! Owns which leader to read, retries, and when to archive the own log. A record is appended only if its digest continues the own
//! chain, so the own log is always a prefix of some leader's log. It must not decide about jobs: adoption covers records that a
//! takeover lacks.
//!
//! The own log is archived, with the reason in its name, and a new one starts with the leader's, if
//! * the leader's log has another record where ours ends, or ends before ours does: ours holds records of a leadership that was
//!   lost before another process read them; or
//! * the leader's log was compacted past our end.
//!
//! Tests: `replication/follower/tests.rs` against a served log over real sockets, `tests/leadership.rs` with a real API server.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use model::Position;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::core::OperatorHandle;
use crate::lease::{Advertised, Leader};
use crate::metrics::Metrics;
use crate::process::options::Options;
use crate::replication::credentials::Tokens;
use crate::replication::remote::{Remote, Target};

use super::session::{Session, Stopped};

/// Back-off after the first failure; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum back-off.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// State of a follower.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum FollowerState {
    /// It has not started.
    #[default]
    Starting,
    /// The Lease has no holder.
    NoLeader,
    /// The leader serves no log, by its settings.
    NotServed {
        /// Identity of the leader.
        leader: String,
    },
    /// It reads the leader's log.
    Reading {
        /// Identity of the leader.
        leader: String,
    },
    /// The leader's log cannot be read; the follower retries.
    Unreachable {
        /// Why.
        why: String,
    },
}

impl fmt::Display for FollowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("has not looked for a leader yet"),
            Self::NoLeader => f.write_str("no operator leads"),
            Self::NotServed { leader } => write!(f, "{leader} leads and does not serve its log"),
            Self::Reading { leader } => write!(f, "following {leader}"),
            Self::Unreachable { why } => write!(f, "cannot follow the leader: {why}"),
        }
    }
}

/// Follows the leader's log.
pub(crate) struct Follower {
    operator: OperatorHandle,
    /// Holder of the Lease.
    leader: watch::Receiver<Option<Leader>>,
    /// This process.
    identity: String,
    /// Issues the credential for a leader's log: what the Lease says of the leader is not trusted with one of our own.
    tokens: Tokens,
    metrics: Metrics,
    compact_after: u64,
    state: watch::Sender<FollowerState>,
}

impl Follower {
    /// A follower for the process `identity`, which has the log of `turns`.
    pub(crate) fn new(
        operator: OperatorHandle,
        leader: watch::Receiver<Option<Leader>>,
        identity: String,
        tokens: Tokens,
        metrics: Metrics,
    ) -> Self {
        let state = watch::Sender::new(FollowerState::Starting);
        Self { operator, leader, identity, tokens, metrics, compact_after: Options::COMPACT_AFTER, state }
    }

    /// Records after which the own log is made to begin at its present state; 0 for never. The leader's compaction leaves a
    /// follower's log as it is, so it has to see to that itself.
    #[must_use]
    pub(crate) fn compacting_after(mut self, records: u64) -> Self {
        self.compact_after = records;
        self
    }

    /// Returns a receiver of the state.
    pub(crate) fn following(&self) -> watch::Receiver<FollowerState> {
        self.state.subscribe()
    }

    /// Follows the leader until `stop`. No request is in flight when it returns, so a term may begin.
    pub(crate) async fn run(&mut self, stop: &CancellationToken) {
        let mut pause = MIN_BACKOFF;
        let mut leader = self.leader.clone();
        while !stop.is_cancelled() {
            let present = leader.borrow_and_update().clone();
            let why = match present {
                Some(Leader { identity, advertised: Some(advertised), .. }) if identity != self.identity => {
                    let started = tokio::time::Instant::now();
                    let why = tokio::select! {
                        why = self.follow(&identity, &advertised, stop) => why,
                        // Another leader, or another address: the session is dropped where it waits for the network only.
                        () = changed(&mut leader, &identity, &advertised) => Stopped::Asked,
                    };
                    if started.elapsed() > MAX_BACKOFF {
                        pause = MIN_BACKOFF;
                    }
                    why
                }
                other => {
                    self.set_state(match other {
                        Some(present) if present.identity != self.identity => {
                            FollowerState::NotServed { leader: present.identity }
                        }
                        Some(_) | None => FollowerState::NoLeader,
                    });
                    tokio::select! {
                        () = stop.cancelled() => return,
                        gone = leader.changed() => if gone.is_err() { return },
                    }
                    Stopped::Asked
                }
            };
            match why {
                Stopped::Asked => {}
                Stopped::Failed(why) => {
                    tracing::debug!(why, "the leader's log cannot be followed; retrying");
                    self.set_state(FollowerState::Unreachable { why });
                    tokio::select! {
                        () = stop.cancelled() => return,
                        gone = leader.changed() => if gone.is_err() { return },
                        () = sleep(pause) => {}
                    }
                    pause = (pause * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    async fn follow(&self, leader: &str, advertised: &Advertised, stop: &CancellationToken) -> Stopped {
        let issued = tokio::select! {
            () = stop.cancelled() => return Stopped::Asked,
            issued = self.tokens.for_server(advertised) => issued,
        };
        let auth = match issued {
            Ok(auth) => auth,
            Err(error) => return Stopped::Failed(crate::client::exchange::error_chain(&error)),
        };
        let Advertised { address, certificate } = advertised.clone();
        let target = Target { address, authority: certificate, auth };
        let remote = match Remote::new(target) {
            Ok(remote) => remote,
            Err(error) => return Stopped::Failed(error.to_string()),
        };
        let (operator, metrics, compact_after) = (&self.operator, &self.metrics, self.compact_after);
        let session = Session { remote, operator, metrics, compact_after, stop };
        session.run(|| self.set_state(FollowerState::Reading { leader: leader.to_owned() })).await
    }

    fn set_state(&self, following: FollowerState) {
        self.state.send_if_modified(|state| {
            let changed = *state != following;
            if changed {
                tracing::info!(%following, "standby");
                *state = following;
            }
            changed
        });
    }
}

/// Waits until another process leads, or the leader serves its log elsewhere.
async fn changed(leader: &mut watch::Receiver<Option<Leader>>, identity: &str, advertised: &Advertised) {
    let differs = |leader: &Option<Leader>| match leader {
        Some(leader) => leader.identity != identity || leader.advertised.as_ref() != Some(advertised),
        None => true,
    };
    if leader.wait_for(differs).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns the end of the own log.
pub(super) fn end(operator: &OperatorHandle) -> Position {
    operator.view().borrow().head.position
}
