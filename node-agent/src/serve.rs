//! What an API server asks a node for, over HTTPS on the loopback address: the output of containers here, programs in them in
//! `exec`, their ports in `forward`.
//!
//! Every process of this machine can connect, so a client must show a certificate, and the API server says what its holder may
//! do (`access`). Nothing else of a kubelet's surface is served. Connections and certificate are `k8s_driver::listener`'s. Tests: `tests/`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use futures_util::stream;
use k8s_driver::listener::{self, Kept, Peer, Place};
use local::Processes;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::Error;
use crate::access::{ENTER, Gate, READ, User};
use crate::exec::{self, Sessions};
use crate::forward;
use crate::logs::Reader;

/// Maximum number of answers at a time; less than there are connections.
const MAX_READERS: usize = 32;
/// Time between two looks at a file that is followed.
const FOLLOW_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Namespace and name of the pods that run now.
pub(crate) type Running = Arc<Mutex<BTreeSet<(String, String)>>>;

/// A listener that is bound.
pub(crate) struct Endpoint {
    listener: TcpListener,
    port: u16,
}

#[derive(Clone)]
struct Files {
    data_directory: PathBuf,
    running: Running,
    readers: Arc<Semaphore>,
}

impl Endpoint {
    /// Binds a free port.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn bind() -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, port })
    }

    /// Where it listens.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(
        self,
        acceptor: TlsAcceptor,
        gate: Gate,
        (data_directory, running): (PathBuf, Running),
        processes: Processes,
    ) {
        let sessions = Router::new()
            .route("/exec/{namespace}/{pod}/{container}", any(exec::exec))
            .route("/portForward/{namespace}/{pod}", any(forward::port_forward))
            .with_state(Sessions::new(processes));
        let gate = Arc::new(gate);
        let route = "/containerLogs/{namespace}/{pod}/{container}";
        let files = Files { data_directory, running, readers: Arc::new(Semaphore::new(MAX_READERS)) };
        let router = Router::new().route(route, get(container_logs)).with_state(files);
        let router = router.layer(from_fn_with_state((Arc::clone(&gate), READ), admit));
        let router = router.merge(sessions.layer(from_fn_with_state((gate, ENTER), admit)));
        listener::tls(self.listener, move || acceptor.clone(), router, CancellationToken::new()).await;
    }
}

/// Returns an acceptor with a certificate of this process's own that verifies clients of the cluster's `authorities` (PEM).
///
/// # Errors
/// Returns an error if the authorities are no certificates.
pub(crate) fn acceptor(authorities: Option<&str>) -> Result<TlsAcceptor, Error> {
    listener::self_signed(&Ipv4Addr::LOCALHOST.to_string(), authorities).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Serve(error.to_string())
}

async fn admit(State((gate, verb)): State<(Arc<Gate>, &'static str)>, request: Request, next: Next) -> Response {
    let shown = request.extensions().get::<Peer>().and_then(|peer| peer.0.as_deref());
    let Some(user) = shown.and_then(User::of_certificate) else {
        let why = "a client certificate of the cluster's authority is needed; the API server has one where it was started with \
                   --kubelet-client-certificate\n";
        return (StatusCode::UNAUTHORIZED, why).into_response();
    };
    match gate.lets_in(&user, verb).await {
        Ok(true) => next.run(request).await,
        Ok(false) => (StatusCode::FORBIDDEN, format!("{} may not {verb} nodes/proxy\n", user.name())).into_response(),
        Err(refusal) => {
            debug!(%refusal, "the API server does not say who may {verb}");
            let why =
                format!("the API server does not say whether {} may {verb} nodes/proxy: {refusal}\n", user.name());
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

/// Options that a kubelet takes and this one cannot: what containers print is kept without times.
const UNKNOWN: [&str; 2] = ["sinceTime", "sinceSeconds"];

async fn container_logs(
    State(files): State<Files>,
    Extension(place): Extension<Place>,
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
    let Ok(permit) = Arc::clone(&files.readers).try_acquire_owned() else {
        return refuse(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{MAX_READERS} readers are being answered; try again later"),
        );
    };
    let opened = match local::newest_log(&files.data_directory, &namespace, &pod, &container, is_set("previous")) {
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
            let held = Held { follow, _permit: permit, _kept: place.keep() };
            Body::from_stream(stream::unfold((reader, held), next_piece)).into_response()
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// What an answer holds until its end.
struct Held {
    /// The pod that is followed, and those that run.
    follow: Option<(Running, (String, String))>,
    _permit: OwnedSemaphorePermit,
    _kept: Kept,
}

/// The next piece of a file; while its pod runs and it is followed, there is always one to wait for.
async fn next_piece((mut reader, held): (Reader, Held)) -> Option<(Result<Bytes, Infallible>, (Reader, Held))> {
    loop {
        let runs = held
            .follow
            .as_ref()
            .is_some_and(|(running, pod)| running.lock().unwrap_or_else(PoisonError::into_inner).contains(pod));
        // A file that cannot be read any more has nothing more to give.
        let piece = reader.next().ok()?;
        if !piece.is_empty() {
            return Some((Ok(Bytes::from(piece)), (reader, held)));
        }
        // Asked before it was read: what a pod printed last is not missed.
        if !runs || reader.is_full() {
            return None;
        }
        sleep(FOLLOW_POLL_INTERVAL).await;
    }
}
