//! Lists and watches one source of a kind until the receiver of its observations is closed.
//!
//! Owns the list-and-watch protocol: pages, bookmarks, resuming after an error, relisting after 410 Gone, and the idle timeout of a
//! dead connection. It drops no watch event: a slow receiver slows the stream down to the server. It must not decide what an object
//! means. It leaves out one kind of event, a node whose `NodeFact` is unchanged: heartbeats are most events of a large cluster.
//!
//! # Why not `kube_runtime::watcher`
//!
//! * The operator needs the resourceVersion of each list: it proves which objects are gone, and that the cluster did not regress.
//!   `watcher::Event::InitDone` does not carry it.
//! * Objects are decoded through a [`FieldMask`](projection::FieldMask) straight from the bytes: a field that no decision reads
//!   costs a scan and no memory. `watcher` needs a type per kind that decodes itself.
//! * Unchanged nodes are dropped by the hash of their fact, which is kept across watches of one list.
//! * A server restored from a backup accepts a watch from a future version and stays silent. After a failure the source's version
//!   is checked before the watch resumes; `watcher` resumes without a check.
//! * One list call reports a missing CRD, a rejected list or a lost label selector to readiness, each with its remedy.
//!
//! Its `DefaultBackoff` is used, that of client-go's reflector: 800 ms to 30 s, doubled, with jitter, and from the start again after two
//! minutes without a failure. Every list waits for it that follows a watch which could not resume: a list proves nothing of the next watch.
//! A watch that ended is resumed at once if it reported objects or lasted; a bookmark alone is no progress. A lease has one object and no such needs: [`lease`](crate::lease) uses `kube`'s watch.
//!
//! # Sources
//!
//! A kind that several served APIs share has one source per API, with its own list, resourceVersion, watch and back-off. One list
//! of all would carry the greatest version of the lists, while each watch resumes from its own list. Objects that a slower watch has
//! yet to report would then count as deleted. A rejected source retries by itself, and readiness names it. `list_tracker` decides
//! when a term starts without its API. The sources are tasks in a `JoinSet`: they share one bounded channel, so merging them as
//! streams would add a task switch and remove nothing.
//!
//! Tests: `watch/tests.rs`.

pub(crate) mod decode;
pub(crate) mod definitions;
mod error;
pub(crate) mod lines;
pub(crate) mod list_tracker;
pub(crate) mod listing;
pub(crate) mod projection;
pub(crate) mod selection;
pub(crate) mod sources;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use apis::{JobSources, Observation, ObservedObject, Registry};
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{GetParams, WatchParams};
use kube::client::Body;
use kube_runtime::utils::Backoff;
use kube_runtime::watcher::DefaultBackoff;
use model::{Kind, ResourceVersion, Text};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::error::{Error, failed, is_expired, rejected};
use self::lines::Lines;
use self::listing::ListResult;
use crate::client::exchange;
use crate::hash::hash;
use crate::metrics::Metrics;
use crate::process::status::StatusReporter;
use crate::watch::decode::Event;
use crate::watch::definitions::{Definitions, RARE_INTERVAL};
use crate::watch::list_tracker::{ListFailure, ListReporter};
use crate::watch::selection::Selection;
use crate::watch::sources::Source;

/// Time limit of one page of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of the response headers of a watch.
const WATCH_START_TIMEOUT: Duration = Duration::from_secs(30);
/// Requested duration of one watch, in seconds: below the idle limit of 300 s of many load balancers.
const WATCH_TIMEOUT_SECONDS: u32 = 270;
/// Time without data after which a watch counts as dead. Bookmarks come about once a minute.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// Duration after which the end of a watch is no failure.
const HEALTHY_AFTER: Duration = Duration::from_secs(5);
/// Maximum back-off between two attempts to list, or to resume a watch. There are few of them, and a recovered server should be read
/// soon.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Maximum back-off of a list after a watch that could not resume.
const MAX_RELIST_BACKOFF: Duration = Duration::from_secs(30);
/// Time until a resource whose definition is there is asked for again for the first time; it doubles.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of rejected attempts to resume a watch; after one more the source is relisted.
const MAX_REJECTED_WATCHES: u32 = 3;

const ACCEPT_JSON: &str = "application/json";
const ACCEPT_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Reason for which a source's task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The receiver of the observations is closed.
    ReceiverClosed,
    /// The cluster's resourceVersion is below an observed one: it was restored from a backup.
    ClusterRegressed,
}

