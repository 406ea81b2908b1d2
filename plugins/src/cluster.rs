//! The cluster that `torchrun`, `voda`, `collect` and `logs` talk to: objects as JSON, and connections to pods.
//!
//! Owns requests and the words of their failures. It must not know what a command is for. Tests: `cli/tests/process_nodes/plugin.rs`.

use std::path::PathBuf;

use clap::Args;
use futures_util::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{Method, Request};
use k8s_driver::api_server::{self, error_chain};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use terminal::out::{self, Failure};

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Field manager of what is applied.
const MANAGER: &str = "kubectl-torchrun";

/// The cluster and the namespace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The cluster")]
pub struct ClusterArgs {
    /// Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    context: Option<String>,
    /// The namespace. Default: that of the context.
    #[arg(long, short, global = true, value_name = "NAME")]
    namespace: Option<String>,
}

impl ClusterArgs {
    /// Returns the namespace that was named.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the namespace that was named, or another one.
    pub fn namespace_or<'a>(&'a self, other: &'a str) -> &'a str {
        self.namespace().unwrap_or(other)
    }
}

/// A connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// For connections to pods, which begin as HTTP/1.1.
    upgrading: Client,
    /// Namespace of what is read and written.
    pub namespace: String,
}

impl Cluster {
    /// Connects.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig cannot be used.
    pub async fn connect(args: &ClusterArgs) -> Result<Self, Failure> {
        let options = api_server::Options {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            ..api_server::Options::default()
        };
        Self::connect_to(&options, args.namespace.clone()).await
    }

    /// Connects to a cluster; without a namespace that of the context is meant.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig cannot be used.
    pub async fn connect_to(options: &api_server::Options, namespace: Option<String>) -> Result<Self, Failure> {
        let connection = api_server::connect(options).await?;
        let upgrading = api_server::connect_upgradable(options).await?.client;
        let namespace = namespace.unwrap_or(connection.namespace);
        Ok(Self { client: connection.client, upgrading, namespace })
    }

    /// Path of an object in the namespace. `api`: path of its group and version.
    pub fn path(&self, api: &str, plural: &str, name: &str) -> String {
        format!("{api}/namespaces/{}/{plural}/{name}", self.namespace)
    }

    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<Value, kube::Error> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, content).body(bytes);
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }

    /// Sends a request. A refusal comes with its code; without an answer that is 502.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn answer(&self, method: Method, path: &str, body: &Value) -> Result<Value, (u16, String)> {
        let content = if method == Method::PATCH { MERGE } else { "application/json" };
        let sent = self.send(method, path, content, body).await;
        sent.map_err(|error| (code_of(&error).unwrap_or(502), error_chain(&error)))
    }

    /// Reads an object or a list; `None` where there is none.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, Failure> {
        match self.send(Method::GET, path, "application/json", &Value::Null).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code_of(&error) == Some(404) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        let got = self.send(Method::GET, path, "application/json", &Value::Null).await;
        got.map_err(|error| failed(&error))
    }

    /// Creates an object in a collection; `None` where one of its name is there.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Option<Value>, Failure> {
        match self.send(Method::POST, path, "application/json", object).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code_of(&error) == Some(409) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Merges into an object.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Failure> {
        self.send(Method::PATCH, path, MERGE, patch).await.map_err(|error| failed(&error))
    }

    /// Applies an object, as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn apply(&self, path: &str, object: &Value) -> Result<Value, Failure> {
        let path = format!("{path}?fieldManager={MANAGER}");
        self.send(Method::PATCH, &path, APPLY, object).await.map_err(|error| failed(&error))
    }

    /// Deletes an object. What it owns goes with it.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.send(Method::DELETE, path, "application/json", &delete_in_background())
            .await
            .map_err(|error| failed(&error))
    }

    /// Returns the pods of the namespace with some labels.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn pods(&self, selector: &str) -> Result<Vec<Value>, Failure> {
        let selector = selector.replace('=', "%3D").replace(',', "%2C");
        let list = self.get(&format!("/api/v1/namespaces/{}/pods?labelSelector={selector}", self.namespace)).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Prints the lines of a pod's container as they come, as `shown` renders them with the pod's name. Returns false where there are
    /// none: the pod is gone, or the run that is asked for.
    ///
    /// # Errors
    /// Returns an error if the request is refused or the connection breaks.
    pub async fn print_log(
        &self,
        pod: &str,
        params: &LogParams,
        shown: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<bool, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut lines = match pods.log_stream(pod, params).await {
            Ok(stream) => stream.lines(),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 400 && params.previous => return Ok(false),
            Err(error) => return Err(failed(&error)),
        };
        while let Some(line) = lines.try_next().await? {
            if let Some(line) = shown(pod, &line) {
                out::line(&line);
            }
        }
        Ok(true)
    }

    /// Returns what a container wrote; empty where it wrote nothing, or is not there.
    ///
    /// # Errors
    /// Returns an error if the request is refused or not answered.
    pub async fn log(&self, pod: &str, params: &LogParams) -> Result<String, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        match pods.logs(pod, params).await {
            Ok(text) => Ok(text),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(String::new()),
            Err(kube::Error::Api(status)) if status.code == 400 && params.previous => Ok(String::new()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Pods, to connect to them.
    pub fn pod_connections(&self) -> Api<Pod> {
        Api::namespaced(self.upgrading.clone(), &self.namespace)
    }
}

fn code_of(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Options of a deletion after which what the object owns goes.
pub fn delete_in_background() -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
}

/// A request that failed, in the API server's words. What is not there was looked for.
pub fn failed(error: &kube::Error) -> Failure {
    let text = match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => {
            format!("the connection to the API server broke: {}", error_chain(error))
        }
        _ => error_chain(error),
    };
    match code_of(error) {
        Some(404) => Failure::missing(text),
        // An API server that starts, or has too much to do, and a connection that breaks.
        None | Some(429 | 500..) => Failure::passing(text),
        Some(_) => Failure::new(text),
    }
}
