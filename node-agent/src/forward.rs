//! Connections to ports of pods over a `WebSocket`: two channels for each port, its bytes and what went wrong.
//!
//! A pod's programs listen on its own address of this machine, or on all of them. `kubectl port-forward` speaks SPDY inside of a
//! `WebSocket`, which is not served. Tests: `cli/tests/process_nodes`.

use std::net::{IpAddr, Ipv4Addr};

use axum::Extension;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use k8s_driver::listener::Place;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::exec::{self, Sessions};
use crate::websocket::{self, Socket, V4};

/// Maximum number of ports of one session: each has two channels, which are numbered by a byte.
const MAX_PORTS: usize = 64;
/// Bytes of one message.
const PIECE: usize = 32 * 1024;
/// Messages that wait to be sent.
const MESSAGE_CHANNEL_CAPACITY: usize = 8;

/// Connects to ports of a pod.
pub(crate) async fn port_forward(
    State(sessions): State<Sessions>,
    Extension(place): Extension<Place>,
    Path((namespace, pod)): Path<(String, String)>,
    Query(options): Query<Vec<(String, String)>>,
    request: Request,
) -> Response {
    let asked = options.iter().filter(|(option, _)| option == "port").flat_map(|(_, ports)| ports.split(','));
    let ports: Result<Vec<u16>, _> = asked.map(str::parse).collect();
    let Some(ports) = ports.ok().filter(|ports| (1..=MAX_PORTS).contains(&ports.len())) else {
        return (StatusCode::BAD_REQUEST, format!("port: 1 to {MAX_PORTS} numbers of ports\n")).into_response();
    };
    let Some(address) = sessions.processes.address_of_running(&namespace, &pod) else {
        return (StatusCode::NOT_FOUND, format!("pod {namespace}/{pod} does not run here\n")).into_response();
    };
    let Some(permit) = sessions.enter() else { return exec::full() };
    let kept = place.keep();
    websocket::accept(request, &[V4], move |socket| async move {
        forward(socket, address, &ports).await;
        drop((kept, permit));
    })
}

async fn forward(socket: Socket, address: Ipv4Addr, ports: &[u16]) {
    let (mut to_client, mut from_client) = socket.split();
    let (messages, mut outbox) = mpsc::channel(MESSAGE_CHANNEL_CAPACITY);
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for (channel, port) in (0_u8..).step_by(2).zip(ports) {
        // Each channel begins with its port.
        for channel in [channel, channel + 1] {
            if to_client.send(websocket::message(channel, &port.to_le_bytes())).await.is_err() {
                return;
            }
        }
        match TcpStream::connect((IpAddr::V4(address), *port)).await {
            Ok(stream) => {
                let (reader, writer) = stream.into_split();
                readers.push(copy(reader, channel, messages.clone()));
                writers.push(Some(writer));
            }
            Err(error) => {
                let why = format!("cannot connect to port {port} of the pod: {error}");
                let _ = to_client.send(websocket::message(channel + 1, why.as_bytes())).await;
                writers.push(None);
            }
        }
    }
    drop(messages);
    let send = async {
        while let Some(message) = outbox.recv().await {
            if to_client.send(message).await.is_err() {
                return;
            }
        }
        websocket::close(&mut to_client).await;
    };
    let receive = async {
        while let Some(Ok(message)) = from_client.next().await {
            let Message::Binary(bytes) = message else { continue };
            let Some((channel, bytes)) = bytes.split_first() else { continue };
            let writer: Option<&mut Option<OwnedWriteHalf>> = writers.get_mut(usize::from(*channel / 2));
            if let Some(place @ Some(_)) = writer
                && channel % 2 == 0
                && let Some(stream) = place
                && stream.write_all(bytes).await.is_err()
            {
                *place = None;
            }
        }
    };
    tokio::select! {
        () = async { tokio::join!(join_all(readers), send); } => {}
        () = receive => {}
    }
}

async fn copy(mut from: OwnedReadHalf, channel: u8, messages: mpsc::Sender<Message>) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if messages.send(websocket::message(channel, buffer.get(..count).unwrap_or_default())).await.is_err() {
            return;
        }
    }
}
