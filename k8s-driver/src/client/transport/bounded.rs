//! Answers of bounded size: a server that sends without end fails one request and not the process.
//!
//! An answer is bounded as a whole. A watch has no end of its own, so each of its lines is bounded. A leader's log is neither: its
//! lines are bounded by `event_log::jsonl`, which knows how long a checkpoint may be. Tests: at the end.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::TryFutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tower::{BoxError, Service};

/// Maximum size of an answer, in bytes. A page of 500 objects takes a tenth of it; twice as much fits into the memory that
/// `deploy/base` gives the operator.
const MAX_ANSWER_BYTES: u64 = 128 << 20;
/// Maximum size of one line of a watch, in bytes. etcd takes no object of more than 1.5 MiB.
const MAX_WATCH_LINE_BYTES: u64 = 16 << 20;

/// Why an answer was given up.
#[derive(Debug, thiserror::Error)]
enum TooLarge {
    /// It is too long.
    #[error("the answer to {path} is larger than {} MiB", MAX_ANSWER_BYTES >> 20)]
    Answer {
        /// Operation that timed out.
        path: String,
    },
    /// A line of it is too long.
    #[error("a line of the watch of {path} is longer than {} MiB", MAX_WATCH_LINE_BYTES >> 20)]
    Line {
        /// Operation that timed out.
        path: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Whole,
    Lines,
    None,
}

impl Bound {
    fn of(uri: &Uri) -> Self {
        let mut parameters = uri.query().unwrap_or_default().split('&');
        if uri.path() == "/log" {
            Self::None
        } else if parameters.any(|pair| matches!(pair, "watch=true" | "watch=1")) {
            Self::Lines
        } else {
            Self::Whole
        }
    }
}

/// A service whose answers are bounded.
#[derive(Debug, Clone)]
pub(super) struct Bounded<S>(pub(super) S);

impl<S, I, O> Service<Request<I>> for Bounded<S>
where
    S: Service<Request<I>, Response = Response<O>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Answer<O>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let (bound, path) = (Bound::of(request.uri()), request.uri().path().to_owned());
        let answer = self.0.call(request);
        Box::pin(answer.map_ok(move |answer| answer.map(|body| Answer { body, bound, path, bytes: 0 })))
    }
}

/// A bounded body.
#[derive(Debug)]
pub(super) struct Answer<B> {
    body: B,
    bound: Bound,
    path: String,
    /// Bytes so far, or since the end of the last line.
    bytes: u64,
}

impl<B> Answer<B> {
    fn count(&mut self, data: &Bytes) -> Result<(), TooLarge> {
        let more = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let path = || self.path.clone();
        match self.bound {
            Bound::None => {}
            Bound::Whole => {
                self.bytes = self.bytes.saturating_add(more(data.len()));
                if self.bytes > MAX_ANSWER_BYTES {
                    return Err(TooLarge::Answer { path: path() });
                }
            }
            Bound::Lines => {
                // Only what stands behind the last line end of a frame can grow further.
                self.bytes = match memchr::memrchr(b'\n', data) {
                    Some(end) => more(data.len() - end - 1),
                    None => self.bytes.saturating_add(more(data.len())),
                };
                if self.bytes > MAX_WATCH_LINE_BYTES {
                    return Err(TooLarge::Line { path: path() });
                }
            }
        }
        Ok(())
    }
}

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => frame,
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
        Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::Request as Asked;
    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use kube::{Client, Config};
    use tokio::net::TcpListener;

    use super::*;

    /// A client of a server that answers every request without end: with lines of 1 MiB under `/lines`, else with no line end.
    async fn client() -> Client {
        let router = Router::new().fallback(async |request: Asked| {
            let mut piece = vec![b'x'; 1 << 20];
            if request.uri().path() == "/lines" {
                piece.extend(b"\n");
            }
            let piece = Bytes::from(piece);
            axum::body::Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone())))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, router).into_future());
        crate::client::transport::client(
            Config::new(format!("http://{address}").parse().unwrap()),
            crate::client::transport::Use::Requests,
        )
        .unwrap()
    }

    async fn gathered(path: &str) -> String {
        let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
        let client = client().await;
        crate::client::exchange::exchange(&client, request, std::time::Duration::from_secs(60))
            .await
            .unwrap_err()
            .to_string()
    }

    #[tokio::test]
    async fn an_answer_without_end_is_given_up() {
        let text = gathered("/api/v1/pods?limit=500").await;
        assert!(text.contains("the answer to /api/v1/pods is larger than 128 MiB"), "{text}");
        let text = gathered("/api/v1/pods?limit=500&watch=true&resourceVersion=3").await;
        assert!(text.contains("a line of the watch of /api/v1/pods is longer than 16 MiB"), "{text}");
    }

    #[tokio::test]
    async fn a_watch_goes_on_as_long_as_its_lines_end() {
        let request = Request::get("/lines?watch=true").body(kube::client::Body::empty()).unwrap();
        let mut body = client().await.send(request).await.unwrap().into_body();
        let mut bytes = 0;
        while bytes < 2 * MAX_ANSWER_BYTES {
            let frame = body.frame().await.unwrap().unwrap();
            bytes += u64::try_from(frame.into_data().unwrap().len()).unwrap();
        }
    }
}
