//! Connections: how many, how long, with or without TLS. Knows nothing of what is asked on them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::certificate::Certificate;

/// Connections of one listener at a time; further ones wait to be accepted.
const MOST_CONNECTIONS: usize = 64;
/// How long a client may take for its TLS handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long answers under way may take once the process is to end.
const FAREWELL: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted: mostly, there are too many open files.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Serves plain HTTP until `stop`.
pub(crate) async fn plain(listener: TcpListener, router: Router, stop: CancellationToken) {
    let ends = stop.clone();
    let serve = move |stream: TcpStream| {
        let (router, ends) = (router.clone(), ends.clone());
        async move { connection(stream, router, ends).await }
    };
    accept(listener, stop, serve).await;
}

/// Serves HTTPS until `stop`.
pub(crate) async fn tls(listener: TcpListener, certificate: Certificate, router: Router, stop: CancellationToken) {
    let ends = stop.clone();
    let certificate = Arc::new(certificate);
    let serve = move |stream: TcpStream| {
        let (router, ends, certificate) = (router.clone(), ends.clone(), certificate.clone());
        async move {
            match timeout(PATIENCE, certificate.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => connection(stream, router, ends).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        }
    };
    accept(listener, stop, serve).await;
}

async fn accept<F>(listener: TcpListener, stop: CancellationToken, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let tasks = TaskTracker::new();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let served = serve(stream);
                tasks.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
    tasks.close();
    // What takes longer is cut off with the process.
    let _ = timeout(FAREWELL, tasks.wait()).await;
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, router: Router, stop: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(64 << 10);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}
