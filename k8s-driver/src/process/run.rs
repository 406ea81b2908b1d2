//! The whole process: opens the log, stands for election, leads, and begins again after whatever ended a leadership.
//!
//! Owns the order of beginning and ending. Tests: `tests/` with a real API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apis::Registry;
use event_log::Verify;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::client::{self, Connection};
use crate::core::clock::Clock;
use crate::core::logs::{Directory, Logs, Memory};
use crate::core::{self, Ask, Parts, Turns};
use crate::dispatch::dry_run::Rehearsal;
use crate::http::{self, Bound, Surface};
use crate::lease::write_guard::Guard;
use crate::lease::{self, Advertised, Elector, LeaseOptions};
use crate::metrics::Metrics;
use crate::process::crd_check;
use crate::process::leadership::{Ground, Outcome};
use crate::process::options::Options;
use crate::process::status::{Board, Standing};
use crate::replication::credentials::Tokens;
use crate::replication::follower::{Follower, Following};

/// Wait after the first leadership that failed; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum wait after a leadership that failed.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Rendered calls per call in flight, so that the dispatcher never waits for the next turn.
const ROOM_PER_CALL: usize = 4;
/// Minimum interval between two progress writes of a job's status, in milliseconds.
const STATUS_PACE_MS: u64 = 1_000;
/// Records after which the state is kept beside the log: folding so many takes about a third of a second.
pub const CACHE_AFTER: u64 = 100_000;
/// Time limit of releasing the Lease at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a process ends by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no cluster to work on.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The data directory cannot be made.
    #[error("data directory {}", path.display())]
    Data {
        /// The directory.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The log cannot be opened.
    #[error("the log cannot be opened")]
    Log(#[from] core::Error),
    /// The election cannot be held.
    #[error(transparent)]
    Lease(#[from] lease::Error),
    /// The operator's thread is gone: an error in this program.
    #[error(transparent)]
    Ended(#[from] core::Ended),
    /// Nothing can be looked at from outside.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// A task that must not end did.
    #[error("a task has ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What a process lets others look at, and how they stop it.
#[derive(Clone)]
pub struct Handles {
    /// Ends the process, in good order.
    pub stop: CancellationToken,
    /// Time.
    pub clock: Arc<Clock>,
    /// What is counted.
    pub metrics: Metrics,
    /// How it stands.
    pub board: Board,
    /// The served APIs.
    pub registry: Registry,
    /// Where calls are printed when they are not made.
    pub rehearsal: Option<Arc<Rehearsal>>,
}

impl Handles {
    /// The usual ones.
    pub fn new(rehearsal: Option<Rehearsal>) -> Self {
        Self {
            stop: CancellationToken::new(),
            clock: Clock::system(),
            metrics: Metrics::new(),
            board: Board::default(),
            registry: Registry::all(),
            rehearsal: rehearsal.map(Arc::new),
        }
    }
}

/// Runs until it is stopped.
///
/// # Errors
/// What cannot be overcome by trying again.
pub async fn run(options: Options, handles: Handles) -> Result<(), Error> {
    let connection = client::connect(&options.connection).await?;
    tracing::info!(server = connection.server, "starting");
    let registry = handles.registry.clone();
    let turns = open(&options, &handles, &registry).await?;
    let ground = Ground {
        client: connection.client.clone(),
        registry,
        scope: options.scope.clone(),
        metrics: handles.metrics.clone(),
        board: handles.board.clone(),
        turns: turns.clone(),
        most_at_once: options.most_at_once,
        call_limit: options.call_limit,
        rehearsal: handles.rehearsal.clone(),
        unserved: BTreeSet::new(),
    };
    let bound = Bound::new(&options.http).await?;
    let mut process = Process { options, handles, turns, ground, wait: MIN_BACKOFF };
    let mut candidate = process.candidate(&connection, bound.advertised())?;
    let quiet = CancellationToken::new();
    let surface = process.surface(&connection, candidate.as_ref());
    let served = tokio::spawn(bound.serve(surface, quiet.clone()));
    let registry = process.ground.registry.clone();
    let check = tokio::spawn(crd_check::run(connection.client.clone(), registry, process.handles.board.clone()));
    let outcome = process.live(&mut candidate).await;
    check.abort();
    // What can be looked at lasts as long as there is something to see.
    quiet.cancel();
    served.await?;
    outcome
}

/// Opens the log and starts the operator's thread, which takes as long as the log is.
async fn open(options: &Options, handles: &Handles, registry: &Registry) -> Result<Turns, Error> {
    let data = |source| Error::Data { path: options.data_directory.clone(), source };
    let logs: Box<dyn Logs> = if options.rehearsal.is_some() {
        Box::new(Memory::default())
    } else {
        Box::new(Directory::new(&options.data_directory, Verify::Tail).map_err(data)?)
    };
    let parts = Parts {
        logs,
        registry: registry.clone(),
        options: operator::Options {
            config: options.config.clone(),
            status_interval_ms: STATUS_PACE_MS,
            ..operator::Options::default()
        },
        clock: Arc::clone(&handles.clock),
        metrics: handles.metrics.clone(),
        room: options.most_at_once.saturating_mul(ROOM_PER_CALL),
        compact_after: options.compact_after,
        cache_after: CACHE_AFTER,
    };
    let runtime = tokio::runtime::Handle::current();
    Ok(tokio::task::spawn_blocking(move || core::start(parts, runtime)).await??.0)
}

struct Process {
    options: Options,
    handles: Handles,
    turns: Turns,
    ground: Ground,
    /// How long to wait after the next leadership that breaks.
    wait: Duration,
}

/// A process that stands for election, and follows whoever leads meanwhile.
struct Candidate {
    elector: Elector,
    follower: Follower,
}

impl Candidate {
    /// Waits until this process leads; `None` when it is stopped first.
    async fn wait(&mut self, stop: &CancellationToken) -> Result<Option<Guard>, lease::Error> {
        let enough = CancellationToken::new();
        let elected = async {
            let tenure = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                tenure = self.elector.acquire() => Some(tenure),
            };
            enough.cancel();
            tenure.transpose()
        };
        // Nothing is followed any more when a term begins.
        let (tenure, ()) = tokio::join!(elected, self.follower.run(&enough));
        Ok(tenure?.map(Guard::Lease))
    }
}

/// What follows a leadership.
enum Next {
    /// The end.
    End,
    /// Lead again, under the same leave to write.
    Again,
    /// Stand for election again.
    Elect,
}

impl Process {
    async fn live(&mut self, candidate: &mut Option<Candidate>) -> Result<(), Error> {
        let stop = self.handles.stop.clone();
        while !stop.is_cancelled() {
            let guard = match candidate {
                None => Guard::Alone,
                Some(candidate) => {
                    self.handles.board.set(Standing::Standby);
                    self.handles.metrics.ready(true);
                    match candidate.wait(&stop).await? {
                        Some(guard) => guard,
                        None => break,
                    }
                }
            };
            self.reign(guard).await?;
        }
        self.handles.board.set(Standing::Stopping);
        Ok(())
    }

    fn candidate(&self, connection: &Connection, log: Option<&Advertised>) -> Result<Option<Candidate>, Error> {
        let Some(settings) = self.options.lease.as_ref().filter(|_| self.options.rehearsal.is_none()) else {
            return Ok(None);
        };
        let namespace = settings.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
        let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
        let host = named("POD_NAME").or_else(|| named("HOSTNAME"));
        let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
        let identity = LeaseOptions::identity_of(host.unwrap_or_default().trim());
        let options = LeaseOptions {
            name: settings.name.clone(),
            duration: settings.duration,
            renew_deadline: settings.renew_deadline,
            retry_period: settings.retry_period,
            advertised: log.cloned(),
            ..LeaseOptions::new(namespace.clone(), identity.clone())
        };
        options.check()?;
        let metrics = self.handles.metrics.clone();
        let elector = Elector::new(connection.client.clone(), options, metrics.clone());
        let tokens = Tokens::new(connection.client.clone(), namespace);
        let follower = Follower::new(self.turns.clone(), elector.leader(), identity, tokens, metrics);
        let follower = follower.compacting_after(self.options.compact_after);
        Ok(Some(Candidate { elector, follower }))
    }

    fn surface(&self, connection: &Connection, candidate: Option<&Candidate>) -> Surface {
        Surface {
            turns: self.turns.clone(),
            board: self.handles.board.clone(),
            metrics: self.handles.metrics.clone(),
            following: candidate.map_or_else(|| watch::channel(Following::NobodyLeads).1, |c| c.follower.following()),
            leader: candidate.map_or_else(|| watch::channel(None).1, |c| c.elector.leader()),
            client: connection.client.clone(),
        }
    }

    /// Leads under one leave to write, again and again, until it is lost or given back.
    async fn reign(&mut self, guard: Guard) -> Result<(), Error> {
        loop {
            let begun = Instant::now();
            let outcome = self.ground.lead(&guard, &self.handles.stop).await?;
            if begun.elapsed() > MAX_BACKOFF {
                self.wait = MIN_BACKOFF;
            }
            match self.after(outcome).await? {
                Next::Again => {}
                Next::End | Next::Elect => break,
            }
        }
        guard.release(RELEASE_TIMEOUT).await;
        Ok(())
    }

    async fn after(&mut self, outcome: Outcome) -> Result<Next, Error> {
        let error = match outcome {
            Outcome::Stopped => return Ok(Next::End),
            Outcome::Lost => {
                tracing::warn!("leadership is lost");
                return Ok(Next::Elect);
            }
            Outcome::LeaveOut(kinds) => {
                self.ground.unserved = kinds;
                return Ok(Next::Again);
            }
            Outcome::Listable(kind) => {
                tracing::info!(%kind, "objects of this API can be listed: the next term serves its jobs");
                self.ground.unserved.remove(&kind);
                return Ok(Next::Again);
            }
            Outcome::Broken(error) => error,
        };
        let (next, why) = match &error {
            operator::Error::ClusterWentBack { .. } if self.options.accept_new_cluster => {
                let kept = self.set_aside("another-cluster").await?;
                tracing::warn!(
                    kept,
                    "the cluster went back; the log is set aside, jobs are adopted from their objects"
                );
                return Ok(Next::Again);
            }
            operator::Error::ClusterWentBack { .. } => {
                let todo = "if it was restored on purpose, start once with --accept-new-cluster";
                (Next::Again, format!("{error}: {todo}"))
            }
            operator::Error::Superseded { .. } => (Next::Again, error.to_string()),
            // Another process may have a disk that works.
            _ => (Next::Elect, crate::client::exchange::words(&error)),
        };
        tracing::error!(why, "leadership broke off; it begins again");
        self.handles.board.set(Standing::Failing { why });
        tokio::select! {
            () = self.handles.stop.cancelled() => return Ok(Next::End),
            () = tokio::time::sleep(self.wait) => {}
        }
        self.wait = (self.wait * 2).min(MAX_BACKOFF);
        Ok(next)
    }

    async fn set_aside(&self, why: &str) -> Result<String, Error> {
        let (reply, answer) = oneshot::channel();
        self.turns.ask(Ask::SetAside { why: why.to_owned(), reply }).await?;
        let failed = |error: String| event_log::Error::Engine { action: "set the log aside", message: error };
        let kept = answer.await.map_err(|_| core::Ended)?.map_err(failed);
        Ok(kept.map_err(|error| core::Error::from(operator::Error::Log(error)))?)
    }
}
