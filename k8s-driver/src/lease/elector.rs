//! A candidate: watches the Lease and takes it over when it may.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::keeper::Keeper;
use super::record::{self, Change, Leader};
use super::tenure::{Shared, Tenure};
use super::{Error, LeaseOptions, announce};
use crate::client::exchange::words;
use crate::metrics::{LeaseOutcome, Metrics};

/// How long one watch may last. Shorter than a connection that broke silently should stay unnoticed.
const WATCH_SECONDS: u32 = 240;

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Lease>>> + Send>>;

/// A candidate for leadership, for the whole life of the process: one tenure after another.
pub struct Elector {
    client: Client,
    api: Api<Lease>,
    options: LeaseOptions,
    metrics: Metrics,
    seen: Option<Seen>,
    /// The greatest term seen, whatever became of the Lease since.
    last_term: model::Term,
    leader: watch::Sender<Option<Leader>>,
    /// The keeper of the present or last tenure: it gives back what it knows of the Lease.
    keeper: Option<JoinHandle<(Lease, Instant)>>,
}

/// The newest reading of the Lease.
struct Seen {
    lease: Lease,
    /// When this renewal of it was first seen.
    at: Instant,
    /// It is deleted since; who held it may still believe so.
    deleted: bool,
}

/// What a candidate does next.
enum Next {
    /// Nobody holds it, or its time is over.
    Take,
    /// Somebody else holds it until then.
    Wait(Instant),
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Elector {
    /// A candidate with these settings. `client` must not retry by itself.
    pub fn new(client: Client, options: LeaseOptions, metrics: Metrics) -> Self {
        let api = Api::namespaced(client.clone(), &options.namespace);
        let leader = watch::Sender::new(None);
        let last_term = model::Term::default();
        Self { client, api, options, metrics, seen: None, last_term, leader, keeper: None }
    }

    /// Who leads, as this candidate last saw it; kept up to date while [`Self::acquire`] waits.
    pub fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.leader.subscribe()
    }

    /// Waits until this process leads. Giving up waiting is safe at any point, except that the Lease may then be held by this
    /// process until it runs out.
    ///
    /// # Errors
    /// [`Error::Options`] when the settings do not fit together. Everything else is tried again.
    pub async fn acquire(&mut self) -> Result<Tenure, Error> {
        self.options.check()?;
        if let Some(keeper) = self.keeper.take()
            && let Ok((lease, at)) = keeper.await
        {
            self.observe(lease, at);
        }
        let mut events: Option<Events> = None;
        let mut heard = Instant::now();
        loop {
            if events.is_none() {
                match self.read().await {
                    Ok(()) => {}
                    Err(error) => {
                        let error = words(&error);
                        tracing::warn!(lease = %self.options.name, error, "the lease cannot be read; trying again");
                        tokio::time::sleep(record::jittered(self.options.retry_period)).await;
                        continue;
                    }
                }
                heard = Instant::now();
            }
            let until = match self.next() {
                Next::Take => {
                    events = None;
                    match self.take().await {
                        Some(tenure) => return Ok(tenure),
                        None => tokio::time::sleep(record::jittered(self.options.retry_period / 20)).await,
                    }
                    continue;
                }
                Next::Wait(until) => until,
            };
            if events.is_none() {
                events = self.watch().await;
            }
            // A living holder renews more often than this: silence means that it is gone or that the watch is dead.
            let listen = heard + record::jittered(self.options.retry_period * 2);
            let event = tokio::select! {
                event = following(&mut events) => event,
                () = sleep_until(until) => continue,
                () = sleep_until(listen) => None,
            };
            match event {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    heard = Instant::now();
                    self.observe(lease, heard);
                }
                Some(Ok(WatchEvent::Deleted(_))) => {
                    heard = Instant::now();
                    self.observe_deleted(heard);
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => events = None,
            }
        }
    }

    fn next(&self) -> Next {
        let Some(seen) = &self.seen else { return Next::Take };
        match record::holder(&seen.lease) {
            None => Next::Take,
            Some(holder) if holder == self.options.identity => Next::Take,
            Some(_) => {
                let until = seen.at + record::duration(&seen.lease, self.options.duration);
                if until <= Instant::now() { Next::Take } else { Next::Wait(until) }
            }
        }
    }

