//! Requests to the API server, and the watches.
//!
//! Owns paths, content types and what an answer means. Requests are not repeated here: the caller decides. Tests: `tests/`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use http::{Method, Request};
use k8s_driver::api_server;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event};
use kube_runtime::{WatchStreamExt, watcher as watch};
use serde_json::{Value, json};

use crate::Error;
use crate::pods::{Answer, Call, What};
use crate::references::Reference;

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A request that was not done.
#[derive(Debug)]
pub(crate) struct RequestError {
    /// HTTP status code; 0 when there was no answer.
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 => write!(f, "no answer: {}", self.message),
            code => write!(f, "{code}: {}", self.message),
        }
    }
}

impl RequestError {
    /// Whether the same request may be answered otherwise later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.code, 0 | 409 | 429 | 500..)
    }
}

/// What a watch says.
#[derive(Debug)]
pub(crate) enum News {
    /// A complete view follows.
    Listing,
    /// An object of that view, or a change.
    Applied {
        object: Arc<Value>,
        listing: bool,
    },
    Deleted(Arc<Value>),
    /// The complete view is over.
    Listed,
    /// The watch broke; it comes back by itself.
    Broken(String),
}

/// The API server.
#[derive(Clone)]
pub(crate) struct Server {
    client: Client,
}

impl Server {
    /// Finds the API server; sends nothing yet. What fails is decided upon here: the client does not retry.
    pub(crate) async fn connect(kubeconfig: Option<PathBuf>) -> Result<Self, Error> {
        let options = api_server::Options { kubeconfig, ..api_server::Options::default() };
        let connection = api_server::connect(&options).await;
        let connection = connection.map_err(|error| Error::Config(k8s_driver::api_server::error_chain(&error)))?;
        Ok(Self { client: connection.client })
    }

    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<Value, RequestError> {
        let none = |message: String| RequestError { code: 0, message };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .header(http::header::USER_AGENT, concat!("trainyard-node-agent/", env!("CARGO_PKG_VERSION")))
            .body(bytes)
            .map_err(|error| none(error.to_string()))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(kube::Error::Api(status))) => {
                Err(RequestError { code: status.code, message: status.message.clone() })
            }
            Ok(Err(other)) => Err(none(other.to_string())),
            Err(_) => Err(none(format!("not within {} s", REQUEST_TIMEOUT.as_secs()))),
        }
    }

    /// Reads an object.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, RequestError> {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    /// Creates an object in a collection.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.send(Method::POST, path, "application/json", body).await
    }

    /// Merges into an object (RFC 7386).
    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.send(Method::PATCH, path, MERGE, body).await
    }

    /// Merges into an object, lists by their keys: conditions of others stay.
    pub(crate) async fn merge_by_key(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.send(Method::PATCH, path, STRATEGIC, body).await
    }

    /// An object that pods refer to; `None` when there is none.
    pub(crate) async fn referred(&self, namespace: &str, reference: &Reference) -> Result<Option<Value>, RequestError> {
        let (kind, name) = reference;
        // Pods may write what they like here, and an API server does not look: it must not lead to another object.
        if !local::is_plain_name(name) {
            return Ok(None);
        }
        match self.get(&format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.plural())).await {
            Ok(mut object) => {
                object["kind"] = json!(kind.name());
                Ok(Some(object))
            }
            Err(refusal) if refusal.code == 404 => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Makes a call about a pod.
    pub(crate) async fn perform(&self, call: &Call) -> (Answer, Option<RequestError>) {
        let path = format!("/api/v1/namespaces/{}/pods/{}", call.namespace, call.name);
        let removing = call.what == What::Remove;
        let done = match &call.what {
            What::Write(status) => {
                let body = json!({"metadata": {"uid": call.uid}, "status": status});
                self.merge_by_key(&format!("{path}/status"), &body).await
            }
            What::Remove => {
                let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                    "preconditions": {"uid": call.uid}});
                self.send(Method::DELETE, &path, "application/json", &body).await
            }
        };
        match done {
            Ok(_) => (Answer::Done, None),
            Err(refusal) if refusal.code == 404 || removing && refusal.code == 409 => (Answer::Gone, None),
            Err(refusal) => (Answer::Failed, Some(refusal)),
        }
    }

    /// The pods bound to a node.
    pub(crate) fn pods(&self, node: &str) -> impl Stream<Item = News> + Send + use<> {
        self.watch("Pod", "pods", watch::Config::default().fields(&format!("spec.nodeName={node}")))
    }

    /// The Services of every namespace: their names stand for addresses in pods.
    pub(crate) fn services(&self) -> impl Stream<Item = News> + Send + use<> {
        self.watch("Service", "services", watch::Config::default())
    }

    fn watch(
        &self,
        kind: &'static str,
        plural: &str,
        config: watch::Config,
    ) -> impl Stream<Item = News> + Send + use<> {
        let resource = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let value = move |object: DynamicObject| {
            // An object of a list does not say what it is.
            let mut value = serde_json::to_value(object).unwrap_or_default();
            value["apiVersion"] = json!("v1");
            value["kind"] = json!(kind);
            Arc::new(value)
        };
        watcher::watcher(api, config).default_backoff().map(move |event| match event {
            Ok(Event::Init) => News::Listing,
            Ok(Event::InitApply(object)) => News::Applied { object: value(object), listing: true },
            Ok(Event::Apply(object)) => News::Applied { object: value(object), listing: false },
            Ok(Event::Delete(object)) => News::Deleted(value(object)),
            Ok(Event::InitDone) => News::Listed,
            Err(error) => News::Broken(error.to_string()),
        })
    }
}
