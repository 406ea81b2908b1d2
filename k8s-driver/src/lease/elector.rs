//! Runs a candidate: it watches the Lease and acquires it once it is released or expired.
//!
//! Owns reading the Lease between two holds. The `renewer` alone writes it while it is held.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::hold::{LeaseHold, Shared};
use super::record::{self, Change, Leader};
use super::renewer::Renewer;
use super::{Error, LeaseOptions, announce};
use crate::client::exchange::error_chain;
use crate::metrics::{LeaseOutcome, Metrics};

/// Maximum duration of one watch, in seconds. It bounds how long a broken connection stays unnoticed.
const WATCH_TIMEOUT_SECONDS: u32 = 240;

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Lease>>> + Send>>;

/// A candidate for leadership, for the lifetime of the process: it acquires one hold after another.
pub struct Elector {
    client: Client,
    api: Api<Lease>,
    options: LeaseOptions,
    metrics: Metrics,
    observed: Option<ObservedLease>,
    /// Greatest term read, even from a Lease that is deleted since.
    last_term: model::Term,
    leader: watch::Sender<Option<Leader>>,
    /// Renewer of the current or last hold. It returns the Lease as it last knew it.
    renewer: Option<JoinHandle<(Lease, Instant)>>,
}

/// The Lease as it was last read.
struct ObservedLease {
    lease: Lease,
    /// Time at which this renewal was first read.
    at: Instant,
    /// The Lease is deleted since. Its holder may not know that yet.
    deleted: bool,
}

/// Next step of a candidate.
enum NextStep {
    /// Acquire the Lease: it has no holder, or it expired.
    Take,
    /// Wait: another process holds the Lease until then.
    Wait(Instant),
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Elector {
    /// Creates a candidate with these settings. `client` must not retry by itself.
    pub fn new(client: Client, options: LeaseOptions, metrics: Metrics) -> Self {
        let api = Api::namespaced(client.clone(), &options.namespace);
        let leader = watch::Sender::new(None);
        let last_term = model::Term::default();
        Self { client, api, options, metrics, observed: None, last_term, leader, renewer: None }
    }

    /// Returns the leader that this candidate last read, kept up to date while [`Self::acquire`] waits.
    pub fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.leader.subscribe()
    }

    /// Waits until this process leads. The future may be dropped at any point. The Lease may then be held by this process until
    /// it expires.
    ///
    /// # Errors
    /// [`Error::Options`] if the settings contradict each other. Every other error is retried.
    pub async fn acquire(&mut self) -> Result<LeaseHold, Error> {
        self.options.check()?;
        if let Some(renewer) = self.renewer.take()
            && let Ok((lease, at)) = renewer.await
        {
            self.observe(lease, at);
        }
        let mut events: Option<Events> = None;
        let mut last_event_at = Instant::now();
        loop {
            if events.is_none() {
                match self.read().await {
                    Ok(()) => {}
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::warn!(lease = %self.options.name, error, "the Lease cannot be read; retrying");
                        tokio::time::sleep(record::jittered(self.options.retry_period)).await;
                        continue;
                    }
                }
                last_event_at = Instant::now();
            }
            let until = match self.next() {
                NextStep::Take => {
                    events = None;
                    match self.take().await {
                        Some(hold) => return Ok(hold),
                        None => tokio::time::sleep(record::jittered(self.options.retry_period / 20)).await,
                    }
                    continue;
                }
                NextStep::Wait(until) => until,
            };
            if events.is_none() {
                events = self.watch().await;
            }
            // A live holder renews more often than this. Without an event the holder is gone, or the watch is dead.
            let silent_at = last_event_at + record::jittered(self.options.retry_period * 2);
            let event = tokio::select! {
                event = next_event(&mut events) => event,
                () = sleep_until(until) => continue,
                () = sleep_until(silent_at) => None,
            };
            match event {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    last_event_at = Instant::now();
                    self.observe(lease, last_event_at);
                }
                Some(Ok(WatchEvent::Deleted(_))) => {
                    last_event_at = Instant::now();
                    self.observe_deleted(last_event_at);
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => events = None,
            }
        }
    }

    fn next(&self) -> NextStep {
        let Some(observed) = &self.observed else { return NextStep::Take };
        match record::holder(&observed.lease) {
            None => NextStep::Take,
            Some(holder) if holder == self.options.identity => NextStep::Take,
            Some(_) => {
                let until = observed.at + record::duration(&observed.lease, self.options.duration);
                if until <= Instant::now() { NextStep::Take } else { NextStep::Wait(until) }
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
        let observed = self.observed.as_ref().filter(|observed| !observed.deleted)?;
        let version = observed.lease.metadata.resource_version.as_deref()?;
        let fields = format!("metadata.name={}", self.options.name);
        let params = WatchParams::default().fields(&fields).timeout(WATCH_TIMEOUT_SECONDS).disable_bookmarks();
        match timeout(self.options.attempt_timeout(), self.api.watch(&params, version)).await {
            Ok(Ok(events)) => Some(Box::pin(events)),
            // Without a watch the Lease is polled.
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "the Lease cannot be watched; polling it");
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
        let first_seen = match &self.observed {
            Some(observed) if !observed.deleted && record::same_renewal(&observed.lease, &lease) => observed.at,
            _ => at,
        };
        self.observed = Some(ObservedLease { lease, at: first_seen, deleted: false });
    }

    fn observe_deleted(&mut self, at: Instant) {
        if let Some(observed) = &mut self.observed
            && !observed.deleted
        {
            (observed.deleted, observed.at) = (true, at);
        }
    }

    /// Tries once to acquire the Lease.
    async fn take(&mut self) -> Option<LeaseHold> {
        let before = self.observed.as_ref().filter(|observed| !observed.deleted).map(|observed| &observed.lease);
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
            Ok(Ok(lease)) => Some(self.start_hold(lease, sent)),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                self.metrics.lease_attempt(LeaseOutcome::Conflict);
                None
            }
            Ok(Err(error)) => {
                self.metrics.lease_attempt(LeaseOutcome::Failed);
                let error = error_chain(&error);
                tracing::warn!(lease = %self.options.name, error, "the Lease cannot be acquired; retrying");
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

    fn start_hold(&mut self, lease: Lease, sent: Instant) -> LeaseHold {
        self.metrics.lease_attempt(LeaseOutcome::Acquired);
        self.observe(lease.clone(), Instant::now());
        announce::became_leader(self.client.clone(), &lease, &self.options);
        let shared = Shared::new(sent + self.options.renew_deadline, self.last_term);
        let (requests, receiver) = mpsc::channel(4);
        let renewer = Renewer {
            api: self.api.clone(),
            options: self.options.clone(),
            metrics: self.metrics.clone(),
            shared: shared.clone(),
            lease,
            renewed: sent,
            requests: receiver,
        };
        self.renewer = Some(tokio::spawn(renewer.run()));
        tracing::info!(lease = %self.options.name, identity = %self.options.identity, "leading");
        LeaseHold { shared, requests }
    }
}

/// Returns the next event; stays pending without a watch.
async fn next_event(events: &mut Option<Events>) -> Option<kube::Result<WatchEvent<Lease>>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}
