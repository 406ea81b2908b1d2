//! Lists and watches one source of a kind, for as long as somebody takes what it reports.
//!
//! Owns the list-and-watch protocol: pages, bookmarks, going on after a break, listing again when the server has forgotten
//! (410), and noticing a connection that died without a word. Nothing that was seen is dropped; whoever is slow to take it
//! slows the stream down to the server. It must not judge objects: the one exception is a node whose judged parts are
//! unchanged, because heartbeats are most of what a large cluster says.
//!
//! A cluster that was restored from a copy accepts a watch from a version that is still to come, and says nothing until then.
//! So after a failure it is asked how far it is, and a cluster that went back ends the task: whoever leads begins anew.
//!
//! A kind that several served APIs share has a source for each of them, and each source is a view by itself, with a version,
//! a watch and a back-off of its own. One view of all of them would claim the greatest version of their lists, while each
//! watch goes on from its own list: what a slower watch has yet to report would count as gone. A source that is refused
//! is tried again by itself, and readiness names it; `coverage` says when a term begins without its API.
//!
//! Tests: `watch/tests.rs`.

pub(crate) mod coverage;
pub(crate) mod decode;
mod error;
pub(crate) mod lines;
mod listing;
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
use crate::watch::coverage::{ListFailure, ListReporter};
use crate::watch::decode::Event;
use crate::watch::selection::Selection;
use crate::watch::sources::Source;

/// How long one page may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a watch may take to begin.
const WATCH_START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one watch is asked to last, in seconds: less than the five minutes after which many load balancers cut.
const WATCH_TIMEOUT_SECONDS: u32 = 270;
/// Without a word for so long, a watch is taken for dead: bookmarks come about once a minute.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// A watch that lasted so long was well: the next attempt is made at once.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(5);
/// Longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How often it is looked whether a resource that was missing has been installed.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// Time until a source that a term goes without is listed again for the first time; it doubles.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time between two attempts to list a source that a term goes without.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Attempts to go on with a watch that the server refuses before everything is listed again.
const MAX_REJECTED_WATCHES: u32 = 3;

const ACCEPT_JSON: &str = "application/json";
const ACCEPT_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Why watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nobody takes the reports any more.
    ReceiverClosed,
    /// The cluster is older than what was reported: it was restored from a copy.
    ClusterRegressed,
}

/// One source to watch.
pub struct SourceWatch {
    /// The client.
    pub client: Client,
    /// The kind.
    pub kind: Kind,
    /// The source.
    pub source: Source,
    /// Of which jobs' objects it speaks.
    pub views: JobSources,
    /// Whose objects are passed on.
    pub selection: Arc<Selection>,
    /// The served APIs, with which objects are read.
    pub registry: Registry,
    /// Where to report.
    pub news: mpsc::Sender<Observation<ObservedObject>>,
    /// What is counted.
    pub metrics: Metrics,
    /// Where troubles are told.
    pub status: StatusReporter,
    /// Reports attempts to list the source.
    pub lists: ListReporter,
}

