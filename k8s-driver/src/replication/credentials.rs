//! Credentials for a served log: tokens that the API server issues for one server and for nothing else.
//!
//! Owns which account reads the log, and for whom its tokens are issued. A Lease names the server, and a Lease proves nothing: a
//! token that reached a server of someone else opens no API server and no other log. Tests: `replication/remote/tests.rs`.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::AuthInfo;
use kube::{Api, Client};
use tokio::time::timeout;

use crate::lease::Advertised;

/// Service account that reads the log. `deploy/base` makes it in the operator's namespace.
pub const READER: &str = "trainyard-log-reader";
/// Lifetime of a token, in seconds: the shortest an API server issues. An answer that has begun continues after it.
const TOKEN_SECONDS: i64 = 600;
/// Maximum time the API server may take to issue one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such account.
    #[error("there is no service account {namespace}/{READER}")]
    Missing {
        /// Namespace of the account.
        namespace: String,
    },
    /// The API server refused.
    #[error("no token of service account {namespace}/{READER} was issued")]
    Refused {
        /// Namespace of the account.
        namespace: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// The API server does not answer.
    #[error("the API server issued no token of service account {namespace}/{READER} within {} s", REQUEST_TIMEOUT.as_secs())]
    Silent {
        /// Namespace of the account.
        namespace: String,
    },
}

/// Requests tokens.
#[derive(Clone)]
pub(crate) struct Tokens {
    client: Client,
    namespace: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Requests tokens of the account in the operator's namespace.
    pub(crate) fn new(client: Client, namespace: impl Into<String>) -> Self {
        Self { client, namespace: namespace.into() }
    }

    /// Returns a new token for one server.
    ///
    /// # Errors
    /// Returns an error if the API server refuses it or does not answer.
    pub(crate) async fn for_server(&self, server: &Advertised) -> Result<AuthInfo, Error> {
        let namespace = || self.namespace.clone();
        let spec = TokenRequestSpec {
            audiences: vec![server.audience()],
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PostParams::default();
        let issued = timeout(REQUEST_TIMEOUT, accounts.create_token_request(READER, &params, &request)).await;
        let issued = issued.map_err(|_| Error::Silent { namespace: namespace() })?;
        let issued = issued.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Error::Missing { namespace: namespace() },
            source => Error::Refused { namespace: namespace(), source: Box::new(source) },
        })?;
        let token = issued.status.map(|status| status.token).unwrap_or_default();
        Ok(AuthInfo { token: Some(token.into()), ..AuthInfo::default() })
    }
}
