//! Connects to an API server.
//!
//! Owns the choice between kubeconfig and in-cluster configuration. Retries are off: the operator owns them. `transport` sends the
//! requests, `exchange` gathers the responses. Tests: at the end of this file.

pub(crate) mod exchange;
pub(crate) mod transport;

use std::path::PathBuf;
use std::time::Duration;

use kube::config::{AuthInfo, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::client::transport::Use;

/// Time limit of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Address and credentials of the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Kubeconfig file; without one `$KUBECONFIG`, then `~/.kube/config`, then the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without one its current context.
    pub context: Option<String>,
    /// Address of the API server, in place of the configured one.
    pub master: Option<String>,
    /// True to use the pod's service account even if there is a kubeconfig.
    pub in_cluster: bool,
}

/// A connection.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace of the context, or of the pod.
    pub namespace: String,
    /// The address, for logs.
    pub server: String,
    /// The user's credentials. They go to the API server, and to a log whose address and certificate the user names.
    pub auth: AuthInfo,
}

/// An error of connecting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig{}", file.as_ref().map(|f| format!(" {}", f.display())).unwrap_or_default())]
    Kubeconfig {
        /// The file, when one was named.
        file: Option<PathBuf>,
        /// Why.
        source: KubeconfigError,
    },
    /// Neither a kubeconfig nor a pod's service account was found.
    #[error("no cluster is configured: name a kubeconfig (--kubeconfig), or run in a pod with a service account")]
    Nowhere(#[source] Box<InferConfigError>),
    /// The pod's service account cannot be used.
    #[error("no in-cluster configuration")]
    InCluster(#[from] kube::config::InClusterError),
    /// The address is invalid.
    #[error("master: {value:?} is not an address such as https://10.0.0.1:6443")]
    Master {
        /// The address.
        value: String,
    },
    /// A proxy is asked for.
    #[error(
        "proxy-url: {value:?}: the API server is reached directly, never through a proxy (kubeconfig, HTTPS_PROXY)"
    )]
    Proxy {
        /// Its address.
        value: String,
    },
    /// Certificates or credentials cannot be used.
    #[error("the cluster's configuration cannot be used")]
    Client(#[source] Box<kube::Error>),
}

/// Creates a client and sends nothing yet.
///
/// # Errors
/// Returns an error if the configuration is missing or unusable.
pub async fn connect(options: &Options) -> Result<Connection, Error> {
    connection(options, Use::Requests).await
}

/// Creates a client for a process with many calls and watches: its connections are read in batches.
///
/// # Errors
/// See [`connect`].
pub(crate) async fn connect_batched(options: &Options) -> Result<Connection, Error> {
    connection(options, Use::Watches).await
}

/// Creates a client whose requests can become `WebSocket`s: it speaks HTTP/1.1.
///
/// # Errors
/// See [`connect`].
pub async fn connect_upgradable(options: &Options) -> Result<Connection, Error> {
    connection(options, Use::Upgrades).await
}

async fn connection(options: &Options, purpose: Use) -> Result<Connection, Error> {
    let master = options.master.as_deref().map(address).transpose()?;
    let mut config = match (config(options).await, &master) {
        // An address alone is enough: the API server is asked without credentials.
        (Err(Error::Nowhere(_)), Some(uri)) => Config::new(uri.clone()),
        (config, _) => config?,
    };
    if let Some(uri) = master {
        config.cluster_url = uri;
    }
    if let Some(proxy) = config.proxy_url {
        return Err(Error::Proxy { value: proxy.to_string() });
    }
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Watches may stay silent for minutes. Every other request has its own time limit.
    config.read_timeout = None;
    config.write_timeout = None;
    let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
    let auth = config.auth_info.clone();
    let client = transport::client(config, purpose).map_err(|error| Error::Client(Box::new(error)))?;
    Ok(Connection { client, namespace, server, auth })
}

/// Reads the address of an API server.
fn address(master: &str) -> Result<http::Uri, Error> {
    let uri = master.parse::<http::Uri>().ok().filter(|uri| uri.host().is_some() && uri.scheme().is_some());
    uri.ok_or_else(|| Error::Master { value: master.to_owned() })
}

async fn config(options: &Options) -> Result<Config, Error> {
    if options.in_cluster {
        return Ok(Config::incluster()?);
    }
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let unusable = |source| Error::Kubeconfig { file: options.kubeconfig.clone(), source };
    if let Some(file) = &options.kubeconfig {
        let kubeconfig = Kubeconfig::read_from(file).map_err(unusable)?;
        return Config::from_custom_kubeconfig(kubeconfig, &choice).await.map_err(unusable);
    }
    if options.context.is_some() {
        return Config::from_kubeconfig(&choice).await.map_err(unusable);
    }
    Config::infer().await.map_err(|error| Error::Nowhere(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(options: Options) -> String {
        crate::client::exchange::error_chain(&connect(&options).await.err().unwrap())
    }

    #[tokio::test]
    async fn an_address_alone_is_enough() {
        let alone = Options { master: Some("http://127.0.0.1:2".to_owned()), ..Options::default() };
        assert_eq!(connect(&alone).await.unwrap().server, "http://127.0.0.1:2/");
    }

    #[tokio::test]
    async fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let at = |file: &std::path::Path| Options { kubeconfig: Some(file.to_owned()), ..Options::default() };
        let text = refused(at(&file)).await;
        assert!(text.contains(&file.display().to_string()) && text.contains("No such file"), "{text}");
        std::fs::write(&file, "apiVersion: v1\nkind: Config\ncurrent-context: x\n").unwrap();
        let text = refused(at(&file)).await;
        assert!(text.contains("context: x"), "{text}");
        std::fs::write(
            &file,
            "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u, namespace: ml}}]\n\
             clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n",
        )
        .unwrap();
        for master in ["nonsense", "10.0.0.1:6443", "https://"] {
            let text = refused(Options { master: Some(master.to_owned()), ..at(&file) }).await;
            assert!(text.starts_with(&format!("master: {master:?}")), "{text}");
        }
        let plain = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, plain.replace("127.0.0.1:1'", "127.0.0.1:1', proxy-url: 'http://127.0.0.1:3'")).unwrap();
        let text = refused(at(&file)).await;
        assert!(text.starts_with("proxy-url: \"http://127.0.0.1:3/\""), "{text}");
        std::fs::write(&file, plain).unwrap();
        let connection =
            connect(&Options { master: Some("http://127.0.0.1:2".to_owned()), ..at(&file) }).await.unwrap();
        assert_eq!((connection.namespace.as_str(), connection.server.as_str()), ("ml", "http://127.0.0.1:2/"));
    }
}