/// A source to list and watch.
pub struct SourceWatch {
    /// The client.
    pub client: Client,
    /// The kind.
    pub kind: Kind,
    /// The source.
    pub source: Source,
    /// Jobs whose objects the source covers.
    pub views: JobSources,
    /// Jobs whose objects are reported.
    pub selection: Arc<Selection>,
    /// The served APIs, which read the objects.
    pub registry: Registry,
    /// Receives the observations.
    pub news: mpsc::Sender<Observation<ObservedObject>>,
    /// Metrics.
    pub metrics: Metrics,
    /// Receives errors, for readiness.
    pub status: StatusReporter,
    /// Reports attempts to list the source.
    pub lists: ListReporter,
    /// Definitions of the cluster: what is missing is asked for once its definition is there.
    pub definitions: Definitions,
}

impl SourceWatch {
    /// Lists and watches while `needed` is true, and until the receiver is closed or the cluster has regressed. Each change ends the
    /// watch, so that none continues after the operator forgot what it had reported.
    pub async fn run_while(self, mut needed: tokio::sync::watch::Receiver<bool>) -> End {
        loop {
            if needed.wait_for(|needed| *needed).await.is_err() {
                return End::ReceiverClosed;
            }
            tracing::info!(source = %self.source, "watched, because a queue reads these objects");
            tokio::select! {
                end = self.run() => return end,
                changed = needed.changed() => {
                    if changed.is_err() {
                        return End::ReceiverClosed;
                    }
                    self.status.source_error(&self.source.to_string(), None);
                }
            }
        }
    }

    /// Lists and watches until the receiver is closed or the cluster has regressed.
    pub async fn run(&self) -> End {
        let mut nodes = NodeHashes::new();
        let mut newest = ResourceVersion::default();
        let mut backoff = DefaultBackoff::default();
        let mut relists = DefaultBackoff::default();
        let mut is_withheld = false;
        loop {
            if self.belongs_to_jobs() {
                self.selection.wait_until_listed().await;
            }
            let mut departures = self.selection.departures();
            let view = match self.list_if_served().await {
                Ok(view) => view,
                Err(error) => {
                    let message = format!("{}: list: {error}", self.source);
                    self.lists.report(Err(ListFailure { refused: error.is_refusal(), message }));
                    if self.kind == Kind::Namespace && error.is_refusal() && !is_withheld {
                        is_withheld = true;
                        if self.report_none_readable().await.is_err() {
                            return End::ReceiverClosed;
                        }
                    }
                    if !self.pause(&error, "list", &mut backoff).await {
                        return End::ReceiverClosed;
                    }
                    continue;
                }
            };
            self.status.source_error(&self.source.to_string(), None);
            self.lists.report(Ok(()));
            let ListResult { version, at: rv, items } = view;
            if rv < newest {
                return self.cluster_regressed();
            }
            newest = rv;
            let items: Vec<ObservedObject> =
                items.into_iter().filter(|seen| self.shows(seen) && self.selection.includes(seen)).collect();
            if self.kind == Kind::Job {
                self.selection.listed(&self.source.path, &items);
            }
            tracing::debug!(source = %self.source, objects = items.len(), version = rv.0, "listed");
            if self.kind == Kind::Node {
                nodes = items.iter().filter_map(known).collect();
            }
            let listed = Observation::Listed { kind: self.kind, of: self.source.of.clone(), rv, items };
            if self.news.send(listed).await.is_err() {
                return End::ReceiverClosed;
            }
            let (started, mut is_failure) = (Instant::now(), version.is_some());
            let ended = tokio::select! {
                ended = self.watch_until_error(version, &mut nodes) => ended,
                _ = departures.changed(), if self.belongs_to_jobs() => {
                    is_failure = false;
                    Error::Failed("a job left the selection".to_owned())
                }
            };
            match ended {
                Error::ReceiverClosed => return End::ReceiverClosed,
                Error::ClusterRegressed => return self.cluster_regressed(),
                error => {
                    self.metrics.watch_restarted(&self.source.watch_name(), "expired");
                    tracing::warn!(source = %self.source, %error, "the watch cannot resume; the source is relisted");
                    if is_failure && started.elapsed() < HEALTHY_AFTER {
                        self.failed(&error, "watch");
                    }
                    let wait = relists.next().unwrap_or(MAX_RELIST_BACKOFF).min(MAX_RELIST_BACKOFF);
                    if is_failure && !self.wait(wait).await {
                        return End::ReceiverClosed;
                    }
                }
            }
        }
    }

    /// Reports an empty list, older than any other: without the right to list namespaces their names alone are known, and queues do not
    /// wait for more.
    async fn report_none_readable(&self) -> Result<(), Error> {
        tracing::warn!(source = %self.source, "queues select namespaces by their names alone until they can be listed");
        let (of, rv) = (self.source.of.clone(), ResourceVersion(1));
        let none = Observation::Listed { kind: self.kind, of, rv, items: Vec::new() };
        self.news.send(none).await.map_err(|_| Error::ReceiverClosed)
    }

