//! Runs one HTTP exchange with the API server through kube's client.
//!
//! Owns how bodies are gathered. It must not retry: only the caller knows what a second request means.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

/// Maximum size in bytes of the buffer reserved for an announced body. `transport` bounds the body itself.
const MAX_RESERVED_BYTES: usize = 1 << 20;

/// An error of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The time limit passed.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection failed.
    #[error("{0}")]
    Connection(String),
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Sends a request and gathers the response, within `limit` altogether.
///
/// # Errors
/// If there is no response in time.
pub async fn exchange(client: &Client, request: Request<Body>, limit: Duration) -> Result<Answer, Error> {
    let answer = async {
        let (head, body) = send(client, request).await?.into_parts();
        let body = gather(body, &head.headers).await?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    };
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(Error::Timeout(limit)))
}

/// Sends a request and returns the response once its headers have arrived.
///
/// # Errors
/// If there is no response.
pub async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
    client.send(request).await.map_err(|error| Error::Connection(error_chain(&error)))
}

/// Gathers a body.
///
/// # Errors
/// If the connection breaks, or the body is too large.
pub(crate) async fn gather(mut body: Body, headers: &HeaderMap) -> Result<Vec<u8>, Error> {
    let announced = headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut bytes = Vec::with_capacity(announced.unwrap_or(0_usize).min(MAX_RESERVED_BYTES));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Connection(error_chain(&error)))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// Returns the message of an error with its causes, each once. An API server's rejection is given in its own words.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        // A boxed cause is met as the box.
        let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
        let refused = match error.downcast_ref().or_else(boxed) {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => Some(status.message.clone()),
            _ => None,
        };
        // Behind a refusal stands the same once more, as a data structure.
        next = if refused.is_some() { None } else { error.source() };
        let more = refused.unwrap_or_else(|| error.to_string());
        if text.is_empty() {
            text = more;
        } else if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::error_chain;
    use crate::lease::Error;

    #[test]
    fn a_refusal_is_reported_in_the_servers_words() {
        let status = Status::failure("leases is forbidden: eve may not", "Forbidden").with_code(403);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let error = Error::Read { namespace: "n".to_owned(), name: "trainyard".to_owned(), source };
        assert_eq!(error_chain(&error), "Lease n/trainyard cannot be read: leases is forbidden: eve may not");
    }

    #[test]
    fn what_stands_in_a_chain_twice_is_said_once() {
        let cause = std::io::Error::other("no route");
        assert_eq!(error_chain(&kube::Error::Service(Box::new(cause))), "ServiceError: no route");
    }
}
