//! The ring of workers: two TCP connections for each, and the all-reduce over them.
//!
//! Owns the bytes on the wire. It must not know the environment of a job.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::{Error, Place};

/// Interval between attempts to reach a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(100);

/// First bytes of a worker on a new connection.
const GREETING: &[u8; 8] = b"tyring01";

/// A number that can be sent and summed. Sums of this sample are exact in all of them.
pub(super) trait Element: Copy + PartialEq + ToString + Send + Sync {
    fn of(whole: i64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn to_bytes(self) -> [u8; 8];
    fn from_bytes(bytes: [u8; 8]) -> Self;
}

impl Element for f64 {
    #[allow(clippy::cast_precision_loss)] // small whole numbers only
    fn of(whole: i64) -> Self {
        whole as f64
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn to_bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn from_bytes(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

impl Element for i64 {
    fn of(whole: i64) -> Self {
        whole
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn to_bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn from_bytes(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

/// Tries until it works or the deadline has passed; then the last error.
fn retry<T>(deadline: Instant, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => thread::sleep(RETRY),
            done => return done,
        }
    }
}

fn resolve(host: &str) -> io::Result<SocketAddr> {
    host.to_socket_addrs()?.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address"))
}

/// Listens on this worker's own address: on one machine, every worker has the same port.
pub(super) fn listen(place: &Place, deadline: Instant) -> Result<TcpListener, Error> {
    let host = &place.hosts[place.rank];
    // The name may not be known right after the start, and the port of a worker that just ended may be busy.
    retry(deadline, || TcpListener::bind(resolve(host)?)).map_err(|source| Error::Listen { host: host.clone(), source })
}

/// This worker's two connections. With one worker there are none.
pub(super) struct Ring {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// To the next rank, and from the one before.
    links: Option<(TcpStream, TcpStream)>,
}

impl Ring {
    pub(super) fn connect(
        place: &Place,
        listener: &TcpListener,
        deadline: Instant,
        silence: Duration,
    ) -> Result<Self, Error> {
        let (rank, ranks) = (place.rank, place.hosts.len());
        if ranks == 1 {
            return Ok(Self { rank, ranks, links: None });
        }
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let failed = |rank: usize, source| Error::Connect { rank, host: place.hosts[rank].clone(), source };
        // Both ways at once: each of the ring's workers waits for a neighbour that waits for it.
        let (to, from) = thread::scope(|scope| {
            let to = scope.spawn(|| {
                retry(deadline, || {
                    let left = deadline.saturating_duration_since(Instant::now()).max(RETRY);
                    let mut stream = TcpStream::connect_timeout(&resolve(&place.hosts[next])?, left)?;
                    stream.write_all(&greeting(rank, ranks))?;
                    Ok(stream)
                })
            });
            let from = accept(listener, &greeting(before, ranks), deadline);
            (to.join().unwrap_or_else(|_| Err(io::Error::other("the connecting thread panicked"))), from)
        });
        let (to, from) = (to.map_err(|source| failed(next, source))?, from.map_err(|source| failed(before, source))?);
        for stream in [&to, &from] {
            let set = stream
                .set_nodelay(true)
                .and_then(|()| stream.set_read_timeout(Some(silence)))
                .and_then(|()| stream.set_write_timeout(Some(silence)));
            set.map_err(|source| failed(next, source))?;
        }
        Ok(Self { rank, ranks, links: Some((to, from)) })
    }

    /// Sums the vectors of all ranks, element by element, into each of them.
    ///
    /// The vector is cut into as many parts as there are ranks. In the first round of passing parts on, each part collects
    /// every rank's numbers; in the second, the full sums go round. Each rank sends twice its vector, however many there are.
    pub(super) fn all_reduce<T: Element>(&mut self, vector: &mut [T], step: u32) -> Result<(), Error> {
        let (rank, ranks) = (self.rank, self.ranks);
        let Some((to, from)) = &mut self.links else { return Ok(()) };
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let length = vector.len();
        let part = |number: usize| (number * length / ranks)..((number + 1) * length / ranks);
        for hop in 0..2 * (ranks - 1) {
            let summing = hop < ranks - 1;
            let sent = part((rank + 2 * ranks - hop) % ranks);
            let received = part((rank + 2 * ranks - hop - 1) % ranks);
            let outgoing: Vec<u8> = vector[sent].iter().flat_map(|number| number.to_bytes()).collect();
            let mut incoming = vec![0; received.len() * 8];
            // At once, or two full buffers would wait for each other.
            let (sending, receiving) = thread::scope(|scope| {
                let sending = scope.spawn(|| to.write_all(&outgoing));
                let receiving = from.read_exact(&mut incoming).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it closed the connection"),
                    io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it says nothing"),
                    _ => error,
                });
                (sending.join().unwrap_or_else(|_| Err(io::Error::other("the sending thread panicked"))), receiving)
            });
            // The loss of the rank before is the better known one: its connection ends when it does.
            receiving.map_err(|source| Error::Lost { rank: before, step, source })?;
            sending.map_err(|source| Error::Lost { rank: next, step, source })?;
            for (number, bytes) in vector[received].iter_mut().zip(incoming.chunks_exact(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                let got = T::from_bytes(word);
                *number = if summing { number.plus(got) } else { got };
            }
        }
        Ok(())
    }
}

/// Returns the greeting of a rank, by which a worker recognises its neighbour.
pub(super) fn greeting(rank: usize, ranks: usize) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(GREETING);
    bytes[8..16].copy_from_slice(&(rank as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&(ranks as u64).to_le_bytes());
    bytes
}

/// Accepts the one connection that greets as expected; others are closed.
pub(super) fn accept(listener: &TcpListener, want: &[u8; 24], deadline: Instant) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    retry(deadline, || {
        let (mut stream, _) = listener.accept().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it did not connect"),
            _ => error,
        })?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut got = [0; 24];
        stream.read_exact(&mut got)?;
        if got == *want { Ok(stream) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "a stranger called")) }
    })
}
