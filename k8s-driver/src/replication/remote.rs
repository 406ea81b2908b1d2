//! Reads the log of a live operator from another process: for a standby, and for `trainyard ... --server`.
//!
//! Owns the client side of `http::log`: addresses, certificates, tokens and errors. Its readers verify the lines
//! (`event_log::jsonl`). Tests: `http/tests.rs`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use event_log::Head;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Client, Config};
use model::Position;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::client::exchange::error_chain;
use crate::client::transport;
use crate::http::HEAD;

/// Time limit of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the headers of a response, and of an error's body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time without data, empty lines included, after which a connection counts as dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of bytes read of an error's body.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Address and credentials of a served log.
#[derive(Debug, Clone)]
pub struct Target {
    /// The base address: `https://HOST:PORT`.
    pub address: String,
    /// Certificates to trust, PEM; `None` for the system's.
    pub authority: Option<String>,
    /// Source of the bearer token.
    pub auth: AuthInfo,
}

/// An error of reading a served log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("{address}: {reason}")]
    Address {
        /// The address.
        address: String,
        /// Reason.
        reason: String,
    },
    /// The trusted certificates cannot be read, or there is no token.
    #[error("{address}: {source}")]
    Client {
        /// The address.
        address: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The address does not answer, or not with a log.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server does not know who asks.
    #[error("{address} does not know you: {message}")]
    Unauthorized {
        /// The address.
        address: String,
        /// In its words.
        message: String,
    },
    /// The server knows who asks, and refuses.
    #[error("{address} refuses: {message}")]
    Forbidden {
        /// The address.
        address: String,
        /// In its words.
        message: String,
        /// As whom it knows the asker.
        user: String,
    },
    /// That replica does not lead.
    #[error("{address}: {message}")]
    NotLeader {
        /// The address.
        address: String,
        /// In its words.
        message: String,
        /// Address of the leader's served log, if it is known.
        leader: Option<String>,
    },
    /// The log ends before the position asked for.
    #[error("{address}: {message}")]
    BeyondHead {
        /// The address.
        address: String,
        /// In its words.
        message: String,
    },
    /// Another refusal.
    #[error("{address}: {code} {message}")]
    Refused {
        /// The address.
        address: String,
        /// HTTP status code.
        code: u16,
        /// In its words.
        message: String,
    },
    /// The answer broke off.
    #[error("{address}: the log broke off: {reason}")]
    Broken {
        /// The address.
        address: String,
        /// How.
        reason: String,
    },
}

/// A served log.
#[derive(Clone)]
pub struct Remote {
    client: Client,
    address: String,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The lines of a log as they arrive.
#[derive(Debug)]
pub struct Lines {
    body: Body,
    address: String,
    /// The end of the log when the answer began.
    pub head: Head,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorBody {
    reason: String,
    message: String,
    user: String,
    address: Option<String>,
}

impl Remote {
    /// Creates a client and sends nothing yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the address or a certificate cannot be used.
    pub fn new(target: Target) -> Result<Self, Error> {
        let Target { address, authority, auth } = target;
        let refuse = |reason: String| Error::Address { address: address.clone(), reason };
        let uri: Uri = address.parse().map_err(|e: http::uri::InvalidUri| refuse(e.to_string()))?;
        if uri.scheme_str() != Some("https") || uri.authority().is_none() {
            return Err(refuse("an address like https://HOST:PORT is needed".to_owned()));
        }
        let mut config = Config::new(uri);
        config.auth_info = auth;
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        if let Some(pem) = authority {
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            let certificates = certificates.map_err(|e| refuse(format!("the certificate to trust: {e}")))?;
            if certificates.is_empty() {
                return Err(refuse("the certificate to trust is no PEM".to_owned()));
            }
            config.root_cert = Some(certificates.into_iter().map(|der| der.to_vec()).collect());
        }
        let fail = |source| Error::Client { address: address.clone(), source: Box::new(source) };
        Ok(Self { client: transport::client(config, transport::Use::Requests).map_err(fail)?, address })
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens the log at a position. A checkpoint comes first in place of records that the log does not hold any more.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached, or refuses.
    pub async fn log(&self, from: Position, follow: bool) -> Result<Lines, Error> {
        self.lines(&format!("/log?from={from}&follow={follow}")).await
    }

    /// Requests the present state, as a log without records that begins with a checkpoint.
    ///
    /// # Errors
    /// As for [`Remote::log`]. [`Error::Refused`] with code 400 by an operator that is older than this request.
    pub async fn state(&self) -> Result<Lines, Error> {
        self.lines("/log?from=head").await
    }

    async fn lines(&self, path: &str) -> Result<Lines, Error> {
        let answer = self.get(path).await?;
        let head = answer.headers().get(HEAD).and_then(|text| parse_head(text.to_str().ok()?));
        let Some(head) = head else {
            let reason = "it answers, but not with a log".to_owned();
            return Err(Error::Unreachable { address: self.address.clone(), reason });
        };
        Ok(Lines { body: answer.into_body(), address: self.address.clone(), head })
    }

    async fn get(&self, path: &str) -> Result<Response<Body>, Error> {
        let address = || self.address.clone();
        let unreachable = |reason: String| Error::Unreachable { address: address(), reason };
        let request = Request::get(path).body(Body::empty()).map_err(|e| unreachable(e.to_string()))?;
        let answer = match timeout(RESPONSE_TIMEOUT, self.client.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error @ kube::Error::Auth(_))) => {
                return Err(Error::Client { address: address(), source: Box::new(error) });
            }
            Ok(Err(error)) => return Err(unreachable(error_chain(&error))),
            Err(_) => return Err(unreachable(format!("no answer within {} s", RESPONSE_TIMEOUT.as_secs()))),
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status();
        let body = http_body_util::Limited::new(answer.into_body(), MAX_REFUSAL_BYTES);
        let body = timeout(RESPONSE_TIMEOUT, body.collect()).await;
        let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let ErrorBody { reason, message, user, address: leader } = serde_json::from_slice(&body).unwrap_or_default();
        Err(match (code, reason.as_str()) {
            (StatusCode::UNAUTHORIZED, _) => Error::Unauthorized { address: address(), message },
            (StatusCode::FORBIDDEN, _) => Error::Forbidden { address: address(), message, user },
            (StatusCode::SERVICE_UNAVAILABLE, "NotLeader") => Error::NotLeader { address: address(), message, leader },
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => Error::BeyondHead { address: address(), message },
            (code, _) => Error::Refused { address: address(), code: code.as_u16(), message },
        })
    }
}

impl Lines {
    /// Returns the next bytes, which need not end with a line; `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the connection breaks or falls silent.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let broken = |reason: String| Error::Broken { address: self.address.clone(), reason };
        loop {
            match timeout(IDLE_TIMEOUT, self.body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Ok(Some(Err(error))) => return Err(broken(error_chain(&error))),
                Err(_) => return Err(broken(format!("nothing came for {} s", IDLE_TIMEOUT.as_secs()))),
            }
        }
    }
}

fn parse_head(text: &str) -> Option<Head> {
    let (position, digest) = text.split_once(' ')?;
    Some(Head { position: Position(position.parse().ok()?), digest: digest.parse().ok()? })
}
