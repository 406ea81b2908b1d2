//! Errors of lists and watches, read from the server's codes. Tests: `watch/tests.rs`.

use std::fmt;

use apis::ApiError;

use crate::client::exchange;
use crate::watch::decode;

/// An error of a list or a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Error {
    /// The server does not keep the resourceVersion any more (410).
    Expired,
    /// The resource is not served (404).
    NotServed,
    /// The cluster's resourceVersion is below an observed one.
    ClusterRegressed,
    /// The server rejected the request.
    Rejected(ApiError),
    /// The connection, the time limit or the content failed.
    Failed(String),
    /// The receiver of the observations is closed.
    ReceiverClosed,
}

impl Error {
    /// Returns true for an answer that stays the same until the cluster is changed: a client error, but for an expired
    /// token, a time-out and overload.
    pub(super) const fn is_refusal(&self) -> bool {
        match self {
            Self::Rejected(error) => matches!(error.code, 400..500) && !matches!(error.code, 401 | 408 | 429),
            Self::NotServed => true,
            Self::Expired | Self::ClusterRegressed | Self::Failed(_) | Self::ReceiverClosed => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the resourceVersion is too old for the server"),
            Self::NotServed => f.write_str("the server does not serve it"),
            Self::ClusterRegressed => f.write_str("the cluster's resourceVersion went backwards"),
            Self::Rejected(error) if error.code == 403 => {
                write!(
                    f,
                    "{error}; bind the operator's ClusterRole, with this resource in its rules, to its service account"
                )
            }
            Self::Rejected(error) => error.fmt(f),
            Self::Failed(why) => f.write_str(why),
            Self::ReceiverClosed => f.write_str("stopped"),
        }
    }
}

impl From<exchange::Error> for Error {
    fn from(error: exchange::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Reads a response that is no success.
pub(super) fn rejected(code: u16, body: &[u8]) -> Error {
    match code {
        404 => Error::NotServed,
        code if is_expired(code) => Error::Expired,
        code => Error::Rejected(decode::refusal(code, body)),
    }
}

/// Returns true for 410 Gone: the server does not keep the requested version any more.
pub(super) const fn is_expired(code: u16) -> bool {
    code == 410
}

/// Wraps an error of the connection or the content.
pub(super) fn failed(error: impl std::error::Error + 'static) -> Error {
    Error::Failed(exchange::error_chain(&error))
}