    /// Watches from a version until it cannot resume. Without a version it waits until the source is served.
    async fn watch_until_error(&self, version: Option<String>, nodes: &mut NodeHashes) -> Error {
        let Some(version) = version else { return self.wait_until_available().await };
        let mut at = Progress { version, objects: 0 };
        let mut backoff = DefaultBackoff::default();
        let mut refusals = 0;
        let mut failed = false;
        loop {
            let (started, before) = (Instant::now(), at.objects);
            let went = async {
                if failed {
                    self.check_not_regressed(&at.version).await?;
                }
                self.watch(&mut at, nodes).await
            };
            let went = went.await;
            let error = match went {
                Ok(()) => None,
                Err(error @ (Error::ReceiverClosed | Error::Expired | Error::NotServed | Error::ClusterRegressed)) => {
                    return error;
                }
                Err(error) => Some(error),
            };
            failed = error.is_some();
            // A busy server closes watches whose events it could not send in time. They resume from the last event at once. Only
            // short watches without events back off.
            if started.elapsed() > HEALTHY_AFTER || at.objects != before {
                backoff.reset();
                refusals = 0;
                self.metrics.watch_restarted(&self.source.watch_name(), "closed");
                continue;
            }
            if let Some(Error::Rejected(_)) = error {
                refusals += 1;
                if refusals > MAX_REJECTED_WATCHES {
                    return error.unwrap_or(Error::Expired);
                }
            }
            let error = error.unwrap_or_else(|| Error::Failed("the watch ended at once".to_owned()));
            if !self.pause(&error, "watch", &mut backoff).await {
                return Error::ReceiverClosed;
            }
        }
    }

    /// Runs one watch to its end, from the version of the last event.
    async fn watch(&self, at: &mut Progress, nodes: &mut NodeHashes) -> Result<(), Error> {
        let source = &self.source;
        let params = WatchParams {
            label_selector: Some(source.selector.clone()).filter(|selector| !selector.is_empty()),
            timeout: Some(WATCH_TIMEOUT_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = kube::core::Request::new(&*source.path).watch(&params, &at.version).map_err(failed)?;
        let accept = if source.metadata_only { ACCEPT_METADATA } else { ACCEPT_JSON };
        let answer = within(WATCH_START_TIMEOUT, exchange::send(&self.client, prepared(request, accept))).await??;
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            let text = within(WATCH_START_TIMEOUT, exchange::gather(body, &head.headers)).await??;
            return Err(rejected(head.status.as_u16(), &text));
        }
        self.status.source_error(&self.source.to_string(), None);
        let (name, mut lines) = (source.watch_name(), Lines::default());
        loop {
            let Some(frame) = within(WATCH_IDLE_TIMEOUT, body.frame()).await? else { return Ok(()) };
            let frame = frame.map_err(failed)?;
            let Some(data) = frame.data_ref() else { continue };
            self.metrics.watch_heard(&name);
            lines.add(data);
            while let Some(line) = lines.line() {
                if line.is_empty() {
                    continue;
                }
                let event = decode::event(line, &source.object_type);
                let event = event.map_err(|error| Error::Failed(format!("unreadable watch event: {error}")))?;
                self.report(event, at, nodes).await?;
            }
            lines.forget();
        }
    }

    async fn report(&self, event: Event, at: &mut Progress, nodes: &mut NodeHashes) -> Result<(), Error> {
        let observation = match event {
            Event::Error(error) if is_expired(error.code) => return Err(Error::Expired),
            Event::Error(error) => return Err(Error::Rejected(error)),
            Event::Unread(error) => {
                self.unread(&error);
                return Ok(());
            }
            Event::Bookmark(object) => {
                decode::version(&object).clone_into(&mut at.version);
                return Ok(());
            }
            Event::Applied(object) => {
                at.reached(&object);
                let read = ObservedObject::read_of(&self.registry, self.kind, Arc::new(object));
                let Some(seen) = read else { return Ok(()) };
                if let Some((name, judged)) = known(&seen)
                    && nodes.insert(name, judged) == Some(judged)
                {
                    return Ok(());
                }
                if !self.shows(&seen) || !self.selection.includes(&seen) {
                    return Ok(());
                }
                if self.kind == Kind::Job {
                    self.selection.add(&self.source.path, &seen);
                }
                Observation::Applied(seen)
            }
            Event::Deleted(object) => {
                at.reached(&object);
                let read = ObservedObject::read_of(&self.registry, self.kind, Arc::new(object));
                let Some(seen) = read else { return Ok(()) };
                if !self.shows(&seen) {
                    return Ok(());
                }
                if let ObservedObject::Node(fact) = &seen {
                    nodes.remove(&fact.name);
                }
                if self.kind == Kind::Job && self.selection.is_some() {
                    // A watch reports a job that lost its label as deleted.
                    let exists = self.exists(&seen).await?;
                    self.selection.remove(&seen, exists);
                }
                Observation::Deleted(seen)
            }
        };
        self.news.send(observation).await.map_err(|_| Error::ReceiverClosed)
    }

    /// Returns true if the job still exists with the same uid.
    async fn exists(&self, seen: &ObservedObject) -> Result<bool, Error> {
        let source = &self.source;
        let ObservedObject::Job(key, _) = seen else { return Ok(false) };
        let path =
            crate::watch::sources::collection(&source.object_type.api_version, source.plural, Some(&key.namespace));
        let request = kube::core::Request::new(path).get(&key.name, &GetParams::default()).map_err(failed)?;
        let answer = exchange::exchange(&self.client, prepared(request, ACCEPT_METADATA), LIST_TIMEOUT).await?;
        match answer.status.as_u16() {
            404 => Ok(false),
            code if !answer.status.is_success() => Err(rejected(code, &answer.body)),
            _ => {
                let object = decode::object(&answer.body, &source.object_type).map_err(failed)?;
                Ok(apis::objects::uid(&object).is_ok_and(|uid| uid == key.uid))
            }
        }
    }

    /// Returns true if the source covers the object. Objects of another API's job are reported by that API's source.
    fn shows(&self, seen: &ObservedObject) -> bool {
        seen.job().is_none_or(|job| self.views.shows(self.kind, self.source.of.as_ref(), job))
    }

    /// Returns true if objects of the kind belong to a job.
    const fn belongs_to_jobs(&self) -> bool {
        matches!(self.kind, Kind::Pod | Kind::Service | Kind::Owned)
    }

    /// Waits until the source is served.
    async fn wait_until_available(&self) -> Error {
        let source = &self.source;
        let name = definitions::name_of(&source.object_type.api_version, source.plural).unwrap_or_default();
        let mut definitions = self.definitions.clone();
        let mut wait = DISCOVERY_INTERVAL;
        loop {
            tokio::select! {
                () = definitions.until_present(&name) => {}
                () = self.news.closed() => return Error::ReceiverClosed,
            }
            if self.version_of(&source.path, &source.object_type).await.is_ok() {
                return Error::Failed(format!("{} is served now", source.path));
            }
            // A definition is served shortly after it is created, and is there for a while after its resource is not.
            if !self.wait(wait).await {
                return Error::ReceiverClosed;
            }
            wait = (wait * 2).min(RARE_INTERVAL);
        }
    }

    fn cluster_regressed(&self) -> End {
        tracing::warn!(source = %self.source, "the cluster's resourceVersion went backwards: was it restored from a backup? a new leadership lists everything");
        End::ClusterRegressed
    }

    /// Waits before the next attempt. Returns false if the receiver is closed.
    async fn pause(&self, error: &Error, what: &'static str, backoff: &mut DefaultBackoff) -> bool {
        if *error == Error::ReceiverClosed || self.news.is_closed() {
            return false;
        }
        self.failed(error, what);
        self.wait(backoff.next().unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF)).await
    }

