//! Serves the log as JSON lines to authorized readers, page by page, in bounded memory.
//!
//! Owns the parameters and responses of `/log`. Only the leader serves: another replica's log may lack the newest records, or hold
//! records that the leader never had.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use event_log::{Checkpoint, Head, jsonl};
use futures_util::stream;
use http::{StatusCode, header};
use hyper::body::Bytes;
use model::Position;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};

use super::auth::{Authorizer, Verdict};
use super::serve::{Kept, Place};
use super::{HEAD, ServerState, refusal, unknown_paths};
use crate::core::{Batch, ThreadEnded, View};
use crate::process::status::ProcessState;

/// Number of records read at a time: they occupy the operator's thread for less than a millisecond.
const PAGE_RECORDS: usize = 256;
/// Size of the bodies read at a time, in bytes.
const PAGE_BYTES: usize = 256 << 10;
/// Maximum number of concurrent readers.
const MAX_READERS: usize = 16;
/// Interval of empty lines to a following reader, so that both ends detect a dead connection.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct App {
    state: ServerState,
    authorizer: Arc<Authorizer>,
    readers: Arc<Semaphore>,
}

/// The router of the log's listener.
pub(super) fn router(state: &ServerState, audience: String) -> Router {
    let authorizer = Arc::new(Authorizer::new(state.client.clone(), audience));
    let app = App { state: state.clone(), authorizer, readers: Arc::new(Semaphore::new(MAX_READERS)) };
    let router = Router::new().route("/log", get(log)).route("/log/head", get(head)).with_state(app.clone());
    // Authorization comes first, for unknown paths as well.
    unknown_paths(router, "/log and /log/head").layer(from_fn_with_state(app, admit))
}

async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let answer = match app.authorizer.authorize(request.headers()).await {
        Ok(Verdict::Allowed(user)) => {
            tracing::debug!(user, path = request.uri().path(), "the log is read");
            next.run(request).await
        }
        Ok(Verdict::Unknown(why)) => {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "Unauthorized", &why, &Value::Null);
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
            answer
        }
        Ok(Verdict::Forbidden(user)) => {
            let message = format!("{user} may not get {} (a nonResourceURL)", super::auth::PATH);
            refusal(StatusCode::FORBIDDEN, "Forbidden", &message, &json!({"user": user}))
        }
        Err(unavailable) => unavailable_now(&unavailable.to_string(), &Value::Null),
    };
    app.state.metrics.log_request(answer.status().as_u16());
    answer
}

fn unavailable_now(message: &str, further: &Value) -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message, further)
}

/// Returns true if this process leads: its log is then the current one.
const fn leads(standing: &ProcessState) -> bool {
    matches!(standing, ProcessState::Leading { .. } | ProcessState::Listing { .. })
}

/// Returns the response of a process that does not lead.
fn not_leader(app: &App) -> Option<Response> {
    if leads(&app.state.status.get()) {
        return None;
    }
    let leader = app.state.leader.borrow().clone();
    let (words, further) = match &leader {
        None => ("this replica does not lead, and the Lease has no holder; try again later".to_owned(), Value::Null),
        Some(leader) => {
            let address = leader.advertised.as_ref().map(|a| a.address.clone());
            let further = json!({"leader": leader.identity, "address": address});
            (format!("this replica does not lead; {} does", leader.identity), further)
        }
    };
    Some(refusal(StatusCode::SERVICE_UNAVAILABLE, "NotLeader", &words, &further))
}

