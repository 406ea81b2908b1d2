//! Runs one leadership: starts watches, lists every source, claims the term, makes calls, and ends all of it.
//!
//! Owns the order in which these start and end. Tests: `tests/` with a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apis::{Registry, WatchTarget};
use kube::Client;
use model::{Kind, Term, Text};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::client::exchange::error_chain;
use crate::core::{LeadershipChannels, LeadershipEvent, OperatorHandle, Request, ThreadEnded};
use crate::dispatch::dry_run::DryRun;
use crate::dispatch::{self, Dispatcher};
use crate::lease;
use crate::lease::write_guard::WriteGuard;
use crate::metrics::Metrics;
use crate::process::status::{self, ProcessState, StatusReporter};
use crate::watch::definitions::Definitions;
use crate::watch::list_tracker::{ListReport, ListReporter, ListTracker};
use crate::watch::selection::Selection;
use crate::watch::sources::{self, JobFilter};
use crate::watch::{End, SourceWatch};

/// Capacity of the channel of observations, all kinds together.
const OBSERVATION_CHANNEL_CAPACITY: usize = 1024;

/// Time limit of calls in flight at the end, within the grace period of a pod.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts that all leaderships of a process share.
#[derive(Clone)]
pub(super) struct LeadershipContext {
    /// The client.
    pub client: Client,
    /// The served APIs.
    pub registry: Registry,
    /// Which jobs are served.
    pub scope: JobFilter,
    /// Metrics of this process.
    pub metrics: Metrics,
    /// State for readiness and logs.
    pub status: StatusReporter,
    /// The operator's thread.
    pub operator: OperatorHandle,
    /// Maximum number of calls in flight.
    pub max_in_flight: usize,
    /// Time limit of one call.
    pub call_timeout: Duration,
    /// Prints writes instead of sending them.
    pub dry_run: Option<Arc<DryRun>>,
    /// Kinds of the APIs that the next term leaves out.
    pub unserved: BTreeSet<Text>,
}

/// End of a leadership.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was asked to.
    Stopped,
    /// The write permission is lost, or the cluster regressed.
    Lost,
    /// Lists of these APIs' objects fail: the next term leaves them out.
    LeaveOut(BTreeSet<Text>),
    /// The objects of an API that was left out can be listed again: the next term serves it.
    Listable(Text),
    /// The operator stopped; it may start again.
    Broken(operator::Error),
}

/// The tasks of one leadership.
struct Tasks {
    watches: JoinSet<End>,
    dispatch: JoinHandle<()>,
    drain: CancellationToken,
    events: mpsc::UnboundedReceiver<LeadershipEvent>,
    lists: mpsc::UnboundedReceiver<ListReport>,
    list_tracker: ListTracker,
    /// Each ends with its API when all sources of an API that is left out were listed.
    probes: JoinSet<Text>,
}

impl LeadershipContext {
    /// Leads until the end. Every task that this started has ended when it returns.
    ///
    /// # Errors
    /// Returns an error if the operator's thread has ended.
    pub(super) async fn lead(&self, guard: &WriteGuard, stop: &CancellationToken) -> Result<Outcome, ThreadEnded> {
        self.status
            .set(ProcessState::Listing { missing: "lists of nodes, jobs, pods and services are under way".to_owned() });
        let mut tasks = self.begin(guard).await?;
        let outcome = self.go_on(&mut tasks, guard, stop).await;
        self.metrics.leads(None);
        self.metrics.ready(false);
        tasks.watches.abort_all();
        if matches!(outcome, Ok(Outcome::Stopped)) {
            self.status.set(ProcessState::Stopping);
        }
        let in_order = matches!(outcome, Ok(Outcome::Stopped | Outcome::Listable(_)));
        if in_order {
            // What is under way is answered, and the answers are put down; nothing new leaves.
            tasks.drain.cancel();
            let limit = self.call_timeout.min(DRAIN_TIMEOUT);
            if tokio::time::timeout(limit, &mut tasks.dispatch).await.is_err() {
                tracing::warn!("calls were still under way at the end");
            }
        }
        tasks.dispatch.abort();
        let (reply, ended) = oneshot::channel();
        self.operator.send(Request::EndLeadership { last_turn: in_order, reply }).await?;
        ended.await.map_err(|_| ThreadEnded)?;
        while tasks.watches.join_next().await.is_some() {}
        outcome
    }

