//! Logs as JSON lines: export, import, and reading a file frame by frame.
//!
//! Owns the text format: one line per record, `{"position":N,"term":T,"digest":"hex","record":<the body, verbatim>}`, after
//! at most one line `{"checkpoint":{..}}`. Bodies must be JSON texts on one line, as the engine's are. Reading verifies
//! the digest chain and names the line at fault; it never holds more than one line. Compressed exports leave out all
//! digests but the last, which proves the others. Tests: `tests/jsonl.rs`.

mod line;
mod packed;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use model::{Position, Term};

pub(crate) use self::line::read_checkpoint_line;
use self::line::{CheckpointLine, RecordLine, write_record};
pub use self::line::{checkpoint_line, write_frame};
use self::packed::Packed;
use crate::block::{MAX_BODY_BYTES, MAX_STATE_BYTES};
use crate::digest::{Digest, Head, RecordHasher};
use crate::memory::MemoryLog;
use crate::types::{Checkpoint, EventLog, Frame, NewRecord};

/// Maximum length of a first line with a checkpoint: the largest one in hexadecimal, and its members.
const MAX_CHECKPOINT_LINE_BYTES: u64 = 2 * MAX_STATE_BYTES as u64 + 4096;
/// Maximum length of every other line: the largest body, and its members.
const MAX_LINE_BYTES: u64 = MAX_BODY_BYTES as u64 + 4096;
/// Begins a line with a checkpoint.
const CHECKPOINT: &[u8] = br#"{"checkpoint""#;
const IMPORT_GROUP_RECORDS: usize = 256;
const IMPORT_GROUP_BYTES: usize = 1 << 20;

/// Reason for the failure of an export or an import.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not an export, or is damaged at this line.
    #[error("{}:{line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The fault.
        reason: Fault,
    },
    /// The file cannot be read or written.
    #[error("cannot {action} {}", file.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A body cannot stand in a line as it is, so it cannot be exported.
    #[error("the record at position {at} is not JSON on one line")]
    NotJson {
        /// Its position.
        at: Position,
    },
    /// Import goes into empty logs only.
    #[error("the log already holds records up to position {head}")]
    NotEmpty {
        /// The log's head.
        head: Position,
    },
    /// The log itself failed.
    #[error(transparent)]
    Log(#[from] crate::Error),
}

/// Fault of a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It cannot be read as a record or a checkpoint.
    #[error("not a record: {0}")]
    Unreadable(String),
    /// The file ends in the middle of it.
    #[error("cut short")]
    CutShort,
    /// It is longer than any record or checkpoint.
    #[error("longer than any record")]
    TooLong,
    /// Its position does not follow the line before.
    #[error("position {found} where {expected} should follow")]
    Gap {
        /// The position that should follow.
        expected: Position,
        /// The position on the line.
        found: Position,
    },
    /// Its term is lower than the one before.
    #[error("term {found} after term {last}")]
    TermBackwards {
        /// The term before.
        last: Term,
        /// The term on the line.
        found: Term,
    },
    /// Its digest does not follow from the lines before it and its own contents.
    #[error("digest mismatch at position {at}: this line or one before it was changed")]
    Digest {
        /// The record's position.
        at: Position,
    },
    /// The checkpoint does not match its seal.
    #[error("the checkpoint does not match its seal")]
    Seal,
    /// The last record has no digest, so nothing proves the ones before it.
    #[error("the last record has no digest: the file is cut short")]
    NoDigest,
}

/// Lines that carry a digest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Digests {
    /// Every line: a changed line is named exactly.
    #[default]
    Every,
    /// The last line, which proves all others. Digests do not compress, so this makes small files.
    Last,
}

fn write_error(source: io::Error) -> Error {
    Error::Io { action: "write", file: PathBuf::from("the export"), source }
}

/// Writes a log as JSON lines; gives the head that was reached.
///
/// # Errors
/// [`Error::NotJson`] for bodies that are not JSON on one line; damage in the log; IO errors.
pub fn export(log: &dyn EventLog, out: impl Write, digests: Digests) -> Result<Head, Error> {
    let frames = log.read(log.first())?.map(|frame| frame.map_err(Error::from));
    write_all(log.checkpoint()?, frames, log.head(), out, digests)
}

/// Writes what a reader gives as JSON lines; gives the head that was reached.
///
/// # Errors
/// As for [`export`], and the reader's.
pub fn copy<R: BufRead>(mut reader: Reader<R>, out: impl Write, digests: Digests) -> Result<Head, Error> {
    let checkpoint = reader.checkpoint.take();
    let head = reader.head;
    write_all(checkpoint, reader, head, out, digests)
}