impl SourceWatch {
    /// Watches until nobody takes the reports any more, or the cluster is older than what was reported.
    pub async fn run(self) -> End {
        let mut nodes = NodeHashes::new();
        let mut newest = ResourceVersion::default();
        let mut backoff = DefaultBackoff::default();
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
            let (started, mut progress) = (Instant::now(), false);
            let ended = tokio::select! {
                ended = self.watch_until_error(version, &mut nodes, &mut progress) => ended,
                _ = departures.changed(), if self.belongs_to_jobs() => {
                    progress = true;
                    Error::Broken("a job left the selection".to_owned())
                }
            };
            match ended {
                Error::Over => return End::ReceiverClosed,
                Error::Older => return self.cluster_regressed(),
                error => {
                    self.metrics.watch_restarted(self.kind, "expired");
                    tracing::warn!(source = %self.source, %error, "watch cannot go on; everything is listed again");
                    // A list proves nothing: a server that refuses every watch would be listed without end.
                    if started.elapsed() > BACKOFF_RESET_AFTER || progress {
                        backoff.reset();
                    } else if !self.pause(&error, "watch", &mut backoff).await {
                        return End::ReceiverClosed;
                    }
                }
            }
        }
    }

    /// Watches from a version on until that cannot go on. Without a version it waits for the source to appear.
    /// Sets `progress` once the watch has reported something.
    async fn watch_until_error(&self, version: Option<String>, nodes: &mut NodeHashes, progress: &mut bool) -> Error {
        let Some(mut version) = version else { return self.wait_until_available().await };
        let mut backoff = DefaultBackoff::default();
        let mut refusals = 0;
        let mut failed = false;
        loop {
            let (started, before) = (Instant::now(), version.clone());
            let went = async {
                if failed {
                    self.check_not_regressed(&version).await?;
                }
                self.watch(&mut version, nodes).await
            };
            let went = went.await;
            if version != before {
                *progress = true;
            }
            let error = match went {
                Ok(()) => None,
                Err(error @ (Error::Over | Error::Expired | Error::Missing | Error::Older)) => {
                    return error;
                }
                Err(error) => Some(error),
            };
            failed = error.is_some();
            // A busy server closes watches whose events it could not pass on in time. It is gone on with from the last event at
            // once: it is only watches that bring nothing that are waited for.
            if started.elapsed() > BACKOFF_RESET_AFTER || version != before {
                backoff.reset();
                refusals = 0;
                self.metrics.watch_restarted(self.kind, "closed");
                continue;
            }
            if let Some(Error::Refused(_)) = error {
                refusals += 1;
                if refusals > MAX_REJECTED_WATCHES {
                    return error.unwrap_or(Error::Expired);
                }
            }
            let error = error.unwrap_or_else(|| Error::Broken("the watch ended at once".to_owned()));
            if !self.pause(&error, "watch", &mut backoff).await {
                return Error::Over;
            }
        }
    }

    /// One watch, to its end. `version` is that of the last thing reported.
    async fn watch(&self, version: &mut String, nodes: &mut NodeHashes) -> Result<(), Error> {
        let source = &self.source;
        let params = WatchParams {
            label_selector: Some(source.selector.clone()).filter(|selector| !selector.is_empty()),
            timeout: Some(WATCH_TIMEOUT_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = kube::core::Request::new(&*source.path).watch(&params, version).map_err(failed)?;
        let accept = if source.metadata_only { ACCEPT_METADATA } else { ACCEPT_JSON };
        let answer = within(WATCH_START_TIMEOUT, exchange::send(&self.client, prepared(request, accept))).await??;
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            let text = within(WATCH_START_TIMEOUT, exchange::gather(body, &head.headers)).await??;
            return Err(rejected(head.status.as_u16(), &text));
        }
        self.status.source_error(&self.source.to_string(), None);
        let mut lines = Lines::default();
        loop {
            let Some(frame) = within(WATCH_IDLE_TIMEOUT, body.frame()).await? else { return Ok(()) };
            let frame = frame.map_err(failed)?;
            let Some(data) = frame.data_ref() else { continue };
            self.metrics.watch_heard(self.kind);
            lines.add(data);
            while let Some(line) = lines.line() {
                if line.is_empty() {
                    continue;
                }
                let event = decode::event(line, &source.object_type);
                let event = event.map_err(|error| Error::Broken(format!("unreadable watch event: {error}")))?;
                self.report(event, version, nodes).await?;
            }
            lines.forget();
        }
    }

    async fn report(&self, event: Event, version: &mut String, nodes: &mut NodeHashes) -> Result<(), Error> {
        let observation = match event {
            Event::Error(error) if is_expired(error.code) => return Err(Error::Expired),
            Event::Error(error) => return Err(Error::Refused(error)),
            Event::Bookmark(object) => {
                decode::version(&object).clone_into(version);
                return Ok(());
            }
            Event::Applied(object) => {
                decode::version(&object).clone_into(version);
                let Some(seen) = ObservedObject::read(&self.registry, Arc::new(object)) else { return Ok(()) };
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
                decode::version(&object).clone_into(version);
                let Some(seen) = ObservedObject::read(&self.registry, Arc::new(object)) else { return Ok(()) };
                if !self.shows(&seen) {
                    return Ok(());
                }
                if let ObservedObject::Node(fact) = &seen {
                    nodes.remove(&fact.name);
                }
                if self.kind == Kind::Job && self.selection.is_some() {
                    // A watch says the same of a job that lost its label as of one that is gone.
                    let exists = self.exists(&seen).await?;
                    self.selection.remove(&seen, exists);
                }
                Observation::Deleted(seen)
            }
        };
        self.news.send(observation).await.map_err(|_| Error::Over)
    }

    /// Whether a job still exists, the very same.
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

    /// Returns true if the source speaks of the object. What belongs to another API's job is that API's source's to tell.
    fn shows(&self, seen: &ObservedObject) -> bool {
        seen.job().is_none_or(|job| self.views.shows(self.kind, self.source.of.as_ref(), job))
    }

    /// Whether the kind's objects are told apart by the job they belong to.
    const fn belongs_to_jobs(&self) -> bool {
        matches!(self.kind, Kind::Pod | Kind::Service)
    }

    /// Waits until the source, which was not served, is.
    async fn wait_until_available(&self) -> Error {
        let source = &self.source;
        loop {
            tokio::time::sleep(DISCOVERY_INTERVAL).await;
            match self.version_of(&source.path, &source.object_type).await {
                Ok(_) => return Error::Broken(format!("{} is served now", source.path)),
                Err(_) if self.news.is_closed() => return Error::Over,
                Err(_) => {}
            }
        }
    }

    /// Waits until the source, which a term goes without, can be listed.
    pub(crate) async fn until_listed(&self) {
        let mut wait = MIN_RETRY_INTERVAL;
        loop {
            tokio::time::sleep(wait).await;
            match self.list_if_served().await {
                Ok(_) => return self.status.source_error(&self.source.to_string(), None),
                Err(error) => self.status.source_error(&self.source.to_string(), Some(format!("list: {error}"))),
            }
            wait = (wait * 2).min(MAX_RETRY_INTERVAL);
        }
    }

    fn cluster_regressed(&self) -> End {
        tracing::warn!(source = %self.source, "the cluster is older than it was: it was restored from a copy");
        End::ClusterRegressed
    }

    /// Waits before the next attempt; false when there shall be none.
    async fn pause(&self, error: &Error, what: &'static str, backoff: &mut DefaultBackoff) -> bool {
        if *error == Error::Over || self.news.is_closed() {
            return false;
        }
        self.metrics.watch_restarted(self.kind, "failed");
        self.status.source_error(&self.source.to_string(), Some(format!("{what}: {error}")));
        tracing::warn!(source = %self.source, what, %error, "the cluster cannot be watched; trying again");
        // Not longer: there are only a few watches, and a cluster that is back should not have to wait.
        let wait = backoff.next().unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF);
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = self.news.closed() => false,
        }
    }
}

/// What was last reported of each node, as a hash of what is judged.
type NodeHashes = HashMap<Text, u64>;

/// Name of a node, and a hash of what is judged of it. A clash of two hashes would hide a change until the next one.
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
    let late = |_| Error::Broken(format!("not a word for {limit:?}"));
    tokio::time::timeout(limit, future).await.map_err(late)
}

#[cfg(test)]
mod tests;