    async fn read(&mut self) -> Result<(), kube::Error> {
        let limit = self.options.attempt_timeout();
        let answer = timeout(limit, self.api.get_opt(&self.options.name)).await;
        let at = Instant::now();
        match answer {
            Ok(Ok(Some(lease))) => self.observe(lease, at),
            Ok(Ok(None)) => self.observe_deleted(at),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(kube::Error::Service("no answer in time".into())),
        }
        Ok(())
    }

    async fn watch(&self) -> Option<Events> {
        let seen = self.seen.as_ref().filter(|seen| !seen.deleted)?;
        let version = seen.lease.metadata.resource_version.as_deref()?;
        let fields = format!("metadata.name={}", self.options.name);
        let params = WatchParams::default().fields(&fields).timeout(WATCH_SECONDS).disable_bookmarks();
        match timeout(self.options.attempt_timeout(), self.api.watch(&params, version)).await {
            Ok(Ok(events)) => Some(Box::pin(events)),
            // Without a watch the Lease is read again and again.
            Ok(Err(error)) => {
                tracing::debug!(error = words(&error), "the lease cannot be watched");
                None
            }
            Err(_) => None,
        }
    }

    fn observe(&mut self, lease: Lease, at: Instant) {
        self.last_term = self.last_term.max(record::term(&lease));
        let leader = record::leader(&lease);
        self.leader.send_if_modified(|known| {
            let changed = *known != leader;
            *known = leader;
            changed
        });
        let first_seen = match &self.seen {
            Some(seen) if !seen.deleted && record::same_renewal(&seen.lease, &lease) => seen.at,
            _ => at,
        };
        self.seen = Some(Seen { lease, at: first_seen, deleted: false });
    }

    fn observe_deleted(&mut self, at: Instant) {
        if let Some(seen) = &mut self.seen
            && !seen.deleted
        {
            (seen.deleted, seen.at) = (true, at);
        }
    }

    /// Tries to take the Lease over, once.
    async fn take(&mut self) -> Option<Tenure> {
        let before = self.seen.as_ref().filter(|seen| !seen.deleted).map(|seen| &seen.lease);
        let lease = record::changed(before, Change::Acquire, self.last_term, &self.options);
        let params = PostParams::default();
        let sent = Instant::now();
        let write = async {
            match before {
                Some(_) => self.api.replace(&self.options.name, &params, &lease).await,
                None => self.api.create(&params, &lease).await,
            }
        };
        match timeout(self.options.attempt_timeout(), write).await {
            Ok(Ok(lease)) => Some(self.begin(lease, sent)),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                self.metrics.lease_attempt(LeaseOutcome::Conflict);
                None
            }
            Ok(Err(error)) => {
                self.metrics.lease_attempt(LeaseOutcome::Failed);
                let error = words(&error);
                tracing::warn!(lease = %self.options.name, error, "the lease cannot be taken; trying again");
                self.pause().await;
                None
            }
            Err(_) => {
                self.metrics.lease_attempt(LeaseOutcome::Failed);
                None
            }
        }
    }

    async fn pause(&self) {
        let period: Duration = record::jittered(self.options.retry_period);
        tokio::time::sleep(period).await;
    }

    fn begin(&mut self, lease: Lease, sent: Instant) -> Tenure {
        self.metrics.lease_attempt(LeaseOutcome::Acquired);
        self.observe(lease.clone(), Instant::now());
        announce::became_leader(self.client.clone(), &lease, &self.options);
        let shared = Shared::new(sent + self.options.renew_deadline, self.last_term);
        let (asks, receiver) = mpsc::channel(4);
        let keeper = Keeper {
            api: self.api.clone(),
            options: self.options.clone(),
            metrics: self.metrics.clone(),
            shared: shared.clone(),
            lease,
            renewed: sent,
            asks: receiver,
        };
        self.keeper = Some(tokio::spawn(keeper.run()));
        tracing::info!(lease = %self.options.name, identity = %self.options.identity, "leading");
        Tenure { shared, asks }
    }
}

/// The next event; waits for ever when there is no watch.
async fn following(events: &mut Option<Events>) -> Option<kube::Result<WatchEvent<Lease>>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}
