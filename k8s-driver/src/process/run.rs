//! Runs the whole process: opens the log, takes part in the election, leads, and starts over after a leadership ended.
//!
//! Owns the order of starting and ending. Tests: `tests/` with a real API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apis::Registry;
use event_log::Verify;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{self, Connection};
use crate::core::clock::Clock;
use crate::core::log_store::{DirectoryStore, LogStore, MemoryStore};
use crate::core::{self, Config, OperatorHandle};
use crate::dispatch::dry_run::DryRun;
use crate::http::{self, Listeners, ServerState};
use crate::lease::write_guard::WriteGuard;
use crate::lease::{self, Advertised, Elector, LeaseOptions};
use crate::metrics::Metrics;
use crate::process::leadership::{LeadershipContext, Outcome};
use crate::process::options::Options;
use crate::process::status::{ProcessState, StatusReporter};
use crate::process::{autoscaler, crd_check};
use crate::replication::credentials::Tokens;
use crate::replication::follower::{Follower, FollowerState};

/// Back-off after the first failed leadership; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum back-off after a failed leadership.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Minimum interval between two progress writes of a job's status, in milliseconds.
const STATUS_INTERVAL_MS: u64 = 1_000;
/// Number of records after which the state is cached beside the log: folding as many takes about a third of a second.
pub const CACHE_AFTER: u64 = 100_000;
/// Time limit of releasing the Lease at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// An error that ends the process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to a cluster.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The data directory cannot be created.
    #[error("data directory {} cannot be created", path.display())]
    Data {
        /// The directory.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The log cannot be opened.
    #[error("the log cannot be opened")]
    Log(#[from] core::Error),
    /// The log cannot be archived for a cluster whose versions went backwards.
    #[error("the log cannot be archived")]
    Archive(#[from] core::RequestError),
    /// The settings of the election are invalid.
    #[error(transparent)]
    Lease(#[from] lease::Error),
    /// The operator's thread has ended: a defect of this program.
    #[error(transparent)]
    ThreadEnded(#[from] core::ThreadEnded),
    /// A listener cannot be opened.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// A task panicked: a defect of this program.
    #[error("a task has ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Handles of a process, to observe and to stop it.
#[derive(Clone)]
pub struct Handles {
    /// Ends the process in order.
    pub stop: CancellationToken,
    /// Time.
    pub clock: Arc<Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// State for readiness and logs.
    pub status: StatusReporter,
    /// The served APIs.
    pub registry: Registry,
    /// Prints calls instead of making them.
    pub dry_run: Option<Arc<DryRun>>,
}

impl Handles {
    /// Returns handles with the system clock and every API.
    pub fn new(dry_run: Option<DryRun>) -> Self {
        Self {
            stop: CancellationToken::new(),
            clock: Clock::system(),
            metrics: Metrics::new(),
            status: StatusReporter::default(),
            registry: Registry::all(),
            dry_run: dry_run.map(Arc::new),
        }
    }
}

/// Runs the process until it is stopped.
///
/// # Errors
/// Errors that a retry cannot overcome.
pub async fn run(mut options: Options, handles: Handles) -> Result<(), Error> {
    let connection = client::connect_batched(&options.connection).await?;
    tracing::info!(server = connection.server, "starting");
    if options.detects_autoscaler
        && let Some(autoscaler) = autoscaler::find(&connection.client).await
    {
        options.config.ignores_capacity = true;
        handles.status.capacity_gate_off(autoscaler);
    }
    // Objects without a namespace are not for an operator of one namespace.
    let registry = match options.scope.namespace {
        Some(_) => handles.registry.clone().namespaced(),
        None => handles.registry.clone(),
    };
    let operator = open(&options, &handles, &registry).await?;
    let context = LeadershipContext {
        client: connection.client.clone(),
        registry,
        scope: options.scope.clone(),
        metrics: handles.metrics.clone(),
        status: handles.status.clone(),
        operator: operator.clone(),
        max_in_flight: options.max_in_flight,
        call_timeout: options.call_timeout,
        dry_run: handles.dry_run.clone(),
        unserved: BTreeSet::new(),
    };
    let listeners = Listeners::new(&options.http).await?;
    let mut process = Process { options, handles, operator, context, wait: MIN_BACKOFF };
    let mut candidate = process.candidate(&connection, listeners.advertised())?;
    let stop_serving = CancellationToken::new();
    let server_state = process.server_state(&connection, candidate.as_ref());
    let served = tokio::spawn(listeners.serve(server_state, stop_serving.clone()));
    let registry = process.context.registry.clone();
    let check = tokio::spawn(crd_check::run(connection.client.clone(), registry, process.handles.status.clone()));
    let outcome = process.run(&mut candidate).await;
    check.abort();
    // The listeners are the last to end.
    stop_serving.cancel();
    served.await?;
    outcome
}

/// Opens the log and starts the operator's thread; the time is proportional to the log's length.
async fn open(options: &Options, handles: &Handles, registry: &Registry) -> Result<OperatorHandle, Error> {
    let data = |source| Error::Data { path: options.data_directory.clone(), source };
    let log_store: Box<dyn LogStore> = if options.dry_run.is_some() {
        Box::new(MemoryStore::default())
    } else {
        Box::new(DirectoryStore::new(&options.data_directory, Verify::Tail).map_err(data)?)
    };
    let parts = Config {
        log_store,
        registry: registry.clone(),
        options: operator::Options {
            config: options.config.clone(),
            status_interval_ms: STATUS_INTERVAL_MS,
            ..operator::Options::default()
        },
        clock: Arc::clone(&handles.clock),
        metrics: handles.metrics.clone(),
        compact_after: options.compact_after,
        cache_after: CACHE_AFTER,
    };
    let runtime = tokio::runtime::Handle::current();
    Ok(tokio::task::spawn_blocking(move || core::start(parts, runtime)).await??.0)
}

struct Process {
    options: Options,
    handles: Handles,
    operator: OperatorHandle,
    context: LeadershipContext,
    /// Back-off after the next failed leadership.
    wait: Duration,
}

/// A candidate of the election, which follows the current leader's log meanwhile.
struct Candidate {
    elector: Elector,
    follower: Follower,
}

impl Candidate {
    /// Waits until this process leads; `None` if it is stopped first.
    async fn wait(&mut self, stop: &CancellationToken) -> Result<Option<WriteGuard>, lease::Error> {
        let elected_token = CancellationToken::new();
        let elected = async {
            let hold = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                hold = self.elector.acquire() => Some(hold),
            };
            elected_token.cancel();
            hold.transpose()
        };
        // Following ends before a term begins.
        let (hold, ()) = tokio::join!(elected, self.follower.run(&elected_token));
        Ok(hold?.map(WriteGuard::Lease))
    }
}

/// Step after a leadership.
enum NextStep {
    /// The end.
    End,
    /// Lead again with the same write permission.
    Again,
    /// Return to the election.
    Elect,
}

impl Process {
    async fn run(&mut self, candidate: &mut Option<Candidate>) -> Result<(), Error> {
        let stop = self.handles.stop.clone();
        while !stop.is_cancelled() {
            let guard = match candidate {
                None => WriteGuard::NoElection,
                Some(candidate) => {
                    self.handles.status.set(ProcessState::Standby);
                    self.handles.metrics.ready(true);
                    match candidate.wait(&stop).await? {
                        Some(guard) => guard,
                        None => break,
                    }
                }
            };
            self.lead_until_lost(guard).await?;
        }
        self.handles.status.set(ProcessState::Stopping);
        Ok(())
    }

    fn candidate(&self, connection: &Connection, log: Option<&Advertised>) -> Result<Option<Candidate>, Error> {
        let Some(settings) = self.options.lease.as_ref().filter(|_| self.options.dry_run.is_none()) else {
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
        let follower = Follower::new(self.operator.clone(), elector.leader(), identity, tokens, metrics);
        let follower = follower.compacting_after(self.options.compact_after);
        Ok(Some(Candidate { elector, follower }))
    }

    fn server_state(&self, connection: &Connection, candidate: Option<&Candidate>) -> ServerState {
        ServerState {
            operator: self.operator.clone(),
            status: self.handles.status.clone(),
            metrics: self.handles.metrics.clone(),
            following: candidate.map_or_else(|| watch::channel(FollowerState::NoLeader).1, |c| c.follower.following()),
            leader: candidate.map_or_else(|| watch::channel(None).1, |c| c.elector.leader()),
            client: connection.client.clone(),
        }
    }

    /// Leads with one write permission, one leadership after another, until it is lost or released.
    async fn lead_until_lost(&mut self, guard: WriteGuard) -> Result<(), Error> {
        loop {
            let started = Instant::now();
            let outcome = self.context.lead(&guard, &self.handles.stop).await?;
            if started.elapsed() > MAX_BACKOFF {
                self.wait = MIN_BACKOFF;
            }
            match self.next_step(outcome).await? {
                NextStep::Again => {}
                NextStep::End | NextStep::Elect => break,
            }
        }
        guard.release(RELEASE_TIMEOUT).await;
        Ok(())
    }

    async fn next_step(&mut self, outcome: Outcome) -> Result<NextStep, Error> {
        let error = match outcome {
            Outcome::Stopped => return Ok(NextStep::End),
            Outcome::Lost => {
                tracing::warn!("leadership is lost");
                return Ok(NextStep::Elect);
            }
            Outcome::LeaveOut(kinds) => {
                self.context.unserved = kinds;
                return Ok(NextStep::Again);
            }
            Outcome::Listable(kind) => {
                tracing::info!(%kind, "objects of this API can be listed: the next term serves its jobs");
                self.context.unserved.remove(&kind);
                return Ok(NextStep::Again);
            }
            Outcome::Broken(error) => error,
        };
        let (next, why) = match &error {
            operator::Error::ClusterWentBack { .. } if self.options.accept_new_cluster => {
                let kept = self.operator.archive("another-cluster").await?;
                tracing::warn!(
                    kept,
                    "the cluster's versions went backwards; the log is archived, and jobs are adopted from their objects"
                );
                return Ok(NextStep::Again);
            }
            operator::Error::ClusterWentBack { .. } => {
                let todo = "if it was restored on purpose, start once with --accept-new-cluster";
                (NextStep::Again, format!("{error}: {todo}"))
            }
            operator::Error::Superseded { .. } => (NextStep::Again, error.to_string()),
            // The disk of another candidate may work.
            _ => (NextStep::Elect, crate::client::exchange::error_chain(&error)),
        };
        tracing::error!(why, "leadership failed; it starts again");
        self.handles.status.set(ProcessState::Failing { why });
        tokio::select! {
            () = self.handles.stop.cancelled() => return Ok(NextStep::End),
            () = tokio::time::sleep(self.wait) => {}
        }
        self.wait = (self.wait * 2).min(MAX_BACKOFF);
        Ok(next)
    }
}