/// Writes the frames of a log. `start` is the head of a log without records; the last record is known only once it was
/// read.
fn write_all(
    checkpoint: Option<Checkpoint>,
    frames: impl Iterator<Item = Result<Frame, Error>>,
    start: Head,
    out: impl Write,
    digests: Digests,
) -> Result<Head, Error> {
    let mut out = BufWriter::new(out);
    if let Some(checkpoint) = checkpoint {
        checkpoint_line(checkpoint).iter().try_for_each(|piece| out.write_all(piece)).map_err(write_error)?;
    }
    let mut frames = frames.peekable();
    let mut head = start;
    while let Some(frame) = frames.next() {
        let frame = frame?;
        head = frame.head();
        write_record(&frame, digests == Digests::Every || frames.peek().is_none(), &mut out)?;
    }
    out.flush().map_err(write_error)?;
    Ok(head)
}

/// Writes a log as compressed JSON lines (`.jsonl.gz`), with the last digest only.
///
/// # Errors
/// As for [`export`].
pub fn export_gz(log: &dyn EventLog, out: impl Write) -> Result<Head, Error> {
    let mut packed = GzEncoder::new(out, Compression::best());
    let head = export(log, &mut packed, Digests::Last)?;
    packed.finish().and_then(|mut out| out.flush()).map_err(write_error)?;
    Ok(head)
}

/// Writes what a reader gives as compressed JSON lines, with the last digest only.
///
/// # Errors
/// As for [`copy`].
pub fn copy_gz<R: BufRead>(reader: Reader<R>, out: impl Write) -> Result<Head, Error> {
    let mut packed = GzEncoder::new(out, Compression::best());
    let head = copy(reader, &mut packed, Digests::Last)?;
    packed.finish().and_then(|mut out| out.flush()).map_err(write_error)?;
    Ok(head)
}

/// Reads an export frame by frame, verified.
pub struct Reader<R> {
    input: R,
    file: PathBuf,
    line: u64,
    buffer: Vec<u8>,
    checkpoint: Option<Checkpoint>,
    head: Head,
    term: Term,
    proven: bool,
    hasher: RecordHasher,
    /// A first line that was read while looking for a checkpoint.
    held: bool,
    done: bool,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("file", &self.file).field("line", &self.line).finish_non_exhaustive()
    }
}

/// Opens an export, compressed or not: its first bytes differ.
///
/// # Errors
/// IO errors, and faults of the checkpoint line.
pub fn open(path: impl AsRef<Path>) -> Result<Reader<Box<dyn BufRead>>, Error> {
    let path = path.as_ref();
    let fail = |action| move |source| Error::Io { action, file: path.to_owned(), source };
    let mut input = BufReader::new(File::open(path).map_err(fail("open"))?);
    let packed = input.fill_buf().map_err(fail("read"))?.starts_with(&[0x1f, 0x8b]);
    let input: Box<dyn BufRead> = if packed { Box::new(BufReader::new(Packed::new(input))) } else { Box::new(input) };
    Reader::new(input, path)
}