    /// Reports an object that cannot be read. It counts as absent.
    fn unread(&self, error: &serde_json::Error) {
        tracing::warn!(source = %self.source, %error, "an object cannot be read and is left out");
    }

    /// Reports a list or watch that failed.
    fn failed(&self, error: &Error, what: &'static str) {
        self.metrics.watch_restarted(&self.source.watch_name(), "failed");
        self.status.source_error(&self.source.to_string(), Some(format!("{what}: {error}")));
        tracing::warn!(source = %self.source, what, %error, "the list or watch failed; retrying");
    }

    /// Waits. Returns false if the receiver is closed.
    async fn wait(&self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            () = self.news.closed() => false,
        }
    }
}

/// Position of a watch.
struct Progress {
    /// Version of its last event.
    version: String,
    /// Number of objects that it reported.
    objects: u64,
}

impl Progress {
    fn reached(&mut self, object: &serde_json::Value) {
        decode::version(object).clone_into(&mut self.version);
        self.objects += 1;
    }
}

/// Hash of the last reported `NodeFact` of each node.
type NodeHashes = HashMap<Text, u64>;

/// Returns the name of a node and the hash of its fact. A clash of two hashes would hide a change until the next one.
fn known(seen: &ObservedObject) -> Option<(Text, u64)> {
    let ObservedObject::Node(node) = seen else { return None };
    Some((node.name.clone(), hash(&node.judged())))
}

fn prepared(request: Request<Vec<u8>>, accept: &'static str) -> Request<Body> {
    let mut request = request.map(Body::from);
    request.headers_mut().insert(http::header::ACCEPT, HeaderValue::from_static(accept));
    request
}

async fn within<F: Future>(limit: Duration, future: F) -> Result<F::Output, Error> {
    let late = |_| Error::Failed(format!("no data for {limit:?}"));
    tokio::time::timeout(limit, future).await.map_err(late)
}

#[cfg(test)]
mod tests;
