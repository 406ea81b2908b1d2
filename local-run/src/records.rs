//! Reading logs: a directory (a copy of it while a run writes it), an export, or a log elsewhere.
//!
//! Owns how records are folded, and files of exported logs. It must not know how a log elsewhere is reached. Tests:
//! `cli/tests/local/`, by command.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Record, State};
use event_log::disk::{Options, Recent, SledLog};
use event_log::{Checkpoint, EventLog, Frame, Head, jsonl};
use model::Position;
use terminal::out::Failure;

/// Records after which a run caches its state beside the log: other commands read no more than these. So many are read in less than 50 ms.
pub const CACHE_AFTER: u64 = 5_000;

/// Result of one step of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next record, please.
    Go,
    /// Enough.
    Stop,
}

/// Reader of an exported log, or of what is sent as one.
pub type LogReader = jsonl::Reader<Box<dyn BufRead>>;

/// A log that is not in a file of this machine.
pub trait RemoteLog: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens the whole log, up to its present end.
    ///
    /// # Errors
    /// Returns an error if it is not to be had.
    fn open(&self) -> Result<LogReader, Failure>;

    /// Opens the present state: a log without records that begins with a checkpoint. `None` where it is not sent.
    ///
    /// # Errors
    /// Returns an error if it is not to be had.
    fn open_state(&self) -> Result<Option<LogReader>, Failure>;
}

/// Location of a log.
#[derive(Debug, Clone)]
pub enum LogSource {
    /// A log directory, a data directory, or an export.
    Path(PathBuf),
    /// A log elsewhere: that of a live operator.
    Remote(Arc<dyn RemoteLog>),
}

impl From<&Path> for LogSource {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl fmt::Display for LogSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Remote(log) => log.fmt(f),
        }
    }
}

/// Takes one record in; it brings the state up to date.
type Visit<'a> = &'a mut dyn FnMut(&mut State, Record) -> Result<Flow, Failure>;

/// Shows every record of a log to `visit`, in order, holding one at a time. The state begins at the log's checkpoint, if it
/// has one; `visit` brings it up to date. Gives the head of what was read.
///
/// # Errors
/// Returns an error if the log cannot be read, or `visit` fails.
pub fn each(source: &LogSource, state: &mut State, visit: Visit<'_>) -> Result<Head, Failure> {
    let reader = match source {
        LogSource::Path(path) if !path.exists() => {
            return Err(Failure::new(format!(
                "{}: there is no log. `trainyard run` makes one in its data directory; --data-dir or --log names another",
                path.display()
            )));
        }
        LogSource::Path(path) if path.is_dir() => {
            let log = open_dir(path)?;
            let head = begin(source, log.checkpoint()?.as_ref(), state)?;
            let named = |error| Failure::new(format!("{source}: {error}"));
            return pass(source, head, log.read(log.first())?.map(|frame| frame.map_err(named)), state, visit);
        }
        LogSource::Path(path) => jsonl::open(path)?,
        LogSource::Remote(log) => log.open()?,
    };
    let head = begin(source, reader.checkpoint(), state)?;
    pass(source, head, reader.map(|frame| Ok(frame?)), state, visit)
}

/// Begins with the state of a checkpoint, if there is one. Returns its head.
fn begin(source: &LogSource, checkpoint: Option<&Checkpoint>, state: &mut State) -> Result<Head, Failure> {
    let Some(checkpoint) = checkpoint else { return Ok(Head::default()) };
    *state = State::from_checkpoint(&checkpoint.state)
        .map_err(|e| Failure::new(format!("{source}: checkpoint {}: {e}", checkpoint.position)))?;
    Ok(Head { position: checkpoint.position, digest: checkpoint.digest })
}

/// Shows the records after a head. Gives the head of what was read.
fn pass(
    source: &LogSource,
    mut head: Head,
    frames: impl Iterator<Item = Result<Frame, Failure>>,
    state: &mut State,
    visit: Visit<'_>,
) -> Result<Head, Failure> {
    for frame in frames {
        if one(source, &frame?, state, visit, &mut head)? == Flow::Stop {
            break;
        }
    }
    Ok(head)
}

