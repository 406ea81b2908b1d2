//! Shared by the tests of this crate: records that can be distinguished, places to keep logs, and child processes.
#![allow(dead_code, unreachable_pub)] // every test file includes this one and uses a part of it

pub mod raw_disk;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_log::disk::medium::{Medium, Step};
use event_log::{Checkpoint, Digest, Error, EventLog, Frame, Head, MemoryDisk, NewRecord, Options, SledLog, Verify};
use model::{Position, Term};

/// A small generator, the same everywhere: every random test prints its seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

/// The body of the record at a position: JSON, mostly small, now and then larger than a block. More than half repeat themselves, as
/// real ones do, and are packed; the others are not.
pub fn body(position: u64) -> Vec<u8> {
    let mut rng = Rng(position);
    let length = match position % 50 {
        7 => 9_000 + rng.index(60_000),
        11 => 0,
        _ => rng.index(600),
    };
    let letters = if position % 50 >= 20 || position % 100 == 7 { 1 } else { 26 };
    let filler: String = (0..length).map(|_| char::from(b'a' + u8::try_from(rng.below(letters)).unwrap())).collect();
    format!(r#"{{"n":{position},"filler":"{filler}"}}"#).into_bytes()
}

/// The term of the record at a position.
pub fn term(position: u64) -> Term {
    Term(1 + position / 100)
}

/// Appends the next `count` records as one group.
pub fn append_next(log: &mut dyn EventLog, count: u64) -> Result<Head, Error> {
    let first = log.head().position.0 + 1;
    let bodies: Vec<Vec<u8>> = (first..first + count).map(body).collect();
    let records: Vec<NewRecord<'_>> =
        bodies.iter().zip(first..).map(|(body, n)| NewRecord { term: term(n), body }).collect();
    log.append(&records)
}

/// Appends records up to a position, in groups of mixed sizes.
pub fn fill(log: &mut dyn EventLog, upto: u64) {
    let mut rng = Rng(upto);
    while log.head().position.0 < upto {
        let left = upto - log.head().position.0;
        let size = [1, 1, 2, 5, 17, 64][rng.index(6)];
        append_next(log, left.min(size)).unwrap();
    }
}

/// All frames from a position on.
pub fn frames(log: &dyn EventLog, from: u64) -> Vec<Frame> {
    log.read(Position(from)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Checks that the log holds exactly the records `first..=head` that [`fill`] writes, chained as the format says.
pub fn check_contents(log: &dyn EventLog, before: Head) -> Head {
    let mut head = before;
    for frame in log.read(before.position.next()).unwrap() {
        let frame = frame.unwrap();
        let position = head.position.0 + 1;
        assert_eq!(frame.position, Position(position));
        assert_eq!(frame.body, body(position), "body at {position}");
        assert_eq!(frame.term, term(position));
        head = Head { position: frame.position, digest: chain(head.digest, &frame) };
        assert_eq!(frame.digest, head.digest, "digest at {position}");
    }
    assert_eq!(log.head(), head);
    head
}

/// The digest of a record, written down independently of the crate.
pub fn chain(previous: Digest, frame: &Frame) -> Digest {
    let mut bytes = previous.0.to_vec();
    bytes.extend_from_slice(&frame.position.0.to_le_bytes());
    bytes.extend_from_slice(&frame.term.0.to_le_bytes());
    bytes.extend_from_slice(&frame.body);
    Digest(*blake3::hash(&bytes).as_bytes())
}

/// A checkpoint at a position, with some state.
pub fn checkpoint_at(log: &dyn EventLog, position: u64, state: Vec<u8>) -> Checkpoint {
    let frame = log.read(Position(position)).unwrap().next().unwrap().unwrap();
    Checkpoint { position: frame.position, term: frame.term, digest: frame.digest, state }
}

/// A place that keeps a log between openings.
pub trait Place {
    fn new() -> Self;
    fn open(&self, verify: Verify) -> Result<Box<dyn EventLog>, Error>;

    fn reopen(&self) -> Box<dyn EventLog> {
        self.open(Verify::Full).unwrap()
    }
}

/// In memory.
pub struct InMemory(pub MemoryDisk);

impl Place for InMemory {
    fn new() -> Self {
        Self(MemoryDisk::default())
    }

    fn open(&self, verify: Verify) -> Result<Box<dyn EventLog>, Error> {
        Ok(Box::new(self.0.open_with(verify)?))
    }
}

/// In a directory.
pub struct OnDisk(pub tempfile::TempDir);

impl OnDisk {
    pub fn path(&self) -> PathBuf {
        self.0.path().join("log")
    }
}

impl Place for OnDisk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn open(&self, verify: Verify) -> Result<Box<dyn EventLog>, Error> {
        Ok(Box::new(SledLog::open(self.path(), Options { verify, ..Options::default() })?))
    }
}

impl Drop for OnDisk {
    /// Whatever a test did: nothing may have gone where sled never syncs.
    fn drop(&mut self) {
        let Ok(epochs) = fs::read_dir(self.path()) else { return };
        for epoch in epochs.flatten() {
            let blobs = fs::read_dir(epoch.path().join("blobs")).map_or(0, Iterator::count);
            assert!(blobs == 0 || std::thread::panicking(), "blobs in {}", epoch.path().display());
        }
    }
}

/// Copies a directory tree.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The directory of the live epoch.
pub fn live_epoch(log: &Path) -> PathBuf {
    let current = fs::read_to_string(log.join("current")).unwrap();
    log.join(current.lines().nth(1).unwrap())
}

/// This test program again, running only the (ignored) test `child`.
pub fn child(variables: &[(&str, String)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_appends", "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// A variable of [`child`].
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Fails the n-th step from now, before or after doing it.
pub struct Failing {
    pub left: AtomicUsize,
    pub after: bool,
    pub kind: io::ErrorKind,
}

impl Medium for Failing {
    fn run(&self, _step: Step, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let is_due = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_due && !self.after {
            return Err(io::Error::from(self.kind));
        }
        act()?;
        if is_due { Err(io::Error::other("planned")) } else { Ok(()) }
    }
}
