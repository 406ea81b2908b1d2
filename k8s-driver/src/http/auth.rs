//! Authorizes readers of the log through the API server: a `TokenReview` of the bearer token and a `SubjectAccessReview` of the path.
//!
//! Owns the cache of verdicts, by a hash of the token. Concurrent requests with one token share a review.
//!
//! A token is valid if it was issued for this server ([`crate::lease::Advertised::audience`]), or for the API server itself, as for
//! users who name this server's address.

use std::fmt;
use std::time::Duration;

use dashmap::DashMap;
use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::client::exchange::error_chain;

/// Path of the access review; a `ClusterRole` names it under `nonResourceURLs`.
pub(super) const PATH: &str = "/log";
/// Lifetime of a cached permission: a revoked token is rejected at most this much later.
const VERDICT_TTL: Duration = Duration::from_secs(30);
/// Lifetime of a cached rejection: short, so that granted access takes effect soon.
const REFUSAL_TTL: Duration = Duration::from_secs(5);
/// Maximum number of cached verdicts, plus those found at the same moment.
const MAX_CACHED_VERDICTS: usize = 256;
/// Maximum number of reviews in flight: bad tokens must not become a load on the API server.
const MAX_REVIEWS_IN_FLIGHT: usize = 4;
/// Time limit of the reviews of one request.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Verdict of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The user may read the log.
    Allowed(String),
    /// The token is unknown.
    Unknown(String),
    /// The user may not read the log.
    Forbidden(String),
}

/// The reviews failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Error(String);

