//! An API server that knows one Lease and Events: compare-and-swap, watches, and links that can be slow or cut.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower_test::mock;

type Line = Result<Frame<Bytes>, std::convert::Infallible>;
type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

/// The server. Clones are the same server.
#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    lease: Option<Value>,
    version: u64,
    watches: Vec<mpsc::UnboundedSender<Line>>,
    events: Vec<Value>,
    requests: Vec<String>,
}

/// The way of one client to the server.
#[derive(Clone, Default)]
pub(super) struct Link(Arc<Mutex<Condition>>);

#[derive(Clone, Copy, Default)]
struct Condition {
    cut: bool,
    /// Requests arrive, and their answers do not.
    answers_lost: bool,
    before: Duration,
    after: Duration,
    refuse: Option<u16>,
    no_watch: bool,
}

impl Link {
    fn set(&self, change: impl FnOnce(&mut Condition)) {
        change(&mut self.0.lock().unwrap());
    }

    pub(super) fn cut(&self, cut: bool) {
        self.set(|c| c.cut = cut);
    }

    pub(super) fn lose_answers(&self, lost: bool) {
        self.set(|c| c.answers_lost = lost);
    }

    /// Requests take `before` to arrive, answers take `after`.
    pub(super) fn slow(&self, before: Duration, after: Duration) {
        self.set(|c| (c.before, c.after) = (before, after));
    }

    pub(super) fn refuse(&self, code: Option<u16>) {
        self.set(|c| c.refuse = code);
    }

    pub(super) fn forbid_watch(&self) {
        self.set(|c| c.no_watch = true);
    }

    fn now(&self) -> Condition {
        *self.0.lock().unwrap()
    }
}

impl Server {
    /// A client on a link of its own.
    pub(super) fn client(&self) -> (Client, Link) {
        let link = Link::default();
        let (service, mut handle) = mock::pair::<Request<Body>, Answer>();
        let (server, way) = (self.clone(), link.clone());
        tokio::spawn(async move {
            while let Some((request, reply)) = handle.next_request().await {
                let (server, way) = (server.clone(), way.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(way.now().before).await;
                    if way.now().cut {
                        std::future::pending::<()>().await;
                    }
                    let answer = server.serve(request, way.now()).await;
                    tokio::time::sleep(way.now().after).await;
                    if way.now().cut || way.now().answers_lost {
                        std::future::pending::<()>().await;
                    }
                    reply.send_response(answer);
                });
            }
        });
        (Client::new(service, "default"), link)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(super) fn lease(&self) -> Value {
        self.inner().lease.clone().unwrap_or_default()
    }

    pub(super) fn annotation(&self, name: &str) -> Option<String> {
        self.lease()["metadata"]["annotations"][name].as_str().map(str::to_owned)
    }

    pub(super) fn holder(&self) -> String {
        self.lease()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn events(&self) -> Vec<Value> {
        self.inner().events.clone()
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.inner().requests.iter().filter(|r| *r == what).count()
    }

    /// Another tool changes the Lease.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut inner = self.inner();
        let mut lease = inner.lease.clone().unwrap();
        change(&mut lease);
        inner.store(lease, "MODIFIED");
    }

    pub(super) fn plant(&self, spec: &Value) {
        let meta = json!({"name": "trainyard", "namespace": "ops", "uid": "planted"});
        self.inner().store(json!({"metadata": meta, "spec": spec}), "ADDED");
    }

    pub(super) fn delete(&self) {
        let mut inner = self.inner();
        if let Some(lease) = inner.lease.take() {
            inner.version += 1;
            inner.send_event("DELETED", &lease);
        }
    }

    async fn serve(&self, request: Request<Body>, condition: Condition) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let watch = parts.uri.query().is_some_and(|q| q.contains("watch=true"));
        let mut inner = self.inner();
        inner.requests.push(if watch { "WATCH".to_owned() } else { parts.method.to_string() });
        if let Some(code) = condition.refuse {
            return status(code, "Refused");
        }
        if parts.uri.path().ends_with("/events") {
            inner.events.push(body.clone());
            return answer(&body);
        }
        match parts.method {
            Method::GET if watch && condition.no_watch => status(403, "Forbidden"),
            Method::GET if watch => {
                assert!(
                    parts.uri.query().unwrap().contains("fieldSelector=metadata.name%3Dtrainyard"),
                    "{}",
                    parts.uri
                );
                let (sender, lines) = mpsc::unbounded_channel();
                inner.watches.push(sender);
                Response::new(StreamBody::new(UnboundedReceiverStream::new(lines)).boxed_unsync())
            }
            Method::GET => inner.lease.as_ref().map_or_else(|| status(404, "NotFound"), answer),
            Method::POST if inner.lease.is_some() => status(409, "AlreadyExists"),
            Method::POST => answer(&inner.store(body, "ADDED")),
            Method::PUT => {
                let Some(lease) = &inner.lease else { return status(404, "NotFound") };
                if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return status(409, "Conflict");
                }
                answer(&inner.store(body, "MODIFIED"))
            }
            _ => status(405, "MethodNotAllowed"),
        }
    }
}

impl Inner {
    fn store(&mut self, mut lease: Value, kind: &str) -> Value {
        self.version += 1;
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        self.send_event(kind, &lease);
        lease
    }

    fn send_event(&mut self, kind: &str, lease: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": lease}));
        self.watches.retain(|watch| watch.send(Ok(Frame::data(Bytes::from(line.clone())))).is_ok());
    }
}

fn answer(object: &Value) -> Answer {
    Response::new(Full::new(Bytes::from(object.to_string())).boxed_unsync())
}

fn status(code: u16, reason: &str) -> Answer {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code});
    let mut response = answer(&body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
