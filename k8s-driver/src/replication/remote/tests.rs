//! Which credential goes where, when Leases are made by someone else than the operator.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use http::{Method, StatusCode, header};
use model::Position;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Error, Remote};
use crate::client;
use crate::http::certificate::Certificate;
use crate::http::serve;
use crate::lease::{Advertised, LeaseOptions};
use crate::replication::locate::{self, DEFAULT_NAMESPACE, LocateOptions, locate};

/// The token in the user's kubeconfig.
const ADMIN: &str = "token-of-an-admin";

/// An API server over plain HTTP, and a kubeconfig of an admin whose context is in the namespace `tenant`.
struct Cluster {
    kubeconfig: PathBuf,
    /// Audiences that tokens were requested for.
    issued: Arc<Mutex<Vec<Value>>>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// One with a Lease, held by `holder`, in one namespace.
    async fn with_lease(namespace: &str, holder: &str, advertised: &Advertised) -> Self {
        let annotations = json!({"trainyard.dev/log-address": advertised.address,
            "trainyard.dev/log-certificate": advertised.certificate});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "trainyard", "namespace": namespace, "annotations": annotations},
            "spec": {"holderIdentity": holder}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/trainyard");
        let issued: Arc<Mutex<Vec<Value>>> = Arc::default();
        let noted = issued.clone();
        let router = Router::new().fallback(move |request: Request| {
            let (lease, path, noted) = (lease.clone(), path.clone(), noted.clone());
            async move {
                let is_admin =
                    request.headers().get(header::AUTHORIZATION).is_some_and(|h| h == &format!("Bearer {ADMIN}"));
                assert!(is_admin, "{request:?}");
                let asked = request.uri().path().to_owned();
                let method = request.method().clone();
                if method == Method::GET && asked == path {
                    return (StatusCode::OK, lease.to_string());
                }
                if method == Method::POST && asked.ends_with("/serviceaccounts/trainyard-log-reader/token") {
                    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
                    let mut review: Value = serde_json::from_slice(&body).unwrap();
                    noted.lock().unwrap().push(review["spec"]["audiences"].clone());
                    review["metadata"] = json!({});
                    review["status"] = json!({"token": "issued", "expirationTimestamp": "2030-01-01T00:00:00Z"});
                    return (StatusCode::CREATED, review.to_string());
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": format!("nothing under {asked}")});
                (StatusCode::NOT_FOUND, status.to_string())
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, router).into_future());
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("config");
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "tenant"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {"token": ADMIN}}]});
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        Self { kubeconfig, issued, _dir: dir }
    }

    fn options(&self) -> LocateOptions {
        let connection = client::Options { kubeconfig: Some(self.kubeconfig.clone()), ..client::Options::default() };
        LocateOptions { connection, lease: LeaseOptions::NAME.to_owned(), ..LocateOptions::default() }
    }

    fn issued(&self) -> Vec<Value> {
        self.issued.lock().unwrap().clone()
    }
}

/// A server of someone else's: it keeps the `Authorization` header of each request.
struct Stranger {
    advertised: Advertised,
    heard: Arc<Mutex<Vec<Option<String>>>>,
}

impl Stranger {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = Certificate::self_made("127.0.0.1").unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let advertised = Advertised { address, certificate: certificate.to_trust().map(str::to_owned) };
        let heard: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let noted = heard.clone();
        let router = Router::new().fallback(move |request: Request| {
            let header = request.headers().get(header::AUTHORIZATION).map(|text| text.to_str().unwrap().to_owned());
            noted.lock().unwrap().push(header);
            async { StatusCode::UNAUTHORIZED }
        });
        tokio::spawn(serve::tls(listener, move || certificate.acceptor(), router, CancellationToken::new()));
        Self { advertised, heard }
    }

    fn heard(&self) -> Vec<Option<String>> {
        self.heard.lock().unwrap().clone()
    }
}

/// Reads a log as the commands with `--server` do.
async fn read(options: &LocateOptions) -> Result<Result<(), Error>, locate::Error> {
    let found = locate(options).await?;
    Ok(async { Remote::new(found.target)?.log(Position(1), false).await.map(drop) }.await)
}

fn bearer(token: &str) -> Vec<Option<String>> {
    vec![Some(format!("Bearer {token}"))]
}

#[tokio::test]
async fn a_lease_in_the_namespace_of_a_tenant_is_not_looked_at() {
    let stranger = Stranger::new().await;
    // No Lease where the operator's is: the context's namespace has one, made by a tenant.
    let cluster = Cluster::with_lease("tenant", "trainyard-0_1", &stranger.advertised).await;
    let error = read(&cluster.options()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("Lease {DEFAULT_NAMESPACE}/trainyard")), "{error}");
    // The operator's own Lease is free: that is no reason to look elsewhere either.
    let cluster = Cluster::with_lease(DEFAULT_NAMESPACE, "", &stranger.advertised).await;
    let error = read(&cluster.options()).await.unwrap_err();
    assert!(matches!(error, locate::Error::NoLeader { .. }), "{error}");
    assert_eq!(stranger.heard(), []);
    assert_eq!(cluster.issued(), Vec::<Value>::new());
}

#[tokio::test]
async fn what_a_lease_names_gets_a_token_for_nothing_else() {
    let stranger = Stranger::new().await;
    let audience = json!([stranger.advertised.audience()]);
    let cluster = Cluster::with_lease(DEFAULT_NAMESPACE, "trainyard-0_1", &stranger.advertised).await;
    let refused = read(&cluster.options()).await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Unauthorized { .. }), "{refused}");
    assert_eq!((stranger.heard(), cluster.issued()), (bearer("issued"), vec![audience.clone()]));
    // A forwarded port: the address is the user's, the certificate is the Lease's.
    let forwarded = LocateOptions { server: Some(stranger.advertised.address.clone()), ..cluster.options() };
    read(&forwarded).await.unwrap().unwrap_err();
    assert_eq!((stranger.heard().len(), cluster.issued()), (2, vec![audience.clone(), audience]));
    assert_eq!(stranger.heard()[1], bearer("issued")[0]);
    let other = Stranger::new().await.advertised;
    assert_ne!(other.audience(), stranger.advertised.audience());
}

#[tokio::test]
async fn the_users_own_token_goes_where_the_user_says() {
    let stranger = Stranger::new().await;
    let cluster = Cluster::with_lease(DEFAULT_NAMESPACE, "trainyard-0_1", &stranger.advertised).await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let token_file = Some(at("token", "own"));
    let authority = Some(at("authority", stranger.advertised.certificate.as_deref().unwrap()));
    // To an address that only the Lease names: never.
    let error =
        read(&LocateOptions { token_file: token_file.clone(), authority: authority.clone(), ..cluster.options() })
            .await;
    assert!(matches!(error, Err(locate::Error::TokenWithoutAddress)), "{error:?}");
    // To an address of the user's whose certificate only the Lease vouches for: the handshake fails.
    let server = Some(stranger.advertised.address.clone());
    let named = LocateOptions { server, token_file, ..cluster.options() };
    let error = read(&named).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(stranger.heard(), []);
    // The user names both.
    let named = LocateOptions { authority, ..named };
    read(&named).await.unwrap().unwrap_err();
    read(&LocateOptions { token_file: None, ..named }).await.unwrap().unwrap_err();
    assert_eq!(stranger.heard(), [bearer("own"), bearer(ADMIN)].concat());
    assert_eq!(cluster.issued(), Vec::<Value>::new());
}