    async fn begin(&self, guard: &WriteGuard) -> Result<Tasks, ThreadEnded> {
        let (news, take_news) = mpsc::channel(OBSERVATION_CHANNEL_CAPACITY);
        let (answers, take_answers) = mpsc::unbounded_channel();
        let (calls, take_calls) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::unbounded_channel();
        let on_demand = Kind::ON_DEMAND.map(|kind| (kind, watch::channel(false)));
        let (needs, needed): (Vec<_>, Vec<_>) =
            on_demand.into_iter().map(|(kind, (need, needed))| ((kind, need), (kind, needed))).unzip();
        let (window, take_window) = watch::channel(dispatch::window_of(self.max_in_flight));
        let period = LeadershipChannels {
            last_term: guard.last_term(),
            unserved: self.unserved.clone(),
            news: take_news,
            answers: take_answers,
            calls,
            window: take_window,
            on_demand: needs,
            events: sender,
        };
        self.operator.send(Request::StartLeadership(Box::new(period))).await?;
        self.status.disable_kinds(self.unserved.clone());
        for api in self.registry.iter() {
            let kind = api.resource().kind;
            // The list of its jobs shows whether its definition is installed.
            self.metrics.serves(&kind, self.status.serves(&kind));
        }
        let targets = self.registry.watch_targets_without(&self.unserved);
        let job_sources = targets.iter().filter(|target| target.kind == Kind::Job).count();
        let selection = Arc::new(Selection::new(!self.scope.label_selector.is_empty(), job_sources));
        let definitions = Definitions::watch(self.client.clone());
        let watching = |target: WatchTarget, lists: ListReporter| SourceWatch {
            client: self.client.clone(),
            kind: target.kind,
            source: sources::in_scope(target, &self.scope),
            views: self.registry.job_sources(),
            selection: Arc::clone(&selection),
            registry: self.registry.clone(),
            news: news.clone(),
            metrics: self.metrics.clone(),
            status: self.status.clone(),
            lists,
            definitions: definitions.clone(),
        };
        let list_tracker = ListTracker::new(targets.iter().map(|target| self.registry.shown_by(target)).collect());
        let (report, lists) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for (n, target) in targets.into_iter().enumerate() {
            let source = watching(target, ListReporter::new(n, report.clone()));
            watches.spawn(async move { source.run().await });
        }
        for (kind, needed) in needed {
            if let Some(target) = self.registry.on_demand(kind) {
                // No term waits for them: until they are listed no share grows.
                watches.spawn(watching(target, ListReporter::default()).run_while(needed));
            }
        }
        let mut probes = JoinSet::new();
        for kind in self.unserved.clone() {
            let targets = self.registry.watch_targets().into_iter();
            let targets = targets.filter(|target| self.registry.shown_by(target).contains(&kind));
            let probed: Vec<SourceWatch> = targets.map(|target| watching(target, ListReporter::default())).collect();
            probes.spawn(async move {
                for source in probed {
                    source.until_listed().await;
                }
                kind
            });
        }
        let dispatch = Dispatcher {
            client: self.client.clone(),
            registry: self.registry.clone(),
            guard: guard.clone(),
            metrics: self.metrics.clone(),
            max_in_flight: self.max_in_flight,
            call_timeout: self.call_timeout,
            answers,
            window,
            dry_run: self.dry_run.clone(),
        };
        let drain = CancellationToken::new();
        let dispatch = tokio::spawn(dispatch.run(take_calls, drain.clone()));
        Ok(Tasks { watches, dispatch, drain, events, lists, list_tracker, probes })
    }

    async fn go_on(
        &self,
        tasks: &mut Tasks,
        guard: &WriteGuard,
        stop: &CancellationToken,
    ) -> Result<Outcome, ThreadEnded> {
        let mut started = false;
        loop {
            let milestone = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(Outcome::Stopped),
                () = guard.lost() => return Ok(Outcome::Lost),
                // The next leadership lists everything and decides what it means.
                () = cluster_regressed(&mut tasks.watches) => return Ok(Outcome::Lost),
                Some(Ok(kind)) = tasks.probes.join_next() => return Ok(Outcome::Listable(kind)),
                Some(report) = tasks.lists.recv() => {
                    tasks.list_tracker.record(report);
                    let unavailable = if started { BTreeMap::new() } else { tasks.list_tracker.unavailable_kinds() };
                    if !unavailable.is_empty() {
                        return Ok(self.disable_kinds(unavailable));
                    }
                    continue;
                }
                milestone = tasks.events.recv() => milestone.ok_or(ThreadEnded)?,
            };
            match milestone {
                LeadershipEvent::TermProposed(term) => match claim(guard, term).await {
                    Some(term) => self.operator.send(Request::GrantTerm(term)).await?,
                    None => return Ok(Outcome::Lost),
                },
                LeadershipEvent::TermStarted(term) => {
                    started = true;
                    self.metrics.leads(Some(term));
                    self.metrics.ready(true);
                    self.status.set(ProcessState::Leading { term });
                    tracing::info!(%term, apis = status::join(&self.status.served_apis()), "the term serves these APIs");
                }
                LeadershipEvent::OperatorStopped(error) => return Ok(Outcome::Broken(error)),
            }
        }
    }
}

impl LeadershipContext {
    fn disable_kinds(&self, unavailable: BTreeMap<Text, String>) -> Outcome {
        for (kind, why) in &unavailable {
            tracing::error!(%kind, why, "jobs of this API are not served until its objects can be listed");
        }
        Outcome::LeaveOut(self.unserved.iter().cloned().chain(unavailable.into_keys()).collect())
    }
}

/// Waits until a watch finds that the cluster regressed.
async fn cluster_regressed(watches: &mut JoinSet<End>) {
    while let Some(ended) = watches.join_next().await {
        if matches!(ended, Ok(End::ClusterRegressed)) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Claims a term, or a greater one if that is taken; `None` if the write permission is lost.
async fn claim(guard: &WriteGuard, mut term: Term) -> Option<Term> {
    loop {
        match guard.claim(term).await {
            Ok(()) => return Some(term),
            Err(lease::Error::TermTaken { last, .. }) if last >= term => term = Term(last.0.saturating_add(1)),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), %term, "the term cannot be claimed");
                return None;
            }
        }
    }
}
