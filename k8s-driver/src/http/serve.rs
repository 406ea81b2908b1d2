//! Accepts connections with or without TLS, and bounds their number and duration.
//!
//! Owns the accept loop of every listener, the node agent's included. When every place is taken, the oldest connection that is not
//! kept is closed for the next one. So a client that sends or reads slowly cannot block a kubelet's probe. A handler keeps its
//! connection ([`Place::keep`]) after authorization; it must keep fewer than [`MAX_CONNECTIONS`]. It must not know the requests. Tests: at the end.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum number of connections of one listener.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Maximum time a client may take for its TLS handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time a client may read nothing of its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that answers under way may take once the process is to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted: mostly, there are too many open files.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The certificate a client showed, DER. A request of a TLS listener carries it as an extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer(pub Option<Vec<u8>>);

/// A connection's place. Each request carries it as an extension.
#[derive(Debug, Clone, Default)]
pub struct Place {
    kept: Arc<AtomicUsize>,
    closed: CancellationToken,
}

/// Keeps a connection open while others are closed for new ones.
#[derive(Debug)]
pub struct Kept(Arc<AtomicUsize>);

impl Place {
    /// Keeps the connection until the answer is dropped.
    pub fn keep(&self) -> Kept {
        self.kept.fetch_add(1, Ordering::Relaxed);
        Kept(Arc::clone(&self.kept))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The places of one listener, in the order in which they were taken.
#[derive(Debug, Clone, Default)]
struct Places(Arc<Mutex<BTreeMap<u64, Place>>>);

impl Places {
    /// Takes a place; closes another connection if all are taken. `None` if all are kept.
    fn take(&self, number: u64) -> Option<Place> {
        let mut places = self.lock();
        if places.len() >= MAX_CONNECTIONS {
            let oldest = places.iter().find(|(_, place)| place.kept.load(Ordering::Relaxed) == 0);
            let oldest = oldest.map(|(number, _)| *number)?;
            if let Some(place) = places.remove(&oldest) {
                place.closed.cancel();
            }
        }
        let place = Place::default();
        places.insert(number, place.clone());
        Some(place)
    }

    fn free(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves plain HTTP until `stop`, one request a connection.
pub async fn plain(listener: TcpListener, router: Router, stop: CancellationToken) {
    let ends = stop.clone();
    let serve = move |stream: TcpStream, place: Place| {
        let (router, ends) = (router.clone().layer(Extension(place)), ends.clone());
        async move { connection(Limited::new(stream), router, false, ends).await }
    };
    accept(listener, stop, serve).await;
}

/// Serves HTTPS until `stop`. `acceptor` is asked at each connection, so that certificates may change.
pub async fn tls(listener: TcpListener, acceptor: impl Fn() -> TlsAcceptor, router: Router, stop: CancellationToken) {
    let ends = stop.clone();
    let serve = move |stream: TcpStream, place: Place| {
        let (router, ends, acceptor) = (router.clone(), ends.clone(), acceptor());
        async move {
            match timeout(HEAD_TIMEOUT, acceptor.accept(Limited::new(stream))).await {
                Ok(Ok(stream)) => {
                    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let peer = Peer(shown.map(|certificate| certificate.to_vec()));
                    let router = router.layer(Extension(place)).layer(Extension(peer));
                    connection(stream, router, true, ends).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        }
    };
    accept(listener, stop, serve).await;
}

async fn accept<F>(listener: TcpListener, stop: CancellationToken, serve: impl Fn(TcpStream, Place) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Places::default();
    let tasks = TaskTracker::new();
    for number in 0.. {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let Some(place) = places.take(number) else { continue };
                let _ = stream.set_nodelay(true);
                let (closed, served, places) = (place.closed.clone(), serve(stream, place), places.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = closed.cancelled() => tracing::debug!("a connection was closed for a newer one"),
                        () = served => {}
                    }
                    places.free(number);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    tasks.close();
    // What takes longer is cut off with the process.
    let _ = timeout(SHUTDOWN_GRACE, tasks.wait()).await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    keep_alive: bool,
    stop: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(64 << 10).keep_alive(keep_alive);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).with_upgrades();
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

/// A stream that fails when the other end reads nothing for [`WRITE_TIMEOUT`].
struct Limited {
    stream: TcpStream,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Limited {
    const fn new(stream: TcpStream) -> Self {
        Self { stream, waiting: None }
    }

    fn limit(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        waiting.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Limited {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Limited {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limit(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket's flush and shutdown wait for nothing.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Sends when it is dropped.
    struct Ends(mpsc::UnboundedSender<()>);

    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// A listener with `/short`, `/endless` and `/kept`; each end of an endless answer is reported.
    async fn start() -> (std::net::SocketAddr, mpsc::UnboundedReceiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, ends) = mpsc::unbounded_channel();
        let endless = move || {
            let ends = Ends(sender.clone());
            async move {
                Body::from_stream(stream::unfold(ends, |ends| async {
                    Some((Ok::<_, io::Error>(Bytes::from(vec![b'x'; 1 << 16])), ends))
                }))
            }
        };
        let kept = |Extension(place): Extension<Place>| async move {
            let kept = place.keep();
            Body::from_stream(stream::unfold((true, kept), |(first, kept)| async move {
                if !first {
                    std::future::pending::<()>().await;
                }
                Some((Ok::<_, io::Error>(Bytes::from_static(b"first")), (false, kept)))
            }))
        };
        let router = Router::new().route("/short", get(async || "ok")).route("/endless", get(endless));
        let router = router.route("/kept", get(kept));
        tokio::spawn(plain(listener, router, CancellationToken::new()));
        (address, ends)
    }

    async fn ask(address: std::net::SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn short(address: std::net::SocketAddr) -> String {
        let mut stream = ask(address, "GET /short HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut answer = String::new();
        timeout(SOON, stream.read_to_string(&mut answer)).await.expect("no answer").unwrap();
        answer
    }

    #[tokio::test]
    async fn a_probe_is_answered_while_every_place_is_taken() {
        let (address, _ends) = start().await;
        let mut held = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            held.push(ask(address, "").await);
            held.push(ask(address, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await);
            held.push(ask(address, "GET /short HTTP/1.1\r\nX-Slow: ").await);
        }
        for _ in 0..3 {
            let answer = short(address).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
        }
        // A connection that is kept stays while all others go.
        let mut kept = ask(address, "GET /kept HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut text = [0; 4096];
        let count = kept.read(&mut text).await.unwrap();
        assert!(String::from_utf8_lossy(&text[..count]).contains("200 OK"));
        for _ in 0..2 * MAX_CONNECTIONS {
            held.push(ask(address, "").await);
        }
        assert!(short(address).await.ends_with("ok"));
        let rest = async { while matches!(kept.read(&mut text).await, Ok(count) if count > 0) {} };
        assert!(timeout(Duration::from_millis(200), rest).await.is_err(), "it was closed");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (address, mut ends) = start().await;
        let _silent = ask(address, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
        // Until the socket is full, in real time; then the wait is over at once.
        sleep(Duration::from_millis(500)).await;
        tokio::time::pause();
        timeout(10 * WRITE_TIMEOUT, ends.recv()).await.expect("the answer continues").unwrap();
    }
}
