//! One period of leadership: watches begin, every kind is listed, the term is claimed, calls are made; until it is over.
//!
//! Owns the order in which these begin and end. Tests: `tests/` with a real API server.

use std::sync::Arc;
use std::time::Duration;

use apis::Registry;
use kube::Client;
use model::{Kind, Term};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::client::exchange::words;
use crate::core::{Ask, Ended, Milestone, Period, Turns};
use crate::dispatch::Dispatch;
use crate::dispatch::dry_run::Rehearsal;
use crate::lease;
use crate::lease::write_guard::Guard;
use crate::metrics::Metrics;
use crate::process::status::{Board, Standing};
use crate::watch::selection::Selection;
use crate::watch::sources::{self, Scope};
use crate::watch::{End, Watching};

/// Capacity of the channel of observations, all kinds together.
const OBSERVATION_CHANNEL_CAPACITY: usize = 1024;

/// How long calls under way are waited for at the end: well within the grace period of a pod.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// What every leadership of a process has in common.
#[derive(Clone)]
pub(super) struct Ground {
    /// The client.
    pub client: Client,
    /// The served APIs.
    pub registry: Registry,
    /// Which jobs are served.
    pub scope: Scope,
    /// What is counted.
    pub metrics: Metrics,
    /// Where it is told how the process stands.
    pub board: Board,
    /// The operator's thread.
    pub turns: Turns,
    /// Most calls at once.
    pub most_at_once: usize,
    /// How long one call may take.
    pub call_limit: Duration,
    /// When writes are only printed.
    pub rehearsal: Option<Arc<Rehearsal>>,
}

/// How a leadership ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was asked to.
    Stopped,
    /// The leave to write is lost.
    Lost,
    /// The operator stopped; it may begin again.
    Broken(operator::Error),
}

/// The tasks of one leadership.
struct Tasks {
    watches: JoinSet<End>,
    dispatch: JoinHandle<()>,
    drain: CancellationToken,
    milestones: mpsc::UnboundedReceiver<Milestone>,
}

impl Ground {
    /// Leads until it is over. Whatever this began has ended when it returns.
    ///
    /// # Errors
    /// When the operator's thread has ended.
    pub(super) async fn lead(&self, guard: &Guard, stop: &CancellationToken) -> Result<Outcome, Ended> {
        self.board
            .set(Standing::Listing { missing: "lists of nodes, jobs, pods and services are under way".to_owned() });
        let mut tasks = self.begin(guard).await?;
        let outcome = self.go_on(&mut tasks, guard, stop).await;
        self.metrics.leads(None);
        self.metrics.ready(false);
        tasks.watches.abort_all();
        let stopped = matches!(outcome, Ok(Outcome::Stopped));
        if stopped {
            self.board.set(Standing::Stopping);
            // What is under way is answered, and the answers are put down; nothing new leaves.
            tasks.drain.cancel();
            let limit = self.call_limit.min(DRAIN_LIMIT);
            if tokio::time::timeout(limit, &mut tasks.dispatch).await.is_err() {
                tracing::warn!("calls were still under way at the end");
            }
        }
        tasks.dispatch.abort();
        let (reply, ended) = oneshot::channel();
        self.turns.ask(Ask::End { last_turn: stopped, reply }).await?;
        ended.await.map_err(|_| Ended)?;
        while tasks.watches.join_next().await.is_some() {}
        outcome
    }

    async fn begin(&self, guard: &Guard) -> Result<Tasks, Ended> {
        let (news, take_news) = mpsc::channel(OBSERVATION_CHANNEL_CAPACITY);
        let (answers, take_answers) = mpsc::unbounded_channel();
        let (calls, take_calls) = mpsc::unbounded_channel();
        let (tell, milestones) = mpsc::unbounded_channel();
        let period =
            Period { last_term: guard.last_term(), news: take_news, answers: take_answers, calls, milestones: tell };
        self.turns.ask(Ask::Begin(Box::new(period))).await?;
        let job_sources = sources::sources(Kind::Job, &self.registry, &self.scope).len();
        let selection = Arc::new(Selection::new(!self.scope.label_selector.is_empty(), job_sources));
        let all = Kind::ALL.into_iter().flat_map(|kind| {
            sources::sources(kind, &self.registry, &self.scope).into_iter().map(move |source| (kind, source))
        });
        let mut watches = JoinSet::new();
        for (kind, source) in all {
            let watching = Watching {
                client: self.client.clone(),
                kind,
                source,
                views: self.registry.views(),
                selection: Arc::clone(&selection),
                registry: self.registry.clone(),
                news: news.clone(),
                metrics: self.metrics.clone(),
                board: self.board.clone(),
            };
            watches.spawn(watching.run());
        }
        let dispatch = Dispatch {
            client: self.client.clone(),
            registry: self.registry.clone(),
            guard: guard.clone(),
            metrics: self.metrics.clone(),
            most_at_once: self.most_at_once,
            limit: self.call_limit,
            answers,
            rehearsal: self.rehearsal.clone(),
        };
        let drain = CancellationToken::new();
        let dispatch = tokio::spawn(dispatch.run(take_calls, drain.clone()));
        Ok(Tasks { watches, dispatch, drain, milestones })
    }

    async fn go_on(&self, tasks: &mut Tasks, guard: &Guard, stop: &CancellationToken) -> Result<Outcome, Ended> {
        loop {
            let milestone = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(Outcome::Stopped),
                () = guard.lost() => return Ok(Outcome::Lost),
                // Whoever leads next lists everything, and judges what it means.
                () = went_back(&mut tasks.watches) => return Ok(Outcome::Lost),
                milestone = tasks.milestones.recv() => milestone.ok_or(Ended)?,
            };
            match milestone {
                Milestone::Proposed(term) => match claim(guard, term).await {
                    Some(term) => self.turns.ask(Ask::Grant(term)).await?,
                    None => return Ok(Outcome::Lost),
                },
                Milestone::Begun(term) => {
                    self.metrics.leads(Some(term));
                    self.metrics.ready(true);
                    self.board.set(Standing::Leading { term });
                }
                Milestone::Stopped(error) => return Ok(Outcome::Broken(error)),
            }
        }
    }
}

/// Waits until a watch found that the cluster went back.
async fn went_back(watches: &mut JoinSet<End>) {
    while let Some(ended) = watches.join_next().await {
        if matches!(ended, Ok(End::WentBack)) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Claims a term, or a greater one if that is taken; `None` when the leave to write is lost.
async fn claim(guard: &Guard, mut term: Term) -> Option<Term> {
    loop {
        match guard.claim(term).await {
            Ok(()) => return Some(term),
            Err(lease::Error::TermTaken { last, .. }) if last >= term => term = Term(last.0.saturating_add(1)),
            Err(error) => {
                tracing::warn!(error = words(&error), %term, "the term cannot be claimed");
                return None;
            }
        }
    }
}