async fn head(State(app): State<App>) -> Response {
    if let Some(refused) = not_leader(&app) {
        return refused;
    }
    let View { head, first, term } = *app.state.operator.view().borrow();
    let body = json!({"position": head.position, "digest": head.digest.to_string(), "first": first, "term": term});
    ([(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

/// Beginning of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// This position, or the checkpoint that stands for it.
    Position(Position),
    /// A checkpoint of the present state.
    Head,
}

/// Parameters of a request for records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogQuery {
    from: Start,
    limit: u64,
    follow: bool,
}

/// Reason for refusing the parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum QueryError {
    /// It is no position, and not the head.
    #[error("from={0}: a whole number from 1 on, or head, is needed")]
    From(String),
    /// It is no number of records.
    #[error("limit={0}: a whole number from 1 on is needed")]
    Limit(String),
    /// It is neither true nor false.
    #[error("follow={0}: true or false is needed")]
    Follow(String),
    /// There is no such parameter.
    #[error("{0}: no such parameter; there are from, limit and follow")]
    Unknown(String),
}

/// Reason for which records cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// The operator's thread does not answer.
    #[error(transparent)]
    Thread(#[from] ThreadEnded),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] event_log::Error),
    /// The present state cannot be written.
    #[error(transparent)]
    State(#[from] operator::Error),
    /// A record cannot be written as a line.
    #[error(transparent)]
    Line(#[from] jsonl::Error),
    /// The next record is not in the log any more.
    #[error("the log was compacted past the next position")]
    Compacted,
}

impl LogQuery {
    fn parse(query: &str) -> Result<Self, QueryError> {
        let mut parameters = Self { from: Start::Position(Position(1)), limit: u64::MAX, follow: false };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || value.parse::<u64>().ok().filter(|number| *number > 0);
            let wrong = || value.to_owned();
            match name {
                "from" if value == "head" => parameters.from = Start::Head,
                "from" => {
                    let position = number().ok_or_else(|| QueryError::From(wrong()))?;
                    parameters.from = Start::Position(Position(position));
                }
                "limit" => parameters.limit = number().ok_or_else(|| QueryError::Limit(wrong()))?,
                "follow" => {
                    parameters.follow = match value {
                        "true" | "" => true,
                        "false" => false,
                        _ => return Err(QueryError::Follow(wrong())),
                    }
                }
                _ => return Err(QueryError::Unknown(name.to_owned())),
            }
        }
        Ok(parameters)
    }
}

async fn log(State(app): State<App>, Extension(place): Extension<Place>, RawQuery(query): RawQuery) -> Response {
    let parameters = match LogQuery::parse(query.as_deref().unwrap_or_default()) {
        Ok(parameters) => parameters,
        Err(error) => {
            return refusal(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string(), &Value::Null);
        }
    };
    if let Some(refused) = not_leader(&app) {
        return refused;
    }
    let Ok(reader) = app.readers.clone().try_acquire_owned() else {
        let message = format!("{MAX_READERS} readers have the log open; try again later");
        return refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", &message, &Value::Null);
    };
    let view = app.state.operator.view();
    let mut head = view.borrow().head;
    let mut ready = VecDeque::new();
    let next = match parameters.from {
        Start::Head => match present_state(&app).await {
            Ok(checkpoint) => {
                head = Head { position: checkpoint.position, digest: checkpoint.digest };
                ready.extend(jsonl::checkpoint_line(checkpoint).into_iter().map(Bytes::from));
                head.position.next()
            }
            Err(error) => return unreadable(&error),
        },
        Start::Position(from) if from > head.position.next() => {
            let message = format!("position {from} was asked for and the log ends at {}", head.position);
            let further = json!({"head": head.position, "digest": head.digest.to_string()});
            return refusal(StatusCode::RANGE_NOT_SATISFIABLE, "BeyondHead", &message, &further);
        }
        Start::Position(from) => from,
    };
    let grown = WatchStream::from_changes(view).map(|_| ());
    let changed = WatchStream::from_changes(app.state.status.subscribe()).map(|_| ());
    let mut reading = LogReader {
        changes: Box::pin(grown.merge(changed)),
        state: app.state.status.subscribe(),
        next,
        left: parameters.limit,
        until: (!parameters.follow).then_some(head.position),
        ready,
        app,
        _reader: reader,
        _kept: place.keep(),
    };
    // The first page is read before the response starts, so that its error has a status code.
    if reading.ready.is_empty()
        && let Err(error) = reading.page(true).await
    {
        return unreadable(&error);
    }
    let lines = stream::unfold(reading, |mut reading| async {
        let piece = reading.piece().await.transpose()?;
        Some((piece, reading))
    });
    let headers = [(header::CONTENT_TYPE.as_str(), "application/x-ndjson".to_owned()), (HEAD, head_text(&head))];
    (headers, Body::from_stream(lines)).into_response()
}

/// Answers a request whose records cannot be read.
fn unreadable(error: &ReadError) -> Response {
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &error.to_string(), &Value::Null)
}

/// Returns the present state, as the checkpoint that a log compacted now would begin with.
async fn present_state(app: &App) -> Result<Checkpoint, ReadError> {
    Ok(app.state.operator.with(|operator| operator.checkpoint()).await??)
}

fn head_text(head: &Head) -> String {
    format!("{} {}", head.position, head.digest)
}

/// One response in progress.
struct LogReader {
    app: App,
    /// Yields after the log has grown, and after the state of the process has changed.
    changes: Pin<Box<dyn Stream<Item = ()> + Send>>,
    state: watch::Receiver<ProcessState>,
    /// The next position.
    next: Position,
    /// Records that may still be sent.
    left: u64,
    /// The last position, unless the reader follows.
    until: Option<Position>,
    /// Frames read and not yet sent.
    ready: VecDeque<Bytes>,
    _reader: OwnedSemaphorePermit,
    /// Keeps the connection open. There are fewer readers than places.
    _kept: Kept,
}

impl LogReader {
    /// Returns the next piece of text; `None` at the end. An incomplete response ends with an error, which breaks the connection, so
    /// that its reader does not take it for the whole log. A following reader needs no such error.
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        let broken = if self.until.is_some() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(None) };
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if self.is_done() {
                return Ok(None);
            }
            if !leads(&self.state.borrow()) {
                return broken;
            }
            if let Err(error) = self.page(false).await {
                let error = error.to_string();
                tracing::warn!(error, position = self.next.0, "a reader's response ended early");
                return broken;
            }
            if self.ready.is_empty() && !self.is_done() {
                match timeout(HEARTBEAT_INTERVAL, self.changes.next()).await {
                    Ok(Some(())) => {}
                    Ok(None) => return broken,
                    Err(_) => return Ok(Some(Bytes::from_static(b"\n"))),
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0 || self.until.is_some_and(|until| self.next > until)
    }

    /// Reads a page. A checkpoint may only come first: a log that was compacted past the next position ends the response, and its
    /// reader starts again.
    async fn page(&mut self, first: bool) -> Result<(), ReadError> {
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX).min(PAGE_RECORDS);
        let answer = self.app.state.operator.read_frames(self.next, limit, PAGE_BYTES).await;
        let Batch { checkpoint, frames, .. } = answer??;
        if let Some(checkpoint) = checkpoint {
            if !first {
                return Err(ReadError::Compacted);
            }
            self.next = checkpoint.position.next();
            self.ready.extend(jsonl::checkpoint_line(checkpoint).into_iter().map(Bytes::from));
        }
        let mut text = Vec::new();
        for frame in frames.iter().filter(|frame| self.until.is_none_or(|until| frame.position <= until)) {
            jsonl::write_frame(frame, &mut text)?;
            self.next = frame.position.next();
            self.left = self.left.saturating_sub(1);
        }
        if !text.is_empty() {
            self.ready.push_back(Bytes::from(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_cannot_be_used_are_named() {
        let parameters = |query| LogQuery::parse(query);
        let all = LogQuery { from: Start::Position(Position(1)), limit: u64::MAX, follow: false };
        assert_eq!(parameters(""), Ok(all));
        let from = Start::Position(Position(7));
        assert_eq!(parameters("follow=true&from=7"), Ok(LogQuery { from, follow: true, ..all }));
        assert_eq!(parameters("from=head"), Ok(LogQuery { from: Start::Head, ..all }));
        assert_eq!(parameters("limit=3&follow=false"), Ok(LogQuery { limit: 3, ..all }));
        for (query, error) in [
            ("from=0", "from=0: a whole number from 1 on, or head, is needed"),
            ("from=-1", "from=-1: a whole number from 1 on, or head, is needed"),
            ("limit=x", "limit=x: a whole number from 1 on is needed"),
            ("limit", "limit=: a whole number from 1 on is needed"),
            ("follow=yes", "follow=yes: true or false is needed"),
            ("form=3", "form: no such parameter; there are from, limit and follow"),
        ] {
            assert_eq!(parameters(query).unwrap_err().to_string(), error, "{query}");
        }
    }
}
