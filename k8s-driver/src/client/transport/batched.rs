//! Reads a connection in batches: under load it is read once per interval and not once per packet.
//!
//! Owns when a connection is read. With thousands of small answers and watch events a second, waking a task for each costs more
//! than reading it. Data that arrives after a quiet interval is read at once. Tests: at the end of this file.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::TryFutureExt as _;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::time::{Instant, Sleep, sleep};
use tower::Service;

/// Minimum interval between the starts of two batches, in milliseconds: below the time an answer takes under load.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// A connector whose connections are read in batches if `enabled`.
#[derive(Debug, Clone)]
pub(super) struct BatchedConnector<C> {
    pub(super) connector: C,
    pub(super) enabled: bool,
}

impl<C> Service<Uri> for BatchedConnector<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Error: 'static,
    C::Response: 'static,
{
    type Response = BatchedReads<C::Response>;
    type Error = C::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let enabled = self.enabled;
        Box::pin(self.connector.call(uri).map_ok(move |stream| BatchedReads::new(stream, enabled)))
    }
}

/// A stream that is read in batches.
#[derive(Debug)]
pub(super) struct BatchedReads<S> {
    stream: S,
    enabled: bool,
    /// Start of the current batch.
    started: Option<Instant>,
    /// Runs between two batches.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> BatchedReads<S> {
    const fn new(stream: S, enabled: bool) -> Self {
        Self { stream, enabled, started: None, pause: None }
    }
}

impl<S: Read + Unpin> Read for BatchedReads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.started.get_or_insert_with(Instant::now);
        } else if let Some(started) = self.started.take()
            && let Some(rest) = READ_INTERVAL.checked_sub(started.elapsed())
            && self.enabled
        {
            // The socket is drained. Registers the timer's waker; a wake-up by the socket before it finds the pause.
            let mut pause = Box::pin(sleep(rest));
            if pause.as_mut().poll(cx).is_pending() {
                self.pause = Some(pause);
            }
        }
        read
    }
}

impl<S: Write + Unpin> Write for BatchedReads<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, io::Error>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<Result<usize, io::Error>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }
}

impl<S: Connection> Connection for BatchedReads<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Sends 50 bytes, one a millisecond, and counts the batches in which they are read.
    async fn batches(enabled: bool) -> usize {
        let (mut sender, receiver) = duplex(1024);
        let mut stream = TokioIo::new(BatchedReads::new(TokioIo::new(receiver), enabled));
        tokio::spawn(async move {
            for _ in 0..50 {
                sender.write_all(b"x").await.unwrap();
                sleep(Duration::from_millis(1)).await;
            }
        });
        let (mut bytes, mut batches, mut buffer) = (0, 0, [0; 64]);
        while bytes < 50 {
            bytes += stream.read(&mut buffer).await.unwrap();
            batches += 1;
        }
        batches
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_come_one_by_one_are_read_together() {
        assert!((5..=7).contains(&batches(true).await));
        assert!(batches(false).await >= 45);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_after_a_quiet_interval_are_read_at_once() {
        let (mut sender, receiver) = duplex(1024);
        let mut stream = TokioIo::new(BatchedReads::new(TokioIo::new(receiver), true));
        let mut buffer = [0; 64];
        for _ in 0..3 {
            let sent = Instant::now();
            sender.write_all(b"x").await.unwrap();
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 1);
            assert_eq!(sent.elapsed(), Duration::ZERO);
            sleep(READ_INTERVAL).await;
        }
    }
}
