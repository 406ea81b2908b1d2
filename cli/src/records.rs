//! Reading logs: a directory (a copy of it when a run goes on), an export, or a live operator's.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};

use engine::{Record, State};
use event_log::disk::{Options, SledLog};
use event_log::{Checkpoint, EventLog, Frame, Head, jsonl};

use crate::out::Failure;
use crate::remote::{self, ServerArgs};

/// Result of one step of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next record, please.
    Go,
    /// Enough.
    Stop,
}

/// Location of a log.
#[derive(Debug, Clone)]
pub(crate) enum LogSource {
    /// A log directory, a data directory, or an export.
    Path(PathBuf),
    /// A live operator.
    Server(ServerArgs),
}

impl LogSource {
    /// The live operator if one is named, or else the path.
    pub(crate) fn of(path: &Path, server: &ServerArgs) -> Self {
        if server.given() { Self::Server(server.clone()) } else { Self::Path(path.to_owned()) }
    }
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
            Self::Server(server) => server.fmt(f),
        }
    }
}

/// Shows every record of a log to `visit`, in order, holding one at a time. The state begins at the log's checkpoint, if it
/// has one; `visit` brings it up to date. Gives the head of what was read.
pub(crate) fn each(
    source: &LogSource,
    state: &mut State,
    visit: &mut dyn FnMut(&mut State, Record) -> Result<Flow, Failure>,
) -> Result<Head, Failure> {
    let mut head = Head::default();
    let mut begin = |checkpoint: Option<&Checkpoint>, head: &mut Head| -> Result<(), Failure> {
        if let Some(checkpoint) = checkpoint {
            *head = Head { position: checkpoint.position, digest: checkpoint.digest };
            *state = State::from_checkpoint(&checkpoint.state)
                .map_err(|e| Failure::new(format!("{source}: checkpoint {}: {e}", checkpoint.position)))?;
        }
        Ok(())
    };
    let mut reader = match source {
        LogSource::Path(path) if !path.exists() => {
            return Err(Failure::new(format!(
                "{}: there is no log. `trainyard run` makes one in its data directory; --data-dir or --log names another",
                path.display()
            )));
        }
        LogSource::Path(path) if path.is_dir() => {
            let log = open_dir(path)?;
            begin(log.checkpoint()?.as_ref(), &mut head)?;
            for frame in log.read(log.first())? {
                let frame = frame.map_err(|e| Failure::new(format!("{source}: {e}")))?;
                if one(source, &frame, state, visit, &mut head)? == Flow::Stop {
                    break;
                }
            }
            return Ok(head);
        }
        LogSource::Path(path) => jsonl::open(path)?,
        LogSource::Server(server) => remote::open(server)?,
    };
    begin(reader.checkpoint(), &mut head)?;
    for frame in reader.by_ref() {
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
    visit: &mut dyn FnMut(&mut State, Record) -> Result<Flow, Failure>,
    head: &mut Head,
) -> Result<Flow, Failure> {
    let record = Record::decode(frame.position, frame.term, &frame.body)
        .map_err(|e| Failure::new(format!("{source}: position {}: {e}", frame.position)))?;
    *head = Head { position: frame.position, digest: frame.digest };
    visit(state, record)
}

/// Folds a log up to where `visit` stops it. `visit` sees each record and the state before it.
pub(crate) fn fold(
    source: &LogSource,
    visit: &mut dyn FnMut(&State, &Record) -> Result<Flow, Failure>,
) -> Result<State, Failure> {
    let mut state = State::default();
    each(source, &mut state, &mut |state, record| {
        let flow = visit(state, &record)?;
        if flow == Flow::Go {
            state.fold(&record)?;
        }
        Ok(flow)
    })?;
    Ok(state)
}

/// Opens a log directory for reading: the data directory of a run is as good as the log in it.
pub(crate) fn open_dir(path: &Path) -> Result<SledLog, Failure> {
    Ok(SledLog::open_copy(log_dir(path))?)
}

/// The log directory that a path means.
pub(crate) fn log_dir(path: &Path) -> std::path::PathBuf {
    let inner = path.join("log");
    if !path.join("current").exists() && inner.is_dir() { inner } else { path.to_owned() }
}

/// Writes a log as JSON lines, compressed when the file's name ends in `.gz`.
pub(crate) fn export(log: &dyn EventLog, to: &Path) -> Result<Head, Failure> {
    written(
        to,
        |file, packed| {
            if packed { jsonl::export_gz(log, file) } else { jsonl::export(log, file, jsonl::Digests::default()) }
        },
    )
}

/// Writes what a reader gives as JSON lines, compressed when the file's name ends in `.gz`.
pub(crate) fn copy(reader: jsonl::Reader<Box<dyn BufRead>>, to: &Path) -> Result<Head, Failure> {
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

/// Makes a log directory of an export. It appears as a whole or not at all.
pub(crate) fn import(reader: jsonl::Reader<Box<dyn BufRead>>, to: &Path) -> Result<Head, Failure> {
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
        // Closed before it gets its name.
        drop(log);
        fs::rename(&draft, &path).and_then(|()| File::open(parent)?.sync_all()).map_err(fail)?;
        Ok(head)
    };
    finish().inspect_err(|_| {
        let _ = fs::remove_dir_all(&draft);
    })
}

/// Name beside a file, for this process alone, of what is to take its place.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
