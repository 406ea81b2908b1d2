//! What can be looked at from outside: probes and metrics in plain HTTP, the log over HTTPS.
//!
//! Owns two listeners and what they answer. Everything is read-only: nothing here changes what the operator does, and nothing
//! here keeps its thread for longer than it takes to read a page of the log.
//!
//! | listener | path | answer |
//! |---|---|---|
//! | plain | `/healthz` | whether the operator's thread moves; a restart helps when not |
//! | plain | `/readyz` | whether this replica does its part; in words why not |
//! | plain | `/metrics` | `OpenMetrics` text |
//! | TLS, bearer token | `/log?from=P&limit=N&follow=true` | records as JSON lines, as `trainyard log export` writes them |
//! | TLS, bearer token | `/log/head` | where the log begins and ends |
//!
//! Tests: at the end of each file, `http/tests.rs` for the log over a real TLS socket, `tests/leadership.rs` for tokens and access
//! of a real API server.

mod auth;
pub(crate) mod certificate;
mod health;
mod log;
pub(crate) mod serve;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::OperatorHandle;
use crate::lease::{Advertised, Leader};
use crate::metrics::Metrics;
use crate::process::status::StatusReporter;
use crate::replication::follower::FollowerState;

use self::certificate::Certificate;

/// Header of `/log` that tells the end of the log when the answer began: position and digest.
pub(crate) const HEAD: &str = "trainyard-log-head";

/// The certificate's files, when it is not self-made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM. Read again when it changes.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// The authority readers shall trust for it, PEM; it is told in the Lease. Absent: they know it already.
    pub authority: Option<PathBuf>,
}

/// Where to listen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// For probes and metrics; `None` for not at all.
    pub health: Option<SocketAddr>,
    /// For the log; `None` for not at all.
    pub log: Option<SocketAddr>,
    /// The log's certificate; `None` for a self-made one.
    pub tls: Option<TlsFiles>,
    /// The host name or address under which others reach this process (in a pod: its address). Absent: the address it listens
    /// on.
    pub host: Option<String>,
}

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for {what}")]
    Listen {
        /// For what.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A certificate file cannot be used.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate could not be made, or does not fit its key.
    #[error("no certificate for the log: {0}")]
    Certificate(String),
}

/// Listeners that are bound and answer nobody yet.
#[derive(Debug)]
pub(crate) struct Listeners {
    health: Option<TcpListener>,
    log: Option<(TcpListener, Certificate, Advertised)>,
}

/// What there is to look at.
#[derive(Clone)]
pub(crate) struct ServerState {
    /// The operator's thread.
    pub operator: OperatorHandle,
    /// Where this process stands.
    pub status: StatusReporter,
    /// What is counted.
    pub metrics: Metrics,
    /// How this process follows the leader while it stands by.
    pub following: watch::Receiver<FollowerState>,
    /// Who leads.
    pub leader: watch::Receiver<Option<Leader>>,
    /// Asks the API server about tokens and access.
    pub client: Client,
}

impl Listeners {
    /// Binds the listeners.
    ///
    /// # Errors
    /// When an address or a certificate cannot be used.
    pub(crate) async fn new(options: &HttpOptions) -> Result<Self, Error> {
        let bind = |what, address: Option<SocketAddr>| async move {
            let Some(address) = address else { return Ok(None) };
            let listener = TcpListener::bind(address).await;
            listener.map(Some).map_err(|source| Error::Listen { what, address, source })
        };
        let health = bind("probes and metrics", options.health).await?;
        let Some(log) = bind("the log", options.log).await? else {
            return Ok(Self { health, log: None });
        };
        let local = local_address(&log)?;
        let host = options.host.clone().unwrap_or_else(|| local.ip().to_string());
        let certificate = match &options.tls {
            None => Certificate::self_made(&host)?,
            Some(files) => Certificate::of_files(files.clone())?,
        };
        // An IPv6 address stands in brackets in a URL.
        let shown = if host.contains(':') { format!("[{host}]") } else { host };
        let advertised = Advertised {
            address: format!("https://{shown}:{}", local.port()),
            certificate: certificate.to_trust().map(str::to_owned),
        };
        Ok(Self { health, log: Some((log, certificate, advertised)) })
    }

    /// Where the log will be served, to be told in the Lease.
    pub(crate) fn advertised(&self) -> Option<&Advertised> {
        self.log.as_ref().map(|(_, _, advertised)| advertised)
    }

    /// Answers until `stop`; ends when the answers under way have been given or a short time is over.
    pub(crate) async fn serve(self, state: ServerState, stop: CancellationToken) {
        let health = async {
            if let Some(listener) = self.health {
                serve::plain(listener, health::router(&state), stop.clone()).await;
            }
        };
        let log = async {
            if let Some((listener, certificate, advertised)) = self.log {
                let router = log::router(&state, advertised.audience());
                serve::tls(listener, move || certificate.acceptor(), router, stop.clone()).await;
            }
        };
        tokio::join!(health, log);
    }
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr, Error> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_addr().map_err(|source| Error::Listen { what: "the log", address: unknown, source })
}

/// An error as JSON: `{"code":..,"reason":..,"message":..}` and what else there is to tell.
fn refusal(code: StatusCode, reason: &str, message: &str, further: &Value) -> Response {
    let mut body = json!({"code": code.as_u16(), "reason": reason, "message": message});
    if let (Some(body), Some(further)) = (body.as_object_mut(), further.as_object()) {
        body.extend(further.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

/// A path that nothing stands under.
fn unknown_paths(router: Router, known: &'static str) -> Router {
    router.fallback(move |uri: http::Uri| async move {
        let message = format!("nothing under {}; there is {known}", uri.path());
        refusal(StatusCode::NOT_FOUND, "NotFound", &message, &Value::Null)
    })
}
