//! Lists and watches one kind, for as long as somebody takes what it reports.
//!
//! Owns the list-and-watch protocol: pages, bookmarks, going on after a break, listing again when the server has forgotten
//! (410), and noticing a connection that died without a word. Nothing that was seen is dropped; whoever is slow to take it
//! slows the stream down to the server. It must not judge objects: the one exception is a node whose judged parts are
//! unchanged, because heartbeats are most of what a large cluster says.
//!
//! A cluster that was restored from a copy accepts a watch from a version that is still to come, and says nothing until then.
//! So after a failure it is asked how far it is, and a cluster that went back ends the task: whoever leads begins anew.
//!
//! A kind that several served APIs share (jobs) is one view: all of its sources are listed, then all are watched from there,
//! and when one has to be listed again, all are. The version of the view is the greatest of theirs. That is right
//! because no watch begins before all lists are done: whatever is older than the view and not in it is gone, and
//! whatever came later is yet to be reported. The versions of custom resources count together in one store.
//!
//! Tests: `watching/tests.rs`.

pub mod lines;
mod listing;
mod trouble;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apis::{Observation, Registry, Seen};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{GetParams, WatchParams};
use kube::client::Body;
use kube_runtime::utils::Backoff;
use kube_runtime::watcher::DefaultBackoff;
use model::{Kind, ResourceVersion, Text};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use self::lines::Lines;
use self::trouble::{Trouble, broken, is_expired, trouble};
use crate::decode::{self, Event};
use crate::hash::hash;
use crate::metrics::Metrics;
use crate::selection::Selection;
use crate::sources::Source;
use crate::standing::Board;
use crate::wire;

/// How long one page may take.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// How long a watch may take to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);
/// How long one watch is asked to last, in seconds: less than the five minutes after which many load balancers cut.
const WATCH_SECONDS: u32 = 270;
/// Without a word for so long, a watch is taken for dead: bookmarks come about once a minute.
const DEAD_AFTER: Duration = Duration::from_secs(150);
/// A watch that lasted so long was well: the next attempt is made at once.
const WELL_AFTER: Duration = Duration::from_secs(5);
/// Longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often it is looked whether a resource that was missing has been installed.
const MISSING_LOOK: Duration = Duration::from_secs(5);
/// Attempts to go on with a watch that the server refuses before everything is listed again.
const MOST_REFUSALS: u32 = 3;

const WHOLE: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Why watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nobody takes the reports any more.
    Unheard,
    /// The cluster is older than what was reported: it was restored from a copy.
    WentBack,
}

/// One kind to watch.
pub struct Watching {
    /// The client.
    pub client: Client,
    /// The kind.
    pub kind: Kind,
    /// Its sources.
    pub sources: Vec<Source>,
    /// Whose objects are passed on.
    pub selection: Arc<Selection>,
    /// The served APIs, with which objects are read.
    pub registry: Registry,
    /// Where to report.
    pub news: mpsc::Sender<Observation<Seen>>,
    /// What is counted.
    pub metrics: Metrics,
    /// Where troubles are told.
    pub board: Board,
}

impl Watching {
    /// Watches until nobody takes the reports any more, or the cluster is older than what was reported.
    pub async fn run(self) -> End {
        let nodes = Mutex::new(HashMap::new());
        let mut newest = ResourceVersion::default();
        let mut backoff = DefaultBackoff::default();
        loop {
            if self.belongs_to_jobs() {
                self.selection.known().await;
            }
            let mut departures = self.selection.departures();
            let views = match self.list_all().await {
                Ok(views) => views,
                Err(trouble) => {
                    if !self.pause(&trouble, "list", &mut backoff).await {
                        return End::Unheard;
                    }
                    continue;
                }
            };
            self.board.trouble(self.kind, None);
            let versions: Vec<Option<String>> = views.iter().map(|view| view.version.clone()).collect();
            let rv = views.iter().map(|view| view.at).max().unwrap_or_default();
            if rv < newest {
                return self.went_back();
            }
            newest = rv;
            let items = views.into_iter().flat_map(|view| view.items);
            let items: Vec<Seen> = items.filter(|seen| self.selection.takes(seen)).collect();
            if self.kind == Kind::Job {
                self.selection.listed(&items);
            }
            tracing::debug!(kind = ?self.kind, objects = items.len(), version = rv.0, "listed");
            if self.kind == Kind::Node {
                *nodes.lock().await = items.iter().filter_map(known).collect();
            }
            if self.news.send(Observation::Listed { kind: self.kind, rv, items }).await.is_err() {
                return End::Unheard;
            }
            let (begun, progress) = (Instant::now(), AtomicBool::new(false));
            let pairs = self.sources.iter().zip(versions);
            let mut watches: FuturesUnordered<_> =
                pairs.map(|(source, version)| self.keep_watching(source, version, &nodes, &progress)).collect();
            // The first that cannot go on ends all: the next view is of all sources.
            let ended = tokio::select! {
                ended = watches.next() => ended,
                _ = departures.changed(), if self.belongs_to_jobs() => {
                    progress.store(true, Ordering::Relaxed);
                    Some(Trouble::Broken("a job left the selection".to_owned()))
                }
            };
            match ended {
                Some(Trouble::Over) | None => return End::Unheard,
                Some(Trouble::Older) => return self.went_back(),
                Some(trouble) => {
                    self.metrics.watch_restarted(self.kind, "expired");
                    tracing::warn!(kind = ?self.kind, %trouble, "watch cannot go on; everything is listed again");
                    // A list proves nothing: a server that refuses every watch would be listed without end.
                    if begun.elapsed() > WELL_AFTER || progress.load(Ordering::Relaxed) {
                        backoff.reset();
                    } else if !self.pause(&trouble, "watch", &mut backoff).await {
                        return End::Unheard;
                    }
                }
            }
        }
    }