fn one(
    source: &LogSource,
    frame: &Frame,
    state: &mut State,
    visit: Visit<'_>,
    head: &mut Head,
) -> Result<Flow, Failure> {
    let record = Record::decode(frame.position, frame.term, &frame.body)
        .map_err(|e| Failure::new(format!("{source}: position {}: {e}", frame.position)))?;
    *head = Head { position: frame.position, digest: frame.digest };
    visit(state, record)
}

/// Folds a log up to where `visit` stops it. `visit` sees each record and the state before it.
///
/// # Errors
/// Returns an error if the log cannot be read, or `visit` fails.
pub fn fold(
    source: &LogSource,
    visit: &mut dyn FnMut(&State, &Record) -> Result<Flow, Failure>,
) -> Result<State, Failure> {
    let mut state = State::default();
    each(source, &mut state, &mut |state, record| {
        let flow = visit(state, &record)?;
        if flow == Flow::Go {
            state.replay(&record)?;
        }
        Ok(flow)
    })?;
    Ok(state)
}

/// Folds a log up to its end, from the latest state that is to be had: that of a live operator now, or the one cached beside a log
/// directory. Reads the whole log where there is none.
///
/// # Errors
/// Returns an error if the log cannot be read.
pub fn latest(source: &LogSource) -> Result<State, Failure> {
    latest_from(source, Position(0), &mut |_, _| {})
}

/// The same; `visit` sees the records after the state that was to be had, and the state before each. A log that ends early, or whose
/// state was cached early, is read as a whole.
///
/// # Errors
/// Returns an error if the log cannot be read.
pub fn latest_with(source: &LogSource, visit: &mut dyn FnMut(&State, &Record)) -> Result<State, Failure> {
    latest_from(source, Position(CACHE_AFTER), visit)
}

/// States up to `skipped` do not count: all records are read instead.
fn latest_from(
    source: &LogSource,
    skipped: Position,
    visit: &mut dyn FnMut(&State, &Record),
) -> Result<State, Failure> {
    let mut state = State::default();
    let mut take = |state: &mut State, record: Record| {
        visit(state, &record);
        state.replay(&record)?;
        Ok(Flow::Go)
    };
    let counts = |checkpoint: &Checkpoint| checkpoint.position > skipped;
    match source {
        LogSource::Path(path) if path.is_dir() => {
            if let Some((recent, cached)) = cached(path).filter(|(recent, _)| counts(recent.state())) {
                state = cached;
                let head = Head { position: recent.state().position, digest: recent.state().digest };
                pass(source, head, recent.frames().map(|frame| Ok(frame?)), &mut state, &mut take)?;
                return Ok(state);
            }
        }
        LogSource::Path(_) => {}
        LogSource::Remote(log) => {
            let reader = log.open_state()?;
            if let Some(reader) = reader.filter(|reader| reader.checkpoint().is_some_and(counts)) {
                let head = begin(source, reader.checkpoint(), &mut state)?;
                pass(source, head, reader.map(|frame| Ok(frame?)), &mut state, &mut take)?;
                return Ok(state);
            }
        }
    }
    each(source, &mut state, &mut take)?;
    Ok(state)
}

/// Returns the end of a log directory with the state that is cached there, if this build can read it.
fn cached(path: &Path) -> Option<(Recent, State)> {
    let recent = SledLog::open_recent(log_dir(path))?;
    let state = State::from_checkpoint(&recent.state().state).ok()?;
    (state.stamp.position == recent.state().position).then_some((recent, state))
}

/// Opens a log directory for reading: the data directory of a run is as good as the log in it.
///
/// # Errors
/// Returns an error if the directory holds no log.
pub fn open_dir(path: &Path) -> Result<SledLog, Failure> {
    if path.is_file() {
        let problem =
            "an exported log; this command reads the directory of a log: trainyard log import makes one of the file";
        return Err(Failure::new(format!("{}: {problem}", path.display())));
    }
    Ok(SledLog::open_copy(log_dir(path))?)
}

/// The log directory that a path means.
pub fn log_dir(path: &Path) -> std::path::PathBuf {
    let inner = path.join("log");
    if !path.join("current").exists() && inner.is_dir() { inner } else { path.to_owned() }
}

