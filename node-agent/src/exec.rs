//! What `kubectl exec` asks a node for: a program in a container, its streams over a `WebSocket`.
//!
//! Owns the channels: input, output, errors, and how the program ended. A terminal is not served. The program is killed when its client
//! goes away. Tests: `cli/tests/process_nodes`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt as _, StreamExt as _};
use k8s_driver::listener::Place;
use local::{Error, Execution, Processes};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio_tungstenite::tungstenite::Message;
use tracing::debug;

use crate::websocket::{self, Socket, V4, V5};

/// Maximum number of `WebSocket`s at a time.
const MAX_SESSIONS: usize = 32;
/// Bytes of output in one message.
const PIECE: usize = 32 * 1024;
/// Messages that wait to be sent.
const MESSAGE_CHANNEL_CAPACITY: usize = 8;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Names a channel that has ended.
const CLOSE: u8 = 255;

/// What serves sessions with pods.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(crate) processes: Processes,
    open: Arc<Semaphore>,
}

impl Sessions {
    pub(crate) fn new(processes: Processes) -> Self {
        Self { processes, open: Arc::new(Semaphore::new(MAX_SESSIONS)) }
    }

    /// Returns the permit of one more session; absent where there are too many.
    pub(crate) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.open).try_acquire_owned().ok()
    }
}

/// Answers that there are too many sessions.
pub(crate) fn full() -> Response {
    (StatusCode::TOO_MANY_REQUESTS, format!("{MAX_SESSIONS} sessions are open; try again later\n")).into_response()
}

/// Starts a program in a container.
pub(crate) async fn exec(
    State(sessions): State<Sessions>,
    Extension(place): Extension<Place>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(options): Query<Vec<(String, String)>>,
    request: Request,
) -> Response {
    let is_set =
        |name: &str| options.iter().any(|(option, value)| option == name && matches!(value.as_str(), "1" | "true"));
    let refuse = |code: StatusCode, why: &str| (code, format!("{why}\n")).into_response();
    if is_set("tty") {
        return refuse(StatusCode::BAD_REQUEST, "a program on this node gets no terminal: leave --tty out");
    }
    let command: Vec<String> =
        options.iter().filter(|(option, _)| option == "command").map(|(_, word)| word.clone()).collect();
    if command.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "a command is needed");
    }
    let Some(permit) = sessions.enter() else { return full() };
    let (kept, has_input) = (place.keep(), is_set("input"));
    websocket::accept(request, &[V5, V4], move |socket| async move {
        let processes = sessions.processes;
        let started = spawn_blocking(move || processes.exec(&namespace, &pod, &container, &command)).await;
        match started {
            Ok(Ok(execution)) => attach(socket, execution, has_input).await,
            Ok(Err(error)) => refuse_in_words(socket, &error).await,
            Err(error) => debug!(%error, "a program was not started"),
        }
        drop((kept, permit));
    })
}

/// Ends a session in which nothing was started.
async fn refuse_in_words(mut socket: Socket, error: &Error) {
    let status = json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": error.to_string(),
        "code": 500});
    let _ = socket.send(status_message(&status)).await;
    websocket::close(&mut socket).await;
}

/// Carries the streams of a program until it has ended, or its client is gone.
async fn attach(socket: Socket, mut execution: Execution, has_input: bool) {
    let stdin = execution.stdin.take().filter(|_| has_input).and_then(|end| Sender::from_owned_fd(end).ok());
    let (stdout, stderr) = (execution.stdout.take(), execution.stderr.take());
    let (mut to_client, mut from_client) = socket.split();
    let (messages, mut outbox) = mpsc::channel(MESSAGE_CHANNEL_CAPACITY);
    let send = async {
        while let Some(message) = outbox.recv().await {
            if to_client.send(message).await.is_err() {
                return;
            }
        }
        websocket::close(&mut to_client).await;
    };
    let work = async move {
        tokio::join!(print(stdout, STDOUT, &messages), print(stderr, STDERR, &messages));
        let code = spawn_blocking(move || execution.wait()).await.unwrap_or(137);
        let _ = messages.send(status_message(&status_of(code))).await;
    };
    let receive = async {
        let mut stdin = stdin;
        while let Some(Ok(message)) = from_client.next().await {
            let Message::Binary(bytes) = message else { continue };
            match bytes.split_first() {
                Some((&STDIN, bytes)) => {
                    // One that closed its input continues without it.
                    if let Some(pipe) = &mut stdin
                        && pipe.write_all(bytes).await.is_err()
                    {
                        stdin = None;
                    }
                }
                Some((&CLOSE, [STDIN])) => stdin = None,
                _ => {}
            }
        }
    };
    // A program whose client is gone is dropped with its future, and killed.
    tokio::select! {
        () = async { tokio::join!(work, send); } => {}
        () = receive => {}
    }
}

/// Sends what a program prints.
async fn print(stream: Option<OwnedFd>, channel: u8, messages: &mpsc::Sender<Message>) {
    let Some(mut stream) = stream.and_then(|end| Receiver::from_owned_fd(end).ok()) else { return };
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if messages.send(websocket::message(channel, buffer.get(..count).unwrap_or_default())).await.is_err() {
            return;
        }
    }
}

fn status_message(status: &Value) -> Message {
    websocket::message(STATUS, status.to_string().as_bytes())
}

/// How a program ended, as a kubelet says it.
fn status_of(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
}