impl<R: BufRead> Reader<R> {
    /// Reads an export from `input`; `file` is what errors call it.
    ///
    /// # Errors
    /// IO errors, and faults of the checkpoint line.
    pub fn new(input: R, file: impl AsRef<Path>) -> Result<Self, Error> {
        let mut reader = Self::resume(input, file, Head::default(), Term(0));
        if reader.next_line()? {
            match serde_json::from_slice::<CheckpointLine<'_>>(&reader.buffer) {
                Ok(line) => {
                    let checkpoint = line.checkpoint.read().map_err(|reason| reader.fault(reason))?;
                    reader.head = Head { position: checkpoint.position, digest: checkpoint.digest };
                    reader.term = checkpoint.term;
                    reader.checkpoint = Some(checkpoint);
                }
                Err(error) if reader.buffer.starts_with(CHECKPOINT) => {
                    return Err(reader.fault(Fault::Unreadable(error.to_string())));
                }
                Err(_) => reader.held = true,
            }
        }
        Ok(reader)
    }

    /// Reads the lines that follow a log with this head and last term, whose beginning is known already. A first line whose
    /// digest does not follow from that head is a fault of line 1.
    pub fn resume(input: R, file: impl AsRef<Path>, head: Head, term: Term) -> Self {
        Self {
            input,
            file: file.as_ref().to_owned(),
            line: 0,
            buffer: Vec::new(),
            checkpoint: None,
            head,
            term,
            proven: true,
            hasher: RecordHasher::default(),
            held: false,
            done: false,
        }
    }

    /// Returns the checkpoint the export begins with.
    pub const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// Returns the term of the last record that was read.
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Returns the head of what was read.
    pub const fn head(&self) -> Head {
        self.head
    }

    fn fault(&self, reason: Fault) -> Error {
        Error::Line { file: self.file.clone(), line: self.line, reason }
    }

    /// Reads the next line that is not empty into the buffer. `false` at the end.
    fn next_line(&mut self) -> Result<bool, Error> {
        loop {
            self.buffer.clear();
            let mut read = (&mut self.input).take(MAX_LINE_BYTES).read_until(b'\n', &mut self.buffer);
            self.line += 1;
            let mut limit = MAX_LINE_BYTES;
            if self.line == 1 && self.buffer.starts_with(CHECKPOINT) && !self.buffer.ends_with(b"\n") {
                limit = MAX_CHECKPOINT_LINE_BYTES;
                let rest = (&mut self.input).take(limit - MAX_LINE_BYTES).read_until(b'\n', &mut self.buffer);
                read = read.and_then(|begun| rest.map(|more| begun + more));
            }
            let count = match read {
                Ok(count) => count,
                Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof) => return Err(self.fault(Fault::CutShort)),
                Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                    return Err(self.fault(Fault::Unreadable(e.to_string())));
                }
                Err(source) => return Err(Error::Io { action: "read", file: self.file.clone(), source }),
            };
            if count == 0 {
                return Ok(false);
            }
            if count as u64 == limit && self.buffer.last() != Some(&b'\n') {
                return Err(self.fault(Fault::TooLong));
            }
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                return Ok(true);
            }
        }
    }

    fn step(&mut self) -> Result<Option<Frame>, Error> {
        if !std::mem::take(&mut self.held) && !self.next_line()? {
            return if self.proven { Ok(None) } else { Err(self.fault(Fault::NoDigest)) };
        }
        let line: RecordLine<'_> = match serde_json::from_slice(&self.buffer) {
            Ok(line) => line,
            Err(error) if error.is_eof() => return Err(self.fault(Fault::CutShort)),
            Err(error) => return Err(self.fault(Fault::Unreadable(error.to_string()))),
        };
        let (position, term) = (line.position, line.term);
        let expected = self.head.position.next();
        if position != expected {
            return Err(self.fault(Fault::Gap { expected, found: position }));
        }
        if term < self.term {
            return Err(self.fault(Fault::TermBackwards { last: self.term, found: term }));
        }
        let body = line.record.get().as_bytes().to_vec();
        let digest = self.hasher.digest(&self.head.digest, position, term, &body);
        let stated = line.digest.as_deref().map(str::parse::<Digest>);
        self.proven = match stated {
            None => false,
            Some(Ok(stated)) if stated == digest => true,
            Some(Ok(_)) => return Err(self.fault(Fault::Digest { at: position })),
            Some(Err(error)) => return Err(self.fault(Fault::Unreadable(error.to_string()))),
        };
        self.head = Head { position, digest };
        self.term = term;
        Ok(Some(Frame { position, term, digest, body }))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.step().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Appends an export to an empty log, as it was: positions, terms and digests come out the same.
///
/// Records before a faulty line stay in the log.
///
/// # Errors
/// [`Error::NotEmpty`], [`Error::Line`] with the file's line at fault, or the log's own errors.
pub fn import<R: BufRead>(mut reader: Reader<R>, log: &mut dyn EventLog) -> Result<Head, Error> {
    if log.head().position > Position(0) {
        return Err(Error::NotEmpty { head: log.head().position });
    }
    if let Some(checkpoint) = reader.checkpoint() {
        log.compact(checkpoint)?;
    }
    let mut group: Vec<Frame> = Vec::new();
    let mut bytes = 0;
    loop {
        let next = reader.next();
        let go_on = matches!(next, Some(Ok(_)));
        if !go_on || group.len() >= IMPORT_GROUP_RECORDS || bytes >= IMPORT_GROUP_BYTES {
            let records: Vec<NewRecord<'_>> =
                group.iter().map(|frame| NewRecord { term: frame.term, body: &frame.body }).collect();
            log.append(&records)?;
            group.clear();
            bytes = 0;
        }
        match next {
            Some(frame) => group.push(frame.inspect(|frame| bytes += frame.body.len())?),
            None => return Ok(log.head()),
        }
    }
}

/// Reads an export into a log in memory.
///
/// # Errors
/// As for [`open`] and [`import`].
pub fn load(path: impl AsRef<Path>) -> Result<MemoryLog, Error> {
    let mut log = MemoryLog::new();
    import(open(path)?, &mut log)?;
    Ok(log)
}
