//! What `kubectl logs` asks a node for: the output of containers, over HTTPS on the loopback address.
//!
//! Only the API server knows the port, from the Node object; it asks without a certificate of its own unless it is given one,
//! so there is no question of who asks: whoever can connect here can read the files on this machine as well. Nothing else of a
//! kubelet's surface is served. Tests: `tests/`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tracing::debug;

use crate::Error;
use crate::logs::{self, Reader};

/// Connections at a time; further ones wait.
const MOST_CONNECTIONS: usize = 32;
/// How long a client may take for its handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a file that is followed is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Namespace and name of the pods that run now.
pub(crate) type Running = Arc<Mutex<BTreeSet<(String, String)>>>;

/// A listener that is bound.
pub(crate) struct Logs {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    port: u16,
}

#[derive(Clone)]
struct Files {
    data_directory: PathBuf,
    running: Running,
}

impl Logs {
    /// Binds a free port.
    ///
    /// # Errors
    /// When there is none, or no certificate can be made.
    pub(crate) async fn bind() -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let certificate = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()]).map_err(failed)?;
        let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).map_err(failed)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key)
            .map_err(failed)?;
        Ok(Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)), port })
    }

    /// Where it listens.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, data_directory: PathBuf, running: Running) {
        let route = "/containerLogs/{namespace}/{pod}/{container}";
        let router = Router::new().route(route, get(container_logs)).with_state(Files { data_directory, running });
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (acceptor, router) = (self.acceptor.clone(), router.clone());
                    tokio::spawn(async move {
                        connection(stream, acceptor, router).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    debug!(%error, "a connection could not be accepted");
                    sleep(LOOK).await;
                }
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Serve(error.to_string())
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await else {
        debug!("a TLS handshake failed");
        return;
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        debug!(%error, "a connection ended early");
    }
}

/// Options that a kubelet takes and this one cannot: what containers print is kept without times.
const UNKNOWN: [&str; 2] = ["sinceTime", "sinceSeconds"];

async fn container_logs(
    State(files): State<Files>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(options): Query<BTreeMap<String, String>>,
) -> Response {
    let refuse = |code: StatusCode, why: String| (code, why).into_response();
    let is_set = |name: &str| options.get(name).is_some_and(|value| value == "true");
    let number = |name: &str| options.get(name).map(|value| value.parse::<u64>()).transpose();
    if let Some(option) = UNKNOWN.into_iter().find(|option| options.contains_key(*option)) {
        return refuse(StatusCode::BAD_REQUEST, format!("{option}: output is kept without times on this node"));
    }
    let (Ok(lines), Ok(limit)) = (number("tailLines"), number("limitBytes")) else {
        return refuse(StatusCode::BAD_REQUEST, "tailLines and limitBytes must be whole numbers".to_owned());
    };
    let opened = match logs::find(&files.data_directory, &namespace, &pod, &container, is_set("previous")) {
        Ok(Some(path)) => Reader::open(&path, lines, limit),
        Ok(None) => {
            let which = if is_set("previous") { "an earlier run of container" } else { "container" };
            return refuse(StatusCode::NOT_FOUND, format!("no output of {which} {container} of {namespace}/{pod}"));
        }
        Err(error) => Err(error),
    };
    match opened {
        Ok(reader) => {
            let follow = is_set("follow").then_some((files.running, (namespace, pod)));
            Body::from_stream(stream::unfold((reader, follow), next_piece)).into_response()
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

type Follow = Option<(Running, (String, String))>;

/// The next piece of a file; while its pod runs and it is followed, there is always one to wait for.
async fn next_piece((mut reader, follow): (Reader, Follow)) -> Option<(Result<Bytes, Infallible>, (Reader, Follow))> {
    loop {
        let runs = follow
            .as_ref()
            .is_some_and(|(running, pod)| running.lock().unwrap_or_else(PoisonError::into_inner).contains(pod));
        // A file that cannot be read any more has no more to tell.
        let piece = reader.next().ok()?;
        if !piece.is_empty() {
            return Some((Ok(Bytes::from(piece)), (reader, follow)));
        }
        // Asked before it was read: what a pod printed last is not missed.
        if !runs || reader.is_full() {
            return None;
        }
        sleep(LOOK).await;
    }
}
