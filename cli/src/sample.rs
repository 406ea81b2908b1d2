//! `trainyard sample allreduce`: a small distributed program to try the product with.
//!
//! Every worker of a job holds a vector; together they sum them by a ring all-reduce over TCP, several times, and check each
//! element against the known result. It finds its peers through the environment of an `AITrainingJob` and nothing else, so
//! it shows that names, ports, ranks and restarts work; one worker can be made to die. Must not use anything of the
//! operator. Tests: `sample_tests`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};

/// Addresses of the peers: `host:port`, comma separated, in rank order.
const HOSTS: &str = "TRAINER_HOSTS";
/// Rank of this worker.
const RANK: &str = "TRAININGJOB_REPLICA_INDEX";
/// Number of restarts of the workers.
const RESTARTS: &str = "TRAININGJOB_REPLICA_RESTARTCOUNT";

/// Interval between attempts to reach a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(100);

/// First bytes of a worker on a new connection.
const GREETING: &[u8; 8] = b"tyring01";

/// Arguments of `trainyard sample`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SampleArgs {
    /// The sample to run.
    #[command(subcommand)]
    pub(crate) sample: Sample,
}

/// The samples.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Sample {
    /// Sum vectors over all workers of an AITrainingJob (replica `trainer`) by a ring all-reduce, and check the sums
    Allreduce(AllreduceArgs),
}

/// Arguments of `trainyard sample allreduce`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AllreduceArgs {
    /// Length of each worker's list of numbers
    #[arg(long, default_value_t = 100_000)]
    pub(crate) elements: usize,
    /// Number of sums
    #[arg(long, default_value_t = 5)]
    pub(crate) steps: u32,
    /// Pause before each step, in milliseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) step_ms: u64,
    /// Type of the numbers
    #[arg(long, value_enum, default_value_t = Number::F64)]
    pub(crate) number: Number,
    /// The rank that dies
    #[arg(long)]
    pub(crate) fail_rank: Option<usize>,
    /// The step, from 1, in which it dies
    #[arg(long, default_value_t = 2, requires = "fail_rank")]
    pub(crate) fail_step: u32,
    /// The code it exits with; without it, it is killed by SIGKILL (137)
    #[arg(long, requires = "fail_rank")]
    pub(crate) fail_code: Option<u8>,
    /// It dies only as long as the job was never restarted
    #[arg(long, requires = "fail_rank")]
    pub(crate) first_try_only: bool,
    /// Time limit for all workers to connect, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) connect_seconds: u64,
    /// Time limit for a message from a connected worker, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) silence_seconds: u64,
}

/// A type of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Number {
    /// 64-bit floating point
    F64,
    /// 64-bit integer
    I64,
}

/// Error of a worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program was not started as a worker of a job.
    #[error("{name} {problem}: run this as the container of an AITrainingJob with a replica `trainer`")]
    Environment {
        /// The variable.
        name: &'static str,
        /// The problem.
        problem: String,
    },
    /// This worker cannot be reached by the others.
    #[error("cannot listen on {host}: {source}")]
    Listen {
        /// Its own entry in the list of hosts.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// A neighbour did not come up in time.
    #[error("rank {rank} ({host}) did not connect in time: {source}")]
    Connect {
        /// The neighbour.
        rank: usize,
        /// Its entry in the list of hosts.
        host: String,
        /// The last attempt's error.
        source: io::Error,
    },
    /// A neighbour died, or says nothing any more.
    #[error("lost rank {rank} in step {step}: {source}")]
    Lost {
        /// The neighbour.
        rank: usize,
        /// The step, from 1.
        step: u32,
        /// Error of the connection.
        source: io::Error,
    },
    /// The sum is not what it has to be.
    #[error("wrong sum in step {step}: element {index} is {got}, expected {want}")]
    WrongSum {
        /// The step, from 1.
        step: u32,
        /// The first wrong element.
        index: usize,
        /// Its value.
        got: String,
        /// The right one.
        want: String,
    },
}

/// Runs a sample as its arguments say. Exit code 2: not started as a worker; 1: the work failed.
pub(crate) fn run(args: SampleArgs) -> ExitCode {
    let Sample::Allreduce(args) = args.sample;
    let result = worker(&args, |name| std::env::var(name).ok());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, Error::Environment { .. }) { 2 } else { 1 })
        }
    }
}

/// Rank of this worker, and addresses of all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    rank: usize,
    hosts: Vec<String>,
    restarts: u32,
}

