//! Why a list or a watch does not go on, and what the server's codes mean there. Tests: `watch/tests.rs`.

use std::fmt;

use apis::ApiError;

use crate::client::exchange;
use crate::watch::decode;

/// Why a source cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Error {
    /// The server does not have the version any more.
    Expired,
    /// The resource is not served.
    Missing,
    /// The cluster is older than what it told before.
    Older,
    /// The server refused.
    Refused(ApiError),
    /// Something else.
    Broken(String),
    /// Nobody takes reports any more.
    Over,
}

impl Error {
    /// Returns true for an answer that stays the same until somebody changes something: a client error, but for an expired
    /// token, a time-out and overload.
    pub(super) const fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(error) => matches!(error.code, 400..500) && !matches!(error.code, 401 | 408 | 429),
            Self::Missing => true,
            Self::Expired | Self::Older | Self::Broken(_) | Self::Over => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the version is too old for the server"),
            Self::Missing => f.write_str("the server does not serve it"),
            Self::Older => f.write_str("the cluster is older than it was"),
            Self::Refused(error) if error.code == 403 => {
                write!(
                    f,
                    "{error}; bind the operator's ClusterRole, with this resource in its rules, to its service account"
                )
            }
            Self::Refused(error) => error.fmt(f),
            Self::Broken(why) => f.write_str(why),
            Self::Over => f.write_str("stopped"),
        }
    }
}

impl From<exchange::Error> for Error {
    fn from(error: exchange::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// What a refusal means.
pub(super) fn rejected(code: u16, body: &[u8]) -> Error {
    match code {
        404 => Error::Missing,
        code if is_expired(code) => Error::Expired,
        code => Error::Refused(decode::refusal(code, body)),
    }
}

/// Whether the server has forgotten the version that was asked for.
pub(super) const fn is_expired(code: u16) -> bool {
    code == 410
}

/// Something else.
pub(super) fn failed(error: impl std::error::Error + 'static) -> Error {
    Error::Broken(exchange::error_chain(&error))
}