    /// Watches a source from a version on until it cannot go on. Without a version it waits for the source to appear.
    /// Sets `progress` once the watch has reported something.
    async fn keep_watching(
        &self,
        source: &Source,
        version: Option<String>,
        nodes: &Known,
        progress: &AtomicBool,
    ) -> Trouble {
        let Some(mut version) = version else { return self.wait_for(source).await };
        let mut backoff = DefaultBackoff::default();
        let mut refusals = 0;
        let mut failed = false;
        loop {
            let (begun, before) = (Instant::now(), version.clone());
            let went = async {
                if failed {
                    self.reaches(source, &version).await?;
                }
                self.watch(source, &mut version, nodes).await
            };
            let went = went.await;
            if version != before {
                progress.store(true, Ordering::Relaxed);
            }
            let trouble = match went {
                Ok(()) => None,
                Err(trouble @ (Trouble::Over | Trouble::Expired | Trouble::Missing | Trouble::Older)) => {
                    return trouble;
                }
                Err(trouble) => Some(trouble),
            };
            failed = trouble.is_some();
            // A busy server closes watches whose events it could not pass on in time. It is gone on with from the last event at
            // once: it is only watches that bring nothing that are waited for.
            if begun.elapsed() > WELL_AFTER || version != before {
                backoff.reset();
                refusals = 0;
                self.metrics.watch_restarted(self.kind, "closed");
                continue;
            }
            if let Some(Trouble::Refused(_)) = trouble {
                refusals += 1;
                if refusals > MOST_REFUSALS {
                    return trouble.unwrap_or(Trouble::Expired);
                }
            }
            let trouble = trouble.unwrap_or_else(|| Trouble::Broken("the watch ended at once".to_owned()));
            if !self.pause(&trouble, "watch", &mut backoff).await {
                return Trouble::Over;
            }
        }
    }

    /// One watch, to its end. `version` is that of the last thing reported.
    async fn watch(&self, source: &Source, version: &mut String, nodes: &Known) -> Result<(), Trouble> {
        let params = WatchParams {
            label_selector: Some(source.selector.clone()).filter(|selector| !selector.is_empty()),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = kube::core::Request::new(&*source.path).watch(&params, version).map_err(broken)?;
        let accept = if source.metadata_only { METADATA } else { WHOLE };
        let answer = within(BEGIN_LIMIT, wire::send(&self.client, prepared(request, accept))).await??;
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            let text = within(BEGIN_LIMIT, wire::gather(body, &head.headers)).await??;
            return Err(trouble(head.status.as_u16(), &text));
        }
        let mut lines = Lines::default();
        loop {
            let Some(frame) = within(DEAD_AFTER, body.frame()).await? else { return Ok(()) };
            let frame = frame.map_err(broken)?;
            let Some(data) = frame.data_ref() else { continue };
            self.metrics.watch_heard(self.kind);
            lines.add(data);
            while let Some(line) = lines.line() {
                if line.is_empty() {
                    continue;
                }
                let event = decode::event(line, &source.shape);
                let event = event.map_err(|error| Trouble::Broken(format!("unreadable watch event: {error}")))?;
                self.report(event, source, version, nodes).await?;
            }
            lines.forget();
        }
    }