/// Reviews tokens and caches the verdicts.
pub(super) struct Authorizer {
    tokens: Api<TokenReview>,
    access: Api<SubjectAccessReview>,
    /// Audience of tokens for this server.
    audience: String,
    kept: DashMap<[u8; 32], (Verdict, Instant)>,
    in_flight: Semaphore,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Authorizer {
    pub(super) fn new(client: Client, audience: String) -> Self {
        let (tokens, access) = (Api::all(client.clone()), Api::all(client));
        Self { tokens, access, audience, kept: DashMap::new(), in_flight: Semaphore::new(MAX_REVIEWS_IN_FLIGHT) }
    }

    /// Authorizes a request by its `Authorization` header.
    pub(super) async fn authorize(&self, headers: &HeaderMap) -> Result<Verdict, Error> {
        let Some(token) = bearer(headers) else {
            return Ok(Verdict::Unknown("a bearer token is needed: Authorization: Bearer TOKEN".to_owned()));
        };
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        if let Some(verdict) = self.known(&hash) {
            return Ok(verdict);
        }
        let asked = async {
            let _place = self.in_flight.acquire().await;
            // Another request with the same token may have been answered meanwhile.
            match self.known(&hash) {
                Some(verdict) => Ok(verdict),
                None => self.send(token).await,
            }
        };
        let verdict = match timeout(REVIEW_TIMEOUT, asked).await {
            Ok(verdict) => verdict?,
            Err(_) => return Err(Error("the API server did not review the token in time; try again".to_owned())),
        };
        self.keep(hash, &verdict);
        Ok(verdict)
    }

    async fn send(&self, token: &str) -> Result<Verdict, Error> {
        let params = PostParams::default();
        let mut status = self.review(token, Some(vec![self.audience.clone()])).await?;
        if status.authenticated != Some(true) {
            status = self.review(token, None).await?;
        }
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            let why = status.error.filter(|error| !error.is_empty());
            return Ok(Verdict::Unknown(why.unwrap_or_else(|| "the API server does not know the token".to_owned())));
        };
        let UserInfo { username, groups, uid, extra } = user;
        let name = username.clone().unwrap_or_default();
        let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            user: username,
            groups,
            uid,
            extra,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = self.access.create(&params, &review).await.map_err(|e| unavailable("subjectaccessreviews", &e))?;
        let allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { Verdict::Allowed(name) } else { Verdict::Forbidden(name) })
    }

    async fn review(&self, token: &str, audiences: Option<Vec<String>>) -> Result<TokenReviewStatus, Error> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.tokens.create(&PostParams::default(), &review).await;
        Ok(review.map_err(|e| unavailable("tokenreviews", &e))?.status.unwrap_or_default())
    }

    fn known(&self, hash: &[u8; 32]) -> Option<Verdict> {
        let kept = self.kept.get(hash)?;
        let (verdict, until) = kept.value();
        (Instant::now() < *until).then(|| verdict.clone())
    }

    fn keep(&self, hash: [u8; 32], verdict: &Verdict) {
        let now = Instant::now();
        let ttl = if matches!(verdict, Verdict::Allowed(_)) { VERDICT_TTL } else { REFUSAL_TTL };
        self.kept.retain(|_, (_, until)| now < *until);
        if self.kept.len() < MAX_CACHED_VERDICTS {
            self.kept.insert(hash, (verdict.clone(), now + ttl));
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn unavailable(what: &str, error: &kube::Error) -> Error {
    Error(match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "this operator may not create {what}: bind the ClusterRole system:auth-delegator to its service account"
        ),
        kube::Error::Api(_) => format!("the API server refused {what}: {}", error_chain(error)),
        _ => format!("the API server cannot be asked about {what}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower_test::mock;

    use super::*;

    const AUDIENCE: &str = "this server";

    /// An API server that knows the tokens `good` (may read), `poor` (may not), and `ours` (issued for this server, may read), and
    /// counts the questions.
    fn server() -> (Client, Arc<AtomicU32>) {
        let questions = Arc::new(AtomicU32::new(0));
        let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
        let counter = questions.clone();
        tokio::spawn(async move {
            while let Some((request, reply)) = handle.next_request().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let asked: Value = serde_json::from_slice(&body).unwrap();
                let status = if path.ends_with("/tokenreviews") {
                    let token = asked["spec"]["token"].as_str().unwrap();
                    let name = if token == "ours" { "good" } else { token };
                    let user = json!({"username": name, "groups": ["g"], "extra": {"k": ["v"]}});
                    let for_us = asked["spec"]["audiences"] == json!([AUDIENCE]);
                    json!({"authenticated": token != "bad" && for_us == (token == "ours"), "user": user})
                } else {
                    assert_eq!(asked["spec"]["nonResourceAttributes"], json!({"path": "/log", "verb": "get"}));
                    assert_eq!(
                        (&asked["spec"]["groups"], &asked["spec"]["extra"]),
                        (&json!(["g"]), &json!({"k": ["v"]}))
                    );
                    json!({"allowed": asked["spec"]["user"] == "good"})
                };
                let answer = json!({"metadata": {}, "spec": asked["spec"], "status": status});
                reply.send_response(Response::new(Body::from(answer.to_string().into_bytes())));
            }
        });
        (Client::new(service, "default"), questions)
    }

    fn header(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().unwrap())])
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_decides_and_is_not_asked_twice() {
        let (client, questions) = server();
        let authorizer = Authorizer::new(client, AUDIENCE.to_owned());
        let authorize = async |text: &str| authorizer.authorize(&header(text)).await.unwrap();
        for _ in 0..3 {
            assert_eq!(authorize("Bearer ours").await, Verdict::Allowed("good".to_owned()));
        }
        assert_eq!(questions.swap(0, Ordering::SeqCst), 2);
        for _ in 0..3 {
            assert_eq!(authorize("Bearer good").await, Verdict::Allowed("good".to_owned()));
        }
        assert_eq!(questions.swap(0, Ordering::SeqCst), 3, "whether it is for us, for the API server, and may read");
        assert_eq!(authorize("bearer poor").await, Verdict::Forbidden("poor".to_owned()));
        assert_eq!(
            authorize("Bearer bad").await,
            Verdict::Unknown("the API server does not know the token".to_owned())
        );
        for none in ["Basic good", "Bearer", "Bearer  ", "good"] {
            assert!(matches!(authorize(none).await, Verdict::Unknown(_)), "{none}");
        }
        assert!(matches!(authorizer.authorize(&HeaderMap::new()).await, Ok(Verdict::Unknown(_))));
        assert_eq!(questions.swap(0, Ordering::SeqCst), 5);
        tokio::time::advance(VERDICT_TTL).await;
        authorize("Bearer good").await;
        assert_eq!(questions.load(Ordering::SeqCst), 3, "a verdict is not believed for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn verdicts_kept_are_bounded() {
        let (client, _questions) = server();
        let authorizer = Authorizer::new(client, AUDIENCE.to_owned());
        for n in 0..MAX_CACHED_VERDICTS + 20 {
            authorizer.authorize(&header(&format!("Bearer token-{n}"))).await.unwrap();
        }
        assert_eq!(authorizer.kept.len(), MAX_CACHED_VERDICTS);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_cannot_be_asked_is_no_verdict() {
        let (service, handle) = mock::pair::<Request<Body>, Response<Body>>();
        let authorizer = Authorizer::new(Client::new(service, "default"), AUDIENCE.to_owned());
        let silent = authorizer.authorize(&header("Bearer good")).await;
        assert_eq!(silent, Err(Error("the API server did not review the token in time; try again".to_owned())));
        drop(handle);
        let gone = authorizer.authorize(&header("Bearer good")).await.unwrap_err();
        assert!(gone.to_string().starts_with("the API server cannot be asked"), "{gone}");
    }
}
