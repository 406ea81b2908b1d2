//! Serves probes and metrics over plain HTTP, and the log over HTTPS.
//!
//! Owns two listeners and their responses. It must not change what the operator does, nor occupy its thread for longer than reading
//! one page of the log takes.
//!
//! | listener | path | answer |
//! |---|---|---|
//! | plain | `/healthz` | 200 while the operator's thread answers; otherwise a restart helps |
//! | plain | `/readyz` | 200 while this replica does its work; otherwise the reason |
//! | plain | `/metrics` | `OpenMetrics` text |
//! | TLS, bearer token | `/log?from=P&limit=N&follow=true` | records as JSON lines, as `trainyard log export` writes them |
//! | TLS, bearer token | `/log/head` | first and last position of the log |
//!
//! Tests: at the end of each file, `http/tests.rs` for the log over a real TLS socket, `tests/leadership.rs` for tokens and access
//! of a real API server.

mod auth;
pub(crate) mod certificate;
pub(crate) mod health;
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
use futures_util::future::join_all;
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

/// Header of `/log`: position and digest of the log's end when the response started.
pub(crate) const HEAD: &str = "trainyard-log-head";

/// Files of a certificate that is not self-signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM. Read again when it changes.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Authority (PEM) that readers trust for it, written in the Lease; `None` if readers know it.
    pub authority: Option<PathBuf>,
}

/// Addresses to listen on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// Addresses, each for probes and metrics; none to serve none.
    pub health: Vec<SocketAddr>,
    /// Address for the log; `None` to serve none.
    pub log: Option<SocketAddr>,
    /// Certificate of the log's listener; `None` for a self-signed one.
    pub tls: Option<TlsFiles>,
    /// The host name or address under which others reach this process (in a pod: its address). Absent: the address it listens
    /// on.
    pub host: Option<String>,
}

/// An error of starting a listener.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("cannot listen on {address} for {what}")]
    Listen {
        /// Purpose of the listener.
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
        /// Reason.
        reason: String,
    },
    /// A certificate could not be made, or does not fit its key.
    #[error("no certificate for the listener: {0}")]
    Certificate(String),
}

/// Listeners that are bound and do not answer yet.
#[derive(Debug)]
pub(crate) struct Listeners {
    health: Vec<TcpListener>,
    log: Option<(TcpListener, Certificate, Advertised)>,
}

/// State that the responses read.
#[derive(Clone)]
pub(crate) struct ServerState {
    /// The operator's thread.
    pub operator: OperatorHandle,
    /// State of this process.
    pub status: StatusReporter,
    /// Metrics of this process.
    pub metrics: Metrics,
    /// State of the standby's follower.
    pub following: watch::Receiver<FollowerState>,
    /// The leader.
    pub leader: watch::Receiver<Option<Leader>>,
    /// Client for reviews of tokens and access.
    pub client: Client,
}

impl Listeners {
    /// Binds the listeners.
    ///
    /// # Errors
    /// Returns an error if an address or a certificate cannot be used.
    pub(crate) async fn new(options: &HttpOptions) -> Result<Self, Error> {
        let bind = |what, address: Option<SocketAddr>| async move {
            let Some(address) = address else { return Ok(None) };
            let listener = TcpListener::bind(address).await;
            listener.map(Some).map_err(|source| Error::Listen { what, address, source })
        };
        let mut health = Vec::new();
        for address in &options.health {
            health.extend(bind("probes and metrics", Some(*address)).await?);
        }
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

    /// Returns the log's address and certificate, for the Lease.
    pub(crate) fn advertised(&self) -> Option<&Advertised> {
        self.log.as_ref().map(|(_, _, advertised)| advertised)
    }

    /// Serves until `stop`, and then for a short time to finish responses.
    pub(crate) async fn serve(self, state: ServerState, stop: CancellationToken) {
        let each = self.health.into_iter();
        let health = join_all(each.map(|listener| serve::plain(listener, health::router(&state), stop.clone())));
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

/// Returns an error as JSON: `{"code":..,"reason":..,"message":..}` and further members.
fn refusal(code: StatusCode, reason: &str, message: &str, further: &Value) -> Response {
    let mut body = json!({"code": code.as_u16(), "reason": reason, "message": message});
    if let (Some(body), Some(further)) = (body.as_object_mut(), further.as_object()) {
        body.extend(further.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

/// Answers unknown paths with 404 and the known ones.
fn unknown_paths(router: Router, known: &'static str) -> Router {
    router.fallback(move |uri: http::Uri| async move {
        let message = format!("nothing under {}; there is {known}", uri.path());
        refusal(StatusCode::NOT_FOUND, "NotFound", &message, &Value::Null)
    })
}
