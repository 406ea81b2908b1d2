//! Requests to the API server, one at a time, as a user or a kubelet makes them.
//!
//! Owns the step from a path and a body to an answer. What the operator sends goes through the driver's own requests instead.

use std::path::Path;
use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, ApiError, Registry};
use http::{Method, Request};
use k8s_driver::{api_server, harness};
use kube::Client;
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// Time limit of an answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, used by threads that wait for each answer.
#[derive(Clone)]
pub struct Server {
    /// The client.
    pub client: Client,
    /// Runtime that executes its requests.
    pub runtime: Handle,
}

impl Server {
    /// Returns a connection to the API server of a kubeconfig. It sends nothing yet.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unusable.
    pub fn connect(kubeconfig: &Path, runtime: &Runtime) -> Result<Self, api_server::Error> {
        let options = api_server::Options { kubeconfig: Some(kubeconfig.to_owned()), ..api_server::Options::default() };
        let connection = runtime.block_on(api_server::connect(&options))?;
        Ok(Self { client: connection.client, runtime: runtime.handle().clone() })
    }

    /// Sends a request with a JSON body of a type.
    ///
    /// # Errors
    /// When the server refuses, or does not answer (code 0).
    pub fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value, ApiError> {
        let mut request = Request::builder().method(method).uri(path);
        let mut bytes = Vec::new();
        if let Some((content, body)) = body {
            request = request.header(http::header::CONTENT_TYPE, content);
            bytes = body.to_string().into_bytes();
        }
        let request = request.body(bytes).map_err(|error| no_answer(&error))?;
        match self.runtime.block_on(self.client.request::<Value>(request)) {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err(ApiError {
                code: status.code,
                reason: status.reason.as_str().into(),
                message: status.message.clone(),
            }),
            Err(error) => Err(no_answer(&error)),
        }
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Method::GET, path, None)
    }

    /// Creates an object in a collection.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn create(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.send(Method::POST, path, Some(("application/json", body)))
    }

    /// Merge-patches an object.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", body)))
    }

    /// Applies a manifest with strict validation, as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn apply(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager=user&force=true&fieldValidation=Strict");
        self.send(Method::PATCH, &path, Some(("application/apply-patch+yaml", body)))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn delete(&self, path: &str, options: &Value) -> Result<Value, ApiError> {
        self.send(Method::DELETE, path, Some(("application/json", options)))
    }

    /// Makes a call of the operator, exactly as the driver does.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn make(&self, call: ApiCall, registry: &Registry) -> ApiAnswer {
        let prepared = harness::prepare(call, registry)?;
        let (request, shape) = prepared.into_request();
        match self.runtime.block_on(api_server::exchange(&self.client, request, CALL_TIMEOUT)) {
            Ok(answer) => harness::answer(&shape, answer.status.as_u16(), &answer.body),
            Err(error) => Err(harness::no_answer(error.to_string())),
        }
    }

    /// Every object of a collection.
    ///
    /// # Errors
    /// As for [`Server::send`].
    pub fn list(&self, path: &str, api_version: &str, kind: &str) -> Result<Vec<Arc<Value>>, ApiError> {
        let mut list = self.get(path)?;
        let items = list.get_mut("items").map(Value::take).unwrap_or_default();
        let Value::Array(items) = items else { return Ok(Vec::new()) };
        // Members of a list do not say what they are.
        let named = |mut item: Value| {
            if let Some(item) = item.as_object_mut() {
                item.insert("apiVersion".to_owned(), api_version.into());
                item.insert("kind".to_owned(), kind.into());
            }
            Arc::new(item)
        };
        Ok(items.into_iter().map(named).collect())
    }
}

fn no_answer(error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError { code: 0, reason: "".into(), message: api_server::error_chain(error) }
}