    async fn report(&self, event: Event, source: &Source, version: &mut String, nodes: &Known) -> Result<(), Trouble> {
        let observation = match event {
            Event::Error(error) if is_expired(error.code) => return Err(Trouble::Expired),
            Event::Error(error) => return Err(Trouble::Refused(error)),
            Event::Bookmark(object) => {
                decode::version(&object).clone_into(version);
                return Ok(());
            }
            Event::Applied(object) => {
                decode::version(&object).clone_into(version);
                let Some(seen) = Seen::read(&self.registry, Arc::new(object)) else { return Ok(()) };
                if let Some((name, judged)) = known(&seen)
                    && nodes.lock().await.insert(name, judged) == Some(judged)
                {
                    return Ok(());
                }
                if !self.selection.takes(&seen) {
                    return Ok(());
                }
                if self.kind == Kind::Job {
                    self.selection.add(&seen);
                }
                Observation::Applied(seen)
            }
            Event::Deleted(object) => {
                decode::version(&object).clone_into(version);
                let Some(seen) = Seen::read(&self.registry, Arc::new(object)) else { return Ok(()) };
                if let Seen::Node(fact) = &seen {
                    nodes.lock().await.remove(&fact.name);
                }
                if self.kind == Kind::Job && self.selection.is_some() {
                    // A watch says the same of a job that lost its label as of one that is gone.
                    let exists = self.exists(&seen, source).await?;
                    self.selection.remove(&seen, exists);
                }
                Observation::Deleted(seen)
            }
        };
        self.news.send(observation).await.map_err(|_| Trouble::Over)
    }

    /// Whether a job still exists, the very same.
    async fn exists(&self, seen: &Seen, source: &Source) -> Result<bool, Trouble> {
        let Seen::Job(key, _) = seen else { return Ok(false) };
        let path = crate::sources::collection(&source.shape.api_version, source.plural, Some(&key.namespace));
        let request = kube::core::Request::new(path).get(&key.name, &GetParams::default()).map_err(broken)?;
        let answer = wire::exchange(&self.client, prepared(request, METADATA), PAGE_LIMIT).await?;
        match answer.status.as_u16() {
            404 => Ok(false),
            code if !answer.status.is_success() => Err(trouble(code, &answer.body)),
            _ => {
                let object = decode::object(&answer.body, &source.shape).map_err(broken)?;
                Ok(apis::objects::uid(&object).is_ok_and(|uid| uid == key.uid))
            }
        }
    }

    /// Whether the kind's objects are told apart by the job they belong to.
    const fn belongs_to_jobs(&self) -> bool {
        matches!(self.kind, Kind::Pod | Kind::Service)
    }

    /// Waits until a source that was not served is.
    async fn wait_for(&self, source: &Source) -> Trouble {
        loop {
            tokio::time::sleep(MISSING_LOOK).await;
            match self.version_of(&source.path, &source.shape).await {
                Ok(_) => return Trouble::Broken(format!("{} is served now", source.path)),
                Err(_) if self.news.is_closed() => return Trouble::Over,
                Err(_) => {}
            }
        }
    }

    fn went_back(&self) -> End {
        tracing::warn!(kind = ?self.kind, "the cluster is older than it was: it was restored from a copy");
        End::WentBack
    }

    /// Waits before the next attempt; false when there shall be none.
    async fn pause(&self, trouble: &Trouble, what: &'static str, backoff: &mut DefaultBackoff) -> bool {
        if *trouble == Trouble::Over || self.news.is_closed() {
            return false;
        }
        self.metrics.watch_restarted(self.kind, "failed");
        self.board.trouble(self.kind, Some(format!("{what}: {trouble}")));
        tracing::warn!(kind = ?self.kind, what, %trouble, "the cluster cannot be watched; trying again");
        // Not longer: there are only a few watches, and a cluster that is back should not have to wait.
        let wait = backoff.next().unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = self.news.closed() => false,
        }
    }
}

/// What was last reported of each node, as a hash of what is judged.
type Known = Mutex<HashMap<Text, u64>>;

/// Name of a node, and a hash of what is judged of it. A clash of two hashes would hide a change until the next one.
fn known(seen: &Seen) -> Option<(Text, u64)> {
    let Seen::Node(node) = seen else { return None };
    Some((node.name.clone(), hash(&(node.ready, &node.conditions))))
}

fn prepared(request: Request<Vec<u8>>, accept: &'static str) -> Request<Body> {
    let mut request = request.map(Body::from);
    request.headers_mut().insert(http::header::ACCEPT, HeaderValue::from_static(accept));
    request
}

async fn within<F: Future>(limit: Duration, future: F) -> Result<F::Output, Trouble> {
    let late = |_| Trouble::Broken(format!("not a word for {limit:?}"));
    tokio::time::timeout(limit, future).await.map_err(late)
}

#[cfg(test)]
mod tests;
