//! Requests that become `WebSocket`s with numbered channels, as an API server passes them on to a kubelet.
//!
//! Owns the handshake and the form of a message: one byte that names the channel, then its bytes. It must not know what channels are
//! for. SPDY is not spoken. Tests: `cli/tests/process_nodes` with a real API server and kubectl.

use std::future::Future;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Sink, SinkExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tracing::debug;

/// The protocol whose channels can be closed one by one.
pub(crate) const V5: &str = "v5.channel.k8s.io";
/// The protocol without that.
pub(crate) const V4: &str = "v4.channel.k8s.io";

/// A `WebSocket` with channels.
pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Answers a request that asks for a `WebSocket`; `serve` gets it. Of `protocols` the first that the client speaks is taken.
pub(crate) fn accept<F>(
    mut request: Request,
    protocols: &[&'static str],
    serve: impl FnOnce(Socket) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send,
{
    let headers = request.headers();
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asks_for_websocket(headers)) else {
        let why = "this node speaks WebSocket alone: an API server of Kubernetes 1.36 or newer passes it on, and older ones \
                   translate it into SPDY\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let Some(protocol) = protocols.iter().copied().find(|protocol| speaks(headers, protocol)) else {
        return (StatusCode::BAD_REQUEST, format!("the protocols of this node are {}\n", protocols.join(", ")))
            .into_response();
    };
    let Ok(accepted) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                serve(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await).await;
            }
            Err(error) => debug!(%error, "a connection did not become a WebSocket"),
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accepted),
        (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// Ends a session in good order: a client takes any other end for a failure.
pub(crate) async fn close(socket: &mut (impl Sink<Message> + Unpin)) {
    let _ = socket.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await;
}

/// A message of a channel.
pub(crate) fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut all = Vec::with_capacity(bytes.len() + 1);
    all.push(channel);
    all.extend_from_slice(bytes);
    Message::binary(all)
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

fn speaks(headers: &HeaderMap, protocol: &str) -> bool {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|word| word.trim() == protocol)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};

    use super::*;

    fn request(headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::new(Body::empty());
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request
    }

    #[tokio::test]
    async fn a_handshake_takes_the_newest_protocol_that_both_speak() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let asked = request(&[
            ("upgrade", "WebSocket"),
            key,
            ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
        ]);
        let answer = accept(asked, &[V5, V4], |_| async {});
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(answer.headers()[header::SEC_WEBSOCKET_PROTOCOL], V5);
        // Key and answer are those of RFC 6455, section 1.3.
        assert_eq!(answer.headers()[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (headers, want) in [
            (&[("upgrade", "SPDY/3.1"), key][..], "this node speaks WebSocket alone"),
            (&[("upgrade", "websocket")], "this node speaks WebSocket alone"),
            (
                &[("upgrade", "websocket"), key, ("sec-websocket-protocol", "channel.k8s.io")],
                "the protocols of this node",
            ),
        ] {
            let answer = accept(request(headers), &[V5, V4], |_| async {});
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
            let body = to_bytes(answer.into_body(), 1 << 10).await.unwrap();
            assert!(String::from_utf8_lossy(&body).contains(want), "{body:?}");
        }
    }
}
