//! Requests to the API server: what the bench creates, reads and clears away.
//!
//! Owns no measuring. It sends through the driver's own client, so that a bare client and the operator speak alike.

use std::path::Path;
use std::time::{Duration, Instant};

use apis::Registry;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use k8s_driver::api_server::{self, Options};
use k8s_driver::harness::{Lines, collection};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::table::AnyError;

/// Timeout of one request: deleting a collection takes time for each of its objects.
const LIMIT: Duration = Duration::from_secs(120);
/// Requests in flight where many objects are made or deleted: as many as the operator's.
pub(crate) const MAX_IN_FLIGHT: usize = k8s_driver::Options::MAX_IN_FLIGHT;
/// Time limit of removing all objects.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1800);

/// A connection to the API server.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: Client,
}

impl Api {
    /// With the kubeconfig's credentials.
    pub(crate) async fn connect(kubeconfig: &Path) -> Result<Self, AnyError> {
        let options = Options { kubeconfig: Some(kubeconfig.to_owned()), ..Options::default() };
        Ok(Self { client: api_server::connect(&options).await?.client })
    }

    /// One request; anything but success is an error, with the server's words.
    pub(crate) async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, AnyError> {
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(bytes))?;
        let answer = api_server::exchange(&self.client, request, LIMIT).await?;
        if !answer.status.is_success() {
            let text = String::from_utf8_lossy(&answer.body);
            return Err(format!("{method} {path}: {} {text}", answer.status).into());
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Reads something.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, AnyError> {
        self.request(Method::GET, path, None).await
    }

    /// Creates objects, all of them at one path.
    pub(crate) async fn create_all(&self, path: &str, objects: &[Value]) -> Result<(), AnyError> {
        all(MAX_IN_FLIGHT, objects.iter().map(|object| self.request(Method::POST, path, Some(object)))).await
    }

    /// Watches, and gives each line to `each`, until the server ends the watch or it breaks off.
    pub(crate) async fn watch(
        &self,
        path: &str,
        mut each: impl FnMut(&[u8]) -> Result<(), AnyError>,
    ) -> Result<(), AnyError> {
        let request = Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty())?;
        let answer = api_server::send(&self.client, request).await?;
        if !answer.status().is_success() {
            return Err(format!("{path}: {}", answer.status()).into());
        }
        let (mut body, mut lines) = (answer.into_body(), Lines::default());
        while let Some(Ok(frame)) = body.frame().await {
            let Some(data) = frame.data_ref() else { continue };
            lines.add(data);
            while let Some(line) = lines.line() {
                if !line.is_empty() {
                    each(line)?;
                }
            }
            lines.forget();
        }
        Ok(())
    }

    /// Makes a namespace and waits until pods can be created in it.
    pub(crate) async fn namespace(&self, name: &str) -> Result<(), AnyError> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.request(Method::POST, "/api/v1/namespaces", Some(&object)).await?;
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        let started = Instant::now();
        while let Err(error) = self.get(&account).await {
            if started.elapsed() > Duration::from_secs(60) {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns the number of objects a collection has.
    pub(crate) async fn count(&self, collection: &str) -> Result<u64, AnyError> {
        let list = self.get(&format!("{collection}?limit=1")).await?;
        let here = list["items"].as_array().map_or(0, Vec::len);
        Ok(u64::try_from(here)? + list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default())
    }

    /// Deletes every object of a collection at once, and waits until none is left.
    pub(crate) async fn clear(&self, collection: &str) -> Result<(), AnyError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "propagationPolicy": "Background"});
        let started = Instant::now();
        loop {
            // A large collection takes longer than a request may: what is left is deleted by the next.
            let deleted = self.request(Method::DELETE, collection, Some(&options)).await;
            if self.count(collection).await? == 0 {
                return Ok(());
            }
            if started.elapsed() > CLEANUP_TIMEOUT {
                return Err(deleted.err().unwrap_or_else(|| format!("{collection} is not empty").into()));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Deletes jobs of every API whose definition is installed here, pods and services of a namespace, and waits until they are gone. No
    /// operator may run.
    pub(crate) async fn clear_namespace(&self, namespace: &str) -> Result<(), AnyError> {
        for api in Registry::all().iter().filter(|api| api.descriptor().namespaced && !api.is_external()) {
            self.clear(&collection(&api.resource().api_version, api.descriptor().plural, Some(namespace))).await?;
        }
        self.clear(&pods(namespace)).await?;
        self.clear(&services(namespace)).await
    }
}

/// Makes requests, `at_once` at a time. The first that fails ends it.
pub(crate) async fn all<T>(
    at_once: usize,
    requests: impl Iterator<Item = impl Future<Output = Result<T, AnyError>>>,
) -> Result<(), AnyError> {
    futures_util::stream::iter(requests).buffer_unordered(at_once).try_for_each(|_| std::future::ready(Ok(()))).await
}

/// Path of the jobs of `AITrainingJob` in a namespace.
pub(crate) fn jobs(namespace: &str) -> String {
    format!("/apis/elasticdeeplearning.ai/v1/namespaces/{namespace}/aitrainingjobs")
}

/// Path of the pods of a namespace.
pub(crate) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Path of the services of a namespace.
pub(crate) fn services(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services")
}
