//! Sends requests to the API server and to a leader's log: over HTTP/2 where the server speaks it, so that all calls and watches
//! share one connection, as with client-go.
//!
//! Owns the connection's settings, the layers around it, when it is read (`batched`), and the size of responses (`bounded`). kube's
//! own transport speaks HTTP/1.1 alone, with a connection for each call in flight, at a quarter more CPU for both sides. Tests: at the end of this file.

mod batched;
mod bounded;

use std::time::Duration;

use http::{HeaderValue, Request, header};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config, Error};
use tokio_rustls::rustls::pki_types::ServerName;
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder};

/// User agent of this program.
pub(crate) const USER_AGENT: &str = concat!("trainyard/", env!("CARGO_PKG_VERSION"));
/// Time without data after which a connection is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(4);
/// Time limit of a ping, after which the connection is closed. Both together are below the renew deadline of a Lease (10 s), which is
/// then renewed on another connection.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Flow-control window of one response or watch, in bytes. A watch whose reader is busy stops there.
const STREAM_WINDOW: u32 = 1 << 20;
/// Flow-control window of a connection, in bytes: above that of all watches, so that a slow one does not block responses.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Purpose of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Single requests.
    Requests,
    /// Many calls and watches: connections are read in batches (`batched`).
    Watches,
    /// Requests that become `WebSocket`s, which HTTP/2 does not have here.
    Upgrades,
}

/// Creates a client and sends nothing yet.
///
/// # Errors
/// Returns an error if certificates or credentials cannot be used.
pub(crate) fn client(config: Config, purpose: Use) -> Result<Client, Error> {
    let mut tcp = HttpConnector::new();
    // It is given addresses with either scheme.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let mut tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = config.tls_server_name.clone() {
        let name = ServerName::try_from(name).map_err(|error| Error::Service(error.into()))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let tcp = batched::BatchedConnector { connector: tcp, enabled: purpose == Use::Watches };
    let connector = match purpose {
        Use::Requests | Use::Watches => tls.enable_all_versions().wrap_connector(tcp),
        Use::Upgrades => tls.enable_http1().wrap_connector(tcp),
    };
    let http_client: legacy::Client<_, Body> = legacy::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(MapRequestLayer::new(named))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(bounded::Bounded(http_client));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Adds the user agent to a request.
fn named(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    request
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use futures_util::FutureExt as _;
    use futures_util::future::{BoxFuture, join_all};
    use http::{Response, Version};
    use http_body_util::Empty;
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::{http1, http2};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    use super::*;

    /// A server of TLS that speaks these protocols and answers every request; on its first connection only `first_answers` of them.
    struct Server {
        config: Config,
        connections: Arc<AtomicUsize>,
    }

    impl Server {
        async fn start(protocols: &[&str], first_answers: usize) -> Self {
            let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
            let settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let settings = settings.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
            let mut settings = settings.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
            settings.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            let acceptor = TlsAcceptor::from(Arc::new(settings));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
            config.root_cert = Some(vec![own.cert.der().to_vec()]);
            let connections = Arc::new(AtomicUsize::new(0));
            let counted = connections.clone();
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let most = if counted.fetch_add(1, Ordering::SeqCst) == 0 { first_answers } else { usize::MAX };
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        let (left, dies) = (Arc::new(AtomicUsize::new(most)), Arc::new(Notify::new()));
                        let end = dies.clone();
                        let answer = service_fn(move |request: Request<Incoming>| {
                            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                                end.notify_one();
                            }
                            let agent = request.headers()[header::USER_AGENT].clone();
                            let answer = Response::builder().header("agent", agent).body(Empty::<Bytes>::new());
                            std::future::ready(answer)
                        });
                        let stream = TokioIo::new(stream);
                        let mut connection: BoxFuture<'_, hyper::Result<()>> = if is_two {
                            http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).boxed()
                        } else {
                            http1::Builder::new().serve_connection(stream, answer).boxed()
                        };
                        tokio::select! {
                            biased;
                            // As if the machine were gone: the connection is there, and nothing moves on it any more.
                            () = dies.notified() => std::future::pending().await,
                            _ = &mut connection => {}
                        }
                    });
                }
            });
            Self { config, connections }
        }

        fn connections(&self) -> usize {
            self.connections.load(Ordering::SeqCst)
        }
    }

    async fn ask(client: &Client, agent: Option<&str>) -> Result<(Version, String), Error> {
        let mut request = Request::get("/version");
        if let Some(agent) = agent {
            request = request.header(header::USER_AGENT, agent);
        }
        let answer = client.send(request.body(Body::empty()).unwrap()).await?;
        Ok((answer.version(), answer.headers()["agent"].to_str().unwrap().to_owned()))
    }

    #[tokio::test]
    async fn all_requests_share_a_connection_where_the_server_can() {
        let server = Server::start(&["h2", "http/1.1"], usize::MAX).await;
        let client = client(server.config.clone(), Use::Watches).unwrap();
        assert_eq!(ask(&client, None).await.unwrap(), (Version::HTTP_2, USER_AGENT.to_owned()));
        let answers = join_all((0..20).map(|_| ask(&client, Some("other")))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == (Version::HTTP_2, "other".to_owned())));
        assert_eq!(server.connections(), 1);
    }

    #[tokio::test]
    async fn requests_that_become_websockets_are_sent_by_the_older_protocol() {
        let server = Server::start(&["h2", "http/1.1"], usize::MAX).await;
        let client = client(server.config.clone(), Use::Upgrades).unwrap();
        assert_eq!(ask(&client, None).await.unwrap().0, Version::HTTP_11);
    }

    #[tokio::test]
    async fn a_server_or_proxy_that_speaks_only_the_older_protocol_is_served() {
        for protocols in [&["http/1.1"][..], &[]] {
            let server = Server::start(protocols, usize::MAX).await;
            let client = client(server.config.clone(), Use::Watches).unwrap();
            assert_eq!(ask(&client, None).await.unwrap(), (Version::HTTP_11, USER_AGENT.to_owned()));
        }
    }

    #[tokio::test]
    async fn a_dead_connection_is_left_before_a_lease_runs_out() {
        let server = Server::start(&["h2"], 1).await;
        let client = client(server.config.clone(), Use::Watches).unwrap();
        ask(&client, None).await.unwrap();
        let begun = Instant::now();
        assert!(ask(&client, None).await.is_err());
        assert!(begun.elapsed() >= KEEP_ALIVE_INTERVAL, "{:?}", begun.elapsed());
        assert_eq!(ask(&client, None).await.unwrap().0, Version::HTTP_2);
        assert_eq!(server.connections(), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_refused() {
        let mut config = Server::start(&[], 0).await.config;
        config.tls_server_name = Some("not a name".to_owned());
        assert!(client(config.clone(), Use::Watches).is_err());
        // Another server than the one that was meant.
        config.tls_server_name = Some("elsewhere".to_owned());
        assert!(ask(&client(config, Use::Watches).unwrap(), None).await.is_err());
    }
}
