//! One HTTP exchange with the API server, through kube's client: bytes out, bytes in.
//!
//! Owns how bodies are gathered. Never retries: whoever asks knows what a second request means.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

/// Bytes of an announced body for which room is made before they come. `transport` bounds how many may come.
const MAX_RESERVED_BYTES: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection failed.
    #[error("{0}")]
    Connection(String),
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Sends a request and gathers the answer, within `limit` altogether.
///
/// # Errors
/// When there is no answer.
pub async fn exchange(client: &Client, request: Request<Body>, limit: Duration) -> Result<Answer, Error> {
    let answer = async {
        let (head, body) = send(client, request).await?.into_parts();
        let body = gather(body, &head.headers).await?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    };
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(Error::Timeout(limit)))
}

/// Sends a request and gives the answer as soon as its headers are there.
///
/// # Errors
/// When there is no answer.
pub async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
    client.send(request).await.map_err(|error| Error::Connection(error_chain(&error)))
}

/// Gathers a body.
///
/// # Errors
/// When it breaks off, or does not end.
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

/// An error with everything that led to it, each thing said once. What an API server refused is told in its words.
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
    fn a_refusal_is_told_in_the_servers_words() {
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