impl Place {
    fn read(env: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let need =
            |name: &'static str| env(name).ok_or_else(|| Error::Environment { name, problem: "is not set".to_owned() });
        let bad = |name: &'static str, value: &str| Error::Environment { name, problem: format!("is {value:?}") };
        let list = need(HOSTS)?;
        let mut hosts: Vec<String> = Vec::new();
        for entry in list.split(',') {
            let (host, port) = entry.rsplit_once(':').ok_or_else(|| bad(HOSTS, &list))?;
            if host.is_empty() || port.parse::<u16>().is_err() {
                return Err(bad(HOSTS, &list));
            }
            // A worker with several ports is listed once for each; the first will do.
            if !hosts.iter().any(|known| known.rsplit_once(':').is_some_and(|(known, _)| known == host)) {
                hosts.push(entry.to_owned());
            }
        }
        let rank = need(RANK)?;
        let rank = rank.parse().ok().filter(|rank| *rank < hosts.len()).ok_or_else(|| bad(RANK, &rank))?;
        let restarts = env(RESTARTS).unwrap_or_default();
        let restarts = if restarts.is_empty() { Some(0) } else { restarts.parse().ok() };
        Ok(Self { rank, hosts, restarts: restarts.ok_or_else(|| bad(RESTARTS, "not a number"))? })
    }
}

fn worker(args: &AllreduceArgs, env: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let place = Place::read(env)?;
    let deadline = Instant::now() + Duration::from_secs(args.connect_seconds);
    let listener = listen(&place, deadline)?;
    let ring = Ring::connect(&place, &listener, deadline, Duration::from_secs(args.silence_seconds.max(1)))?;
    println!("rank {} of {}, try {}: connected", place.rank, place.hosts.len(), place.restarts.saturating_add(1));
    match args.number {
        Number::F64 => train::<f64>(args, &place, ring),
        Number::I64 => train::<i64>(args, &place, ring),
    }
}

fn train<T: Element>(args: &AllreduceArgs, place: &Place, mut ring: Ring) -> Result<(), Error> {
    let started = Instant::now();
    for step in 1..=args.steps {
        thread::sleep(Duration::from_millis(args.step_ms));
        if args.fail_rank == Some(place.rank) && args.fail_step == step && !(args.first_try_only && place.restarts > 0)
        {
            die(place.rank, step, args.fail_code);
        }
        let mut vector: Vec<T> = (0..args.elements).map(|index| contribution(place.rank, index, step)).collect();
        ring.all_reduce(&mut vector, step)?;
        check(&vector, place.hosts.len(), step)?;
        println!("rank {}: step {step} of {}: all {} sums are right", place.rank, args.steps, args.elements);
    }
    println!("rank {}: done in {} ms", place.rank, started.elapsed().as_millis());
    Ok(())
}

fn die(rank: usize, step: u32, code: Option<u8>) -> ! {
    let Some(code) = code else {
        println!("rank {rank}: step {step}: killing myself, as requested");
        local::kill_this_process()
    };
    println!("rank {rank}: step {step}: exiting with code {code}, as requested");
    std::process::exit(i32::from(code))
}

/// A number that can be sent and summed. Sums of this sample are exact in all of them.
trait Element: Copy + PartialEq + ToString + Send + Sync {
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

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a rank's summand: different for every rank, element and step.
fn contribution<T: Element>(rank: usize, index: usize, step: u32) -> T {
    T::of((whole(rank) + 1) * (whole(index % 1000) + 1) + i64::from(step))
}

/// Returns the sum: 1 + 2 + ... + n times the element's part, and n times the step's.
fn check<T: Element>(vector: &[T], ranks: usize, step: u32) -> Result<(), Error> {
    let n = whole(ranks);
    for (index, got) in vector.iter().enumerate() {
        let want = T::of(n * (n + 1) / 2 * (whole(index % 1000) + 1) + n * i64::from(step));
        if *got != want {
            return Err(Error::WrongSum { step, index, got: got.to_string(), want: want.to_string() });
        }
    }
    Ok(())
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
fn listen(place: &Place, deadline: Instant) -> Result<TcpListener, Error> {
    let host = &place.hosts[place.rank];
    // The name may not be known right after the start, and the port of a worker that just ended may be busy.
    retry(deadline, || TcpListener::bind(resolve(host)?)).map_err(|source| Error::Listen { host: host.clone(), source })
}

/// This worker's two connections. With one worker there are none.
struct Ring {
    rank: usize,
    ranks: usize,
    /// To the next rank, and from the one before.
    links: Option<(TcpStream, TcpStream)>,
}

impl Ring {
    fn connect(place: &Place, listener: &TcpListener, deadline: Instant, silence: Duration) -> Result<Self, Error> {
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
    fn all_reduce<T: Element>(&mut self, vector: &mut [T], step: u32) -> Result<(), Error> {
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
fn greeting(rank: usize, ranks: usize) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(GREETING);
    bytes[8..16].copy_from_slice(&(rank as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&(ranks as u64).to_le_bytes());
    bytes
}

/// Accepts the one connection that greets as expected; others are closed.
fn accept(listener: &TcpListener, want: &[u8; 24], deadline: Instant) -> io::Result<TcpStream> {
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

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