/// Writes a log as JSON lines, compressed when the file's name ends in `.gz`.
///
/// # Errors
/// Returns an error if the log cannot be read, or the file cannot be written.
pub fn export(log: &dyn EventLog, to: &Path) -> Result<Head, Failure> {
    written(
        to,
        |file, packed| {
            if packed { jsonl::export_gz(log, file) } else { jsonl::export(log, file, jsonl::Digests::default()) }
        },
    )
}

/// Writes what a reader gives as JSON lines, compressed when the file's name ends in `.gz`.
///
/// # Errors
/// Returns an error if the log cannot be read, or the file cannot be written.
pub fn copy(reader: LogReader, to: &Path) -> Result<Head, Failure> {
    written(to, |file, packed| {
        if packed { jsonl::copy_gz(reader, file) } else { jsonl::copy(reader, file, jsonl::Digests::default()) }
    })
}

/// Writes a file. A regular file, or a new one, appears as a whole or not at all, and one that was there keeps its permissions.
/// Links are followed; what is no regular file (a pipe, a device) is written through.
fn written(to: &Path, write: impl FnOnce(File, bool) -> Result<Head, jsonl::Error>) -> Result<Head, Failure> {
    let fail = |e: io::Error| Failure::new(format!("{}: {e}", to.display()));
    let packed = to.extension().is_some_and(|e| e == "gz");
    let through = || File::options().write(true).create(true).truncate(true).open(to).map_err(fail);
    let (path, permissions) = match fs::metadata(to) {
        // The files below these stand for what this process has open.
        Ok(found) if found.is_file() && !to.starts_with("/dev") && !to.starts_with("/proc") => {
            (fs::canonicalize(to).map_err(fail)?, Some(found.permissions()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(to).is_err() => (to.to_owned(), None),
        _ => return Ok(write(through()?, packed)?),
    };
    let draft = draft_of(&path);
    let file = match File::options().write(true).create_new(true).open(&draft) {
        Ok(file) => file,
        // A file may be writable in a directory that is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && permissions.is_some() => {
            return Ok(write(through()?, packed)?);
        }
        Err(error) => return Err(fail(error)),
    };
    let finish = || {
        let disk = file.try_clone().map_err(fail)?;
        if let Some(permissions) = permissions {
            disk.set_permissions(permissions).map_err(fail)?;
        }
        let head = write(file, packed)?;
        disk.sync_all().and_then(|()| fs::rename(&draft, &path)).map_err(fail)?;
        Ok(head)
    };
    finish().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// Makes a log directory of an export, with the state at its end cached. It appears as a whole or not at all.
///
/// # Errors
/// Returns an error if the log cannot be read, or the directory is not empty.
pub fn import(reader: LogReader, to: &Path, state: &State) -> Result<Head, Failure> {
    let fail = |e: io::Error| Failure::new(format!("{}: {e}", to.display()));
    let path = match fs::read_dir(to).map(|mut entries| entries.next().is_none()) {
        Ok(true) => fs::canonicalize(to).map_err(fail)?,
        Ok(false) => return Err(Failure::new(format!("{}: not empty: name a new log directory", to.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => std::path::absolute(to).map_err(fail)?,
        Err(error) => return Err(fail(error)),
    };
    let draft = draft_of(&path);
    let parent = path.parent().unwrap_or(&path);
    fs::create_dir_all(parent).and_then(|()| fs::create_dir(&draft)).map_err(fail)?;
    let finish = || {
        let mut log = SledLog::open(&draft, Options::default())?;
        let head = jsonl::import(reader, &mut log)?;
        if head.position == state.stamp.position && log.first() <= head.position {
            log.cache_state(checkpoint_of(state, head)?)?;
        }
        // Closed before it gets its name.
        drop(log);
        fs::rename(&draft, &path).and_then(|()| File::open(parent)?.sync_all()).map_err(fail)?;
        Ok(head)
    };
    finish().inspect_err(|_| {
        let _ = fs::remove_dir_all(&draft);
    })
}

/// Returns a state as the checkpoint at a head.
///
/// # Errors
/// Returns an error if the state cannot be encoded.
pub fn checkpoint_of(state: &State, head: Head) -> Result<Checkpoint, Failure> {
    let Head { position, digest } = head;
    Ok(Checkpoint { position, term: state.stamp.term, digest, state: state.to_checkpoint()? })
}

/// Name beside a file, for this process alone, of what is to take its place.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
